"""What the benchmarks share: one command line, one door for errors, processes watched from outside, tables, flat JSON.

Importing it puts the repository and its tests on the path, so `import measure` comes before `import prepare`.

    python benchmarks/measure.py train_mlx.py

prints what a training script would train here as one JSON line: its dials, its model, the corpus, the device. It is
asked in a separate process, so that a program that measures loads neither MLX nor the device.
"""

import ast
import importlib.util
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar

import numpy as np
from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "benchmarks"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import prepare  # noqa: E402
from agent.cli.options import read_by  # noqa: E402
from agent.errors import NightshiftError  # noqa: E402
from agent.lab.corpus import DataError, Scale  # noqa: E402
from agent.lab.hardware import usable_cores  # noqa: E402
from agent.lab.numbers import decimal, whole  # noqa: E402
from agent.script.dials import set_dials  # noqa: E402

SCRIPT = ROOT / "train_mlx.py"
SMALL = Scale("small", seq_len=128, vocab_size=512, eval_tokens=16384)
Result = TypeVar("Result")
Chosen = TypeVar("Chosen")
Flat = dict[str, float | int | str | None]  # numbers as --json writes them
Figures = dict[str, float | None]  # numbers of one run


class Misuse(Exception):
    """Say what to change on the command line or the machine, which does not allow this (exit code 2)."""


class Failed(Exception):
    """Say that a measured program failed, with its last lines (exit code 1)."""


# ---- the command line of a benchmark ---------------------------------------------------------------------------------

Count = Annotated[int, read_by(whole())]
CountFromZero = Annotated[int, read_by(whole(0))]
Seconds = Annotated[float, read_by(decimal())]
Folder = Annotated[Path, Parameter(parse=False)]  # a folder to work in
Quick = Annotated[bool, Parameter(parse=False)]  # was --quick given?
WORDS = Parameter(negative=(), consume_multiple=True)  # an option may have several; a flag has no opposite
WIDE = Console(width=120)  # docstrings have 120 columns as well
CORES = usable_cores()


def program(
    falls_short: Callable[[Flat], bool] = lambda flat: False, /, *, prints: bool = True, **when_quick: Any
) -> Callable[[Callable[..., Flat]], Callable[..., int]]:
    """Make a command line of a function that measures: its parameters are the options, beside those of all programs.

    when_quick: values of options with --quick; prints: the figures, beside what the function prints itself. The
    command line returns an exit code: 1 where the figures fall short or a measured program failed, 2 for misuse.
    """

    def decorate(measured: Callable[..., Flat]) -> Callable[..., int]:
        module = sys.modules[measured.__module__]
        name = Path(module.__file__ or "").stem
        app = App(
            help=module.__doc__, version_flags=(), console=WIDE, default_parameter=WORDS, result_action="return_value"
        )
        app.default(measured)

        @app.meta.default
        def run(
            *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
            quick: bool = False,
            json: Path | None = None,
            folder: Path | None = None,
        ) -> int:
            """Work in a folder, and show or write figures.

            Args:
                quick: a short form that touches every mechanism once
                json: write the figures as flat keys into this file
                folder: work here, and keep it (default: removed)
            """
            _, options, unparsed = app.parse_args(words, print_error=False, exit_on_error=False)
            if json is not None and (json.is_dir() or not os.access(json.absolute().parent, os.W_OK)):
                raise Misuse(f"--json {json} cannot be written: name a file in a folder that exists")
            with work_folder(folder) as own:
                shared = {name: {"folder": own, "quick": quick}[name] for name in unparsed}
                flat = measured(**{**(when_quick if quick else {}), **options.arguments, **shared})
            if prints:
                print(as_json(flat))
            if json is not None:
                json.write_text(f"{as_json(flat)}\n", encoding="utf-8")
            return int(falls_short(flat))

        def main(argv: Sequence[str] | None = None) -> int:
            try:
                return app.meta(argv, print_error=False, exit_on_error=False) or 0
            except (CycloptsError, Misuse, DataError, NightshiftError, Failed) as error:
                say(f"{name}: {error}")
                return 1 if isinstance(error, Failed) else 2

        main.__wrapped__ = measured  # type: ignore[attr-defined]  # whose parameters are its options
        return main

    return decorate


