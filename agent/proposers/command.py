"""Propose edits by a coding agent: a command that edits the script in a throwaway clone.

The agent is the user's own tool and runs with the user's rights, keys and network, as in a terminal. It starts in a new
git repository that holds copies: nothing in it leads to the user's repository or to the corpus, and it holds no output
of a scoring process. The agent is ended with all its processes.
"""

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from agent.clock import utc_now
from agent.errors import MachineError, NightError, NoIdea, RepoError, ScriptError
from agent.experiment import Ask, Ending, Options, Proposal
from agent.files import read_end, throwaway_folder
from agent.git import detached_git
from agent.proposers.keys import LIKELY, check_without_keys, hidden, keys_in, names_key
from agent.proposers.prompts import facts_page, written
from agent.proposers.proposer import Around, Briefing, Messages, Need, Proposer
from agent.sandbox.process import LOG, Outcome, supervise
from agent.script.contract import MAX_SCRIPT_BYTES, decoded
from agent.text import SAID_CHARS, one_line, plain_lines

LIMIT_S = 600.0
ASSIGNMENT = re.compile(r"\b([A-Z_][A-Z0-9_]*)=(?=[^\s=]*[^\d\s=])(?=[^\s=]{8})")  # NAME=value, such as env takes
# An agent does not get these: they say where a tool would install packages, and where the user's folder is.
LEADS_HOME = frozenset({"VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PWD", "OLDPWD"})
HOLE = "{task}"
LOG_BYTES = 256 << 10  # bytes of each log that are kept: its end
TASK, IDEA = "TASK.md", "IDEA.md"
IDEA_BYTES = 16 << 10  # bytes; a longer IDEA.md is ignored
# the folder and the words come as arguments, so that the shell does not interpret them
WITH_TASK_ON_STDIN, WITHOUT_STDIN = f'cd "$0" && exec "$@" < {TASK}', 'cd "$0" && exec "$@"'


class Command(Proposer):
    """Propose edits by running one command line, split as a shell does but without a shell.

    For a shell's features, give sh -c '…'. The task replaces the word {task}, or else comes on stdin. Raise NightError
    for a command line that cannot be split, MachineError for a program that is not installed.
    """

    name, help = "command", "any coding agent"
    need = Need("agent", "claude -p", details=("agent_minutes",))
    costs, at_once = True, None

    @classmethod
    def of(cls, around: Around) -> "Command":
        options, folder = around.options, around.place.folder(around.night.tag)
        return cls(options.agent or "", folder, around.messages, limit_s=60 * options.agent_minutes)

    @classmethod
    def check(cls, options: Options) -> None:
        """Refuse a key, too: the journal keeps the command line, and every process of the machine may read it."""
        for word in split(options.agent or ""):
            for match in (*ASSIGNMENT.finditer(word), *LIKELY.finditer(word)):
                name = match[1] if match.re is ASSIGNMENT else "sk-"
                if name == "sk-" or names_key(name):
                    raise NightError(
                        f"--command holds what looks like a key ({name}…), which the journal would keep; export it "
                        f"instead: the agent has your environment"
                    )

    def __init__(
        self,
        command: str,
        folder: Path,  # the night's folder: tasks and logs go to asks/, the fixed files come from fixed/
        messages: Messages,
        *,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._words, self._folder, self._messages, self._limit_s = split(command), folder, messages, limit_s
        self.proposer = f"command:{Path(self._words[0]).name}"

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        """Run the agent, record its costs and return its edit; raise NoIdea if it left no whole edit."""
        asks, started = self._folder / "asks", utc_now()
        earlier = len(list(asks.glob(f"{briefing.number:04d}-*")))  # each agent at work now has another number
        folder = asks / f"{briefing.number:04d}-{earlier + 1}"
        folder.mkdir(parents=True)
        proposal, failure = None, None
        with throwaway_folder() as aside:
            clone = aside / "clone"
            clone.mkdir()
            task = lay_out(clone, briefing, self._folder / "fixed", self._limit_s)
            (folder / TASK).write_bytes(task.encode())
            outcome = self._run(task, clone, folder)
            events, ended = events_of(_end_of_log(folder)), None
            if outcome.ending is not Ending.FINISHED:
                ended = f"it {outcome.ending} (exit code {outcome.exit_code})"
            try:
                proposal = take_edit(clone, briefing, self.proposer, is_whole=ended is None)
            except (NoIdea, NightError) as error:
                words = last_words(events) or outcome.last_lines.rstrip().rpartition("\n")[2]
                last = one_line(hidden(words, *keys_in(os.environ).values()), SAID_CHARS)
                failure = "; ".join(filter(None, (str(error), ended, last and f"it said: {last}")))
        self._messages.record(
            billed(Ask(briefing.number, self.proposer, started, outcome.wall_s, failure=failure), events)
        )
        if proposal is None:
            raise NoIdea(f"{failure} (log: {folder / LOG})")
        return [proposal]

    def _run(self, task: str, clone: Path, folder: Path) -> Outcome:
        start = WITHOUT_STDIN if HOLE in self._words else WITH_TASK_ON_STDIN
        task_word = os.fsdecode(task.encode(errors="replace"))  # a locale may lack its characters
        words = [task_word if word == HOLE else word for word in self._words]
        # the user's environment with keys, but without what leads to the user's repository and packages
        ours = ("GIT_", "NIGHTSHIFT_")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(ours) and name not in LEADS_HOME
        }
        return supervise(
            ["/bin/sh", "-c", start, str(clone), *words],
            folder,
            env=environment,
            limit_s=self._limit_s,
            stopped=self._messages.stopped,
        )


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


