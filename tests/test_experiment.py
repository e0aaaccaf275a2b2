"""The nouns: who is the incumbent follows the order of decisions."""

from agent.experiment import Attempt, Decision, Entry, Kind, Proposal, incumbent, kept

PROPOSAL = Proposal("", "title", "why", "you")


def attempt(number: int, *decisions: tuple[int, Kind], parent: int = 0) -> Attempt:
    """With decisions that were recorded at these places of the night's."""
    entries = tuple(Entry(place, "", Decision(kind, "")) for place, kind in decisions)
    return Attempt(number, parent, PROPOSAL, "", "c", (), entries[-1].decision, True, decisions=entries)


def test_the_incumbent_is_the_latest_keep_by_decision():
    """Attempts may end in any order, and what dawn has confirmed may be older than the champion."""
    history = [attempt(0, (1, Kind.BASELINE)), attempt(1, (3, Kind.KEPT)), attempt(2, (2, Kind.KEPT))]
    assert incumbent(history) == history[1]
    history[0] = attempt(0, (1, Kind.BASELINE), (4, Kind.REVOKED), (5, Kind.ADOPTED))
    assert [one.number for one in kept(history)] == [2, 1, 0]


def test_after_a_revocation_the_branch_goes_back_to_what_was_kept_before():
    history = [
        attempt(0, (1, Kind.BASELINE)),
        attempt(1, (2, Kind.KEPT)),
        attempt(2, (3, Kind.WORSE)),
        attempt(3, (4, Kind.KEPT), (6, Kind.REVOKED)),
        attempt(4, (5, Kind.WORSE)),
    ]
    assert incumbent(history) == history[1]
    history[1] = attempt(1, (2, Kind.KEPT), (7, Kind.ORPHANED))
    assert incumbent(history) == history[0]
