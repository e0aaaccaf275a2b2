"""Run a training script for a few steps in its own process, and note how long each phase of a step takes.

    python -P profiler.py SCRIPT STEPS SEED BUDGET_S      → notes.json: phase → its begins and ends, in seconds

It works in the folder of a run, and waits for MLX after each phase, with mx.compile switched off, so that lazy work
counts for the phase that caused it.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

spans: dict[str, list[tuple[float, float]]] = {}  # phase → begins and ends, in seconds of one clock


def main(script: str, steps: str, seed: str, budget_s: str) -> None:
    sys.path.insert(0, str(Path.cwd()))
    from agent.lab import hardware

    hardware.tune()  # before anything imports MLX
    import mlx.core as mx
    import mlx.nn  # noqa: F401  (it calls mx.compile when imported, so import it before mx.compile is replaced)

    import prepare

    value_and_grad, batches = mx.value_and_grad, prepare.batches
    mx.compile = lambda function, *args, **kwargs: function
    mx.value_and_grad = lambda *args, **kwargs: fenced("forward_backward", value_and_grad(*args, **kwargs))
    prepare.batches = lambda *args, **kwargs: awaited(batches(*args, **kwargs))
    module = importlib.import_module(Path(script).stem)
    optimizer: Any = getattr(module, "MuonAdamW", None)
    if hasattr(optimizer, "update"):
        optimizer.update = fenced("optimizer", optimizer.update)
    options = ["--max-steps", steps, "--seed", seed, "--no-eval", "--budget-s", budget_s, "--out", "out"]
    sys.argv = [script, *options]
    try:
        code = module.main()
    except SystemExit as ending:
        code = ending.code
    if code not in (None, 0):
        sys.exit(code)
    Path("notes.json").write_text(json.dumps(spans), encoding="utf-8")


def fenced(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its result is evaluated, and its time noted for a phase."""
    import mlx.core as mx

    def waiting(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        mx.eval(result)
        spans.setdefault(phase, []).append((start, time.perf_counter()))
        return result

    return waiting


def awaited(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches, and note how long each was waited for."""
    while True:
        start = time.perf_counter()
        batch = next(batches)
        spans.setdefault("data", []).append((start, time.perf_counter()))
        yield batch


if __name__ == "__main__":
    main(*sys.argv[1:])
