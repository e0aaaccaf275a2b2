"""What the benchmarks share: one command line, one door for errors, processes watched from outside, tables, flat JSON.

Importing it puts the repository and its tests on the path, so `import measure` comes before `import prepare`.

    python benchmarks/measure.py train_mlx.py

prints what a training script would train here as one JSON line: its dials, its model, the corpus, the device. It is
asked in a separate process, so that a program that measures loads neither MLX nor the device.
"""

from __future__ import annotations

import argparse
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "benchmarks"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import prepare  # noqa: E402
from agent.errors import NightshiftError  # noqa: E402
from agent.lab.corpus import DataError  # noqa: E402
from agent.lab.hardware import usable_cores  # noqa: E402
from agent.script.dials import set_dials  # noqa: E402

SCRIPT = ROOT / "train_mlx.py"
TAIL_LINES = 12  # of a failed program's output, for the message
Result = TypeVar("Result")
Flat = dict[str, float | int | str | None]  # what --json writes
Figures = dict[str, float | None]  # of one run


class Misuse(Exception):
    """Say what to change on the command line or the machine, which does not allow this (exit code 2)."""


class Failed(Exception):
    """Say that a measured program failed, with its last lines (exit code 1)."""


# ---- the command line of a benchmark ---------------------------------------------------------------------------------


def above_zero(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Return a type of argparse that refuses what is not above zero."""

    def number(text: str) -> float:
        if not 0 < kind(text) < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not above zero")
        return kind(text)

    return number


@dataclass(frozen=True)
class Option:
    """Describe an option: what it means, its default, and its default with --quick where that is another.

    A default that is False makes a flag, a list takes several words; a number is above zero where its default is.
    """

    about: str
    default: Any = None
    quick: Any = None
    kind: Callable[[str], Any] | None = None  # of each word
    choices: Iterable[str] | None = None

    def add_to(self, parser: argparse.ArgumentParser, name: str) -> None:
        flag = f"--{name.replace('_', '-')}"
        if self.default is False:
            parser.add_argument(flag, action="store_true", help=self.about)
            return
        examples = [default for default in (self.default, self.quick) if default is not None]
        defaults = [" ".join(map(str, each)) if isinstance(each, list) else str(each) for each in examples]
        about = f"{self.about} (default: {'; quick: '.join(defaults)})" if any(defaults) else self.about
        example: Any = examples[0] if examples else ""
        several: dict[str, Any] = {"nargs": "+", "action": "extend"} if isinstance(example, list) else {}
        if several:
            example = example[0] if example else ""
        is_count = isinstance(example, int | float)
        kind = self.kind or (above_zero(type(example)) if is_count and example else type(example))
        metavar = None if self.choices else "N" if is_count else "WORD"
        parser.add_argument(flag, type=kind, choices=self.choices, metavar=metavar, help=about, **several)


PROCESSES = Option("how many at a time, as many as there are cores; taskset limits them", usable_cores())


@dataclass(frozen=True)
class Program:
    """Describe a benchmark: what it measures, and its options."""

    about: str | None  # its docstring
    compare: Callable[[argparse.Namespace, Path], Flat]  # with a folder to work in
    title: str  # of the table of its figures; empty where it prints its own
    options: Mapping[str, Option] = field(default_factory=dict)
    falls_short: Callable[[Flat], bool] = lambda flat: False

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Return the options of a command line, those that were not given with their defaults."""
        parser = argparse.ArgumentParser(
            description=self.about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        for name, option in self.options.items():
            option.add_to(parser, name)
        parser.add_argument("--quick", action="store_true", help="a short form that touches every mechanism once")
        parser.add_argument("--folder", type=Path, metavar="DIR", help="work here, and keep it (default: removed)")
        parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
        args = parser.parse_args(argv)
        for name, option in self.options.items():
            if getattr(args, name) is None:
                quick = args.quick and option.quick is not None
                setattr(args, name, option.quick if quick else option.default)
        return args

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Measure, print and write; return 1 where it falls short or a measured program failed, 2 for misuse."""
        args = self.parse(argv)
        program = Path(sys.modules[self.compare.__module__].__file__ or "").stem
        try:
            check_writable(args.json)
            with work_folder(args.folder) as folder:
                flat = self.compare(args, folder)
            if self.title:
                print_table(self.title, flat)
            write_json(args.json, flat)
            return int(self.falls_short(flat))
        except (Misuse, DataError, NightshiftError, Failed) as error:
            say(f"{program}: {error}")
            return 1 if isinstance(error, Failed) else 2
        except KeyboardInterrupt:
            say(f"{program}: interrupted")
            return 130


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


# ---- numbers, tables, files ------------------------------------------------------------------------------------------


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


def standard_error(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def print_table(title: str, flat: Flat) -> None:
    """Print every key with its figure."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right", overflow="fold")
    for key, figure in flat.items():
        form = ",.4g" if isinstance(figure, float) else "," if isinstance(figure, int) else ""
        table.add_row(key, "" if figure is None else format(figure, form))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def write_json(path: Path | None, flat: Flat) -> None:
    if path is not None:
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in flat.items()}
        path.write_text(json.dumps(rounded, indent=2) + "\n")


