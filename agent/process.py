"""A child process under the harness's clock: in its own folder and session, with a scrubbed environment.

What the child does to its folder is its own affair: nothing that it deletes, replaces or writes there may hold up or
end the harness.
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent.experiment import Ending, Night, Progress, Run

GRACE_S = 2.0  # between SIGTERM and SIGKILL
POLL_S = 0.05
LOG_CAP_BYTES, LOG_HEAD_BYTES, LOG_TAIL_BYTES = 8 << 20, 1 << 20, 4 << 10
MAX_FILE_BYTES = 64 << 30  # a backstop against a script that fills the disk with one file
LOG, WEIGHTS = "log.txt", "out/model.safetensors"
KEEPER = Path(__file__).with_name("keeper.py")

# A training script sees where programs, libraries, caches and devices are, and nothing that could be a key.
ENV_LIBRARIES = frozenset({"PATH", "CC", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
ENV_PLACES = frozenset({"HOME", "USER", "LANG", "TZ", "TMPDIR", "XDG_CACHE_HOME"})
ENV_PREFIXES = ("LC_", "MLX_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "OPENBLAS_", "MKL_", "NIGHTSHIFT_")
ENV_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


@dataclass(frozen=True, slots=True)
class Outcome:
    ending: Ending
    exit_code: int | None  # -n after signal n; None when the harness ended it
    wall_s: float
    last_lines: str


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where a night's processes run, and how they are watched."""

    night: Night
    folder: Path  # experiments/nights/<tag>
    allowance_s: float
    stopped: Callable[[], bool]  # has the user asked to end the run itself?
    progressed: Callable[[Progress | None, float], None]

    @property
    def fixed(self) -> Path:
        return self.folder / "fixed"

    @property
    def script_name(self) -> str:
        return Path(self.night.script).name

    def run_folder(self, number: int, seed: int) -> Path:
        return self.folder / "runs" / f"{number:04d}" / f"seed{seed}"

    def score_folder(self, number: int, seed: int) -> Path:
        return self.run_folder(number, seed) / "score"

    def log(self, number: int, run: Run) -> Path:
        """What the last process about this run said: its scoring, where the training ended well."""
        folder = self.score_folder if run.ending is Ending.FINISHED else self.run_folder
        return folder(number, run.seed) / LOG


def supervise(
    command: list[str],
    folder: Path,
    *,
    env: Mapping[str, str],
    limit_s: float,
    stopped: Callable[[], bool],
    tick: Callable[[float], None],
) -> Outcome:
    """Run a command in a folder, its output in folder/log.txt; when this returns, nothing of it is left running.

    The clock is the harness's own and monotonic: limit_s counts from the start of the process. stopped is asked and
    tick is told the seconds elapsed about twenty times a second.
    """
    start = time.monotonic()
    # append mode, so that the log can be cut while it is written; kept open, since a script may delete the file
    with (folder / LOG).open("a+b", buffering=0) as log:
        keeper = start_keeper(command, folder, env, log)
        ending: Ending | None = None
        try:
            while keeper.poll() is None and ending is None:
                elapsed_s = time.monotonic() - start
                ending = Ending.OVERRAN if elapsed_s > limit_s else Ending.STOPPED if stopped() else None
                tick(elapsed_s)
                cut_log(log)
                time.sleep(POLL_S)
        finally:
            end(keeper)
            cut_log(log)
        wall_s, words = time.monotonic() - start, last_lines(log)
    if ending is not None:
        return Outcome(ending, None, wall_s, words)
    code = exit_code(keeper.returncode)
    return Outcome(Ending.FINISHED if code == 0 else Ending.CRASHED, code, wall_s, words)


def start_keeper(command: list[str], folder: Path, env: Mapping[str, str], log: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(KEEPER), str(os.getpid()), str(GRACE_S), str(MAX_FILE_BYTES), *command],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def exit_code(status: int) -> int:
    """The keeper's 128 + n as -n, which is also how the keeper's own death by signal n reads; 255 stays 255."""
    return 128 - status if 128 < status <= 128 + max(signal.valid_signals()) else status


def end(process: subprocess.Popen[bytes]) -> None:
    """A keeper ends its tree by itself; where it cannot, the kernel ends its child with it."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(GRACE_S * 3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cut_log(log: BinaryIO) -> None:
    """A log that floods keeps its head, its tail and what comes later."""
    if os.fstat(log.fileno()).st_size > LOG_CAP_BYTES:
        tail = _tail(log, LOG_TAIL_BYTES)
        log.truncate(LOG_HEAD_BYTES)
        log.write(b"\n[... cut by nightshift ...]\n" + tail)


def last_lines(log: BinaryIO, count: int = 20) -> str:
    return "\n".join(_tail(log, LOG_TAIL_BYTES).decode("utf-8", errors="backslashreplace").splitlines()[-count:])


def read_end(path: Path, count: int) -> bytes:
    """The last bytes of a file that a script wrote; OSError where there is no plain file."""
    # a pipe of that name would keep a plain open waiting for ever
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no plain file")
        return _tail(file, count)


def has_weights(run_folder: Path) -> bool:
    """Whether a script left plain weights in its own out folder: links could lead to the weights of another run."""
    weights = run_folder / WEIGHTS
    with suppress(OSError):
        return stat.S_ISREG(weights.lstat().st_mode) and not weights.parent.is_symlink()
    return False


def drop_weights(run_folder: Path) -> None:
    """Space for the next run; what a script put in the place of its weights stays, being none of our files."""
    if has_weights(run_folder):
        (run_folder / WEIGHTS).unlink(missing_ok=True)


def _tail(file: BinaryIO, count: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), count, max(0, size - count))


def scrubbed_env(data: str) -> dict[str, str]:
    """The environment of a training or scoring process."""
    env = {name: value for name, value in os.environ.items() if _may_pass(name)}
    return env | {"NIGHTSHIFT_DATA": data, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def lay_out(folder: Path, fixed: Path, script_name: str, script: str) -> None:
    """A fresh folder with the committed script and the fixed files; what an interrupted run left there is gone."""
    if folder.is_symlink() or not folder.is_dir():  # a script may have put anything where it is scored later
        folder.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    if fixed.is_dir():  # where it was swept away with its night, the journal's own check ends the night
        shutil.copytree(fixed, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (folder / script_name).write_bytes(script.encode())


def _may_pass(name: str) -> bool:
    if any(word in name.upper() for word in ENV_SECRET_WORDS):
        return False
    return name in ENV_LIBRARIES | ENV_PLACES or name.startswith(ENV_PREFIXES)