def _end_of_log(folder: Path) -> str:
    """Return the end of the log, and cut the file to it; the keys that the agent printed are taken out of both."""
    with suppress(OSError):
        content = read_end(folder, LOG, LOG_BYTES)
        for key in keys_in(os.environ).values():
            content = content.replace(key.encode(errors="surrogateescape"), b"...")
        (folder / LOG).write_bytes(content)
        return content.decode(errors="replace")
    return ""


# ---- the clone -------------------------------------------------------------------------------------------------------


def lay_out(clone: Path, briefing: Briefing, fixed: Path, limit_s: float) -> str:
    """Fill an empty folder, commit it and return the task; `fixed` holds the files that the script imports.

    Raise RepoError if git fails.
    """
    if fixed.is_dir():
        shutil.copytree(fixed, clone, ignore=shutil.ignore_patterns("__pycache__", ".*"), dirs_exist_ok=True)
    notes = [note.replace("\n", "\n  ") for note in briefing.notes]
    task = written("agent", script=Path(briefing.night.script).name, briefing=briefing, minutes=limit_s / 60) + "\n"
    texts = {
        Path(briefing.night.script).name: briefing.edited,
        "program.md": briefing.program,
        "notes.md": "".join(f"- {note}\n" for note in notes),
        "FACTS.md": facts_page(briefing),
        TASK: task,
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
            message = one_line(done.stderr.decode(errors="replace"), SAID_CHARS)
            raise RepoError(
                f"git {command[0]} failed in a new folder below {clone.parent}: {message}; see: git --version"
            )
    return task


def take_edit(clone: Path, briefing: Briefing, proposer: str, *, is_whole: bool) -> Proposal:
    """Read the edited script and the agent's description; raise NoIdea if there is no whole edit in a plain file.

    Raise NightError for an edit that holds a key: the agent has all keys.

    is_whole: False if the agent failed or ran out of time; its edit then counts only with IDEA.md, which comes last.
    """
    name, old = Path(briefing.night.script).name, briefing.edited
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
        words = plain_lines(content.decode(errors="replace")).strip() if len(content) <= IDEA_BYTES else ""
    if not words and not is_whole:
        raise NoIdea(f"its edit of {name} may be half of one")
    check_without_keys("its edit", words, script)
    title, _, hypothesis = words.partition("\n")
    repairs = briefing.broken.number if briefing.broken else None
    return Proposal.of(script, title.lstrip("# ") or "an edit without words", hypothesis, proposer, repairs=repairs)


# ---- costs -----------------------------------------------------------------------------------------------------------

Usd = Annotated[float, msgspec.Meta(ge=0, le=1e5)]  # cost of one call
Tokens = Annotated[int, msgspec.Meta(ge=0, le=10**12)]


class Usage(msgspec.Struct, frozen=True):
    """Counts of tokens: Claude Code counts those of a cache apart."""

    input_tokens: Tokens = 0
    cache_creation_input_tokens: Tokens = 0
    cache_read_input_tokens: Tokens = 0
    output_tokens: Tokens | None = None


class Message(msgspec.Struct, frozen=True):
    """A part of an event of Codex that may have words for people."""

    text: str | None = None
    message: str | None = None


class Event(msgspec.Struct, frozen=True):
    """The part of a line of JSON that is read: Claude Code's result, or an event of Codex."""

    total_cost_usd: Usd | None = None
    usage: Usage | None = None
    result: str | None = None
    message: str | None = None
    item: Message = Message()
    error: Message = Message()


def events_of(log: str) -> list[Event]:
    """Return the lines of a log that are such objects, the last first."""
    events = []
    for line in reversed(log.splitlines()):
        with suppress(msgspec.MsgspecError, RecursionError):
            events.append(msgspec.json.decode(line, type=Event))
    return events


def billed(ask: Ask, events: Sequence[Event]) -> Ask:
    """Add the costs of the last event that has some."""
    bill = next((event for event in events if event.total_cost_usd is not None or event.usage is not None), Event())
    usage = bill.usage or Usage()
    tokens_in = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    return replace(ask, usd=bill.total_cost_usd, tokens_in=tokens_in or None, tokens_out=usage.output_tokens)


def last_words(events: Sequence[Event]) -> str | None:
    """Return the last text for people."""
    texts = (
        text
        for event in events
        for text in (event.result, event.message, event.item.text, event.item.message, event.error.message)
    )
    return next((text for text in texts if text and text.strip()), None)
