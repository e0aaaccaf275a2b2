"""Write the prompt that asks a language model for an edit: a pure function of the briefing.

Some of its text comes from people whom the model must obey, such as the owner's program.md. Other text comes from
programs that it must not obey: titles of other sources, the last line of a crashed run. Each of these is quoted on one
line of limited length, with codes in place of characters that could close the quotes or look like a chat template's
control token. Code stands in fences that it cannot close. The output of a process that has read validation text is
never quoted: a script could print that text for the next script to memorise.

Every part beside the script has a limit of its own, 42,000 characters together: 13,000 tokens, as code and tables have
3.3 characters in each. The stable parts come first, so that they are the same from question to question, and a
provider's cache can hold them.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from agent.experiment import Attempt
from agent.proposers.author.attempts import TITLE_CHARS, Combinable, diffs, edits_of, history, to_combine, what_happened
from agent.proposers.author.calls import calls
from agent.proposers.author.excerpts import cut, fenced, newest, quoted, written
from agent.proposers.author.night import curves, known_ideas, lasting, present, turned_dials
from agent.proposers.author.pages import for_one_answer
from agent.proposers.briefing import Briefing
from agent.text import harmless_lines, paragraphs

COMBINED_CHARS = 7_000  # of the edits that may be combined
NOTE_CHARS = 1_000  # of one
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


# title, text of at most so many characters, that limit; what has nothing to tell is left out
Part = tuple[str, Callable[[Briefing, int], str], int]
STABLE: tuple[Part, ...] = (
    ("Program", _program, 6_000),
    ("What the script may call", calls, 3_500),
    ("The night", lambda briefing, _: lasting(briefing), 1_000),
)
EDITS: Part = ("Edits", diffs, 3_000)
CHANGING: tuple[Part, ...] = (
    ("So far", lambda briefing, _: present(briefing), 2_000),
    ("Attempts", history, 10_500),
    ("Loss curves", curves, 2_000),
    ("Dials", turned_dials, 2_000),
    EDITS,
    ("Known ideas", known_ideas, 1_200),
    ("Notes from the owner", _notes, 2_500),
    ("Turned down just now, before it cost a run", _refused, 1_200),
)
# the question for a combination needs the edits of all that may be combined, in place of those that teach most
TO_COMBINE: Part = ("Edits to combine", _offered, COMBINED_CHARS)


def compose(briefing: Briefing, broken: Attempt | None = None, mode: AskMode = AskMode.EDIT) -> Conversation:
    """Write the question for an edit of the parent's script, or for a repair of a broken attempt of the same author."""
    name, script = briefing.night.script, (broken or briefing.parent).proposal.script
    parts = to_combine(briefing.history) if mode is AskMode.COMBINE and not broken else None
    stable = [*_sections(STABLE, briefing), _section(f"The script: {name}", fenced(script, "python"))]
    table = CHANGING if parts is None else [TO_COMBINE if part is EDITS else part for part in CHANGING]
    task = _repair(broken, name) if broken else _task(mode, name, parts)
    beginning = "\n\n".join(stable)
    text = "\n\n".join([beginning, *_sections(table, briefing), _section("Your task", task)])
    return Conversation(written("system", script=name), (ChatMessage("user", text),), 0 if broken else len(beginning))


def _sections(parts: Iterable[Part], briefing: Briefing) -> list[str]:
    return [_section(title, text) for title, write, most_chars in parts if (text := write(briefing, most_chars))]


def _section(title: str, text: str) -> str:
    return f"# {title}\n\n{text}"


def _task(mode: AskMode, script: str, parts: Combinable | None) -> str:
    """Return the task that ends a prompt, with the form of the answer; `parts`: what may be combined."""
    if mode is AskMode.COMBINE and parts is not None:
        return written("combine", script=script, near=parts.near, keeps=parts.keeps)
    return written("explore" if mode is AskMode.EXPLORE else "edit", script=script)


def _repair(broken: Attempt, script: str) -> str:
    line, code = _where(broken, script)
    return written("repair", broken=broken, why=what_happened(broken) or "it crashed", line=line, code=code)


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
