"""Propose edits by a coding agent: a command that edits the script in a throwaway clone.

The agent is the user's own tool and runs with the user's rights, keys and network, as in a terminal. It starts in a new
git repository that holds copies: nothing in it leads to the user's repository or to the corpus, and it holds no output
of a scoring process. The agent is ended with all its processes.
"""

import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.clock import utc_now
from agent.errors import MachineError, NightError, NoIdea, RepoError, ScriptError
from agent.experiment import Ask, Ending, Proposal, Status
from agent.files import read_end, throwaway_folder
from agent.git import detached_git
from agent.proposers.author.attempts import script_diff, what_happened
from agent.proposers.author.excerpts import cut
from agent.proposers.author.pages import facts_page, for_one_answer, written
from agent.proposers.briefing import Briefing
from agent.sandbox.places import View
from agent.sandbox.process import LOG, Outcome, supervise
from agent.script.contract import MAX_SCRIPT_BYTES, decoded
from agent.text import SAID_CHARS, diff_lines, harmless_lines, one_line

LIMIT_S = 600.0
# not for an agent, beside variables of git and nightshift: where a tool would install packages, and the user's folder
LEADS_HOME = frozenset({"VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PWD", "OLDPWD"})
HOLE = "{task}"
LOG_BYTES = 256 << 10  # kept of each log, its end
TASK, IDEA = "TASK.md", "IDEA.md"
IDEA_BYTES = 16 << 10  # at most: a longer one is none
MAX_DIFFS, DIFF_CHARS = 40, 20_000  # number of edits shown (kept ones first, then the latest); length of each
MOST_USD = 1e5  # of one call
TOKENS_IN = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# the folder and the words come as arguments, so that the shell does not interpret them
WITH_TASK_ON_STDIN, WITHOUT_STDIN = f'cd "$0" && exec "$@" < {TASK}', 'cd "$0" && exec "$@"'
Event = Mapping[str, Any]


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
        folder, started = new_folder(self._folder / "asks", briefing.number), utc_now()
        proposal, failure = None, None
        with throwaway_folder() as aside:
            clone = aside / "clone"
            clone.mkdir()
            task = lay_out(clone, briefing, self._folder / "fixed", self._limit_s)
            (folder / TASK).write_bytes(task.encode())
            outcome = self._run(task, clone, folder)
            ended, events = self._how_it_ended(outcome), events_of(_end_of_log(folder))
            try:
                proposal = take_edit(clone, briefing, self.source, is_whole=ended is None)
            except NoIdea as error:
                lines = filter(str.strip, reversed(outcome.last_lines.splitlines()))
                said = one_line(last_words(events) or next(lines, ""), SAID_CHARS)
                details = (str(error), ended, said and f"it said: {said}")
                failure = f"{self.source} had no idea: {'; '.join(filter(None, details))}"
        self._record(billed(Ask(briefing.number, self.source, started, outcome.wall_s, failure=failure), events))
        if proposal is None:
            raise NoIdea(f"{failure} (log: {folder / LOG})")
        return [proposal]

    def _run(self, task: str, clone: Path, folder: Path) -> Outcome:
        start = WITHOUT_STDIN if HOLE in self._words else WITH_TASK_ON_STDIN
        words = [task if word == HOLE else word for word in self._words]
        # the user's environment with keys, but without what leads to the user's repository and packages
        ours = ("GIT_", "NIGHTSHIFT_")
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(ours) and name not in LEADS_HOME
        }
        return supervise(
            ["/bin/sh", "-c", start, str(clone), *words],
            View(folder),
            env=kept,
            limit_s=self._limit_s,
            stopped=self._stopped,
            tick=lambda elapsed_s: None,
        )

    def _how_it_ended(self, outcome: Outcome) -> str | None:
        """Return how the agent failed, or None if it ended well."""
        match outcome.ending:
            case Ending.FINISHED:
                return None
            case Ending.OVERRAN:
                return f"it was still working after {self._limit_s:g} s"
            case Ending.STOPPED:
                return "it was stopped with the night"
            case Ending.SLEPT:
                return "it lost its time because the machine slept"
        return f"it ended with exit code {outcome.exit_code}"


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


