"""Run a child process under the harness's clock: in its own folder and session, its whole tree watched by a supervisor.

The child may delete, replace or write anything in its folder; none of that may block or end the harness.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import msgspec
import psutil

from agent.clock import SLEEP_TOLERANCE_S, Stopwatch
from agent.experiment import Ending
from agent.files import read_tail
from agent.invocation import own_python
from agent.lab.hardware import BudgetClock, Threads
from agent.sandbox.crash import why_crashed
from agent.sandbox.supervisor import GRACE_S, Report, ResourceLimits
from agent.text import harmless, shorten

SWEEP_S = GRACE_S + 10.0  # a supervisor may take this long to end its tree, which it does in rounds
POLL_S, LOOK_S = 0.05, 1.0  # s between checks, and between looks at all processes, which take milliseconds
MOST_LOG_BYTES, LOG_TAIL_BYTES, LOG_TAIL_LINES = 64 << 20, 4 << 10, 20
WHOLE_TRACEBACK_BYTES, MOST_WHY_CHARS = 1 << 20, 1000  # this suffices for a thousand frames, and for a long message
LOG = "log.txt"
SUPERVISOR = own_python(
    "import json; from agent.sandbox import supervisor; supervisor.main(sys.argv[2:], **json.loads(sys.argv[1]))"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a supervised process ended, and the end of its log."""

    ending: Ending
    exit_code: int | None  # -n after signal n; None when the harness ended it
    wall_s: float
    last_lines: str
    peak_bytes: int | None = None  # the most memory that it filled at one time; None if it was not watched
    why_invalid: str | None = None  # why its end may be the machine's fault; None: nothing says so
    others_share: float | None = None  # of the processors that it wanted, what others took; None: it was not measured

    def explained(self, why: str) -> "Outcome":
        """Return it with one more last line."""
        return replace(self, last_lines=f"{self.last_lines}\n{why}".strip())


def supervise(
    command: list[str],
    folder: Path,
    *,
    env: Mapping[str, str],
    limit_s: float,
    is_fair: bool = False,
    stopped: Callable[[], bool],
    tick: Callable[[], None] = lambda: None,
    hopeless: Callable[[], bool] = lambda: False,
    limits: ResourceLimits | None = None,
    cores: Sequence[int] = (),
) -> Outcome:
    """Run a command in a folder with its output in log.txt there; on return all its processes have ended.

    limit_s counts from the start of the process, by the harness's monotonic clock. If is_fair, what other programs took
    of its processors is left out, as by BudgetClock. About twenty times a second stopped(), hopeless() and tick() are
    called. The command has the user's rights unless a sandbox wraps it. It is pinned to these cores, if any are named.
    """
    watch = Stopwatch()
    with open_log(folder / LOG) as log:
        supervisor = start_supervisor(command, folder, env, limits, cores)
        others = Others(supervisor.pid, cores) if is_fair else None
        ending: Ending | None = None
        try:
            while supervisor.poll() is None and ending is None:
                if watch.slept_s > SLEEP_TOLERANCE_S:
                    ending = Ending.SLEPT  # its clock may have stood still, so its budget says nothing
                elif watch.elapsed_s - (others.took_s if others else 0.0) > limit_s:
                    ending = Ending.OVERRAN
                elif stopped():
                    ending = Ending.STOPPED
                elif hopeless():
                    ending = Ending.HOPELESS
                elif os.fstat(log.fileno()).st_size > MOST_LOG_BYTES:
                    ending = Ending.EXCEEDED
                tick()
                time.sleep(POLL_S)
        finally:
            end(supervisor)
        wall_s, words, log_end = watch.elapsed_s, last_lines(log), text_at_end(log, WHOLE_TRACEBACK_BYTES)
        if ending is Ending.EXCEEDED:
            words = f"its log has more than {MOST_LOG_BYTES >> 20} MB: it must print less"
    report = report_of(supervisor)
    exit_code, why_invalid = None, None
    if report.over is not None:
        ending, words = Ending.EXCEEDED, f"{words}\n{report.over.words}".strip()
        why_invalid = report.over.words if report.over.is_shortage else None
    elif ending is None and watch.slept_s > SLEEP_TOLERANCE_S:
        ending = Ending.SLEPT
    elif ending is None:
        exit_code = report.exit_code
        ending = Ending.FINISHED if exit_code == 0 else Ending.CRASHED
        if exit_code is None:  # the supervisor itself was killed, which no sandboxed script can do
            exit_code, why_invalid = supervisor.returncode, "its supervisor was killed"
    share = others.share if others else None
    return _with_reason(Outcome(ending, exit_code, wall_s, words, report.peak_bytes, why_invalid, share), log_end)


