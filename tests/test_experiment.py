"""The nouns: who is the best script, what may be invalid, and how sure a difference is."""

import pytest

from agent.experiment import Attempt, Decision, Ending, Kind, Proposal, Run, best_of, kept
from agent.findings import Interval

PROPOSAL = Proposal("title", "why", "you")


def decided(number: int, *decisions: tuple[int, Kind]) -> Attempt:
    """With decisions that were recorded at these places of the night's."""
    recorded = tuple(Decision(kind, "", id=place) for place, kind in decisions)
    return Attempt(number, 0, PROPOSAL, "", "c", (), recorded, True)


def test_the_best_script_is_the_latest_keep_by_decision():
    """Attempts may end in any order."""
    history = [decided(0, (1, Kind.BASELINE)), decided(1, (3, Kind.KEPT)), decided(2, (2, Kind.KEPT))]
    assert best_of(history) == history[1]
    history[0] = decided(0, (1, Kind.BASELINE), (4, Kind.REVOKED), (5, Kind.CONFIRMED))
    assert [attempt.number for attempt in kept(history)] == [2, 1, 0]
    history[1] = decided(1, (3, Kind.KEPT), (6, Kind.REVOKED))
    assert [attempt.number for attempt in kept(history)] == [2, 0]


def ran(number: int, *endings: tuple[Ending, int]) -> Attempt:
    """With runs that ended like this, each with its seed."""
    runs = tuple(Run(seed, ending, 0, 1.0, None, "") for ending, seed in endings)
    return Attempt(number, None, PROPOSAL, "", "c", runs)


INVALID, AGAIN, COUNTED = (Ending.INVALID, 0), (Ending.INVALID, 1), [(Ending.FINISHED, seed) for seed in range(4)]


@pytest.mark.parametrize(
    ("number", "endings", "seed", "may"),
    [
        (1, [INVALID], 0, False),
        (1, [INVALID, COUNTED[0]], 1, False),
        (1, [INVALID, *COUNTED], 4, True),  # one more for each four that counted
        (1, [INVALID, AGAIN, *COUNTED], 4, False),
        (1, [(Ending.SLEPT, 0), (Ending.LOST, 0)], 0, True),  # those no script can cause
        (0, [INVALID, INVALID, AGAIN], 0, True),  # the user's own script is not suspected
        (0, [INVALID, INVALID, INVALID], 0, False),
    ],
)
def test_an_edit_has_one_invalid_run_and_one_more_for_each_four_that_counted(number, endings, seed, may):
    assert ran(number, *endings).may_be_repeated(seed) is may


def test_fresh_seeds_of_two_scripts_give_welchs_interval():
    interval = Interval.of_scores((1.00, 1.02, 1.04), (0.90, 0.91, 0.95, 0.96))
    theirs = 0.041886943, 0.138113057  # scipy.stats.ttest_ind(…, equal_var=False), slow to import, gives these
    assert (interval.mean_bpb, interval.low_bpb, interval.high_bpb) == pytest.approx((0.09, *theirs))
