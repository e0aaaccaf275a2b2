"""Propose edits by a coding agent: a command that edits the script in a throwaway clone.

The agent is the user's own tool and runs with the user's rights, keys and network, as in a terminal. It starts in a
folder without the user's files, does not learn where the repository is, and is ended with all its processes.
"""

import json
import math
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.clock import utc_now
from agent.errors import MachineError, NightError, NoIdea
from agent.experiment import Ask, Ending, Proposal
from agent.files import read_end, throwaway_folder
from agent.proposers.briefing import Briefing
from agent.proposers.command.clone import TASK, AgentEdit, lay_out, script_name, take_edit
from agent.sandbox.places import View
from agent.sandbox.process import LOG, Outcome, supervise
from agent.text import SAID_CHARS, one_line

LIMIT_S = 600.0
# not for an agent, beside variables of git and nightshift: where a tool would install packages, and the user's folder
LEADS_HOME = frozenset({"VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PWD", "OLDPWD"})
HOLE = "{task}"
LOG_BYTES = 256 << 10  # kept of each log, its end
TOKENS_IN = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# the folder and the words come as arguments, so that the shell does not interpret them
WITH_TASK_ON_STDIN, WITHOUT_STDIN = f'cd "$0" && exec "$@" < {TASK}', 'cd "$0" && exec "$@"'


@dataclass(frozen=True, slots=True)
class Bill:
    """Hold the costs that an agent reports, and its last message; None for what it does not report."""

    usd: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    model: str | None = None
    said: str | None = None
    tokens_cached: int | None = None


