"""A child process under the harness's clock: in a box, in its own folder and session, with a scrubbed environment.

What the child does to its folder is its own affair: nothing that it deletes, replaces or writes there may hold up or
end the harness.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent.box import Box, Open, View
from agent.caps import Caps
from agent.clock import SLEEP_TOLERANCE_S, Stopwatch
from agent.experiment import Ending

GRACE_S = 2.0  # between SIGTERM and SIGKILL
POLL_S = 0.05
LOG_CAP_BYTES, LOG_HEAD_BYTES, LOG_TAIL_BYTES = 8 << 20, 1 << 20, 4 << 10
REPORT_BYTES = 4 << 10
LOG = "log.txt"
KEEPER = Path(__file__).with_name("keeper.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    ending: Ending
    exit_code: int | None  # -n after signal n; None when the harness ended it
    wall_s: float
    last_lines: str


def supervise(
    command: list[str],
    view: View,
    *,
    env: Mapping[str, str],
    limit_s: float,
    stopped: Callable[[], bool],
    tick: Callable[[float], None],
    box: Box | None = None,
    caps: Caps | None = None,
) -> Outcome:
    """Run a command in view.folder, its output in log.txt there; when this returns, nothing of it is left running.

    The clock is the harness's own and monotonic: limit_s counts from the start of the process. stopped is asked and
    tick is told the seconds elapsed about twenty times a second. Without box and caps it has the user's own rights.
    """
    command = (box or Open("not asked for")).wrap(command, view)
    watch = Stopwatch()
    # append mode, so that the log can be cut while it is written; kept open, since a script may delete the file
    with (view.folder / LOG).open("a+b", buffering=0) as log:
        keeper, report = start_keeper(command, view.folder, env, log, caps)
        ending: Ending | None = None
        try:
            while keeper.poll() is None and ending is None:
                ending = _due(watch, limit_s, stopped)
                tick(watch.elapsed_s)
                cut_log(log)
                time.sleep(POLL_S)
        finally:
            end(keeper)
            cut_log(log)
        wall_s, words = watch.elapsed_s, last_lines(log)
        over = _read_report(report)
    if over is not None:
        return Outcome(Ending.EXCEEDED, None, wall_s, f"{words}\n{over}".strip())
    if ending is None and watch.slept_s > SLEEP_TOLERANCE_S:
        ending = Ending.SLEPT
    if ending is not None:
        return Outcome(ending, None, wall_s, words)
    code = exit_code(keeper.returncode)
    return Outcome(Ending.FINISHED if code == 0 else Ending.CRASHED, code, wall_s, words)


def _due(watch: Stopwatch, limit_s: float, stopped: Callable[[], bool]) -> Ending | None:
    """Why the process has to end now, if it has to."""
    if watch.slept_s > SLEEP_TOLERANCE_S:
        return Ending.SLEPT  # its clock stood still or ran on, and nobody knows which
    if watch.elapsed_s > limit_s:
        return Ending.OVERRAN
    return Ending.STOPPED if stopped() else None


def start_keeper(
    command: list[str], folder: Path, env: Mapping[str, str], log: BinaryIO, caps: Caps | None
) -> tuple[subprocess.Popen[bytes], int]:
    """The keeper, and the end of the pipe where it reports."""
    report, told = os.pipe()
    order = {
        "harness": os.getpid(),
        "grace_s": GRACE_S,
        "report": told,
        "caps": dataclasses.asdict(caps) if caps else None,
    }
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
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(told)
    return keeper, report


def _read_report(report: int) -> str | None:
    """Which cap was exceeded; None also from a keeper that was killed itself."""
    with os.fdopen(report, "rb") as pipe:
        said = pipe.read(REPORT_BYTES)
    over = json.loads(said) if said else None
    return None if over is None else str(over)


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
        tail = read_tail(log, LOG_TAIL_BYTES)
        log.truncate(LOG_HEAD_BYTES)
        log.write(b"\n[... cut by nightshift ...]\n" + tail)


def last_lines(log: BinaryIO, count: int = 20) -> str:
    """The end of a log, fit for a terminal and a table: no command to either is left in it."""
    text = read_tail(log, LOG_TAIL_BYTES).decode("utf-8", errors="backslashreplace")
    return "\n".join(harmless(line) for line in text.splitlines()[-count:])


def harmless(text: str) -> str:
    """What is not printable, such as an escape sequence or an invisible character, as its code."""
    return "".join(one if one.isprintable() or one == "\t" else ascii(one)[1:-1] for one in text)


def read_tail(file: BinaryIO, count: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), count, max(0, size - count))
