"""What follows from the findings of a dawn: which script is confirmed, and from where the night goes on."""

import dataclasses

import numpy as np
import pytest
from judged import findings, scored_attempt, scored_run
from test_confirmation import SIGMA

from agent.experiment import Attempt, Dawn, Decision, Ending, Findings, Kind, Run, Status, incumbent
from agent.judging.champion import adoption


def with_two_passengers(*last: Run) -> list[Attempt]:
    """Two edits that the champion is as good without, each by itself; and these runs without both."""
    merits = {0: 0.0, 1: 4.0, 2: 5.0, 3: 6.0, 4: 10.0}
    rng = np.random.default_rng(2)
    history = [
        scored_attempt(k, *(1 - SIGMA * (merit + rng.normal(size=3))), parent=k - 1 if k else None, status=Status.KEEP)
        for k, merit in merits.items()
    ]
    for k in (0, 4):
        runs = tuple(scored_run(1000 + i, 1 - SIGMA * (merits[k] + rng.normal()), dawn=1) for i in range(4))
        history[k] = dataclasses.replace(history[k], runs=history[k].runs + runs)
    for edits in ((2,), (3,)):
        values = 1 - SIGMA * (11.0 + 0.3 * rng.normal(size=4))
        history.append(scored_attempt(len(history), parent=4, without=edits, dawn=tuple(values)))
    history.append(dataclasses.replace(scored_attempt(7, parent=4, without=(2, 3), kind=Kind.QUESTION), runs=last))
    return history


GOOD = [scored_run(seed, 0.89, dawn=1) for seed in (1000, 1001)]
CRASHED = dataclasses.replace(GOOD[1], ending=Ending.CRASHED, exit_code=1, score=None)


def test_the_script_without_all_passengers_is_confirmed_once_it_has_run_well_twice():
    found = findings(with_two_passengers(*GOOD))
    assert found is not None
    assert (found.passengers, found.script, found.stays) == ((2, 3), 7, None)


@pytest.mark.parametrize("last", [[GOOD[0]], [GOOD[0], CRASHED]])
def test_a_script_that_ran_well_once_is_not_enough(last):
    found = findings(with_two_passengers(*last))
    assert found is not None
    assert (found.passengers, found.script) == ((), 4)
    assert found.stays is not None
    assert found.stays.startswith("not dropped: #2 and #3")


def test_a_gain_that_may_be_none_confirms_nothing():
    for gains, script in (((4.0, 5.0, 4.5, 5.5), 1), ((-8.0, 8.0, 9.0, -7.0), None), ((-4.0, -5.0, -4.5, -5.5), None)):
        history = [
            scored_attempt(0, 1.0, 1.01, status=Status.KEEP, dawn=(1.0, 1.001, 0.999, 1.0)),
            scored_attempt(1, 0.9, parent=0, status=Status.KEEP, dawn=tuple(1.0 - SIGMA * gain for gain in gains)),
        ]
        found = findings(history)
        assert found is not None
        assert found.script == script


def ended(found: Findings | None, number: int = 1) -> Dawn:
    assert found is not None
    return Dawn(number, found.champion, 4, "then", "now", found)


def test_a_night_goes_on_from_the_champion_without_its_passengers_once():
    history = with_two_passengers(*GOOD)
    dawn = ended(findings(history))
    assert adoption(history, None) == adoption(history, dataclasses.replace(dawn, ended=None)) == {}
    kept = Decision(Kind.ADOPTED, "confirmed at dawn: ")
    assert adoption(history, dawn) == {7: kept}
    history[7] = dataclasses.replace(history[7], decision=kept)
    assert adoption(history, dawn) == {}
    history[7] = dataclasses.replace(history[7], decision=Decision(Kind.CRASHED, "with another seed: exit code 1"))
    assert incumbent(history) is history[4]
    assert adoption(history, dawn) == {}
