"""Any coding agent as a source of ideas: a command that edits the script in a throwaway clone.

It is the user's own tool and runs with the user's rights, keys and network, as it does in a terminal. It is started
in a folder that holds nothing of the user's, told nothing of where the repository is, and ended with all it started.
"""

import json
import math
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.clock import utc_now
from agent.errors import MachineError, NightError, NoIdea
from agent.experiment import Ask, Briefing, Ending, Proposal
from agent.files import detached_env, throwaway_folder
from agent.proposers.command.clone import TASK, AgentEdit, lay_out, script_name, take_edit
from agent.runs.workshop import read_end
from agent.sandbox.box import View
from agent.sandbox.process import LOG, Outcome, supervise
from agent.text import SAID_CHARS, one_line

LIMIT_S = 600.0
HOLE = "{task}"
LOG_BYTES = 256 << 10  # kept of each log, its end
TOKENS_IN = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# the folder and the words come as arguments, so that a shell reads neither
WITH_TASK_ON_STDIN, WITHOUT_STDIN = f'cd "$0" && exec "$@" < {TASK}', 'cd "$0" && exec "$@"'


@dataclass(frozen=True, slots=True)
class Bill:
    """What an agent says about its own costs, and its last words; None where it says nothing."""

    usd: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    model: str | None = None
    said: str | None = None


class Command:
    """The command line is split as a shell would, but no shell reads it; sh -c '…' is one that does.

    The task comes as one argument in the place of {task}, else on stdin. Raises NightError for a command line that
    cannot be split, MachineError for a program that is not there.
    """

    def __init__(
        self,
        command: str,
        folder: Path,  # of the night: tasks and logs go to asks/, the fixed files come from fixed/
        record: Callable[[Ask], None],
        stopped: Callable[[], bool],
        *,
        limit_s: float = LIMIT_S,
        tick: Callable[[float], None] = lambda elapsed_s: None,
    ) -> None:
        self._words = split(command)
        self._folder = folder
        self._record = record
        self._stopped = stopped
        self._limit_s = limit_s
        self._tick = tick
        self.source = f"command:{Path(self._words[0]).name}"

    def propose(self, briefing: Briefing) -> Proposal:
        """Raises NoIdea when no whole edit came of it; what it cost is recorded either way."""
        number, started = len(briefing.history), utc_now()
        folder = _new_folder(self._folder / "asks", number)
        with throwaway_folder() as aside:
            desk = aside / "desk"
            desk.mkdir()
            task = lay_out(desk, briefing, self._folder / "fixed", self._limit_s)
            (folder / TASK).write_bytes(task.encode())
            outcome = self._run(task, desk, folder)
            bill = read_bill(_end_of_log(folder))
            edit, failure = self._taken(desk, briefing, outcome, bill)
        costs = (bill.model, bill.tokens_in, bill.tokens_out, bill.usd)
        self._record(Ask(number, self.source, started, outcome.wall_s, *costs, failure))
        if edit is None:
            raise NoIdea(f"{failure} (log: {folder / LOG})")
        repairs = briefing.broken.number if briefing.broken else None
        return Proposal.of(edit.script, edit.title, edit.hypothesis, self.source, repairs=repairs)

    def _run(self, task: str, desk: Path, folder: Path) -> Outcome:
        start = WITHOUT_STDIN if HOLE in self._words else WITH_TASK_ON_STDIN
        words = [task if word == HOLE else word for word in self._words]
        return supervise(
            ["/bin/sh", "-c", start, str(desk), *words],
            View(folder),
            env=detached_env(),
            limit_s=self._limit_s,
            stopped=self._stopped,
            tick=self._tick,
        )

    def _taken(
        self, desk: Path, briefing: Briefing, outcome: Outcome, bill: Bill
    ) -> tuple[AgentEdit, None] | tuple[None, str]:
        """The edit, or why there is none.

        An agent that failed, or ran out of time, after IDEA.md had made its edit; before, the edit may be half of one.
        """
        ended = self._how_it_ended(outcome)
        said = bill.said or next((line for line in reversed(outcome.last_lines.splitlines()) if line.strip()), "")
        last_words = f"; it said: {one_line(said, SAID_CHARS)}" if said else ""
        try:
            edit = take_edit(desk, briefing)
        except NoIdea as error:
            how = f" and {ended}" if ended else ""
            return None, f"{self.source} had no idea: {error}{how}{last_words}"
        if ended is not None and not edit.told:
            name = script_name(briefing)
            return None, f"{self.source} {ended}, and its edit of {name} may be half of one{last_words}"
        return edit, None

    def _how_it_ended(self, outcome: Outcome) -> str | None:
        """None for a good end."""
        match outcome.ending:
            case Ending.FINISHED:
                return None
            case Ending.OVERRAN:
                return f"was still at it after {self._limit_s:g} s"
            case Ending.STOPPED:
                return "was stopped with the night"
            case Ending.SLEPT:
                return "lost its time to a sleeping machine"
        return f"ended with exit code {outcome.exit_code}"


