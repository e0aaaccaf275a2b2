"""Weigh scores against their costs. Pure."""

from collections.abc import Callable

from agent.experiment import NOT_BELIEVED
from agent.view.facts.nouns import AttemptFacts, NightFacts


def front(facts: NightFacts, cost: Callable[[AttemptFacts], float | None]) -> frozenset[int]:
    """Return the attempts that no other beats in both val_bpb and cost; lower is better in both.

    Scores that are not believed, and attempts without a score or a cost, are left out. Of equals, the first counts.
    """
    found: set[int] = set()
    least_bpb = float("inf")
    for _, val_bpb, number in sorted(
        (price, one.val_bpb, one.number)
        for one in facts.attempts
        if one.val_bpb is not None and one.kind not in NOT_BELIEVED and (price := cost(one)) is not None
    ):
        if val_bpb < least_bpb:
            found.add(number)
            least_bpb = val_bpb
    return frozenset(found)
