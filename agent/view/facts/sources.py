"""Sum up what each source of ideas brought and cost, from the attempts of a night and its calls."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from agent.experiment import Ask, Status, source_name
from agent.proposers.mix import shares_of
from agent.records.standing import Brought, by_source
from agent.view.facts.nouns import AttemptFacts, SourceFacts


def sources_of(attempts: Sequence[AttemptFacts], asks: Sequence[Ask] | None) -> tuple[SourceFacts, ...]:
    """Return a row for every source, the one that gained most first.

    asks: None where the calls themselves are not known, but the time that they took is.
    """
    known = {one.number: one for one in attempts}
    ideas = (
        Brought(
            source_name(one.source),
            1,
            one.status == Status.KEEP,
            kept_gain_bpb(one, known),
            one.spent_s + (one.asked_s if asks is None else 0.0),
        )
        for one in attempts
        if one.parent is not None and one.is_idea
    )
    return tuple(SourceFacts(**asdict(share)) for share in shares_of(by_source(ideas), asks or ()))


def gain_bpb(attempt: AttemptFacts, known: Mapping[int, AttemptFacts]) -> float | None:
    """Return the gain over its parent, by the judge's estimate or else by the two scores; None where neither is."""
    if attempt.gain_bpb is not None:
        return attempt.gain_bpb
    parent = known.get(attempt.parent) if attempt.parent is not None else None
    if parent is None or parent.val_bpb is None or attempt.val_bpb is None:
        return None
    return parent.val_bpb - attempt.val_bpb


def kept_gain_bpb(attempt: AttemptFacts, known: Mapping[int, AttemptFacts]) -> float:
    """Return the gain of a kept attempt; 0 if it is not kept."""
    return max(0.0, gain_bpb(attempt, known) or 0.0) if attempt.status == Status.KEEP else 0.0
