"""Make the throwaway clone in which a coding agent works, and read its edit from there.

The clone is a new git repository that holds copies: nothing in it leads to the user's repository or to the corpus, and
it holds no output of a scoring process.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.errors import NoIdea, RepoError, ScriptError
from agent.experiment import Ending, Status
from agent.files import read_end
from agent.git import detached_git
from agent.proposers.author.attempts import script_diff, what_happened
from agent.proposers.author.excerpts import cut
from agent.proposers.author.pages import facts_page, for_one_answer, written
from agent.proposers.briefing import Briefing
from agent.script.contract import MAX_SCRIPT_BYTES, decoded
from agent.text import SAID_CHARS, diff_lines, harmless_lines, one_line

TASK, IDEA, FACTS = "TASK.md", "IDEA.md", "FACTS.md"
IDEA_BYTES = 16 << 10
MAX_DIFFS, DIFF_CHARS = 40, 20_000  # number of edits shown (kept ones first, then the latest); length of each


@dataclass(frozen=True, slots=True)
class AgentEdit:
    """Hold the script that an agent left, and its own description of the edit."""

    script: str
    title: str
    hypothesis: str
    is_complete: bool  # whether the agent wrote IDEA.md, which comes last


# ---- filling the clone -----------------------------------------------------------------------------------------------


def lay_out(clone: Path, briefing: Briefing, fixed: Path, limit_s: float) -> str:
    """Fill an empty folder, commit it and return the task; `fixed` holds the files that the script imports.

    Raise RepoError if git fails.
    """
    if fixed.is_dir():
        shutil.copytree(fixed, clone, ignore=shutil.ignore_patterns("__pycache__", ".*"), dirs_exist_ok=True)
    (clone / "history").mkdir(exist_ok=True)
    texts = {
        script_name(briefing): before(briefing),
        "program.md": for_one_answer(briefing.program),
        "notes.md": "".join(f"- {note}\n" for note in map(_indented, briefing.notes)),
        FACTS: facts_page(briefing),
        TASK: task(briefing, limit_s),
        **dict(_diffs(briefing)),
    }
    for name, text in texts.items():
        (clone / name).write_bytes(text.encode(errors="replace"))
    for command in (
        ("-c", "init.defaultBranch=main", "init", "--quiet", "--template="),
        ("config", "user.name", "nightshift"),
        ("config", "user.email", "nightshift@localhost"),
        ("add", "--all", "--force"),
        ("commit", "--quiet", "--message", "as it was shown"),
    ):
        done = detached_git(clone, *command)
        if done.returncode != 0:
            said = one_line(done.stderr.decode(errors="replace"), SAID_CHARS)
            raise RepoError(f"git {command[0]} failed in a new folder below {clone.parent}: {said}; see: git --version")
    return texts[TASK]


def script_name(briefing: Briefing) -> str:
    return Path(briefing.night.script).name


def before(briefing: Briefing) -> str:
    """Return the script to edit: the best one, or the broken one that is to be repaired."""
    return (briefing.broken or briefing.parent).proposal.script


def task(briefing: Briefing, limit_s: float) -> str:
    """Write the agent's task; of a crash with the end of the log of its training, which has read no held-out text."""
    broken = briefing.broken
    log = next((run.last_lines for run in reversed(broken.runs) if run.ending is Ending.CRASHED), "") if broken else ""
    words = written(
        "agent",
        script=script_name(briefing),
        briefing=briefing,
        why=(what_happened(broken) or "it crashed") if broken else "",
        log=harmless_lines(log).split("\n") if log else [],
        minutes=limit_s / 60,
    )
    return f"{words}\n"


def _indented(note: str) -> str:
    return note.replace("\n", "\n  ")


def _diffs(briefing: Briefing) -> Iterator[tuple[str, str]]:
    """Yield file names and edits: of kept attempts, of the latest others, and of proposals just turned down."""
    edits = [one for one in briefing.history if one.parent is not None and one.is_idea]
    by_worth = sorted(edits, key=lambda one: (one.status is Status.KEEP, one.number), reverse=True)
    for one in by_worth[:MAX_DIFFS]:
        parent = briefing.history[one.parent or 0].proposal.script
        yield f"history/{one.number:04d}.diff", _diff(parent, one.proposal.script)
    for count, refusal in enumerate(briefing.refused, 1):
        yield f"history/refused-{count}.diff", _diff(before(briefing), refusal.proposal.script)


def _diff(old: str, new: str) -> str:
    return cut(script_diff(old, new, context=3), DIFF_CHARS) + "\n"


# ---- reading the edit ------------------------------------------------------------------------------------------------


def take_edit(clone: Path, briefing: Briefing) -> AgentEdit:
    """Read the edited script and the agent's description; raise NoIdea if there is no edit, or no plain file."""
    name, old = script_name(briefing), before(briefing)
    try:
        content = read_end(clone, name, MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise NoIdea(f"it left no plain {name} ({error.strerror or 'a link or a pipe'})") from error
    if len(content) > MAX_SCRIPT_BYTES:
        raise NoIdea(f"it left {name} with more than {MAX_SCRIPT_BYTES:,} bytes")
    try:
        script = decoded(content, name)
    except ScriptError as error:
        raise NoIdea(f"it left a script that cannot be run: {error}") from error
    if script == old:
        raise NoIdea(f"it left {name} as it was")
    words = _read_idea(clone)
    title, _, hypothesis = words.partition("\n")
    title = title.lstrip("# ") or _first_change(old, script)
    return AgentEdit(script, title, hypothesis.strip(), is_complete=bool(words))


def _read_idea(clone: Path) -> str:
    """Return the text of IDEA.md; empty if it is missing or too long."""
    try:
        content = read_end(clone, IDEA, IDEA_BYTES + 1)
    except OSError:
        return ""
    return content.decode(errors="replace").strip() if len(content) <= IDEA_BYTES else ""


def _first_change(old: str, new: str) -> str:
    """Return a substitute for a title: the first added line, else the first removed one."""
    lines = diff_lines(old.splitlines(), new.splitlines(), context=0)[2:]
    added = next((line[1:].strip() for line in lines if line.startswith("+") and line[1:].strip()), None)
    gone = next((line[1:].strip() for line in lines if line.startswith("-") and line[1:].strip()), "")
    return added if added is not None else f"without {gone}"
