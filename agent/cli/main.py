"""Run the command line: parse, act, return an exit code. All errors that a user can repair are reported here."""

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from agent.cli.ideas import IDEAS
from agent.cli.machine import DOCTOR, PROFILE
from agent.cli.reading.attempt import DIFF, SHOW
from agent.cli.reading.plot import PLOT
from agent.cli.reading.results import RESULTS
from agent.cli.reading.status import STATUS
from agent.cli.steering import NOTE, STOP, SUBMIT
from agent.cli.taking.ship import SHIP
from agent.cli.training import CONFIRM, RUN, TRY
from agent.cli.words.parser import Subcommand, parse
from agent.errors import NightshiftError, UsageError
from agent.files import disk_is_broken, disk_is_full
from agent.invocation import typed
from agent.night.assembly import NightHalted
from agent.view.answer import Answer
from agent.view.screen import discard_output

# In the order of `nightshift --help`. To add one, describe it as a Subcommand in its own file, and name it here.
COMMANDS: tuple[Subcommand[Any], ...] = (
    RUN,
    CONFIRM,
    TRY,
    SUBMIT,
    NOTE,
    IDEAS,
    RESULTS,
    STATUS,
    STOP,
    SHOW,
    DIFF,
    PLOT,
    SHIP,
    PROFILE,
    DOCTOR,
)
ANSWERS = {one.name: one.answers for one in COMMANDS if one.answers is not None}


def main(argv: Sequence[str] | None = None) -> int:
    words = tuple(sys.argv[1:] if argv is None else argv)
    answer = Answer.asked_for(words, ANSWERS)
    try:
        return _main(words, answer)
    except Exception as error:
        answer.fail(f"{type(error).__name__}: {error}; this is a defect, please report it with what stderr says", 1)
        raise


def _main(words: Sequence[str], answer: Answer) -> int:
    try:
        command, options = parse(COMMANDS, words, answer)
    except UsageError as error:
        with suppress(OSError):
            sys.stderr.write(error.usage)
        return _refuse(answer, str(error), error.exit_code)
    try:
        code = command.act(options)
        sys.stdout.flush()
    except NightshiftError as error:
        return _refuse(answer, str(error), error.exit_code)
    except KeyboardInterrupt:  # before a night has begun; a running one takes Ctrl-C as a wish
        answer.fail("interrupted before anything was begun", 130, status="unfinished", go_on_with=typed(*words))
        return 130
    except BrokenPipeError:
        discard_output(sys.stdout)
        return 0  # its reader, such as head, has seen enough
    except NightHalted as halted:
        return _refuse(answer, _in_words(halted.cause, command.resume(options, halted.tag)))
    except (OSError, sqlite3.OperationalError) as error:
        return _refuse(answer, _in_words(error, command.resume(options, None)))
    return code


def _refuse(answer: Answer, sentence: str, exit_code: int = 2) -> int:
    with suppress(OSError):  # the terminal may be gone
        print(f"nightshift: {sentence}", file=sys.stderr)
    answer.fail(sentence, exit_code)
    return exit_code


def _in_words(error: OSError | sqlite3.OperationalError, resume: str) -> str:
    """Explain a full disk or a missing permission; raise any other error of SQLite again, since it is a defect."""
    if disk_is_full(error):
        return f"no space left on the disk; free some and resume with: {resume} (nothing is lost)"
    if disk_is_broken(error):
        return (
            f"the disk failed ({error}); see what the system's log says about it, free space if there is none, "
            f"and resume with: {resume} (nothing is lost)"
        )
    if isinstance(error, OSError):
        what = f"cannot use {error.filename}: " if error.filename else ""
        return f"{what}{error.strerror or error}; check its path, owner and permissions"
    if any(words in str(error) for words in ("unable to open", "readonly", "read-only")):
        return f"cannot use the night's journal: {error}; make experiments/nights writable"
    raise error
