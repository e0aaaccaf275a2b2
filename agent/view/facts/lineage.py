"""Draw up the tree of the edits that a night has kept. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.experiment import Status
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.facts.overview import gain_bpb


@dataclass(frozen=True, slots=True)
class Kept:
    """Hold an attempt that was kept, for a time or to the end, or one that was overtaken and carried on by such one."""

    number: int
    parent: int | None  # the nearest of its ancestors that was kept, too; None for attempt 0
    title: str
    gain_bpb: float | None  # over the script that it edits
    sure: float | None
    still_kept: bool


def lineage(facts: NightFacts) -> tuple[Kept, ...]:
    """Return all attempts that were ever kept, in the order of their numbers: parents come before children."""
    known = {one.number: one for one in facts.attempts}
    kept = {one.number for one in facts.attempts if was_kept(one)}
    found = []
    for one in (known[number] for number in sorted(kept)):
        parent = one.parent
        while parent is not None and parent not in kept:
            parent = known[parent].parent if parent in known else None
        still = one.status == Status.KEEP
        found.append(Kept(one.number, parent, one.title, gain_bpb(one, known), one.sure, still))
    return tuple(found)


def with_overtaken(facts: NightFacts, kept: Sequence[Kept]) -> list[Kept]:
    """Add the overtaken attempts that these merge, in the order of numbers."""
    known = {one.number: one for one in facts.attempts}
    found = {one.number: one for one in kept}
    for number in sorted(found, reverse=True):
        at = known[number].merges
        while at is not None and at in known and at not in found:
            one, parent = known[at], known[at].parent
            while parent is not None and parent not in found:
                parent = known[parent].parent if parent in known else None
            found[at] = Kept(at, parent, one.title, gain_bpb(one, known), one.sure, still_kept=False)
            at = one.merges
    return [found[number] for number in sorted(found)]


def was_kept(attempt: AttemptFacts) -> bool:
    """Return whether an attempt was kept, for a time or to the end."""
    return Status.KEEP in [decision.status for decision in attempt.decisions]  # any() takes twice as long
