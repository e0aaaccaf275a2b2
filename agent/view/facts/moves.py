"""List where each dial was moved, and what came of it. Pure."""

from dataclasses import dataclass

from agent.script.dials import Value
from agent.view.facts.nouns import NightFacts
from agent.view.facts.overview import gain_bpb


@dataclass(frozen=True, slots=True)
class Move:
    """Hold one dial as one attempt moved it; the gain is that of all that the attempt did."""

    dial: str
    attempt: int
    before: Value
    after: Value
    gain_bpb: float | None
    sure: float | None
    kind: str | None


def moves(facts: NightFacts) -> tuple[Move, ...]:
    """Return the moves of all ideas, by dial and then by attempt."""
    known = {one.number: one for one in facts.attempts}
    found = [
        Move(dial, one.number, before, after, gain_bpb(one, known), one.sure, one.kind)
        for one in facts.attempts
        if one.is_idea
        for dial, (before, after) in one.dials.items()
    ]
    return tuple(sorted(found, key=lambda move: (move.dial, move.attempt)))
