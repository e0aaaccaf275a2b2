"""Work through the line of tries, in one process that outlives the command that started it."""

import sqlite3
import subprocess
import sys
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, replace
from pathlib import Path

from filelock import Timeout

from agent.errors import NightError, NightHalted, NightshiftError
from agent.files import read_plain
from agent.invocation import own_command
from agent.night.lock import NightIsRunning
from agent.records.place import Place
from agent.script.merge import kept_chain, merged
from agent.text import SAID_CHARS, one_line
from agent.tries.attempt import UNFINISHED, TryOutcome, attempt
from agent.tries.checks import StaleEdit, prepare
from agent.tries.line import LineEntry, TryLine
from agent.tries.request import TryRequest
from agent.tries.turn import PAUSE_S, turn

PATIENCE_S, ASKING_S = 1.0, 0.2  # for the worker's lock: who asks whether it is held holds it for a moment
LOG = "worker.log"
WORK = "--work"


def start_worker(line: TryLine, root: Path) -> subprocess.Popen[bytes] | None:
    """Start the process that works through the line, in a new session; None where one is at work already."""
    if line.is_worked(ASKING_S):
        return None
    (line.folder / LOG).unlink(missing_ok=True)  # it may be a link
    with (line.folder / LOG).open("xb") as log:
        return subprocess.Popen(
            own_command("try", WORK),
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # the shell of an agent takes its processes along when it ends
        )


def work(line: TryLine, root: Path) -> None:
    """Work through the line to its end, unless another process does."""
    try:
        line.worker_lock.acquire(timeout=PATIENCE_S)
    except Timeout:
        return
    try:
        while (entry := line.take()) is not None:
            outcome = _worked(line, entry, root)
            if outcome.exit_code == UNFINISHED:
                return  # it stays in the line
            line.settle(entry, asdict(outcome))
            line.put_down()
            if outcome.is_last:
                return
            time.sleep(PAUSE_S)
    finally:
        if line.worker_lock.is_locked:  # else the line was empty, and another process may work through it by now
            line.put_down()
        line.worker_lock.release()


def last_words(line: TryLine) -> str:
    """Return what the line's process said last, which is why it has ended; empty where it said nothing."""
    with suppress(OSError, NightError):
        words = read_plain(line.folder / LOG).strip()
        return one_line(words.rpartition("\n")[2].removeprefix("nightshift: "), SAID_CHARS)
    return ""


def _worked(line: TryLine, entry: LineEntry, root: Path) -> TryOutcome:
    """Try one entry; its words go to its log, a defect's traceback, too."""
    if entry.log.is_symlink() or (entry.log.exists() and not entry.log.is_file()):
        return TryOutcome({}, (), f"{entry.log} is no plain file; remove it, and start the try again", 2)
    with entry.log.open("a") as log, redirect_stderr(log):
        try:
            return _tried(line, entry, root)
        except NightIsRunning:  # the entry stays in the line until that has ended
            raise
        except NightshiftError as error:
            print(f"nightshift: {error}", file=log)
            return TryOutcome.refused(error)
        except (OSError, sqlite3.Error, NightHalted):  # the machine's fault: the entry stays in the line
            traceback.print_exc(file=log)
            raise
        except Exception as error:
            traceback.print_exc(file=log)
            what = f"{type(error).__name__}: {error}"
            return TryOutcome({}, (), f"{what}; this is a defect, please report it with {entry.log}", 1)


def _tried(line: TryLine, entry: LineEntry, root: Path) -> TryOutcome:
    assert entry.request is not None  # entries without one are not taken
    request, place = entry.request, Place.of(root / entry.request.path)

    with turn(place.repo.common_dir, say_that_it_waits):
        try:
            prepared = prepare(request, place, is_taken_up=True)
        except StaleEdit as stale:
            request = _on_the_best(request, stale)
            line.rewrite(entry, request)
            prepared = prepare(request, place, is_taken_up=True)
        if prepared.request.tag != request.tag:  # so that it goes on in this night, even if another is the latest then
            line.rewrite(entry, prepared.request)
        with redirect_stdout(sys.stderr):
            return attempt(prepared, place)


def say_that_it_waits() -> None:
    print("another try is at work in this repository; this one waits for its turn", file=sys.stderr)


def _on_the_best(request: TryRequest, stale: StaleEdit) -> TryRequest:
    """Merge an edit onto the best script, which was kept while it waited; raise StaleEdit where they conflict."""
    history, best = stale.history, stale.best
    if request.based_on is None or best is None or request.based_on >= len(history):
        raise stale
    base = history[request.based_on]
    chain = kept_chain(history)
    while base.parent is not None and base not in chain:  # made from one that was not kept: all of its edit
        base = history[base.parent]
    script = merged(best.proposal.script, base.proposal.script, request.script, stale.device_kind)
    if script is None:
        raise stale
    return replace(request, script=script, based_on=best.number, merged_onto=best.number)