def new_folder(asks: Path, number: int) -> Path:
    """Make a new folder for one call; an attempt may have several, also at the same time."""
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


# ---- the clone -------------------------------------------------------------------------------------------------------


def lay_out(clone: Path, briefing: Briefing, fixed: Path, limit_s: float) -> str:
    """Fill an empty folder, commit it and return the task; `fixed` holds the files that the script imports.

    Raise RepoError if git fails.
    """
    if fixed.is_dir():
        shutil.copytree(fixed, clone, ignore=shutil.ignore_patterns("__pycache__", ".*"), dirs_exist_ok=True)
    (clone / "history").mkdir(exist_ok=True)
    notes = [note.replace("\n", "\n  ") for note in briefing.notes]
    task = f"{_task(briefing, limit_s)}\n"
    texts = {
        Path(briefing.night.script).name: _before(briefing),
        "program.md": for_one_answer(briefing.program),
        "notes.md": "".join(f"- {note}\n" for note in notes),
        "FACTS.md": facts_page(briefing),
        TASK: task,
        **_diffs(briefing),
    }
    for name, text in texts.items():
        (clone / name).write_bytes(text.encode(errors="replace"))
    for command in (
        ("init", "--quiet", "--template="),
        ("config", "user.name", "nightshift"),
        ("config", "user.email", "nightshift@localhost"),
        ("add", "--all", "--force"),
        ("commit", "--quiet", "--message", "as it was shown"),
    ):
        done = detached_git(clone, *command)
        if done.returncode != 0:
            said = one_line(done.stderr.decode(errors="replace"), SAID_CHARS)
            raise RepoError(f"git {command[0]} failed in a new folder below {clone.parent}: {said}; see: git --version")
    return task


def _before(briefing: Briefing) -> str:
    """Return the script to edit: the best one, or the broken one that is to be repaired."""
    return (briefing.broken or briefing.parent).proposal.script


def _task(briefing: Briefing, limit_s: float) -> str:
    """Write the agent's task; of a crash with the end of the log of its training, which has read no held-out text."""
    broken = briefing.broken
    crashes = [run for run in broken.runs if run.ending is Ending.CRASHED] if broken else []
    return written(
        "agent",
        script=Path(briefing.night.script).name,
        briefing=briefing,
        why=(what_happened(broken) or "it crashed") if broken else "",
        log=harmless_lines(crashes[-1].last_lines).split("\n") if crashes else [],
        minutes=limit_s / 60,
    )


def _diffs(briefing: Briefing) -> dict[str, str]:
    """Return file names and edits: of kept attempts, of the latest others, and of proposals just turned down."""
    edits = sorted(
        (attempt for attempt in briefing.history if attempt.is_edit),
        key=lambda attempt: (attempt.status is Status.KEEP, attempt.number),
    )
    scripts = {
        f"{attempt.number:04d}": (briefing.history[attempt.parent or 0].proposal.script, attempt.proposal.script)
        for attempt in edits[-MAX_DIFFS:]
    }
    for count, refusal in enumerate(briefing.refused, 1):
        scripts[f"refused-{count}"] = _before(briefing), refusal.proposal.script
    return {
        f"history/{name}.diff": cut(script_diff(old, new, context=3), DIFF_CHARS) + "\n"
        for name, (old, new) in scripts.items()
    }


