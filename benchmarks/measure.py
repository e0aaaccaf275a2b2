"""What the benchmarks share: processes watched from outside, caches that are cold once, tables, flat JSON.

Importing it puts the repository on the path, so `import measure` comes before `import prepare`.
"""

from __future__ import annotations

import ast
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "benchmarks"
sys.path.insert(0, str(ROOT))

import prepare  # noqa: E402
from agent.errors import NightshiftError  # noqa: E402
from agent.lab.corpus import DataError  # noqa: E402
from agent.script.dials import set_dials  # noqa: E402

SCRIPT = ROOT / "train_mlx.py"

Flat = dict[str, float | int | str | None]  # what --json writes
TAIL_LINES = 12  # of a failed program's output, for the message


class Misuse(Exception):
    """The command line or the machine does not allow this; the message says what to change (exit code 2)."""


class Failed(Exception):
    """A measured program failed; the message holds its last lines (exit code 1)."""


# ---- one process, watched from outside -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched:
    """A finished program. `lines` are its output's, each with the seconds after the start at which it came."""

    seconds: float
    lines: tuple[tuple[float, str], ...]
    peak_rss_gb: float

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)


def watch(command: Sequence[str | Path], *, env: dict[str, str], cwd: Path, limit_s: float) -> Watched:
    """Run a program to its end and time what it prints. Raises Failed when it fails or outlasts the limit."""
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
        raise Failed(why_it_failed(command, process.returncode, [line for _, line in lines], seconds >= limit_s))
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return Watched(seconds, tuple(lines), usage.ru_maxrss * unit / 1e9)


def read_lines(stream: IO[str], start: float, lines: list[tuple[float, str]]) -> None:
    with stream:
        lines.extend((time.perf_counter() - start, line.rstrip("\n")) for line in stream)


