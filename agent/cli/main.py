"""Run the command line: parse, act, return an exit code. All errors that a user can repair are reported here."""

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from agent.cli.words.parser import Subcommand, parse
from agent.errors import NightHalted, NightshiftError, NothingYet, UsageError
from agent.files import disk_is_broken, disk_is_full
from agent.git import leave_surrounding_git
from agent.invocation import typed
from agent.text import harmless_lines
from agent.view.answer import Answer

# The file of each command, in the order of `nightshift --help`. To add one, describe it there as a Subcommand under the
# command's name in capitals. Only the file of the command that is given is imported: some take a second.
FILES = {
    "init": "agent.cli.housekeeping.init",
    "prepare": "agent.cli.housekeeping.prepare",
    "run": "agent.cli.training",
    "confirm": "agent.cli.training",
    "try": "agent.cli.trying",
    "submit": "agent.cli.steering",
    "note": "agent.cli.steering",
    "ideas": "agent.cli.ideas",
    "prompt": "agent.cli.prompt",
    "facts": "agent.cli.prompt",
    "report": "agent.cli.reading.report",
    "serve": "agent.cli.reading.serve",
    "results": "agent.cli.reading.results",
    "status": "agent.cli.reading.status",
    "watch": "agent.cli.reading.watch",
    "stop": "agent.cli.steering",
    "show": "agent.cli.reading.attempt",
    "diff": "agent.cli.reading.attempt",
    "compare": "agent.cli.reading.compare",
    "plot": "agent.cli.reading.plot",
    "best": "agent.cli.taking.best",
    "take": "agent.cli.taking.take",
    "sample": "agent.cli.taking.sample",
    "replay": "agent.cli.taking.replay",
    "export": "agent.cli.taking.export",
    "ship": "agent.cli.taking.ship",
    "nights": "agent.cli.housekeeping.nights",
    "archive": "agent.cli.housekeeping.archive",
    "pack": "agent.cli.housekeeping.moving",
    "unpack": "agent.cli.housekeeping.moving",
    "profile": "agent.cli.machine.profile",
    "doctor": "agent.cli.machine.doctor",
    "mcp": "agent.cli.housekeeping.mcp",
}


def commands_for(words: Sequence[str]) -> tuple[Subcommand[Any], ...]:
    """Return the command that the words begin with; where they begin with none, as for --help, return all."""
    if words and words[0] == "--version":
        return ()
    names = words[:1] if words and words[0] in FILES else FILES
    return tuple(getattr(import_module(FILES[name]), name.upper()) for name in names)


def main(argv: Sequence[str] | None = None) -> int:
    leave_surrounding_git()
    words = tuple(sys.argv[1:] if argv is None else argv) or ("--help",)
    if not words[0].startswith("-") and words[0] not in FILES:
        return _refuse(Answer.asked_for(words, {}), _no_command(words[0]))
    commands = commands_for(words)
    answer = Answer.asked_for(words, {one.name: one.answers for one in commands if one.answers is not None})
    try:
        return _main(commands, words, answer)
    except Exception as error:
        answer.fail(f"{type(error).__name__}: {error}; this is a defect, please report it with what stderr says", 1)
        raise


def _main(commands: Sequence[Subcommand[Any]], words: Sequence[str], answer: Answer) -> int:
    try:
        command, options = parse(commands, words, answer)
    except UsageError as error:
        with suppress(OSError):
            sys.stderr.write(error.usage)
        return _refuse(answer, str(error), error.exit_code)
    try:
        code = command.act(options)
        sys.stdout.flush()
    except NothingYet as error:
        return _refuse(answer, str(error), error.exit_code, **error.facts)
    except NightshiftError as error:
        return _refuse(answer, str(error), error.exit_code)
    except KeyboardInterrupt:  # before a night has begun; a running one takes Ctrl-C as a wish
        answer.fail("interrupted before anything was begun", 130, state="unfinished", go_on_with=typed(*words))
        return 130
    except BrokenPipeError:
        from agent.view.screen import discard_output

        discard_output(sys.stdout)
        return 0  # its reader, such as head, has seen enough
    except NightHalted as halted:
        return _refuse(answer, _in_words(halted.cause, command.resume(options, halted.tag)))
    except (OSError, sqlite3.OperationalError) as error:
        return _refuse(answer, _in_words(error, command.resume(options, None)))
    return code


def _no_command(word: str) -> str:
    """Say that there is no such command, and which has a similar name."""
    near = get_close_matches(word, FILES, 1)
    similar = f"; similar: {typed(near[0])}" if near else ""
    return f"there is no command {word!r}{similar}; see all with: {typed('--help')}"


def _refuse(answer: Answer, sentence: str, exit_code: int = 2, **known: object) -> int:
    with suppress(OSError):  # the terminal may be gone
        print(f"nightshift: {harmless_lines(sentence)}", file=sys.stderr)
    answer.fail(sentence, exit_code, **known)
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
