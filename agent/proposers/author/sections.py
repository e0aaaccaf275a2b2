"""Fit the parts of a question into a limit: the least important is shortened first, and left out first if need be."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from agent.proposers.briefing import Briefing


@dataclass(frozen=True, slots=True)
class Section:
    """Describe a part of a question; its text may be shorter than any of its limits."""

    title: str
    write: Callable[[Briefing, int], str]  # the text, of at most so many characters; empty: there is nothing to tell
    worth: int  # of two parts the lesser is shortened first
    least_chars: int  # it is shortened to this before any other is left out
    most_chars: int


def fit(parts: Sequence[Section], briefing: Briefing, most_chars: int) -> Mapping[str, str]:
    """Return the texts by title, in the order of the parts, of at most most_chars characters together.

    Shorten one part after the other to its least, from the least important on; then leave out in the same order.
    """
    texts = {part.title: part.write(briefing, part.most_chars) for part in parts}
    by_worth = sorted(parts, key=lambda part: part.worth)
    for may_leave_out, part in product((False, True), by_worth):
        over = sum(map(len, texts.values())) - most_chars
        if over <= 0:
            break
        length = len(texts[part.title])
        if may_leave_out:
            texts[part.title] = ""
        elif length > part.least_chars:
            texts[part.title] = part.write(briefing, max(length - over, part.least_chars))
    return {title: text for title, text in texts.items() if text}


def newest(lines: Sequence[str], most_chars: int) -> list[str]:
    """Return as many of the last lines as fit, in their order."""
    shown: list[str] = []
    for line in reversed(lines):
        most_chars -= len(line) + 1
        if most_chars < 0:
            break
        shown.append(line)
    return shown[::-1]


def first(lines: Sequence[str], most_chars: int) -> list[str]:
    """Return as many of the first lines as fit."""
    return newest(lines[::-1], most_chars)[::-1]


def cut(text: str, most_chars: int) -> str:
    """Cut a text, and say so in its last line."""
    if len(text) <= most_chars:
        return text
    end = f"\n[… cut at {most_chars:,} characters]"
    return f"{text[: max(0, most_chars - len(end))]}{end}"
