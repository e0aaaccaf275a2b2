"""Follow the incumbent through a night, and the tree of the edits that it has kept. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from agent.experiment import Status
from agent.records.record import Record
from agent.records.summary import Scored, gain_bpb
from agent.script.dials import Value


@dataclass(frozen=True, slots=True)
class Stair:
    """Hold the incumbent after an attempt, with the 95 % interval of its mean."""

    number: int  # of the attempt
    mean_bpb: float
    low_bpb: float
    high_bpb: float
    incumbent: int


@dataclass(frozen=True, slots=True)
class Course:
    """Hold the progress of a night."""

    staircase: tuple[Stair, ...]  # one for each attempt from the first incumbent on
    revocations: tuple[tuple[int, int], ...]  # the attempt that was kept before, and after which attempt it fell


def progress(record: Record) -> Course:
    """Return the progress of a night; means and intervals are those that are known by now."""
    decided = sorted((entry.id, one.number, entry.decision) for one in record.attempts for entry in one.decisions)
    since: dict[int, int] = {}  # kept attempt → the decision since which it is kept
    best_after: dict[int, int | None] = {}
    fallen: list[tuple[int, int]] = []
    latest = 0
    for order, number, decision in decided:
        latest = max(latest, number)
        if (decision.status is Status.KEEP) == (number in since):
            continue  # as before
        if number not in since:
            since[number] = order
        else:
            del since[number]
            fallen.append((number, latest))
        best_after[latest] = max(since, key=lambda one: (since[one], one), default=None)
    stairs, best = [], None
    for number in record.by_number:
        if number in best_after:
            best = Scored.of(record, record.attempt(best_after[number]))
        if best is not None:
            stairs.append(Stair(number, best.val_bpb, best.low_bpb, best.high_bpb, best.number))
    return Course(tuple(stairs), tuple(fallen))


# ---- dials -----------------------------------------------------------------------------------------------------------


def settings(night: Record) -> dict[int, dict[str, Value]]:
    """Return attempt → dial → value, for each dial that an attempt of the night has turned.

    An attempt has the values of its parent, apart from those that it turned. Attempt 0 has the values from which its
    descendants turned them.
    """
    values: dict[int, dict[str, Value]] = {}
    first: dict[str, Value] = {}
    for attempt in night.attempts:  # a parent comes before its children
        turned = night.turned.get(attempt.number, {})
        above = values.get(attempt.parent, {}) if attempt.parent is not None else {}
        first |= {name: before for name, (before, _) in turned.items() if name not in above.keys() | first}
        values[attempt.number] = above | {name: after for name, (_, after) in turned.items()}
    return {number: first | turned for number, turned in values.items()}


# ---- the tree of kept edits ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """Hold an attempt that was kept, for a time or to the end, or one that was overtaken and carried on by such one."""

    number: int
    parent: int | None  # the nearest of its ancestors that is shown, too; None for attempt 0
    title: str
    gain_bpb: float | None  # over the script that it edits
    sure: float | None
    still_kept: bool


def lineage(record: Record) -> tuple[Kept, ...]:
    """Return all attempts that were ever kept, in the order of their numbers: parents come before children."""
    return _tree(record, {attempt.number for attempt in record.attempts if attempt.was_kept})


def with_overtaken(record: Record, kept: Sequence[Kept]) -> tuple[Kept, ...]:
    """Return these with the overtaken attempts that they merge."""
    numbers = {edit.number for edit in kept}
    for number in sorted(numbers, reverse=True):
        merged = record.attempt(record.by_number[number].proposal.merges)
        while merged is not None and merged.number not in numbers:
            numbers.add(merged.number)
            merged = record.attempt(merged.proposal.merges)
    return _tree(record, numbers)


def _tree(record: Record, numbers: Collection[int]) -> tuple[Kept, ...]:
    found = []
    for attempt in (record.by_number[number] for number in sorted(numbers)):
        parent = record.parent(attempt)
        while parent is not None and parent.number not in numbers:
            parent = record.parent(parent)
        is_kept, gain = attempt.status is Status.KEEP, gain_bpb(attempt, record.parent(attempt))
        above = None if parent is None else parent.number
        found.append(Kept(attempt.number, above, attempt.title, gain, attempt.sure, is_kept))
    return tuple(found)