def chosen(every: Mapping[str, Chosen], names: Sequence[str]) -> list[Chosen]:
    """Return what --only names, all where it names nothing; raise Misuse for a name that there is not."""
    if unknown := set(names) - every.keys():
        raise Misuse(f"--only {min(unknown)!r}: choose from {', '.join(every)}")
    return [each for name, each in every.items() if not names or name in names]


def in_parallel(processes: int, function: Callable[..., Result], jobs: Iterable[tuple[Any, ...]]) -> list[Result]:
    """Return what a function makes of each job, a tuple of its arguments, in the order of the jobs."""
    with ProcessPoolExecutor(processes) as pool:
        return [job.result() for job in [pool.submit(function, *job) for job in jobs]]


@contextmanager
def work_folder(kept: Path | None) -> Iterator[Path]:
    """Yield a folder for caches, curves and logs: the one named, made if need be, or one that is removed at the end."""
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"the folder {kept} cannot be made ({error.strerror}): name another") from error
    yield kept.resolve()


# ---- numbers and files ------------------------------------------------------------------------------------------


def median(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.median(numbers) if numbers else None


def ratio(above: object, below: object) -> float | None:
    """Return the quotient of two figures; None where one is missing or the lower one is zero."""
    if isinstance(above, int | float) and isinstance(below, int | float) and below:
        return above / below
    return None


def side_by_side(runs: Mapping[str, Sequence[Figures]], ratios: Sequence[str]) -> Flat:
    """Return the medians over the runs of each contestant, the first without its name in front of the keys.

    ratios: keys of which the first's figure over that of each other is told, as ratio_NAME_KEY.
    """
    flat: Flat = {}
    for place, (name, each) in enumerate(runs.items()):
        prefix = f"{name.replace('-', '_')}_" if place else ""
        keys = dict.fromkeys(key for figures in each for key in figures)
        flat |= {prefix + key: median(figures.get(key) for figures in each) for key in keys}
        if place:
            flat |= {f"ratio_{prefix}{key}": ratio(flat.get(key), flat[prefix + key]) for key in ratios}
    return flat


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def as_json(flat: Flat) -> str:
    rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in flat.items()}
    return json.dumps(rounded, indent=2)


# ---- one process, watched from outside -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched:
    """A finished program. `lines` are its output's, each with the seconds after the start at which it came."""

    seconds: float
    lines: tuple[tuple[float, str], ...]
    peak_rss_gb: float
    cpu_s: float  # s of processor time, including processes that it waited for

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)


def watch(command: Sequence[str | Path], *, env: dict[str, str], cwd: Path, limit_s: float) -> Watched:
    """Run a program to its end and time what it prints. Raise Failed when it fails or outlasts the limit."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(part) for part in command], cwd=cwd, env=env, encoding="utf-8", errors="replace", bufsize=1,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    lines: list[tuple[float, str]] = []
    reader = threading.Thread(target=read_lines, args=[process.stdout, start, lines])
    timer = threading.Timer(limit_s, end_group, [process.pid])
    reader.start()
    timer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)  # usage of this process only: compilers that it started may live on
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        timer.cancel()
        end_group(process.pid)
        reader.join()
    if process.returncode != 0:
        why = "was still running at its limit" if seconds >= limit_s else f"ended with exit code {process.returncode}"
        words = "\n    ".join(line for _, line in lines[-12:] if line.strip()) or "(it said nothing)"
        raise Failed(f"{' '.join(map(str, command))}\n  {why}; its last lines:\n    {words}")
    unit = 1 if sys.platform == "darwin" else 1024  # unit of ru_maxrss
    return Watched(seconds, tuple(lines), usage.ru_maxrss * unit / 1e9, usage.ru_utime + usage.ru_stime)


def read_lines(stream: IO[str], start: float, lines: list[tuple[float, str]]) -> None:
    with stream:
        lines.extend((time.perf_counter() - start, line.rstrip("\n")) for line in stream)


def end_group(pid: int) -> None:
    with suppress(ProcessLookupError):  # the process may just have ended
        os.killpg(pid, signal.SIGKILL)


def with_path() -> dict[str, str]:
    """Return this environment, the repository first on Python's path."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


# ---- training scripts ------------------------------------------------------------------------------------------------


