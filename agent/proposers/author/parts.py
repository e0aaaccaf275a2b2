"""Fit the parts of a question into a limit: what is least important is shortened first, and then left out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.experiment import Briefing


@dataclass(frozen=True, slots=True)
class Section:
    """Describe a part of a question; its text may be shorter than any of its limits."""

    title: str
    write: Callable[[Briefing, int], str]  # the text, of at most so many characters; empty: there is nothing to tell
    worth: int  # of two parts the lesser is shortened first
    least_chars: int  # with fewer, it is left out
    most_chars: int


def fit(parts: Sequence[Section], briefing: Briefing, most_chars: int) -> Mapping[str, str]:
    """Return the texts by title, in the order of the parts, of at most most_chars characters together."""
    texts = {part.title: part.write(briefing, part.most_chars) for part in parts}
    for part in sorted(parts, key=lambda part: part.worth):
        over = sum(map(len, texts.values())) - most_chars
        if over <= 0:
            break
        room = len(texts[part.title]) - over
        texts[part.title] = part.write(briefing, room) if room >= part.least_chars else ""
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
