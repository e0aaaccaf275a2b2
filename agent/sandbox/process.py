"""A child process under the harness's clock: in a box, in its own folder and session, with a scrubbed environment.

What the child does to its folder is its own affair: nothing that it deletes, replaces or writes there may hold up or
end the harness.
"""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent.clock import SLEEP_TOLERANCE_S, Stopwatch
from agent.experiment import Ending
from agent.sandbox.box import Box, Open, View
from agent.sandbox.cgroup import KILL_S, REMOVE_S
from agent.sandbox.limits import Caps, Report
from agent.sandbox.load import Counters, busy
from agent.text import harmless

GRACE_S = 2.0  # between SIGTERM and SIGKILL
# A keeper kills twice, in its group and as it removes it, and then waits for the group's folders; a second to spare.
SWEEP_S = GRACE_S + 2 * KILL_S + 2 * REMOVE_S + 1.0
POLL_S = 0.05
LOG_CAP_BYTES, LOG_HEAD_BYTES, LOG_TAIL_BYTES = 8 << 20, 1 << 20, 4 << 10
REPORT_BYTES = 4 << 10
DISK_FAILED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})  # what ends a night, whoever met it
LOG = "log.txt"
KEEPER = Path(__file__).with_name("keeper.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    ending: Ending
    exit_code: int | None  # -n after signal n; None when the harness ended it
    wall_s: float
    last_lines: str
    peak_bytes: int | None = None  # the most memory that it filled at a time; None where it was not watched
    busy: str | None = None  # why the machine may have been too busy for it; None: it was quiet, or that is no matter


def supervise(
    command: list[str],
    view: View,
    *,
    env: Mapping[str, str],
    limit_s: float,
    stopped: Callable[[], bool],
    tick: Callable[[float], None],
    hopeless: Callable[[], bool] = lambda: False,
    box: Box | None = None,
    caps: Caps | None = None,
) -> Outcome:
    """Run a command in view.folder, its output in log.txt there; when this returns, nothing of it is left running.

    The clock is the harness's own and monotonic: limit_s counts from the start of the process. stopped and hopeless are
    asked and tick is told the seconds elapsed about twenty times a second. Without box and caps it has the user's own
    rights.
    """
    command = (box or Open("not asked for")).wrap(command, view)
    watch, before = Stopwatch(), Counters.now()
    with open_log(view.folder / LOG) as log:
        keeper, report = start_keeper(command, view.folder, env, caps)
        ending: Ending | None = None
        try:
            while keeper.poll() is None and ending is None:
                ending = _due(watch, limit_s, stopped, hopeless)
                tick(watch.elapsed_s)
                cut_log(log)
                time.sleep(POLL_S)
        finally:
            end(keeper)
            cut_log(log)
        wall_s, words = watch.elapsed_s, last_lines(log)
        found = _read_report(report)
    if found.exceeded is not None:
        over = Ending.EXCEEDED if found.own else Ending.STARVED
        return Outcome(over, None, wall_s, f"{words}\n{found.exceeded}".strip(), found.peak_bytes)
    if ending is None and watch.slept_s > SLEEP_TOLERANCE_S:
        ending = Ending.SLEPT
    if ending is not None:
        why = busy(before, Counters.now(), found.cpu_s) if ending is Ending.OVERRAN else None
        return Outcome(ending, None, wall_s, words, found.peak_bytes, why)
    code = exit_code(keeper.returncode)
    return Outcome(Ending.FINISHED if code == 0 else Ending.CRASHED, code, wall_s, words, found.peak_bytes)


def _due(watch: Stopwatch, limit_s: float, stopped: Callable[[], bool], hopeless: Callable[[], bool]) -> Ending | None:
    """Why the process has to end now, if it has to."""
    if watch.slept_s > SLEEP_TOLERANCE_S:
        return Ending.SLEPT  # its clock stood still or ran on, and nobody knows which
    if watch.elapsed_s > limit_s:
        return Ending.OVERRAN
    if stopped():
        return Ending.STOPPED
    return Ending.HOPELESS if hopeless() else None


def start_keeper(
    command: list[str], folder: Path, env: Mapping[str, str], caps: Caps | None
) -> tuple[subprocess.Popen[bytes], int]:
    """The keeper, and the end of the pipe where it reports.

    It writes to the log through an opening of its own: flags and position of ours are nothing that a script can set.
    """
    report, told = os.pipe()
    order = {
        "harness": os.getpid(),
        "grace_s": GRACE_S,
        "report": told,
        "caps": dataclasses.asdict(caps) if caps else None,
    }
    try:
        log = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        try:
            keeper = subprocess.Popen(
                [sys.executable, str(KEEPER), json.dumps(order), *command],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(told,),
                start_new_session=True,
            )
        finally:
            os.close(log)
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(told)
    return keeper, report


def _read_report(report: int) -> Report:
    """What the keeper tells at its end; nothing from one that was killed itself."""
    with os.fdopen(report, "rb") as pipe:
        said = pipe.read(REPORT_BYTES)
    return Report(**json.loads(said)) if said else Report()


def exit_code(status: int) -> int:
    """The keeper's 128 + n as -n, which is also how the keeper's own death by signal n reads; 255 stays 255."""
    return 128 - status if 128 < status <= 128 + max(signal.valid_signals()) else status


def end(process: subprocess.Popen[bytes]) -> None:
    """A keeper ends its tree by itself; where it cannot, its session is ended for it.

    SIGTERM is sent more than once: what comes in the middle of an import may be lost on Python.
    """
    deadline = time.monotonic() + SWEEP_S
    while process.poll() is None and time.monotonic() < deadline:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ---- the log: a file of the script, which may do with it what it likes -----------------------------------------------


def open_log(path: Path) -> BinaryIO:
    """A new file, which stays ours to read and to cut when the script deletes its name."""
    path.unlink(missing_ok=True)
    # append mode, so that it can be cut while it is written
    return os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "a+b", 0)


def cut_log(log: BinaryIO) -> None:
    """A log that floods keeps its head, its tail and what comes later; one that cannot be cut stays as it is."""
    try:
        if os.fstat(log.fileno()).st_size > LOG_CAP_BYTES:
            tail = read_tail(log, LOG_TAIL_BYTES)
            log.truncate(LOG_HEAD_BYTES)
            log.write(b"\n[... cut by nightshift ...]\n" + tail)
    except OSError as error:
        _let_pass(error)


def last_lines(log: BinaryIO, count: int = 20) -> str:
    """The end of a log, fit for a terminal and a table: no command to either is left in it."""
    try:
        tail = read_tail(log, LOG_TAIL_BYTES)
    except OSError as error:
        _let_pass(error)
        return ""
    text = tail.replace(b"\0", b"").decode("utf-8", errors="backslashreplace")  # a hole in a file reads as zeros
    return "\n".join(harmless(line) for line in text.splitlines()[-count:])


def read_tail(file: BinaryIO, count: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), count, max(0, size - count))


def _let_pass(error: OSError) -> None:
    """Whatever a script did to its log is no log; a disk that is full or broken concerns the night."""
    if error.errno in DISK_FAILED:
        raise error