def _with_reason(outcome: Outcome, log_end: str) -> Outcome:
    """Return an outcome whose last line says why the process crashed, if it did."""
    if not outcome.exit_code:
        return outcome
    why = shorten(harmless(why_crashed(log_end, outcome.exit_code)), MOST_WHY_CHARS)
    return outcome if outcome.last_lines.rpartition("\n")[2].strip() == why else outcome.explained(why)


class Others:
    """Watch what other programs take of the processors that the descendants of a process want."""

    def __init__(self, pid: int, cores: Sequence[int]) -> None:
        self._clock = BudgetClock(lambda: threads_below(pid), len(cores) or None)
        self._watch = Stopwatch()
        self._looked_s = self._took_s = 0.0

    @property
    def took_s(self) -> float:
        """Return the seconds that they have taken of the wall clock, as of the last second."""
        if self._watch.elapsed_s - self._looked_s > LOOK_S:
            self._looked_s, self._took_s = self._watch.elapsed_s, self._clock.others_s
        return self._took_s

    @property
    def share(self) -> float | None:
        """Return their share; None of a process that ended before the first look."""
        return self._took_s / self._looked_s if self._looked_s else None


def threads_below(pid: int) -> Threads:
    """Return the threads of a process's descendants; what ended ones ran is known where they were waited for."""
    folders, ran_s = list[Path](), 0.0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        ran_s += sum(process.cpu_times()[2:4])  # of its children that have ended
        for child in process.children(recursive=True):
            with suppress(psutil.Error, OSError):  # it has just ended
                ran_s += sum(child.cpu_times()[:4])
                folders += Path(f"/proc/{child.pid}/task").iterdir()
    return Threads(folders, ran_s)


def start_supervisor(
    command: list[str],
    folder: Path,
    env: Mapping[str, str],
    limits: ResourceLimits | None,
    cores: Sequence[int],
) -> subprocess.Popen[bytes]:
    """Start the supervisor of a command; it writes its report to its standard output.

    The log is opened again for it, so that a script cannot change the flags and position of our file descriptor.
    """
    order = {"harness": os.getpid(), "limits": limits, "cores": cores}
    log = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    try:
        return subprocess.Popen(
            [*SUPERVISOR, msgspec.json.encode(order), *command],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)


def report_of(supervisor: subprocess.Popen[bytes]) -> Report:
    """Read the report of a supervisor that has ended; if it could not start the command, report its own exit code."""
    assert supervisor.stdout is not None
    with supervisor.stdout as pipe:
        written = pipe.read()
    if written:
        return msgspec.json.decode(written, type=Report)
    return Report() if supervisor.returncode < 0 else Report(exit_code=supervisor.returncode)


def end(process: subprocess.Popen[bytes]) -> None:
    """End the supervisor, which ends its tree; kill its whole session if it has not ended after SWEEP_S.

    SIGTERM is sent more than once, since Python may lose one that comes in the middle of an import.
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


# ---- the log, a file that the script may change ----------------------------------------------------------------------


def open_log(path: Path) -> BinaryIO:
    """Create a log, and keep it open to read even if the script deletes its name."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "a+b", 0)


def last_lines(log: BinaryIO) -> str:
    """Return the last lines of a log, without control characters, for a terminal or a table; "" if it is unreadable."""
    lines = text_at_end(log, LOG_TAIL_BYTES).splitlines()
    return "\n".join(harmless(line) for line in lines[-LOG_TAIL_LINES:])


def text_at_end(log: BinaryIO, most_bytes: int) -> str:
    """Return the end of a log as text; "" if it is unreadable."""
    tail = b""
    with suppress(OSError):
        tail = read_tail(log, most_bytes)
    return tail.replace(b"\0", b"").decode("utf-8", errors="backslashreplace")  # a hole in a file reads as zeros
