"""Write the prompt that asks a language model for an edit: a pure function of the briefing.

Some of its text comes from people whom the model must obey, such as the owner's program.md. Other text comes from
programs that it must not obey: titles of other sources, the last line of a crashed run. Each of these is quoted on one
line of limited length, with codes in place of characters that could close the quotes or look like a chat template's
control token. Code stands in fences that it cannot close. The output of a process that has read validation text is
never quoted: a script could print that text for the next script to memorise.

The whole has a limit, of which the script takes what it needs. STABLE and CHANGING are the tables of all other parts,
with what each is worth and how short it may get. The stable parts come first and are fitted by themselves, so that
they are the same from question to question, and a provider's cache can hold them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from agent.experiment import Attempt
from agent.proposers.author.attempts import TITLE_CHARS, Combinable, history, to_combine, what_happened
from agent.proposers.author.calls import calls
from agent.proposers.author.curves import curves
from agent.proposers.author.diffs import diffs, edits_of
from agent.proposers.author.excerpts import Section, cut, fenced, fit, newest, quoted
from agent.proposers.author.facts import lasting, present
from agent.proposers.author.pages import for_one_answer
from agent.proposers.author.tried import known_ideas, turned_dials
from agent.proposers.briefing import Briefing
from agent.proposers.written import written
from agent.text import harmless_lines, paragraphs

PROMPT_CHARS = 52_000  # of all parts together: 16,000 tokens, as code and tables have 3.3 characters in each
STABLE_CHARS, CHANGING_CHARS = 6_000, 9_000  # at least, beside a script that would leave less
TASK_CHARS, COMBINED_CHARS = 1_500, 7_000  # of the longest task; of the edits that may be combined
NOTE_CHARS, HYPOTHESIS_CHARS = 1_000, 600  # of one
ANSWER_CHARS = 60_000  # of an unusable reply that is sent back with the error


class AskMode(StrEnum):
    """Name a mode by the source that its ideas are credited to: each mode earns its own share of a night.

    The task comes last in a prompt and says all that differs between the modes, so that the text before it is the same
    in every mode and a provider's cache holds it.
    """

    EDIT = "llm"
    EXPLORE = "explore"  # three different ideas
    COMBINE = "combine"  # several near misses in one edit


SOURCES = frozenset(mode.value for mode in AskMode)  # all that a language model's ideas and calls are credited to


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """Hold one message of a conversation."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """Hold the system prompt and the messages that follow it."""

    system: str
    messages: tuple[ChatMessage, ...]
    stable_chars: int = 0  # at the beginning of the first message, that the night's next questions share

    @property
    def chars(self) -> int:
        return len(self.system) + sum(len(message.text) for message in self.messages)


# ---- the parts -------------------------------------------------------------------------------------------------------


def _program(briefing: Briefing, most_chars: int) -> str:
    text = cut(harmless_lines(for_one_answer(briefing.program).strip()), most_chars - 40)
    return fenced(text, "markdown")


def _notes(briefing: Briefing, most_chars: int) -> str:
    """Return the owner's notes, the newest last; if they are too long, the oldest are left out."""
    lines = [paragraphs(note, NOTE_CHARS).replace("\n", "\n  ") for note in briefing.notes if note.strip()]
    shown = newest([f"- {line}" for line in lines], most_chars - 80)
    if not shown:
        return ""
    return "\n".join([*shown, "\nThe last one is the newest: where they differ, it counts."])


def _refused(briefing: Briefing, most_chars: int) -> str:
    lines = [f"- {quoted(one.proposal.title, TITLE_CHARS)}: {quoted(one.why)}" for one in briefing.refused]
    return "\n".join(newest(lines, most_chars))


def _offered(briefing: Briefing, most_chars: int) -> str:
    parts = to_combine(briefing.history)
    return "" if parts is None else edits_of(parts.near, briefing, most_chars)