class Command:
    """Propose edits by running one command line, split as a shell does but without a shell.

    For a shell's features, give sh -c '…'. The task replaces the word {task}, or else comes on stdin. Raise NightError
    for a command line that cannot be split, MachineError for a program that is not installed.
    """

    def __init__(
        self,
        command: str,
        folder: Path,  # of the night: tasks and logs go to asks/, the fixed files come from fixed/
        record: Callable[[Ask], None],
        stopped: Callable[[], bool],
        *,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._words = split(command)
        self._folder = folder
        self._record = record
        self._stopped = stopped
        self._limit_s = limit_s
        self.source = f"command:{Path(self._words[0]).name}"

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        """Run the agent, record its costs and return its edit; raise NoIdea if it left no whole edit."""
        number, started = briefing.number, utc_now()
        folder = _new_folder(self._folder / "asks", number)
        with throwaway_folder() as aside:
            clone = aside / "clone"
            clone.mkdir()
            task = lay_out(clone, briefing, self._folder / "fixed", self._limit_s)
            (folder / TASK).write_bytes(task.encode())
            outcome = self._run(task, clone, folder)
            bill = read_bill(_end_of_log(folder))
            edit, failure = self._taken(clone, briefing, outcome, bill)
        costs = (bill.model, bill.tokens_in, bill.tokens_out, bill.usd)
        self._record(
            Ask(number, self.source, started, outcome.wall_s, *costs, failure, tokens_cached=bill.tokens_cached)
        )
        if edit is None:
            raise NoIdea(f"{failure} (log: {folder / LOG})")
        repairs = briefing.broken.number if briefing.broken else None
        return [Proposal.of(edit.script, edit.title, edit.hypothesis, self.source, repairs=repairs)]

    def _run(self, task: str, clone: Path, folder: Path) -> Outcome:
        start = WITHOUT_STDIN if HOLE in self._words else WITH_TASK_ON_STDIN
        words = [task if word == HOLE else word for word in self._words]
        return supervise(
            ["/bin/sh", "-c", start, str(clone), *words],
            View(folder),
            env=_detached_env(),
            limit_s=self._limit_s,
            stopped=self._stopped,
            tick=lambda elapsed_s: None,
        )

    def _taken(
        self, clone: Path, briefing: Briefing, outcome: Outcome, bill: Bill
    ) -> tuple[AgentEdit, None] | tuple[None, str]:
        """Return the edit, or why there is none.

        If the agent failed or ran out of time, its edit is whole only if it had written IDEA.md, which comes last.
        """
        ended = self._how_it_ended(outcome)
        said = bill.said or next((line for line in reversed(outcome.last_lines.splitlines()) if line.strip()), "")
        last_words = f"; it said: {one_line(said, SAID_CHARS)}" if said else ""
        try:
            edit = take_edit(clone, briefing)
        except NoIdea as error:
            how = f" and {ended}" if ended else ""
            return None, f"{self.source} had no idea: {error}{how}{last_words}"
        if ended is not None and not edit.is_complete:
            name = script_name(briefing)
            return None, f"{self.source} {ended}, and its edit of {name} may be half of one{last_words}"
        return edit, None

    def _how_it_ended(self, outcome: Outcome) -> str | None:
        """Return how the agent failed, or None if it ended well."""
        match outcome.ending:
            case Ending.FINISHED:
                return None
            case Ending.OVERRAN:
                return f"was still working after {self._limit_s:g} s"
            case Ending.STOPPED:
                return "was stopped with the night"
            case Ending.SLEPT:
                return "lost its time because the machine slept"
        return f"ended with exit code {outcome.exit_code}"


def split(command: str) -> list[str]:
    """Split a command line, with its program's path first; raise NightError or MachineError with the remedy."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise NightError(f"--command {command!r} cannot be split into words ({error}); correct its quotes") from error
    if not words:
        raise NightError("--command is empty; name a coding agent, as in: --command 'claude -p'")
    if any(HOLE in word and word != HOLE for word in words):
        # inside sh -c '…' the shell would execute parts of the task, which quotes other programs
        raise NightError(f"{HOLE} in --command has to be a separate word, without quotes around more than itself")
    program = shutil.which(words[0])
    if program is None:
        raise MachineError(f"{words[0]}, the program of --command, is not on PATH; install it or give its path")
    return [str(Path(program).absolute()), *words[1:]]


def _new_folder(asks: Path, number: int) -> Path:
    """Make a new folder for one call; an attempt may have several."""
    count = 1
    while True:
        folder = asks / f"{number:04d}-{count}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            count += 1
        else:
            return folder


def _end_of_log(folder: Path) -> str:
    """Return the end of the log, and cut the file to it."""
    try:
        content = read_end(folder, LOG, LOG_BYTES)
        if (folder / LOG).stat().st_size > LOG_BYTES:
            (folder / LOG).write_bytes(content)
    except OSError:
        return ""
    return content.decode(errors="replace")


# ---- costs -----------------------------------------------------------------------------------------------------------


def read_bill(log: str) -> Bill:
    """Read the costs from the last line of JSON that has some: Claude Code's result, or the end of a turn of Codex."""
    objects = list(_objects(log))
    bill = next((one for one in objects if "total_cost_usd" in one or isinstance(one.get("usage"), dict)), {})
    usage, models = bill.get("usage"), bill.get("modelUsage")
    tokens = usage if isinstance(usage, dict) else {}
    # Claude Code counts tokens written to and read from a cache apart; Codex includes them
    known = [part for name in TOKENS_IN if (part := _count(tokens.get(name))) is not None]
    return Bill(
        usd=_amount(bill.get("total_cost_usd")),
        tokens_in=sum(known) if known else None,
        tokens_out=_count(tokens.get("output_tokens")),
        tokens_cached=_count(tokens.get("cache_read_input_tokens", tokens.get("cached_input_tokens"))),
        model=_dearest(models) if isinstance(models, dict) and models else None,
        said=next((words for one in objects if (words := _words(one))), None),
    )


def _words(event: Mapping[str, Any]) -> str | None:
    """Return an event's text for people: Claude Code's result, a message or an error of Codex."""
    item, error = event.get("item"), event.get("error")
    said = [event.get("result"), event.get("message")]
    said += [item.get("text"), item.get("message")] if isinstance(item, dict) else []
    said += [error.get("message")] if isinstance(error, dict) else []
    return next((words for words in said if isinstance(words, str) and words.strip()), None)


def _objects(log: str) -> Iterator[Mapping[str, Any]]:
    """Yield the lines that are JSON objects, the last first."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found


def _dearest(models: Mapping[str, Any]) -> str:
    """Return the name of the model that cost most."""
    costs = {name: _amount(one.get("costUSD")) if isinstance(one, dict) else None for name, one in models.items()}
    return one_line(max(costs, key=lambda name: costs[name] or 0.0), SAID_CHARS)


def _amount(value: object) -> float | None:
    """Return the dollars of one call; None if the value is impossible."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) and 0 <= value < 1e5 else None  # type: ignore[arg-type, operator]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1e12 else None


def _detached_env() -> dict[str, str]:
    """Return the user's environment with keys, but without what leads to the user's repository and packages."""
    ours = ("GIT_", "NIGHTSHIFT_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours) and name not in LEADS_HOME}
