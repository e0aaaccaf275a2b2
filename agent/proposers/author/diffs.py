"""Show the edits that teach most: near misses, kept ones and crashed ones, each cut to a few lines."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest

from agent.experiment import Status
from agent.proposers.author.attempts import TITLE_CHARS, AttemptRow, rows
from agent.proposers.author.excerpts import fenced, harmless_code, quoted
from agent.proposers.briefing import Briefing
from agent.script.dials import skeleton_in
from agent.text import diff_lines

DIFF_CHARS, USUAL_CHARS = 1_500, 600  # of an edit at most; on average
LEAST_CHARS = 400  # of an edit that is worth showing, with the line above it


def diffs(briefing: Briefing, most_chars: int) -> str:
    """Show the edits that teach most, the newest of each sort first; a turned dial is told in the list of dials."""
    by_number = {row.attempt.number: row for row in rows(briefing)}
    kind = briefing.night.device_kind
    teaching = [row for row in _by_worth(tuple(by_number.values())) if not _turns_dials_alone(row, by_number, kind)]
    return _edits(teaching[: max(1, most_chars // USUAL_CHARS)], by_number, most_chars, context=1)


def edits_of(numbers: Sequence[int], briefing: Briefing, most_chars: int) -> str:
    """Show the edits of these attempts, turned dials as well."""
    by_number = {row.attempt.number: row for row in rows(briefing)}
    return _edits([by_number[number] for number in numbers], by_number, most_chars, context=0)


def _edits(chosen: Sequence[AttemptRow], by_number: Mapping[int, AttemptRow], most_chars: int, *, context: int) -> str:
    """Show these edits, each with the same room; what a short one leaves is room for the later ones."""
    shown: list[str] = []
    for at, row in enumerate(chosen):
        room = max(LEAST_CHARS, (most_chars - sum(len(text) + 2 for text in shown)) // (len(chosen) - at))
        shown.append(_edit(row, by_number, min(DIFF_CHARS, room), context=context))
    return "\n\n".join(filter(None, shown))


def _edit(row: AttemptRow, by_number: Mapping[int, AttemptRow], most_chars: int, *, context: int) -> str:
    """Show the edit of an attempt under a line about it; return an empty string where it has no parent."""
    parent = _parent(row, by_number)
    if parent is None:
        return ""
    title = quoted(row.attempt.proposal.title, TITLE_CHARS)
    head = f"Attempt {row.attempt.number} (edits {parent.attempt.number}), {row.verdict}, {title}:\n\n"
    before, after = (one.attempt.proposal.script for one in (parent, row))
    return head + fenced(diff_of(before, after, most_chars - len(head) - 20, context), "diff")


def _parent(row: AttemptRow, by_number: Mapping[int, AttemptRow]) -> AttemptRow | None:
    return None if row.attempt.parent is None else by_number.get(row.attempt.parent)


def _by_worth(found: Sequence[AttemptRow]) -> Iterator[AttemptRow]:
    """Yield near misses, kept and crashed attempts in turn, the newest first."""
    near = [row for row in reversed(found) if row.is_near]
    kept = [row for row in reversed(found) if row.attempt.status is Status.KEEP]
    crashed = [row for row in reversed(found) if row.attempt.status is Status.CRASH]
    return (row for row in chain.from_iterable(zip_longest(near, kept, crashed)) if row and row.attempt.is_idea)


def _turns_dials_alone(row: AttemptRow, by_number: Mapping[int, AttemptRow], device_kind: str) -> bool:
    """Return whether an attempt differs from its parent in dials alone; so does attempt 0, which edits nothing."""
    parent = _parent(row, by_number)
    if parent is None:
        return True
    before, after = (skeleton_in(one.attempt.proposal.script, device_kind) for one in (parent, row))
    return before == after != ""


def diff_of(before: str, after: str, most_chars: int, context: int) -> str:
    """Return a diff without its two first lines, harmless to read; a long one is cut at the end of a line."""
    lines = diff_lines(before.splitlines(), after.splitlines(), context=context)[2:]
    text = harmless_code("\n".join(lines))
    if len(text) <= most_chars:
        return text
    end = "\n[the rest is left out]"
    return text[: most_chars - len(end)].rpartition("\n")[0] + end
