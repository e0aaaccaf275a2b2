"""Run a training script for a few steps in its own process and note how long each part takes, for profile.py.

    python -P profiler.py SCRIPT NOTES.json PASS STEPS SEED

The pass `true` reads the clock without changing the steps, and scores a few rows at its end. The pass `fenced` waits
for MLX after each phase, with mx.compile switched off, so that lazy work counts for the phase that caused it. The
script's own metrics.jsonl stays in the folder `out` below the working folder.
"""

import json
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

BUDGET_S = 24 * 3600  # never reached: the number of steps ends the run
SCORE_S = 5.0  # of longer scoring, measure a part


@dataclass
class Notes:
    """Hold readings of time.perf_counter() in seconds; parts that the script did not reach are missing."""

    marks: dict[str, float] = field(default_factory=dict)  # begun, imported, opened (the corpus)
    steps: list[float] = field(default_factory=list)  # start of each step, the compiling one included
    spans: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)  # phase → start, stop, graph_s
    scoring: dict[str, float] | None = None
    peak_gb: float | None = None
    process_gb: float | None = None

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
    run(module, [script, "--max-steps", steps, "--seed", seed, *(["--no-eval"] if fence else [])])
    note_memory(notes)
    Path(answer).write_text(json.dumps(asdict(notes)))


def run(module: ModuleType, arguments: list[str]) -> None:
    """Run the script's main() as from the command line; exit with its code if that is not 0."""
    sys.argv = [*arguments, "--budget-s", str(BUDGET_S), "--out", "out"]
    try:
        code = module.main()
    except SystemExit as ending:
        code = ending.code
    if code not in (None, 0):
        sys.exit(code)


def note_memory(notes: Notes) -> None:
    """Note the peaks of memory so far in GB; MLX's only the first time, before scoring."""
    import mlx.core as mx

    if notes.peak_gb is None:
        notes.peak_gb = mx.get_peak_memory() / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    notes.process_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


# ---- the measured functions ------------------------------------------------------------------------------------------


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
    load_data, batches, evaluate_bpb = prepare.load_data, prepare.batches, prepare.evaluate_bpb

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

    def scored(model: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        note_memory(notes)
        return score_some(prepare, evaluate_bpb, model, data, notes)

    prepare.load_data = opened  # type: ignore[attr-defined]
    if fence:
        prepare.batches = awaited  # type: ignore[attr-defined]
    else:
        prepare.evaluate_bpb = scored  # type: ignore[attr-defined]


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


# ---- scoring ---------------------------------------------------------------------------------------------------------


class Counted:
    """Wrap a model and note how many rows it gets at once."""

    def __init__(self, model: Any) -> None:
        self.model, self.rows = model, 1

    def __call__(self, tokens: Any) -> Any:
        self.rows = len(tokens)
        return self.model(tokens)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


class FirstRows:
    """Wrap a corpus so that its splits end after `rows` rows."""

    def __init__(self, prepare: ModuleType, data: Any, rows: int) -> None:
        self.prepare, self.data, self.rows = prepare, data, rows

    def split(self, name: str) -> Any:
        whole = self.data.split(name)
        return self.prepare.Tokens(whole.tokens[: self.rows * self.data.seq_len + 1], whole.offsets)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)


def score_some(prepare: ModuleType, evaluate_bpb: Callable[..., Any], model: Any, data: Any, notes: Notes) -> Any:
    """Score as many whole batches as fit in about SCORE_S seconds, and return their bits per byte."""
    counted = Counted(model)

    def timed(rows: int) -> tuple[float, Any]:
        start = time.perf_counter()
        bpb = evaluate_bpb(counted, FirstRows(prepare, data, rows))
        return time.perf_counter() - start, bpb

    timed(1)  # compiles; also shows the size of a batch, as a batch is always filled up
    all_rows = math.ceil((len(data.split("validation").tokens) - 1) / data.seq_len)
    batches = math.ceil(all_rows / counted.rows)
    one_s, bpb = timed(min(counted.rows, all_rows))
    fit = SCORE_S / one_s
    some = batches if batches < 1.5 * fit else max(1, int(fit))  # take all batches if nearly all fit
    seconds, bpb = timed(min(some * counted.rows, all_rows)) if some > 1 else (one_s, bpb)
    notes.scoring = {
        "seconds": seconds,
        "batches": some,
        "of_batches": batches,
        "rows": counted.rows,
        "of_rows": all_rows,
    }
    return bpb


if __name__ == "__main__":
    main(*sys.argv[1:])