STABLE = (
    Section("Program", _program, worth=2, least_chars=2_000, most_chars=12_000),
    Section("What the script may call", calls, worth=1, least_chars=1_500, most_chars=5_000),
    Section("The night", lambda briefing, _: "\n".join(lasting(briefing)), worth=3, least_chars=0, most_chars=1_000),
)
CHANGING = (
    Section("So far", lambda briefing, _: "\n".join(present(briefing)), worth=10, least_chars=0, most_chars=2_000),
    Section("Attempts", history, worth=7, least_chars=3_500, most_chars=10_500),
    Section("Loss curves", curves, worth=4, least_chars=1_500, most_chars=2_500),
    Section("Dials", turned_dials, worth=5, least_chars=600, most_chars=2_500),
    Section("Edits", diffs, worth=1, least_chars=1_500, most_chars=5_000),
    Section("Known ideas", known_ideas, worth=3, least_chars=700, most_chars=2_000),
    Section("Notes from the owner", _notes, worth=9, least_chars=1_000, most_chars=4_000),
    Section("Turned down just now, before it cost a run", _refused, worth=8, least_chars=300, most_chars=2_000),
)
# the question for a combination needs the edits of all that may be combined, in place of those that teach most
COMBINING = tuple(
    Section("Edits to combine", _offered, worth=8, least_chars=4_000, most_chars=COMBINED_CHARS)
    if part.write is diffs
    else part
    for part in CHANGING
)


def compose(briefing: Briefing, broken: Attempt | None = None, mode: AskMode = AskMode.EDIT) -> Conversation:
    """Write the question for an edit of the parent's script, or for a repair of a broken attempt of the same author."""
    name, script = briefing.night.script, (broken or briefing.parent).proposal.script
    system, shown = written("system", script=name), _section(f"The script: {name}", fenced(script, "python"))
    parts = to_combine(briefing.history) if mode is AskMode.COMBINE and not broken else None
    task = _section("Your task", _repair(broken, name) if broken else _task(mode, name, parts))
    left = PROMPT_CHARS - len(system) - len(shown)
    # whatever the task, so that the beginning is the same in every mode
    stable = _sections(STABLE, briefing, max(STABLE_CHARS, left - CHANGING_CHARS - TASK_CHARS))
    table = CHANGING if parts is None else COMBINING
    changing = _sections(table, briefing, max(CHANGING_CHARS, left - len(stable) - len(task)))
    beginning = "\n\n".join(filter(None, (stable, shown)))
    text = "\n\n".join(filter(None, (beginning, changing, task)))
    return Conversation(system, (ChatMessage("user", text),), 0 if broken else len(beginning))


def _sections(parts: Sequence[Section], briefing: Briefing, most_chars: int) -> str:
    room = most_chars - sum(len(part.title) + 6 for part in parts)
    return "\n\n".join(_section(title, text) for title, text in fit(parts, briefing, room).items())


def _section(title: str, text: str) -> str:
    return f"# {title}\n\n{text}" if text else ""


def _task(mode: AskMode, script: str, parts: Combinable | None) -> str:
    """Return the task that ends a prompt, with the form of the answer; `parts`: what may be combined."""
    if mode is AskMode.COMBINE and parts is not None:
        return written("combine", script=script, near=parts.near, keeps=parts.keeps)
    return written("explore" if mode is AskMode.EXPLORE else "edit", script=script)


def _repair(broken: Attempt, script: str) -> str:
    line, code = _where(broken, script)
    return written(
        "repair",
        number=broken.number,
        title=quoted(broken.proposal.title, TITLE_CHARS),
        why=what_happened(broken) or "it crashed",
        hypothesis=quoted(broken.proposal.hypothesis, HYPOTHESIS_CHARS),
        line=line,
        code=quoted(code),
    )


def _where(broken: Attempt, script: str) -> tuple[int, str]:
    """Return the script's line that a traceback names; 0: none. Only its number comes from the log."""
    log = next((run.last_lines for run in reversed(broken.done_runs)), "")
    named = re.findall(rf'File "[^"\n]*{re.escape(script.rpartition("/")[2])}", line (\d{{1,6}})', log)
    lines = broken.proposal.script.split("\n")
    line = int(named[-1]) if named else 0
    return (line, lines[line - 1]) if 0 < line <= len(lines) else (0, "")


def ask_again(asked: Conversation, answer: str, wrong: str) -> Conversation:
    """Add an unusable answer and its error to the messages; an empty answer gets none: some servers refuse it."""
    request = written("again", wrong=wrong)
    answer = cut(answer.encode(errors="replace").decode(), ANSWER_CHARS)
    if not answer.strip():
        first = asked.messages[-1]
        return replace(asked, messages=(*asked.messages[:-1], replace(first, text=f"{first.text}\n\n{request}")))
    return replace(asked, messages=(*asked.messages, ChatMessage("assistant", answer), ChatMessage("user", request)))
