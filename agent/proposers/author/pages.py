"""Write what an author of edits is told, from the templates in prompts/: the same for a model and for an agent.

prompts/ holds one template each, in Jinja2's form, for people to read and change. A part that may grow long has a limit
of its own there.
"""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent.experiment import Status, Summary
from agent.proposers.author import attempts
from agent.proposers.author.excerpts import cut, fenced, newest, quoted
from agent.proposers.briefing import Briefing
from agent.text import counted, duration, one_line, percent_sure

if TYPE_CHECKING:
    from jinja2 import Environment

HEADING = re.compile(r"(#{1,6})\s+\S.*")
SELF_DRIVING = re.compile(r"\(self-driving agents\)\s*#*\s*$", re.IGNORECASE)  # ends the heading of such a section
FENCE = re.compile(r"\s{0,3}(```+|~~~+)")


def facts_page(briefing: Briefing) -> str:
    """Write all that a model is told beside program, script, notes and task."""
    return f"{written('lasting', briefing=briefing)}\n\n{written('facts', briefing=briefing, parts=None)}\n"


def written(name: str, **facts: object) -> str:
    """Return the template prompts/NAME.md with these facts; raise jinja2.UndefinedError for one that is missing."""
    return _templates().get_template(f"{name}.md").render(facts).strip()


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # most commands write no prompt

    folder = FileSystemLoader(Path(__file__).parents[1] / "prompts")
    # plain text for a model, no page
    templates = Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters = (attempts.memory_gb, attempts.verdict, counted, cut, duration, fenced, one_line, percent_sure, quoted)
    functions = (attempts.curve_rows, attempts.edits_of, attempts.teaching_edits, attempts.turned_dials, attempt_lines)
    templates.filters |= {"against": _against, "told": _told} | {function.__name__: function for function in filters}
    templates.globals |= {"none_reported": Summary()} | {function.__name__: function for function in functions}
    return templates


def _told(value: object, form: str) -> str:
    """Write a number in this form; return an empty string for anything else."""
    return form.format(value) if isinstance(value, int | float) else ""


def _against(value: float | None, other: float | None, noun: str = "") -> str:
    """Write by which part a number is more or less than another; return an empty string without either."""
    return f"{noun} {value / other - 1:+.0%}".strip() if value is not None and other else ""


def attempt_lines(briefing: Briefing, most_chars: int) -> str:
    """List the attempts. If that is too long, without hypotheses; then kept ones first to stay, and the newest."""
    lines = _lines(briefing, brief=False)
    if sum(len(line) + 1 for line in lines.values()) > most_chars:
        lines = _lines(briefing, brief=True)
    by_weight = sorted(briefing.history, key=lambda attempt: attempt.status is Status.KEEP)
    shown = set(newest([lines[attempt.number] for attempt in by_weight], most_chars))
    left_out = len(lines) - len(shown)
    head = [f"({left_out} earlier ones are left out)"] if left_out else []
    return "\n".join([*head, *(line for line in lines.values() if line in shown)])


def _lines(briefing: Briefing, *, brief: bool) -> dict[int, str]:
    return {
        attempt.number: written(
            "attempt",
            attempt=attempt,
            best=briefing.parent,
            brief=brief,
            device_kind=briefing.night.device_kind,
            difference=attempts.difference_bpb(attempt, briefing),
            happened=attempts.what_happened(attempt),
        )
        for attempt in briefing.history
    }


def for_one_answer(program: str) -> str:
    """Return the program without sections whose heading ends in "(self-driving agents)", and what is below them."""
    shown: list[str] = []
    level, fence = 0, ""  # of the heading that is left out, and of the code block that is open
    for line in program.split("\n"):
        mark = FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence else HEADING.fullmatch(line)
        if heading is not None and (not level or len(heading[1]) <= level):
            level = len(heading[1]) if SELF_DRIVING.search(line) else 0
        if not level:
            shown.append(line)
    return "\n".join(shown)
