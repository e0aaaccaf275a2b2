"""A night under attack: killed between two steps, left by its sources, with scripts that misbehave at dawn."""

import dataclasses

import pytest
from judged import scored_attempt
from nights import Grounds, run_once, scripted_context, unigram
from sources import Source, attempt, brief

from agent.errors import NoIdea, RepoError
from agent.experiment import Decision, Kind, Score, Status
from agent.night.ideas import proposals_of
from agent.night.plan import fallen_keeps

BETTER, BEST, WORSE = unigram(SHARPNESS=0.8), unigram(SHARPNESS=1.0), unigram(SHARPNESS=0.2)
CRASHES_AT_DAWN = BETTER.replace("data = prepare", "assert options.seed < 1000, 'not at dawn'\n    data = prepare")

pytestmark = pytest.mark.usefixtures("own_cache")


def killed_at_dawn(grounds: Grounds, number: int) -> None:
    """A run at dawn has just ended; nothing else is known of it."""
    with scripted_context(grounds.root, "t", []) as context:
        run_once(context, number, dawn=1)


def test_a_run_of_an_interrupted_dawn_brings_nobody_down(grounds):
    grounds.try_scripts("t", [BEST])
    killed_at_dawn(grounds, 1)
    grounds.try_scripts("t", [BEST])
    attempts = grounds.attempts("t")
    assert [one.status for one in attempts] == ["keep", "keep"]
    assert [run.score.audit.passed for run in attempts[1].done_runs] == [True]
    assert [run.score.audit for run in attempts[1].dawn_runs()] == [None]  # that is dawn's to audit


@pytest.mark.slow
def test_what_was_built_on_an_edit_that_falls_at_dawn_falls_with_it(grounds):
    grounds.try_scripts("t", [CRASHES_AT_DAWN, BEST])
    killed_at_dawn(grounds, 1)
    grounds.try_scripts("t", [CRASHES_AT_DAWN, BEST])
    attempts = grounds.attempts("t")
    assert [one.status for one in attempts] == ["keep", "crash", "discard"]
    assert attempts[2].decision.reason == "made from #1, which is no longer kept"
    assert grounds.git("rev-parse", "refs/heads/experiments/0.05s-t") == attempts[0].commit


def test_what_has_no_score_on_the_holdout_is_kept_no_more():
    refuses = Score(None, 1.0, "scoring crashed: ValueError: a line of the holdout")
    baseline, kept = (
        scored_attempt(number, 1.0, dawn=(1.0,), status=Status.KEEP, parent=None if number == 0 else 0)
        for number in (0, 1)
    )
    assert fallen_keeps([baseline, kept]) == {}
    cheat = dataclasses.replace(kept, runs=(kept.runs[0], dataclasses.replace(kept.runs[1], holdout=refuses)))
    assert fallen_keeps([baseline, cheat]) == {
        1: Decision(Kind.CRASHED, "with another seed: it has no score on the holdout")
    }


# ---- sources that break ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RepoError("git is gone"), ValueError("\x1b[2J"), PermissionError("no /tmp")])
def test_a_source_that_breaks_is_one_without_an_idea(error):
    with pytest.raises(NoIdea, match=r"git is gone|not foreseen \((ValueError: \\x1b\[2J|PermissionError: no /tmp)\)"):
        proposals_of(Source("llm", error), brief([attempt(0, "you")]))