def check_writable(path: Path | None) -> None:
    """Raise Misuse for a --json that could not be written after all the measuring."""
    if path is not None and (path.is_dir() or not os.access(path.absolute().parent, os.W_OK)):
        raise Misuse(f"--json {path} cannot be written: name a file in a folder that exists")


# ---- one process, watched from outside -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched:
    """Hold a finished program. `lines` are its output's, each with the seconds after the start at which it came."""

    seconds: float
    lines: tuple[tuple[float, str], ...]
    peak_rss_gb: float
    cpu_s: float  # with the processes that it waited for

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)


def watch(command: Sequence[str | Path], *, env: dict[str, str], cwd: Path, limit_s: float) -> Watched:
    """Run a program to its end and time what it prints. Raise Failed when it fails or outlasts the limit."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(part) for part in command], cwd=cwd, env=env, text=True, errors="replace", bufsize=1,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    lines: list[tuple[float, str]] = []
    reader = threading.Thread(target=read_lines, args=[process.stdout, start, lines])
    timer = threading.Timer(limit_s, end_group, [process.pid])
    reader.start()
    timer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)  # of this process alone: compilers that it started may live on
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        timer.cancel()
        end_group(process.pid)
        reader.join()
    if process.returncode != 0:
        why = "was still running at its limit" if seconds >= limit_s else f"ended with exit code {process.returncode}"
        words = "\n    ".join(line for _, line in lines[-TAIL_LINES:] if line.strip()) or "(it said nothing)"
        raise Failed(f"{' '.join(map(str, command))}\n  {why}; its last lines:\n    {words}")
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return Watched(seconds, tuple(lines), usage.ru_maxrss * unit / 1e9, usage.ru_utime + usage.ru_stime)


def read_lines(stream: IO[str], start: float, lines: list[tuple[float, str]]) -> None:
    with stream:
        lines.extend((time.perf_counter() - start, line.rstrip("\n")) for line in stream)


def end_group(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.killpg(pid, signal.SIGKILL)


def with_path() -> dict[str, str]:
    """Return this environment, the repository first on Python's path."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


# ---- training scripts ------------------------------------------------------------------------------------------------


def after_the_first_few(rows: list[Any]) -> list[Any]:
    """Leave out the first third, of at most five: the first steps of a process still meet cold caches and clocks."""
    return rows[min(5, len(rows) // 3) :]


def overwritten(script: Path, settings: Sequence[str], folder: Path, **on_cpu: int) -> Path:
    """Return the script, or a copy in `folder` with constants overwritten as `settings` say, each NAME=VALUE.

    on_cpu gives values to dials that a CPU alone has otherwise (`by_device`).
    """
    source = edited = script.read_text()
    try:
        values = {name: ast.literal_eval(text) for name, text in (setting.split("=", 1) for setting in settings)}
        edited = set_dials(edited, "cpu", on_cpu)
        for kind in ("cpu", "metal", "cuda"):
            edited = set_dials(edited, kind, values)
    except (ValueError, SyntaxError, NightshiftError) as error:
        named = f"--set {' '.join(settings)}"
        raise Misuse(f"{named}: {error}; write NAME=VALUE, a constant of {script.name} and its value") from error
    if edited == source:
        return script
    copy = folder / script.name
    copy.write_text(edited)
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
