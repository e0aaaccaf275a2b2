"""Compute losses or logits from a run's weights, in a sandbox beside the committed script and the fixed files.

    python scorer.py losses SCRIPT WEIGHTS      inputs.npy, targets.npy (R, T) → losses.f32 (R, T), in nats
    python scorer.py logits SCRIPT WEIGHTS      inputs.npy (K, T), positions.npy (K,) → logits.f32 (K, V)

It runs the script's own code. Its losses are trusted only after its other mode, in another process, confirms them.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


def main(kind: str, script: str, weights: str) -> None:
    """Write losses.f32 or logits.f32 for the rows in inputs.npy."""
    from agent.lab import hardware

    hardware.tune()  # MLX must not be imported yet
    import prepare

    data = prepare.load_data(verify=False)
    inputs = np.load("inputs.npy")
    model = load_script(Path(script)).load_model(weights)
    rows = prepare.rows_at_once(data)
    with Path(f"{kind}.f32").open("wb") as file:
        parts = losses(model, inputs, rows, data) if kind == "losses" else logits(model, inputs, rows, data)
        for part in parts:
            file.write(np.ascontiguousarray(part, np.float32).tobytes())


def losses(model: Any, inputs: np.ndarray, rows: int, data: Any) -> Iterator[np.ndarray]:
    """Yield the cross-entropies (B, T) of the rows in nats, a batch at a time."""
    import prepare

    targets = np.load("targets.npy")
    for at in range(0, len(inputs), rows):
        yield prepare.token_losses(model, inputs[at : at + rows], targets[at : at + rows], rows, data)


def logits(model: Any, inputs: np.ndarray, rows: int, data: Any) -> Iterator[np.ndarray]:
    """Yield the logits (B, V) at one position of each row, in batches of the same shape as for the losses."""
    import mlx.core as mx

    import prepare

    positions = np.load("positions.npy").tolist()
    for at in range(0, len(inputs), rows):
        batch = inputs[at : at + rows]
        computed = prepare.checked_logits(model, batch, rows, data)  # (rows, T, V)
        # slices, since compiling a kernel for a gather takes seconds on a GPU
        chosen = [computed[row, position] for row, position in enumerate(positions[at : at + rows])]
        yield np.array(mx.stack(chosen).astype(mx.float32))


def load_script(path: Path) -> ModuleType:
    """Import a training script as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    assert spec is not None  # the name ends in .py, so there is a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
