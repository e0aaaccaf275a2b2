"""A night under attack: killed between two steps, left by its sources, and with scripts that misbehave at dawn alone."""

import dataclasses

import pytest
from nights import Grounds, scripted_lab, unigram

from agent.dawn import confirm
from agent.judge import Balanced
from agent.night import run_night
from agent.steps import run_once

BETTER, BEST, WORSE = unigram(SHARPNESS=0.8), unigram(SHARPNESS=1.0), unigram(SHARPNESS=0.2)
CRASHES_AT_DAWN = BETTER.replace("data = prepare", "assert options.seed < 1000, 'not at dawn'\n    data = prepare")

pytestmark = pytest.mark.usefixtures("own_cache")


def killed_at_dawn(grounds: Grounds, number: int) -> None:
    """A run at dawn has just ended; nothing else is known of it."""
    with scripted_lab(grounds.root, "t", []) as lab:
        run_once(lab, lab.journal.attempt(number), dawn=True)


def test_a_run_of_an_interrupted_dawn_brings_nobody_down(grounds):
    grounds.try_scripts("t", [BEST])
    killed_at_dawn(grounds, 1)
    grounds.try_scripts("t", [BEST, WORSE])
    attempts = grounds.attempts("t")
    assert [one.status for one in attempts] == ["keep", "keep", "discard"]
    assert [run.score.audit.passed for run in attempts[1].done_runs] == [True, True]


def test_what_was_built_on_an_edit_that_falls_at_dawn_falls_with_it(grounds):
    grounds.try_scripts("t", [CRASHES_AT_DAWN, BEST])
    killed_at_dawn(grounds, 1)
    with scripted_lab(grounds.root, "t", [CRASHES_AT_DAWN, BEST, unigram(SHARPNESS=0.9)]) as lab:
        assert confirm(lab, 2) is None
        run_night(dataclasses.replace(lab, judge=Balanced()))
    attempts = grounds.attempts("t")
    assert [one.status for one in attempts] == ["keep", "crash", "discard", "keep"]
    assert attempts[2].decision.reason == "made from #1, which is kept no more"
    assert attempts[3].parent == 0
    assert grounds.git("rev-parse", "refs/heads/experiments/0.05s-t") == attempts[3].commit
