"""Run a training script for a few steps in its own process, and note how long each phase of a step takes.

    python -P profiler.py SCRIPT STEPS SEED BUDGET_S UNTIL_S     → notes.json: phase → its begins and ends, in seconds

It works in the folder of a run, and waits for MLX after each phase, with mx.compile switched off, so that lazy work
counts for the phase that caused it. Then, until UNTIL_S seconds have passed, it leaves one operation's kernel aside
after the other, and notes the steps under `plain` and the operation's name.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

PLAIN_STEPS = "4"  # steps without one kernel
spans: dict[str, list[tuple[float, float]]] = {}  # phase → begins and ends, in seconds of one clock


def main(script: str, steps: str, seed: str, budget_s: str, until_s: str) -> None:
    until = time.perf_counter() + float(until_s)
    sys.path.insert(0, str(Path.cwd()))
    from agent.lab import hardware

    hardware.tune()  # MLX must not be imported yet
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
    options = ["--seed", seed, "--no-eval", "--budget-s", budget_s, "--out", "out"]
    sys.argv = [script, "--max-steps", steps, *options]
    try:
        code = module.main()
    except SystemExit as ending:
        code = ending.code
    if code not in (None, 0):
        sys.exit(code)
    notes = dict(spans)
    sys.argv = [script, "--max-steps", PLAIN_STEPS, *options]
    with suppress(Exception, SystemExit):  # a step without a kernel may need more memory than there is
        for operation, ends in without_kernels(module, until):
            notes[f"plain {operation}"] = ends
    Path("notes.json").write_text(json.dumps(notes), encoding="utf-8")


def without_kernels(module: Any, until: float) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield each operation that the script runs by a kernel, and the optimizer's spans of a run without that kernel."""
    from agent.lab.kernels import plain, twins
    from agent.lab.operations import OPERATIONS

    longest_s = 0.0
    for name in OPERATIONS:
        start = time.perf_counter()
        if getattr(module, name, None) is not getattr(twins, name) or start + longest_s > until:
            continue
        spans.clear()
        setattr(module, name, getattr(plain, name))
        module.main()
        setattr(module, name, getattr(twins, name))
        longest_s = max(longest_s, time.perf_counter() - start)
        yield name, spans.get("optimizer", [])


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
