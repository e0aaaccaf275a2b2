"""Run a training script for a few steps in its own process and note how long each part takes, for profile.py.

    python -P profiler.py SCRIPT NOTES.json PASS STEPS SEED

The pass `true` reads the clock without changing the steps. The pass `fenced` waits for MLX after each phase, with
mx.compile switched off, so that lazy work counts for the phase that caused it. The script's own metrics.jsonl stays in
the folder `out` below the working folder. The notes are those of phases.Notes.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

BUDGET_S = 24 * 3600  # never reached: the number of steps ends the run


class Notes:
    """Collect readings of time.perf_counter() in seconds."""

    def __init__(self) -> None:
        self.marks: dict[str, float] = {}
        self.steps: list[float] = []
        self.spans: dict[str, list[tuple[float, float, float]]] = {}

    def mark(self, name: str) -> None:
        self.marks.setdefault(name, time.perf_counter())

    def span(self, phase: str, start: float, graph_s: float = 0.0) -> None:
        """Note a span of a phase that ends now; for graph_s of it Python built the graph."""
        self.spans.setdefault(phase, []).append((start, time.perf_counter(), graph_s))


def main(script: str, answer: str, which: str, steps: str, seed: str) -> None:
    """Run one pass over a script and write its notes as JSON to the file `answer`."""
    notes = Notes()
    notes.mark("begun")
    # the script's own prepare.py comes first; the harness last, should it not be installed
    sys.path[:] = [str(Path(script).parent), *sys.path, str(Path(__file__).parents[2])]
    from agent.lab import hardware

    hardware.tune()  # before anything imports MLX
    import mlx.core as mx
    import mlx.nn  # noqa: F401  (it calls mx.compile when imported, so import it before mx.compile is replaced)

    import prepare
    from agent.runs.scorer import load_script

    fence = Fence(mx, notes) if which == "fenced" else None
    watch_prepare(prepare, notes, fence)
    module = load_script(Path(script))
    watch_script(module, notes, fence)
    notes.mark("imported")
    options = ["--max-steps", steps, "--seed", seed, "--no-eval", "--budget-s", str(BUDGET_S), "--out", "out"]
    sys.argv = [script, *options]
    try:
        code = module.main()
    except SystemExit as ending:
        code = ending.code
    if code not in (None, 0):
        sys.exit(code)
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    process_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
    memory = {"peak_gb": mx.get_peak_memory() / 1e9, "process_gb": process_gb}
    Path(answer).write_text(json.dumps(vars(notes) | memory))


class Fence:
    """Make functions of MLX arrays wait for their results, and disable mx.compile, which would hide the phases."""

    def __init__(self, mx: Any, notes: Notes) -> None:
        self.notes = notes
        self.evaluate = mx.eval
        self.evaluations = 0
        value_and_grad = mx.value_and_grad
        mx.value_and_grad = lambda *args, **kwargs: self.around("forward_backward", value_and_grad(*args, **kwargs))
        mx.compile = lambda function, *args, **kwargs: function
        mx.eval = self.counted

    def counted(self, *arrays: Any) -> None:
        self.evaluations += 1
        self.evaluate(*arrays)

    def around(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its result is evaluated and its time noted for a phase."""

        def fenced(*args: Any, **kwargs: Any) -> Any:
            start, evaluations = time.perf_counter(), self.evaluations
            result = function(*args, **kwargs)
            # if a kernel evaluated its inputs meanwhile, time for the graph and for arithmetic cannot be separated
            graph_s = time.perf_counter() - start if evaluations == self.evaluations else 0.0
            self.evaluate(result)
            self.notes.span(phase, start, graph_s)
            return result

        return fenced


def watch_prepare(prepare: ModuleType, notes: Notes, fence: Fence | None) -> None:
    """Replace functions of prepare.py with ones that note their times."""
    load_data, batches = prepare.load_data, prepare.batches

    def opened(*args: Any, **kwargs: Any) -> Any:
        data = load_data(*args, **kwargs)
        notes.mark("opened")
        return data

    def awaited(*args: Any, **kwargs: Any) -> Iterator[Any]:
        made = batches(*args, **kwargs)
        while True:
            start = time.perf_counter()
            batch = next(made)
            notes.span("data", start)
            yield batch

    prepare.load_data = opened  # type: ignore[attr-defined]
    if fence:
        prepare.batches = awaited  # type: ignore[attr-defined]


def watch_script(module: ModuleType, notes: Notes, fence: Fence | None) -> None:
    """Replace functions of the script with ones that note their times; skip those that an edit has removed."""
    if make_step := getattr(module, "make_step", None):

        def made(*args: Any, **kwargs: Any) -> Callable[..., Any]:
            step = make_step(*args, **kwargs)

            def begun(*args: Any, **kwargs: Any) -> Any:
                notes.steps.append(time.perf_counter())
                return step(*args, **kwargs)

            return begun

        module.make_step = made  # type: ignore[attr-defined]
    optimizer: Any = getattr(module, "MuonAdamW", None)
    if fence and (update := getattr(optimizer, "update", None)):
        optimizer.update = fence.around("optimizer", update)


if __name__ == "__main__":
    main(*sys.argv[1:])
