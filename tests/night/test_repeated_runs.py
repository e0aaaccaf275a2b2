"""What overruns its time: invalid once; then too slow, which is no crash."""

from dataclasses import replace

import pytest
from nights import scripted_context, unigram

from agent.errors import ScriptError
from agent.experiment import Attempt, Audit, Ending, Proposal, Run, Score, Status
from agent.night.loop import run_night
from agent.proposers.attempts import what_happened
from agent.runs.train import learnt_allowance_s

pytestmark = pytest.mark.usefixtures("own_cache")

TOO_SHORT_S = 0.01  # s of allowance, too short for any script


@pytest.mark.parametrize(
    ("budget_s", "beyond_s", "allowance_s"), [(300.0, (30.0, 20.0), 60.0), (300.0, (12.0,), 33.0), (10.0, (2.0,), 10.0)]
)
def test_an_edit_may_take_half_as_much_again_as_attempt_0_and_5_percent_of_its_budget_or_10_s(
    budget_s, beyond_s, allowance_s
):
    runs = tuple(Run(seed, Ending.FINISHED, 0, budget_s + slow_s, None, "") for seed, slow_s in enumerate(beyond_s))
    assert learnt_allowance_s([Attempt(0, None, None, "", runs=runs)], budget_s) == pytest.approx(allowance_s)
    for slow_s, factor in ((0.0, 1), (290.0, 2)):  # a machine that becomes busy
        confirming = replace(runs[0], confirmation=1, wall_s=budget_s + slow_s)
        busy = Attempt(0, None, None, "", runs=(*runs, confirming))
        assert learnt_allowance_s([busy], budget_s) == pytest.approx(factor * allowance_s)


def test_an_attempt_0_that_is_too_slow_ends_the_night_with_what_can_be_done(grounds):
    with pytest.raises(ScriptError) as raised:
        grounds.try_scripts("t", [], allowance_s=TOO_SHORT_S)
    said = str(raised.value)
    assert said.startswith("attempt 0, the script as it stands, has no score that counts: too slow to start or to save")
    assert "allow it more with --allowance-s" in said
    assert grounds.attempts("t")[0].status is Status.DISCARD


def test_an_overrun_is_invalid_once_and_then_a_discard_that_nobody_is_asked_to_repair(trained):
    with scripted_context(trained.root, "t", [unigram(SHARPNESS=0.95)] * 4, allowance_s=TOO_SHORT_S) as context:
        run_night(context)
        late = context.journal.attempts()[4]
    assert [run.ending for run in late.runs] == [Ending.INVALID, Ending.OVERRAN]
    assert late.runs[1].last_lines.splitlines()[-1] == "0.05 s of training and 0.01 s for start and end are over"
    assert "it was too slow" in late.runs[0].last_lines.splitlines()[-1]
    assert late.status is Status.DISCARD
    assert late.decision.reason.startswith("too slow to start or to save: still running after ")
    again = "this run of #4 does not count and is done again: it was too slow"
    assert any(again in sentence for sentence in context.watcher.sentences)
    assert "run with seed 0: invalid" in trained.nightshift("show", "4").stdout


def test_what_scoring_and_audits_print_is_told_to_no_proposer():
    def told(score: Score) -> str:
        run = Run(0, Ending.FINISHED, 0, 26.0, None, "", score)
        return str(what_happened(Attempt(1, 0, Proposal("title", "", "llm:x"), "", runs=(run,))))

    slow = Score(None, 61.0, "scoring: secret", overran=True)
    assert told(slow) == "it was too slow to be scored: no end after 61 s"
    words = told(Score(1.0, 1.0, audit=Audit(4, 0.0, 90.0, "it could not be done: secret", overran=True)))
    assert "took too long" in words
    assert "secret" not in words
