"""Continue a text with a run's weights, in a sandbox beside the committed script and the fixed files.

    python sampler.py SCRIPT WEIGHTS COUNT TEMPERATURE SEED      prompt.npy (P,) → tokens.u16

It runs the script's own code, and ends early where the model ends the document.
"""

import importlib
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

SHORTEST = 64  # positions: contexts are filled up to this or a power of two above it, since new shapes are compiled


def main(script: str, weights: str, count: str, temperature: str, seed: str) -> None:
    """Write the tokens, two bytes each."""
    from agent.lab import hardware

    hardware.tune()  # MLX must not be imported yet
    import prepare

    data = prepare.load_data(verify=False)
    model = importlib.import_module("scorer").load_script(Path(script)).load_model(weights)
    tokens = continuation(model, np.load("prompt.npy").tolist(), data, float(temperature), int(seed))
    np.array([*islice(tokens, int(count))], np.uint16).tofile("tokens.u16")


def continuation(model: Any, prompt: Sequence[int], data: Any, temperature: float, seed: int) -> Iterator[int]:
    """Yield the tokens after the prompt, BOS last if the document ends; temperature 0 takes the likeliest."""
    rng, tokens = np.random.default_rng(seed), list(prompt)
    while True:
        logits = next_logits(model, tokens[-data.seq_len :], data)
        if temperature > 0:
            logits = logits / temperature + rng.gumbel(size=logits.shape)  # the largest is then a draw from the softmax
        tokens.append(int(np.argmax(logits)))
        yield tokens[-1]
        if tokens[-1] == data.bos:
            return


def next_logits(model: Any, context: Sequence[int], data: Any) -> np.ndarray:  # (V,)
    """Return the logits after a context; it is filled up at its end, where the model does not look."""
    import mlx.core as mx

    filled = min(data.seq_len, max(SHORTEST, 1 << (len(context) - 1).bit_length()))
    row = np.full((1, filled), data.bos, np.int32)
    row[0, : len(context)] = context
    return np.array(model(mx.array(row))[0, len(context) - 1].astype(mx.float32), np.float64)


if __name__ == "__main__":
    main(*sys.argv[1:])
