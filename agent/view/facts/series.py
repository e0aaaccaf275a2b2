"""Follow the incumbent through a night, by its decisions in the order in which they were recorded. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.experiment import Status
from agent.view.facts.nouns import AttemptFacts, DecisionFacts, NightFacts
from agent.view.facts.overview import Scored, scored_of


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
