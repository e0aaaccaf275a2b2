"""Write the briefing of a proposer, from the templates in prompts/: the same for a model and for an agent.

prompts/ holds one template each, in Jinja2's form, for people to read and change. A part that may grow long has a limit
of its own there, 42,000 characters together: 13,000 tokens, as code and tables have 3.3 characters in each. The stable
parts of a question come first, so that they are the same from question to question, and a provider's cache can hold
them.

Some of the text comes from people whom the proposer must obey, such as the owner's program.md. Other text comes from
programs that it must not obey: titles of other proposers, the last line of a crashed run. Each of these is quoted on
one line of limited length, with codes in place of characters that could close the quotes or look like a chat template's
control token. Code stands in fences that it cannot close. The output of a process that has read validation text is
never quoted: a script could print that text for the next script to memorise.
"""

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent import text
from agent.experiment import Attempt, Status, Summary, memory_gb
from agent.proposers import attempts
from agent.proposers.proposer import Briefing

if TYPE_CHECKING:
    from jinja2 import Environment

ANSWER_CHARS = 60_000  # characters of an unusable reply that are sent back with the error

# ---- what a proposer is told -----------------------------------------------------------------------------------------


def facts_page(briefing: Briefing) -> str:
    """Write all that a model is told beside program, script, notes and task."""
    return f"{written('lasting', briefing=briefing)}\n\n{written('facts', briefing=briefing)}\n"


@dataclass(frozen=True, slots=True)
class Conversation:
    """The system prompt and the messages after it: our question, an unusable answer, our request, …"""

    system: str
    messages: tuple[str, ...]
    stable_chars: int = 0  # characters at the start of the first message that stay the same until an attempt is kept

    @property
    def chars(self) -> int:
        return sum(map(len, (self.system, *self.messages)))


def compose(briefing: Briefing) -> Conversation:
    """Write the question for an edit of the parent's script, or for a repair of a broken attempt of the same proposer.

    Every fourth question asks for an edit unlike all before. The task comes last and says all that differs, so that the
    text before it is the same in every question and a provider's cache holds it.
    """
    broken, script = briefing.broken, briefing.night.script
    task = "repair" if broken is not None else "explore" if briefing.number % 4 == 2 else "edit"
    failed_at = None if broken is None else _failing_line(broken, script)
    system, beginning, *rest = (
        written(name, briefing=briefing, broken=broken, script=script, failed_at=failed_at)
        for name in ("system", "question_beginning", "question_rest", task)
    )
    return Conversation(system, ("\n\n".join([beginning, *rest]),), 0 if broken else len(beginning))


def _failing_line(broken: Attempt, script: str) -> tuple[int, str] | None:
    """Return the script's line that a traceback names, with its number. Only the number comes from the log."""
    log = next((run.last_lines for run in reversed(broken.done_runs)), "")
    named = re.findall(rf'File "[^"\n]*{re.escape(Path(script).name)}", line (\d{{1,6}})', log)
    lines = dict(enumerate(broken.proposal.script.split("\n"), 1))
    return next(((int(number), lines[int(number)]) for number in named[-1:] if int(number) in lines), None)


def ask_again(conversation: Conversation, answer: str, wrong: str) -> Conversation:
    """Add an unusable answer and its error to the messages; an empty answer gets none: some servers refuse it."""
    request = written("again", wrong=wrong)
    answer = text.cut(answer.encode(errors="replace").decode(), ANSWER_CHARS)
    if answer.strip():
        return replace(conversation, messages=(*conversation.messages, answer, request))
    *earlier, last = conversation.messages
    return replace(conversation, messages=(*earlier, f"{last}\n\n{request}"))


# ---- templates -------------------------------------------------------------------------------------------------------


def written(name: str, **facts: object) -> str:
    """Return the template prompts/NAME.md with these facts; raise jinja2.UndefinedError for one that is missing."""
    return _templates().get_template(f"{name}.md").render(facts).strip()


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # most commands write no prompt

    folder = FileSystemLoader(Path(__file__).with_name("prompts"))
    # plain text for a model, no page
    templates = Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # Templates can use all names of these files, as functions or as filters.
    named = {**vars(text), **vars(attempts), "attempt_lines": attempt_lines}
    named |= {"against": _against, "formatted": _formatted, "none_reported": Summary(), "memory_gb": memory_gb}
    functions = {name: value for name, value in named.items() if callable(value)}
    templates.filters |= functions
    templates.globals |= named
    return templates


def _formatted(value: object, form: str) -> str:
    """Write a number in this form; return an empty string for anything else."""
    return form.format(value) if isinstance(value, int | float) else ""


def _against(value: float | None, other: float | None, noun: str = "") -> str:
    """Write the relative difference of two numbers; return an empty string if one is missing."""
    return f"{noun} {value / other - 1:+.0%}".strip() if value is not None and other else ""


def attempt_lines(briefing: Briefing, most_chars: int) -> str:
    """List the attempts; where that is too long, kept ones are the first to stay, and then the newest."""
    lines = [written("attempt", attempt=attempt, briefing=briefing) for attempt in briefing.history]
    by_rank = sorted(zip(lines, briefing.history, strict=True), key=lambda pair: pair[1].status is Status.KEEP)
    shown = set(text.newest([line for line, _ in by_rank], most_chars))
    left_out = len(lines) - len(shown)
    head = [f"({left_out} earlier ones are left out)"] if left_out else []
    return "\n".join([*head, *(line for line in lines if line in shown)])
