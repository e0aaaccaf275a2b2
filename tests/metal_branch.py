"""Run what a Mac runs, on the device of this machine, and print as JSON how far it is from float32.

    NIGHTSHIFT_PRESET=metal python tests/metal_branch.py

Every public operation of agent/lab/kernels takes the branch of a Mac: plain MLX between bfloat16 arrays. The script's
own step trains a small model with the dials of the Metal preset, once in their dtype and once in float32.
"""

import json
import sys
from itertools import repeat

from agent.lab import hardware

hardware.tune()

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402

import train_mlx  # noqa: E402
from agent.lab import kernels  # noqa: E402
from agent.lab.kernels import check  # noqa: E402
from agent.lab.operations import OPERATIONS  # noqa: E402

T, C, V, H = 32, 64, 96, 2
STEPS = 6
ROWS = train_mlx.BATCH_ROWS


def losses(dtype: mx.Dtype) -> list[float]:
    """Return the losses of the script's own step, which learns one batch by heart."""
    train_mlx.DTYPE = dtype
    mx.random.seed(0)
    windows = (T // 2, T)
    model = train_mlx.GPT(train_mlx.GPTConfig(V, T, 2, C, H, H, windows, 4, 15.0, 10000.0))
    params = dict(tree_flatten(model.trainable_parameters()))
    optimizer = train_mlx.MuonAdamW(params, C)
    step, state, losses = train_mlx.make_step(model, optimizer), optimizer.init(params), []
    batches = repeat(np.array(check.tokens(4, T + 1)))
    for number in range(STEPS):
        params, state, loss = step(params, state, batches, train_mlx.schedule(number, number / STEPS))
        losses.append(loss.item())
    return losses


def model_of(depth: int, width: int, heads: int, seq_len: int, vocab_size: int) -> train_mlx.GPT:
    letters = [train_mlx.WINDOW_PATTERN[i % len(train_mlx.WINDOW_PATTERN)] for i in range(depth - 1)] + ["L"]
    windows = tuple({"S": seq_len // 2, "L": seq_len}[letter] for letter in letters)
    return train_mlx.GPT(train_mlx.GPTConfig(vocab_size, seq_len, depth, width, heads, heads, windows, 4, 15.0, 1e4))


def batches_that_fit(depth: int, limits_gb: list[float]) -> list[tuple[int, int, float] | str]:
    """Return for each limit the rows and micro-steps of a step of the Metal preset, and the gigabytes that it needs."""
    model, sizes = model_of(depth, 64 * depth, depth, 1024, 8192), []  # the weights are never evaluated
    for limit_gb in limits_gb:
        train_mlx.BATCH_ROWS, train_mlx.MICRO_STEPS = ROWS, 1
        try:
            train_mlx.fit_into_memory(model, limit_gb)
        except train_mlx.Refused as error:
            sizes.append(str(error))
        else:
            needed_gb = sum(train_mlx.gigabytes_of_a_step(model).values())
            sizes.append((train_mlx.BATCH_ROWS, train_mlx.MICRO_STEPS, round(needed_gb, 2)))
    return sizes


def peak_and_estimate(seq_len: int) -> tuple[float, float]:
    """Return the megabytes that a step fills, most of them attention scores, and those that were estimated."""
    train_mlx.BATCH_ROWS, train_mlx.MICRO_STEPS, train_mlx.COMPILE = 4, 1, False
    model = model_of(2, 32, 2, seq_len, 32)
    params = dict(tree_flatten(model.trainable_parameters()))
    optimizer = train_mlx.MuonAdamW(params, 32)
    mx.eval(params, state := optimizer.init(params))
    mx.reset_peak_memory()
    mx.eval(train_mlx.make_step(model, optimizer)(params, state, repeat(np.zeros((4, seq_len + 1), np.int32)),
                                                  train_mlx.schedule(0, 0.0)))  # fmt: skip
    return mx.get_peak_memory() / 1e6, 1e3 * sum(train_mlx.gigabytes_of_a_step(model).values())


def outgrown_gb() -> list[float | None]:
    """Return what is said of a peak of 0.4 GB, where little and where enough was estimated."""
    mx.eval(mx.zeros(10**8))
    return [hardware.outgrown_gb(estimated_gb) for estimated_gb in (0.05, 0.2)]


def main() -> int:
    public = {"norm", *OPERATIONS}
    assert public == set(check.CASES), f"no case for {sorted(public ^ set(check.CASES))}"
    preset = {
        "dtype": str(train_mlx.DTYPE), "compile": train_mlx.COMPILE, "batch_rows": train_mlx.BATCH_ROWS,
        "depth": train_mlx.DEPTH, "kernels": kernels.kernel_device() is not None,
    }  # fmt: skip
    errors = {name: check.worst_error(name, train_mlx.DTYPE) for name in check.CASES}
    dtype = train_mlx.DTYPE
    here = losses(dtype), losses(mx.float32)
    train_mlx.DTYPE = dtype
    fits = {depth: batches_that_fit(depth, json.loads(sys.argv[1])) for depth in (6, 12)} if sys.argv[1:] else {}
    report = {
        "preset": preset, "errors": errors, "losses": here[0], "losses_float32": here[1], "fits": fits,
        "peak_mb": peak_and_estimate(512), "outgrown_gb": outgrown_gb(),
    }  # fmt: skip
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
