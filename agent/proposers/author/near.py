"""Tell which attempts came near to being kept: each may be a gain on another script, or beside another edit."""

from dataclasses import dataclass

from agent.experiment import NOT_BELIEVED, Attempt, History, Kind, Status, kept

FAILURES = frozenset({*NOT_BELIEVED, Kind.CRASHED, Kind.TOO_SLOW, Kind.IGNORES_SEED})
NEAR_MISS = 0.3  # sure of a gain: an idea that is not kept may be one on another incumbent
# an overtaken edit gets its second try unchanged: the night merges it onto the best script
NO_SECOND_TRY = FAILURES | {Kind.STOPPED_EARLY, Kind.PASSENGER, Kind.QUESTION, Kind.OVERTAKEN}
MOST_OFFERED = 8  # near misses to combine: each is shown with its edit


def was_near(attempt: Attempt) -> bool:
    """Return whether it may be a gain, though it was not kept."""
    decision = attempt.decision
    if decision is None or decision.status is not Status.DISCARD or decision.kind in NO_SECOND_TRY:
        return False
    return (decision.gain_bpb or 0.0) > 0 or (decision.sure or 0.0) >= NEAR_MISS


def near_misses(history: History) -> list[Attempt]:
    """Return the ideas that were nearly kept, the most promising first."""
    near = (one for one in history if one.is_idea and one.parent is not None and was_near(one))
    return sorted(near, key=lambda one: (-_sure(one), -one.number))


@dataclass(frozen=True, slots=True)
class Combinable:
    """Hold the numbers of the attempts that one edit may combine."""

    near: tuple[int, ...]  # nearly kept: not in the best script
    keeps: tuple[int, ...]


def to_combine(history: History) -> Combinable | None:
    """Return what an edit may combine; None unless there are two attempts, one of them a near miss.

    What is kept stands in the best script already, so keeps alone leave nothing to bring in.
    """
    near = sorted(one.number for one in near_misses(history)[:MOST_OFFERED])
    keeps = [one.number for one in kept(history) if one.is_idea and one.parent is not None]
    return Combinable(tuple(near), tuple(keeps)) if near and len(near) + len(keeps) > 1 else None


def _sure(attempt: Attempt) -> float:
    return (attempt.decision.sure if attempt.decision else None) or 0.0
