"""Show the edits that teach most: near misses, kept ones and crashed ones, each cut to a few lines."""

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

from agent.experiment import Briefing, Status
from agent.proposers.author.attempts import TITLE_CHARS, AttemptRow, rows
from agent.proposers.author.quoting import fenced, harmless_code, quoted
from agent.records.past import skeleton_in
from agent.text import diff_lines

MOST_DIFFS, DIFF_CHARS = 12, 1_500
LEAST_CHARS = 200  # of a diff that is worth showing


def diffs(briefing: Briefing, most_chars: int) -> str:
    """Show diffs, the newest of each sort first, until the room is full; a turned dial is told in the list of dials."""
    by_number = {row.attempt.number: row for row in rows(briefing)}
    shown: list[str] = []
    for row in _by_worth(tuple(by_number.values())):
        parent = by_number.get(-1 if row.attempt.parent is None else row.attempt.parent)
        if parent is None or _turns_dials_alone(parent, row, briefing.night.device_kind):
            continue
        head = f"Attempt {row.attempt.number}, {row.verdict}, {quoted(row.attempt.proposal.title, TITLE_CHARS)}:\n\n"
        room = most_chars - sum(map(len, shown)) - 2 * len(shown) - len(head) - 20
        if len(shown) == MOST_DIFFS or room < LEAST_CHARS:
            break
        text = diff_of(parent.attempt.proposal.script, row.attempt.proposal.script, min(DIFF_CHARS, room))
        shown.append(head + fenced(text, "diff"))
    return "\n\n".join(shown)


def edits_of(numbers: Sequence[int], briefing: Briefing, most_chars: int) -> str:
    """Show the edits of these attempts, turned dials as well; what a short one leaves is room for the later ones."""
    shown: list[str] = []
    for at, number in enumerate(numbers):
        attempt = briefing.history[number]
        parent = briefing.history[attempt.parent or 0]
        head = f"Attempt {number} (edits {parent.number}), {quoted(attempt.proposal.title, TITLE_CHARS)}:\n\n"
        room = (most_chars - sum(map(len, shown))) // (len(numbers) - at) - len(head) - 20
        text = diff_of(parent.proposal.script, attempt.proposal.script, max(LEAST_CHARS, min(DIFF_CHARS, room)))
        shown.append(head + fenced(text, "diff"))
    return "\n\n".join(shown)


def _by_worth(found: Sequence[AttemptRow]) -> Iterator[AttemptRow]:
    """Yield near misses, kept and crashed attempts in turn, the newest first."""
    near = [row for row in reversed(found) if row.is_near]
    kept = [row for row in reversed(found) if row.attempt.status is Status.KEEP]
    crashed = [row for row in reversed(found) if row.attempt.status is Status.CRASH]
    return (row for row in chain.from_iterable(zip_longest(near, kept, crashed)) if row and row.attempt.is_idea)


def _turns_dials_alone(parent: AttemptRow, row: AttemptRow, device_kind: str) -> bool:
    before, after = (skeleton_in(one.attempt.proposal.packed, device_kind) for one in (parent, row))
    return before == after != ""


def diff_of(before: str, after: str, most_chars: int, context: int = 1) -> str:
    """Return a diff without its two first lines, harmless to read; a long one is cut at the end of a line."""
    lines = diff_lines(before.splitlines(), after.splitlines(), context=context)[2:]
    text = harmless_code("\n".join(lines))
    if len(text) <= most_chars:
        return text
    end = "\n[the rest is left out]"
    return text[: most_chars - len(end)].rpartition("\n")[0] + end
