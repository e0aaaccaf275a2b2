"""A child process under the harness's clock: in its own folder and session, with a scrubbed environment."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.experiment import Ending, Night, Progress

GRACE_S = 2.0  # between SIGTERM and SIGKILL
POLL_S = 0.05
LOG_CAP_BYTES, LOG_HEAD_BYTES, LOG_TAIL_BYTES = 8 << 20, 1 << 20, 4 << 10
MAX_FILE_BYTES = 64 << 30  # a backstop against a script that fills the disk with one file
WEIGHTS = "out/model.safetensors"
KEEPER = Path(__file__).with_name("keeper.py")

# A training script sees where programs, libraries, caches and devices are, and nothing that could be a key.
ENV_LIBRARIES = frozenset({"PATH", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
ENV_PLACES = frozenset({"HOME", "USER", "LANG", "TZ", "TMPDIR", "XDG_CACHE_HOME"})
ENV_PREFIXES = ("LC_", "MLX_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "OPENBLAS_", "MKL_", "NIGHTSHIFT_")
ENV_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


@dataclass(frozen=True, slots=True)
class Outcome:
    ending: Ending
    exit_code: int | None
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
    log = folder / "log.txt"
    start = time.monotonic()
    with log.open("ab") as sink:  # append mode: the log can be cut while it is written
        keeper = subprocess.Popen(
            [sys.executable, str(KEEPER), str(os.getpid()), str(GRACE_S), str(MAX_FILE_BYTES), *command],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
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
    code = keeper.returncode
    ending = ending or (Ending.FINISHED if code == 0 else Ending.CRASHED)
    exit_code = code if 0 <= code < 128 else None
    return Outcome(ending, exit_code, time.monotonic() - start, last_lines(log))


def end(keeper: subprocess.Popen[bytes]) -> None:
    """The keeper ends its tree by itself; where it cannot, the kernel ends its child with it."""
    if keeper.poll() is None:
        keeper.terminate()
    try:
        keeper.wait(GRACE_S * 3)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()


def cut_log(log: Path) -> None:
    """A log that floods keeps its head, its tail and what comes later."""
    if log.stat().st_size > LOG_CAP_BYTES:
        tail = _tail(log)
        os.truncate(log, LOG_HEAD_BYTES)
        with log.open("ab") as sink:
            sink.write(b"\n[... cut by nightshift ...]\n" + tail)


def last_lines(log: Path, count: int = 20) -> str:
    return "\n".join(_tail(log).decode("utf-8", errors="backslashreplace").splitlines()[-count:])


def _tail(log: Path) -> bytes:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
        return file.read()


def scrubbed_env(data: str) -> dict[str, str]:
    """The environment of a training or scoring process."""
    env = {name: value for name, value in os.environ.items() if _may_pass(name)}
    return env | {"NIGHTSHIFT_DATA": data, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def lay_out(folder: Path, fixed: Path, script_name: str, script: str) -> None:
    """A fresh folder with the committed script and the fixed files; what an interrupted run left there is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in fixed.glob("*.py"):
        shutil.copyfile(file, folder / file.name)
    (folder / script_name).write_bytes(script.encode())


def _may_pass(name: str) -> bool:
    if any(word in name.upper() for word in ENV_SECRET_WORDS):
        return False
    return name in ENV_LIBRARIES | ENV_PLACES or name.startswith(ENV_PREFIXES)
