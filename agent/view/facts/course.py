"""Follow the incumbent through a night, and the tree of the edits that it has kept. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.experiment import Status
from agent.view.facts.nouns import AttemptFacts, DecisionFacts, NightFacts
from agent.view.facts.overview import Scored, gain_bpb, scored_of

# ---- the incumbent ---------------------------------------------------------------------------------------------------


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


def progress(facts: NightFacts) -> Course:
    """Return the progress of a night; means and intervals are those that are known by now."""
    known = {one.number: one for one in facts.attempts}
    since: dict[int, int] = {}  # kept attempt → the decision since which it is kept
    best_after: dict[int, int | None] = {}
    fallen: list[tuple[int, int]] = []
    for after, number, decision in recorded(facts):
        if (decision.status == Status.KEEP) == (number in since):
            continue  # as before
        if number not in since:
            since[number] = decision.order
        else:
            del since[number]
            fallen.append((number, after))
        best_after[after] = max(since, key=lambda one: (since[one], one), default=None)
    return Course(
        staircase=tuple(_steps(facts, known, best_after)),
        revocations=tuple(fallen),
    )


def recorded(facts: NightFacts) -> Iterator[tuple[int, int, DecisionFacts]]:
    """Yield all decisions in their order, each with the latest attempt decided by then, and with its own attempt."""
    every = [(decision.order, one.number, decision) for one in facts.attempts for decision in one.decisions]
    latest = 0
    for _, number, decision in sorted(every, key=lambda one: one[:2]):
        latest = max(latest, number)
        yield latest, number, decision


def _steps(facts: NightFacts, known: dict[int, AttemptFacts], best_after: dict[int, int | None]) -> Iterator[Stair]:
    best: Scored | None = None
    for number in known:
        if number in best_after:
            incumbent = best_after[number]
            best = None if incumbent is None else scored_of(facts, known[incumbent])
        if best is not None:
            yield Stair(number, best.val_bpb, best.low_bpb, best.high_bpb, best.number)


# ---- the tree of kept edits ------------------------------------------------------------------------------------------


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