def after_the_first_few(rows: list[Any]) -> list[Any]:
    """Leave out the first third, of at most five: the first steps of a process still meet cold caches and clocks."""
    return rows[min(5, len(rows) // 3) :]


def overwritten(script: Path, settings: Sequence[str], folder: Path) -> Path:
    """Return the script, or a copy in `folder` with constants overwritten as `settings` say, each NAME=VALUE."""
    source = edited = script.read_text(encoding="utf-8")
    try:
        values = {name: ast.literal_eval(text) for name, text in (setting.split("=", 1) for setting in settings)}
        for kind in ("cpu", "metal", "cuda"):
            edited = set_dials(edited, kind, values)
    except (ValueError, SyntaxError, NightshiftError) as error:
        named = f"--set {' '.join(settings)}"
        raise Misuse(f"{named}: {error}; write NAME=VALUE, a constant of {script.name} and its value") from error
    if edited == source:
        return script
    copy = folder / script.name
    copy.write_text(edited, encoding="utf-8")
    return copy


def fresh_caches(caches: Path, data: Path, **more: str) -> dict[str, str]:
    """Return the environment of a measured program: this corpus, and all caches of compiled kernels in `caches`."""
    env = {**with_path(), **more, "NIGHTSHIFT_DATA": str(data), "PYTHONUNBUFFERED": "1"}
    env.pop("MLX_PTX_CACHE_DIR", None)  # MLX's kernels then lie in $TMPDIR/mlx
    names = ("TMPDIR", "NIGHTSHIFT_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
    for name in names:
        (caches / name.lower()).mkdir(parents=True, exist_ok=True)
        env[name] = str(caches / name.lower())
    return env


def place(facts: Mapping[str, Any]) -> Flat:
    """Return where figures were measured, by what `describe` says."""
    device, corpus = facts["device"], facts["corpus"]
    flat: Flat = {"device": device["name"], "device_kind": device["kind"], "mlx": device["mlx"]}
    return flat | {"corpus": corpus["fingerprint"], "seq_len": corpus["seq_len"]}


def describe(script: Path) -> dict[str, Any]:
    """Describe a training script and this machine; prepares the default corpus where there is none."""
    watched = watch([sys.executable, __file__, script], env=with_path(), cwd=ROOT, limit_s=1200)
    return dict(json.loads(watched.lines[-1][1]))


def described(script: Path) -> dict[str, Any]:
    """Describe a training script by importing it."""
    from agent.lab import hardware

    data = prepare.ensure_data()
    spec = importlib.util.spec_from_file_location("train_mlx", script)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["train_mlx"] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    dials = {name: value for name, value in vars(module).items() if name.isupper()}
    plain = {name: value for name, value in dials.items() if isinstance(value, bool | int | float | str | None)}
    return {
        "device": hardware.describe(),
        "corpus": {"folder": str(data.folder), "fingerprint": data.fingerprint, "seq_len": data.seq_len},
        "model": asdict(module.config_from_dials(vocab_size=data.vocab_size, seq_len=data.seq_len)),
        "dials": plain,
    }


def make_corpus(folder: Path, scale: Scale = SMALL, chars: int = 1_500_000) -> Path:
    """Prepare a small corpus of Python's standard library, and return its folder."""
    from conftest import write_library_text

    folder.mkdir(exist_ok=True)
    text = write_library_text(folder / "library.txt", chars)
    return prepare.prepare(str(text), scale, cache=folder / "cache", workers=1)


def bits_per_byte(losses_of: Callable[[Any, Any], Any], data: Any, *, rows: int, split: str = "validation") -> float:
    """Return prepare.evaluate_bpb for models of any library: the same text, the same count of bytes.

    losses_of takes inputs and targets, both (rows, T) int32, and returns cross-entropies in nats, (rows, T).
    """
    inputs, targets = prepare.evaluation_rows(data.split(split), data.bos, data.seq_len)
    nats = 0.0
    for at in range(0, len(inputs), rows):
        x, y = inputs[at : at + rows], targets[at : at + rows]
        missing = ((0, rows - len(x)), (0, 0))  # always as many rows: another shape would be compiled again
        losses = losses_of(*(np.pad(z, missing, constant_values=data.bos) for z in (x, y)))
        nats += float(np.asarray(losses)[: len(x)][data.token_bytes[y] > 0].sum(dtype=np.float64))
    return nats / (math.log(2) * int(data.token_bytes[targets].sum(dtype=np.int64)))


if __name__ == "__main__":
    facts = described(Path(sys.argv[1]))
    print(f"\n{json.dumps(facts)}")  # a line of its own, whatever was printed above