def split(command: str) -> list[str]:
    """The words of a command line, its program by its path; raises NightError or MachineError with the remedy."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise NightError(f"--command {command!r} cannot be split into words ({error}); mend its quotes") from error
    if not words:
        raise NightError("--command is empty; name a coding agent, as in: --command 'claude -p'")
    if any(HOLE in word and word != HOLE for word in words):
        # within sh -c '…' the text of the task, which quotes other programs, would be read as commands
        raise NightError(f"{HOLE} in --command has to be a word of its own, without quotes around more than itself")
    program = shutil.which(words[0])
    if program is None:
        raise MachineError(f"{words[0]}, the program of --command, is not on PATH; install it or give its path")
    return [str(Path(program).absolute()), *words[1:]]


def _new_folder(asks: Path, number: int) -> Path:
    """For one call; there may be several for an attempt."""
    count = 1
    while (folder := asks / f"{number:04d}-{count}").exists():
        count += 1
    folder.mkdir(parents=True)
    return folder


def _end_of_log(folder: Path) -> str:
    """Cuts the log to what is kept of it."""
    try:
        content = read_end(folder, LOG, LOG_BYTES)
        if (folder / LOG).stat().st_size > LOG_BYTES:
            (folder / LOG).write_bytes(content)
    except OSError:
        return ""
    return content.decode(errors="replace")


# ---- what it cost ----------------------------------------------------------------------------------------------------


def read_bill(log: str) -> Bill:
    """From the last line of JSON that speaks of costs: Claude Code's result, or the end of a turn of Codex."""
    objects = list(_objects(log))
    bill = next((one for one in objects if "total_cost_usd" in one or isinstance(one.get("usage"), dict)), {})
    usage, models = bill.get("usage"), bill.get("modelUsage")
    tokens = usage if isinstance(usage, dict) else {}
    # Claude Code counts apart what a cache was filled with or spared it; Codex includes it
    known = [part for name in TOKENS_IN if (part := _count(tokens.get(name))) is not None]
    return Bill(
        usd=_amount(bill.get("total_cost_usd")),
        tokens_in=sum(known) if known else None,
        tokens_out=_count(tokens.get("output_tokens")),
        model=_dearest(models) if isinstance(models, dict) and models else None,
        said=next((words for one in objects if (words := _words(one))), None),
    )


def _words(event: Mapping[str, Any]) -> str | None:
    """What an event says to people: Claude Code's result, a message or an error of Codex."""
    item, error = event.get("item"), event.get("error")
    said = [event.get("result"), event.get("message")]
    said += [item.get("text"), item.get("message")] if isinstance(item, dict) else []
    said += [error.get("message")] if isinstance(error, dict) else []
    return next((words for words in said if isinstance(words, str) and words.strip()), None)


def _objects(log: str) -> Iterator[Mapping[str, Any]]:
    """The lines that are JSON objects, the last first."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found


def _dearest(models: Mapping[str, Any]) -> str:
    """Of several that worked on it, the one that cost most."""
    costs = {name: _amount(one.get("costUSD")) if isinstance(one, dict) else None for name, one in models.items()}
    return one_line(max(costs, key=lambda name: costs[name] or 0.0), SAID_CHARS)


def _amount(value: object) -> float | None:
    """Dollars of one call; what is beyond all sense is not believed."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) and 0 <= value < 1e5 else None  # type: ignore[arg-type, operator]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1e12 else None
