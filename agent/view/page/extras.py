"""What the report shows beside the facts of a night: edits as diffs, and loss curves."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agent.errors import NightError
from agent.experiment import Attempt
from agent.proposers.briefing import Curve
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.record import Record
from agent.text import diff_lines
from agent.view.run_files import curve

ALL, NEWEST = 150, 75  # a longer night shows the edits and curves of what was ever kept, and of its newest attempts
POINTS, LINES, LINE_CHARS = 30, 300, 400  # of a curve, of a diff, of its lines
MOST_CHARS = 1_000_000  # of all diffs of a night


@dataclass(frozen=True, slots=True)
class Extras:
    """Hold edits and training losses of attempts by their numbers, as far as they are known."""

    diffs: Mapping[int, str] = field(default_factory=dict)
    curves: Mapping[int, Curve] = field(default_factory=dict)  # fraction of the budget, loss


def gather(place: Place, night: Record) -> Extras:
    """Read the edits from the journal of a night, and the curves from the logs of its runs."""
    shown, diffs, curves = telling(night), dict[int, str](), dict[int, Curve]()
    with suppress(NightError):  # a night without a journal here has neither scripts nor logs
        diffs = _diffs(place, night, shown)
    for attempt in shown:
        points = curve(place, night.tag, attempt.number, attempt.runs[0].seed, POINTS) if attempt.runs else ()
        if len(points) > 1:
            curves[attempt.number] = points
    return Extras(diffs, curves)


def telling(night: Record) -> list[Attempt]:
    """Return the attempts whose edits and curves are shown."""
    if len(night.attempts) <= ALL:
        return list(night.attempts)
    newest = night.attempts[-NEWEST].number
    return [one for one in night.attempts if one.number >= newest or one.was_kept]


def _diffs(place: Place, night: Record, shown: Sequence[Attempt]) -> dict[int, str]:
    pairs = {one.number: one.parent for one in shown if one.parent is not None}
    with Journal.read(place.journal(night.tag)) as journal:
        known = journal.attempts_among({*pairs, *pairs.values()})
    lines = {one.number: one.proposal.script.splitlines() for one in known}
    found, left = {}, MOST_CHARS
    for number, parent in sorted(pairs.items(), reverse=True):  # the newest first, as far as there is room
        found[number] = diff(lines[parent], lines[number])
        left -= len(found[number])
        if left < 0:
            break
    return found


def diff(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the difference of two scripts as unified diff without its first two lines; a long one is cut."""
    found = [line[:LINE_CHARS] for line in diff_lines(before, after)][2:]
    cut = [f"… {len(found) - LINES} more lines"] if len(found) > LINES else []
    return "\n".join(found[:LINES] + cut)