def take_edit(clone: Path, briefing: Briefing, source: str, *, is_whole: bool) -> Proposal:
    """Read the edited script and the agent's description; raise NoIdea if there is no whole edit in a plain file.

    is_whole: False where the agent failed or ran out of time: then it is whole only with IDEA.md, which comes last.
    """
    name, old = Path(briefing.night.script).name, _before(briefing)
    try:
        content = read_end(clone, name, MAX_SCRIPT_BYTES + 1)
        if len(content) > MAX_SCRIPT_BYTES:
            raise NoIdea(f"it left {name} with more than {MAX_SCRIPT_BYTES:,} bytes")
        script = decoded(content, name)
    except OSError as error:
        raise NoIdea(f"it left no plain {name} ({error.strerror or 'a link or a pipe'})") from error
    except ScriptError as error:
        raise NoIdea(f"it left a script that cannot be run: {error}") from error
    if script == old:
        raise NoIdea(f"it left {name} as it was")
    words = ""
    with suppress(OSError):
        content = read_end(clone, IDEA, IDEA_BYTES + 1)
        words = content.decode(errors="replace").strip() if len(content) <= IDEA_BYTES else ""
    if not words and not is_whole:
        raise NoIdea(f"its edit of {name} may be half of one")
    title, _, hypothesis = words.partition("\n")
    repairs = briefing.broken.number if briefing.broken else None
    return Proposal.of(script, title.lstrip("# ") or _first_change(old, script), hypothesis, source, repairs=repairs)


def _first_change(old: str, new: str) -> str:
    """Return a substitute for a title: the first added line, else the first removed one."""
    lines = [line for line in diff_lines(old.splitlines(), new.splitlines(), context=0)[2:] if line[1:].strip()]
    added = [line[1:].strip() for line in lines if line.startswith("+")]
    removed = [f"without {line[1:].strip()}" for line in lines if line.startswith("-")]
    return next(iter(added + removed), "blank lines")


# ---- costs -----------------------------------------------------------------------------------------------------------


def events_of(log: str) -> list[Event]:
    """Return the lines that are JSON objects, the last first."""
    events: list[Event] = []
    for line in reversed(log.splitlines()):
        with suppress(ValueError, RecursionError):
            event = json.loads(line)
            events += [event] if isinstance(event, dict) else []
    return events


def billed(ask: Ask, events: Sequence[Event]) -> Ask:
    """Add the costs of the last event that has some: Claude Code's result, or the end of a turn of Codex."""
    bill = next((event for event in events if "total_cost_usd" in event or _part(event, "usage")), {})
    usage, costs = _part(bill, "usage"), _part(bill, "modelUsage")
    # Claude Code counts tokens written to and read from a cache apart; Codex includes them
    tokens_in = [count for name in TOKENS_IN if (count := _count(usage.get(name))) is not None]
    usd_by_model = {name: _number(_part(costs, name).get("costUSD"), MOST_USD) or 0.0 for name in costs}
    return replace(
        ask,
        model=one_line(max(usd_by_model, key=usd_by_model.__getitem__), SAID_CHARS) if usd_by_model else None,
        usd=_number(bill.get("total_cost_usd"), MOST_USD),
        tokens_in=sum(tokens_in) if tokens_in else None,
        tokens_out=_count(usage.get("output_tokens")),
        tokens_cached=_count(usage.get("cache_read_input_tokens", usage.get("cached_input_tokens"))),
    )


def last_words(events: Sequence[Event]) -> str | None:
    """Return the last text for people: Claude Code's result, a message or an error of Codex."""
    texts = (
        part.get(key)
        for event in events
        for part in (event, _part(event, "item"), _part(event, "error"))
        for key in ("result", "message", "text")
    )
    return next((text for text in texts if isinstance(text, str) and text.strip()), None)


def _part(event: Event, name: str) -> Event:
    """Return a part that is an object; an empty one where it is something else."""
    part = event.get(name)
    return part if isinstance(part, dict) else {}


def _number(value: object, most: float) -> float | None:
    """Return a number of dollars or tokens; None if the value is impossible."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < most else None  # type: ignore[operator, return-value]


def _count(value: object) -> int | None:
    number = _number(value, 1e12)
    return None if number is None else int(number)