def end_group(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.killpg(pid, signal.SIGKILL)


def why_it_failed(command: Sequence[str | Path], code: int, lines: list[str], was_late: bool) -> str:
    reason = "was still running at its limit" if was_late else f"ended with exit code {code}"
    said = "\n    ".join(line for line in lines[-TAIL_LINES:] if line.strip()) or "(it said nothing)"
    return f"{' '.join(str(part) for part in command)}\n  {reason}; its last lines:\n    {said}"


# ---- one training run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One training run, from outside and by the files it left."""

    wall_s: float
    start_s: float  # from the start of the process to the start of the first step that trains
    tokens_s: float  # the median over its steps, the first few left out
    mfu: float | None
    loss: float  # after the last step, smoothed
    steps: int
    peak_rss_gb: float
    summary: dict[str, Any]


def train(command: Sequence[str | Path], out: Path, *, env: dict[str, str], limit_s: float = 1200.0) -> Run:
    """Run a training script that writes metrics.jsonl and summary.json to `out`, as train_mlx.py does."""
    watched = watch([*command, "--out", out], env=env, cwd=ROOT, limit_s=limit_s)
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    settled = after_the_first_few(metrics)
    mfus = [row["mfu"] for row in settled if row.get("mfu") is not None]
    return Run(
        wall_s=watched.seconds,
        start_s=start_seconds(watched, metrics),
        tokens_s=statistics.median(row["tokens_s"] for row in settled),
        mfu=statistics.median(mfus) if mfus else None,
        loss=metrics[-1]["loss"],
        steps=len(metrics),
        peak_rss_gb=watched.peak_rss_gb,
        summary=json.loads((out / "summary.json").read_text()),
    )


def after_the_first_few(rows: list[Any]) -> list[Any]:
    """Without the first third, of at most five: the first steps of a process still meet cold caches and clocks."""
    return rows[min(5, len(rows) // 3) :]


def start_seconds(watched: Watched, metrics: list[dict[str, float]]) -> float:
    """When the line of the first step came, less the training time that it reports."""
    for at, line in watched.lines:
        if line.startswith("step "):
            return at - metrics[0]["t_s"]
    return watched.seconds - metrics[-1]["t_s"]  # it prints no steps: the end of the process is then counted too


# ---- scripts with other values ---------------------------------------------------------------------------------------


def overwritten(script: Path, settings: Sequence[str], folder: Path, **on_cpu: int) -> Path:
    """The script, or a copy in `folder` with constants overwritten as `settings` say, each NAME=VALUE.

    on_cpu gives values to dials that a CPU alone has otherwise (`by_device`).
    """
    source = edited = script.read_text()
    told = " ".join(settings)
    try:
        values = {name: ast.literal_eval(text) for name, text in (setting.split("=", 1) for setting in settings)}
        edited = set_dials(edited, "cpu", on_cpu)
        for kind in ("cpu", "metal", "cuda"):
            edited = set_dials(edited, kind, values)
    except (ValueError, SyntaxError, NightshiftError) as error:
        raise Misuse(f"--set {told}: {error}; write NAME=VALUE, a constant of {script.name} and its value") from error
    if edited == source:
        return script
    copy = folder / script.name
    copy.write_text(edited)
    return copy


# ---- environments ----------------------------------------------------------------------------------------------------


def with_path() -> dict[str, str]:
    """This environment, the repository first on Python's path."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def environment(caches: Path, data: Path, **more: str) -> dict[str, str]:
    """The environment of a measured program: this corpus, and every cache of compiled kernels inside `caches`."""
    env = {**with_path(), **more, "NIGHTSHIFT_DATA": str(data), "PYTHONUNBUFFERED": "1"}
    env.pop("MLX_PTX_CACHE_DIR", None)  # MLX's kernels then lie in $TMPDIR/mlx
    folders = {
        "TMPDIR": "tmp",
        "NIGHTSHIFT_CACHE": "nightshift",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": "triton",
        "CUDA_CACHE_PATH": "cuda",
    }
    for name, folder in folders.items():
        (caches / folder).mkdir(parents=True, exist_ok=True)
        env[name] = str(caches / folder)
    return env


@contextmanager
def work_folder(kept: Path | None) -> Iterator[Path]:
    """A folder for caches, curves and logs: the one named, made if need be, or one that is removed at the end."""
    if kept is not None:
        try:
            kept.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Misuse(f"the folder {kept} cannot be made ({error.strerror}): name another") from error
        yield kept.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="nightshift-benchmark-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def torch_python(named: Path | None) -> Path | None:
    """The interpreter named, which must have PyTorch, or else this one if it has, or None."""
    if named is not None and shutil.which(named) is None:
        raise Misuse(f"--torch-python {named} is no program that can be run: name a Python interpreter")
    python = named or Path(sys.executable)
    probe = "import importlib.util as u, sys; sys.exit(not (u.find_spec('torch') and u.find_spec('numpy')))"
    has_torch = subprocess.run([python, "-c", probe], cwd="/", env=os.environ, check=False).returncode == 0
    if named is not None and not has_torch:
        raise Misuse(f"--torch-python {named} has no PyTorch with NumPy: name an interpreter that has both")
    return python if has_torch else None


def describe(script: Path) -> dict[str, Any]:
    """Describe a training script and this machine, in a separate process: MLX and the device stay untouched here.

    Prepares the default corpus where there is none.
    """
    watched = watch([sys.executable, HERE / "describe.py", script], env=with_path(), cwd=ROOT, limit_s=1200.0)
    return json.loads(watched.lines[-1][1])


# ---- what is evaluated -----------------------------------------------------------------------------------------------


def bits_per_byte(losses_of: Callable[[Any, Any], Any], data: Any, *, rows: int, split: str = "validation") -> float:
    """prepare.evaluate_bpb for models of any library: the same text, the same count of bytes.

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


# ---- numbers, tables, files ------------------------------------------------------------------------------------------


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def show(value: float | str | None, form: str = ",.0f") -> str:
    return "" if value is None else value if isinstance(value, str) else format(value, form)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def say(text: str, stream: IO[str] | None = None) -> None:
    print(text, file=stream or sys.stderr, flush=True)


def write_json(path: Path | None, flat: Flat) -> None:
    if path is not None:
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in flat.items()}
        path.write_text(json.dumps(rounded, indent=2) + "\n")


def check_writable(path: Path | None) -> None:
    """Minutes of measuring must not end in a file that cannot be written."""
    if path is not None and (path.is_dir() or not os.access(path.absolute().parent, os.W_OK)):
        raise Misuse(f"--json {path} cannot be written: name a file in a folder that exists")


def reported(args: Any, compare: Callable[[Any], Flat], show: Callable[[Any, Flat], None]) -> int:
    """Measure, print and write what --json names, once it is known that it can be written; return the exit code."""
    check_writable(args.json)
    flat = compare(args)
    show(args, flat)
    write_json(args.json, flat)
    return 0


def guarded(program: str, body: Callable[[], int]) -> int:
    """The one door for errors: 2 with a sentence for misuse, 1 for a measured program that failed, 130 for Ctrl-C."""
    try:
        return body()
    except (Misuse, DataError, NightshiftError) as error:
        say(f"{program}: {error}")
        return 2
    except Failed as error:
        say(f"{program}: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"{program}: interrupted")
        return 130
