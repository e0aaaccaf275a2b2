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
from dataclasses import dataclass, replace
from enum import StrEnum

from agent.experiment import Attempt
from agent.proposers.author.attempts import to_combine, what_happened
from agent.proposers.author.excerpts import cut, newest
from agent.proposers.author.pages import for_one_answer, written
from agent.proposers.briefing import Briefing
from agent.text import harmless_lines, paragraphs

NOTE_CHARS, NOTES_CHARS = 1_000, 2_400  # of one; of all, of which the newest stay
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
class Conversation:
    """Hold the system prompt and what follows it: our question, an answer that could not be used, our request, …"""

    system: str
    messages: tuple[str, ...]
    stable_chars: int = 0  # of the first message: the same in the next questions, until an attempt is kept

    @property
    def chars(self) -> int:
        return sum(map(len, (self.system, *self.messages)))


def compose(briefing: Briefing, broken: Attempt | None = None, mode: AskMode = AskMode.EDIT) -> Conversation:
    """Write the question for an edit of the parent's script, or for a repair of a broken attempt of the same author."""
    name, edited = briefing.night.script, (broken or briefing.parent).proposal.script
    parts = to_combine(briefing.history) if mode is AskMode.COMBINE and not broken else None
    notes = [paragraphs(note, NOTE_CHARS).replace("\n", "\n  ") for note in briefing.notes]
    beginning = written(
        "question_beginning",
        briefing=briefing,
        program=harmless_lines(for_one_answer(briefing.program).strip()),
        script=name,
        edited=edited,
    )
    rest = written("question_rest", briefing=briefing, parts=parts, notes=newest(notes, NOTES_CHARS))
    task = _repair(broken, name) if broken else written(mode.name.lower(), script=name, parts=parts)
    message = f"{beginning}\n\n{rest}\n\n{task}"
    return Conversation(written("system", script=name), (message,), 0 if broken else len(beginning))


def _repair(broken: Attempt, script: str) -> str:
    """Write the task of a repair, with the script's line that a traceback names. Only its number comes from the log."""
    log = next((run.last_lines for run in reversed(broken.done_runs)), "")
    named = re.findall(rf'File "[^"\n]*{re.escape(script.rpartition("/")[2])}", line (\d{{1,6}})', log)
    line = int(named[-1]) if named else 0
    code = dict(enumerate(broken.proposal.script.split("\n"), 1)).get(line)
    return written("repair", broken=broken, why=what_happened(broken) or "it crashed", line=line, code=code)


def ask_again(asked: Conversation, answer: str, wrong: str) -> Conversation:
    """Add an unusable answer and its error to the messages; an empty answer gets none: some servers refuse it."""
    request = written("again", wrong=wrong)
    answer = cut(answer.encode(errors="replace").decode(), ANSWER_CHARS)
    if answer.strip():
        return replace(asked, messages=(*asked.messages, answer, request))
    return replace(asked, messages=(*asked.messages[:-1], f"{asked.messages[-1]}\n\n{request}"))
