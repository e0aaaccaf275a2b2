"""What overruns its time: void on a busy machine, once; else too slow, which is no crash."""

import dataclasses

import pytest
from judged import decided
from nights import jobs_of, run_once, scripted_context, unigram

from agent.errors import MachineError, ScriptError
from agent.experiment import (
    Attempt,
    Audit,
    Decision,
    DryRun,
    Ending,
    Kind,
    Proposal,
    Run,
    Score,
    Status,
)
from agent.judging.failures import too_slow
from agent.night.ideas import brief
from agent.night.loop import run_night
from agent.proposers.author.attempts import what_happened
from agent.proposers.search.evidence import crashed
from agent.runs.execute import rehearse
from agent.runs.jobs import Trial
from agent.runs.runner import Repeats
from agent.runs.score import score
from agent.runs.train import LEAST_ALLOWANCE_S, learnt_allowance_s

pytestmark = pytest.mark.usefixtures("own_cache")

MB = 1 << 20
LOADS = "    data = prepare.load_data(verify=False)\n"
TOO_SHORT_S = 0.01  # of allowance, for any script


def run(ending: Ending, seed: int = 0, words: str = "", wall_s: float = 26.0) -> Run:
    return Run(seed, ending, None, wall_s, None, words)


def attempt(*runs: Run, number: int = 1, status: Status | None = None, dry_run: DryRun | None = None) -> Attempt:
    decision = None if status is None else decided(status, "")
    settled = status is not None
    proposal = Proposal("", f"title {number}", "", "llm:x")
    return Attempt(number, 0, proposal, "", runs=runs, decision=decision, settled=settled, dry_run=dry_run)


# ---- the time of attempt 0 -------------------------------------------------------------------------------------------


def test_every_run_of_attempt_0_gets_the_full_allowance_and_others_what_its_slowest_took(grounds):
    (grounds.root / "train_mlx.py").write_text(unigram(JITTER=0.01))
    with scripted_context(grounds.root, "t", [], allowance_s=None) as context:
        run_night(context)
        first = context.journal.attempt(0)
        jobs = jobs_of(context)
        assert (jobs.allowed_s(0), jobs.allowed_s(1)) == (300.0, LEAST_ALLOWANCE_S)
        slow = dataclasses.replace(first.runs[0], wall_s=40.05)
        context.journal.end_run(context.journal.start_run(0, 1), slow)
        jobs = jobs_of(context)
        assert (jobs.allowed_s(0), jobs.allowed_s(1)) == (300.0, pytest.approx(1.5 * 40 + 0.05 * 0.05))
    assert learnt_allowance_s(grounds.attempts("t"), 0.05) == pytest.approx(60.0025)


@pytest.mark.usefixtures("quiet_machine")
def test_an_attempt_0_that_is_too_slow_ends_the_night_with_what_can_be_done(grounds):
    with pytest.raises(ScriptError) as told:
        grounds.try_scripts("t", [], allowance_s=TOO_SHORT_S)
    said = str(told.value)
    assert said.startswith("attempt 0, the script as it stands, has no score that counts: too slow to start or to save")
    assert "see where its time goes with python train_mlx.py --budget-s 0.05" in said
    assert said.endswith("or allow more with --allowance-s, in a new night")
    assert grounds.attempts("t")[0].status is Status.DISCARD


# ---- overruns --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("busy_machine")
def test_an_overrun_on_a_busy_machine_is_void_once_and_then_a_discard_that_nobody_is_asked_to_repair(grounds):
    grounds.try_scripts("t", [])
    with scripted_context(grounds.root, "t", [unigram(SHARPNESS=0.9)], allowance_s=TOO_SHORT_S) as context:
        run_night(context)
        history = context.journal.attempts()
        asked = brief(context, context.state(), history[0])
    late = history[1]
    assert [one.ending for one in late.runs] == [Ending.SPOILT, Ending.OVERRAN]
    assert late.runs[1].last_lines.splitlines()[-1] == "0.05 s of budget and 0.01 s for start and end are over"
    assert " of the machine's processors" in late.runs[0].last_lines.splitlines()[-1]
    assert late.status is Status.DISCARD
    assert late.decision.reason.startswith("too slow to start or to save: still running after ")
    assert asked.broken is None
    again = "this run of #1 does not count and is done again, once: other programs took"
    assert any(again in one for one in context.watcher.sentences)
    assert "run with seed 0: spoilt" in grounds.nightshift("show", "1").stdout


@pytest.mark.usefixtures("busy_machine")
def test_an_attempt_0_that_other_programs_keep_busy_ends_the_night_and_can_go_on(grounds):
    with pytest.raises(
        MachineError, match=r"^attempt 0 was ended at its last try: other programs took .* go on with: "
    ):
        grounds.try_scripts("t", [], allowance_s=TOO_SHORT_S)
    grounds.try_scripts("t", [])
    assert grounds.attempts("t")[0].status is Status.KEEP


@pytest.mark.usefixtures("quiet_machine")
def test_a_script_that_was_in_time_with_another_seed_is_given_a_second_chance_on_a_quiet_machine(grounds):
    grounds.try_scripts("t", [unigram(SHARPNESS=0.9)])
    with scripted_context(grounds.root, "t", [], allowance_s=TOO_SHORT_S) as context:
        run_once(context, 1)
    late = grounds.attempts("t")[1].runs[1]
    assert (late.seed, late.ending) == (1, Ending.SPOILT)
    assert late.last_lines.splitlines()[-1] == "with another seed it was in time"


@pytest.mark.usefixtures("busy_machine")
def test_scoring_and_dry_runs_that_overrun_are_told_apart_from_those_that_fail(grounds):
    with scripted_context(grounds.root, "t", [unigram(SHARPNESS=0.9)]) as context:
        run_night(context)
        script, edited = (context.journal.attempt(number).proposal.script for number in (0, 1))
        measured = score(context.runner, 1, edited, 0, limit_s=0.01)
        with pytest.raises(MachineError, match="attempt 0 was ended at its last try"):
            score(context.runner, 0, script, 0, limit_s=0.01)
        tried = rehearse(Trial(attempt=0, script=script, allowance_s=TOO_SHORT_S, scoring_s=60.0), context.runner)
        in_time = rehearse(Trial(attempt=0, script=script, allowance_s=60.0, scoring_s=60.0), context.runner)
    assert in_time.failure is None
    assert (measured.val_bpb, measured.overran) == (None, True)
    assert measured.failure.startswith("scoring was still running after 0 s: ")
    assert tried.overran
    assert tried.failure.startswith("still running after ")


def test_what_no_journal_lists_is_done_over_after_each_sleep_and_once_where_the_machine_spoilt_it(grounds):
    with scripted_context(grounds.root, "t", []) as context:
        repeats = Repeats(context.runner)
        asked = [(Ending.OVERRAN, None), (Ending.SLEPT, None), (Ending.EXCEEDED, "disk full"), (Ending.SLEPT, None)]
        asked += [(Ending.OVERRAN, "busy"), (Ending.CRASHED, None), (Ending.FINISHED, None)]
        wanted = [repeats.wanted(ending, spoilt) for ending, spoilt in asked]
    assert wanted == [False, True, True, True, False, False, False]


def test_an_edit_whose_scoring_overran_is_a_discard(grounds):
    grounds.try_scripts("t", [])
    with scripted_context(grounds.root, "t", []) as context:
        context.journal.add_attempt(1, 0, Proposal(unigram(SHARPNESS=0.9), "slow", "", "you"), "2026-11-21T00:00:00Z")
        run_once(context, 1)
        late = Score(None, 61.0, "scoring was still running: words", overran=True)
        (run,) = context.journal.attempt(1).runs
        last = context.journal.query("SELECT max(id) FROM runs")[0][0]
        context.journal.end_run(last, dataclasses.replace(run, score=late))
        run_night(context)
    edit = grounds.attempts("t")[1]
    assert (edit.status, edit.decision.reason) == (Status.DISCARD, "too slow to be scored: no end after 61 s")


SLOW = (
    attempt(run(Ending.OVERRAN, words="0.05 s of budget and 1 s for start and end are over")),
    attempt(dataclasses.replace(run(Ending.FINISHED), score=Score(None, 61.0, "scoring …: secret", overran=True))),
    attempt(dry_run=DryRun(30.0, "still running after 11 s", overran=True)),
)


def test_what_was_too_slow_is_told_in_the_harnesss_own_words():
    assert [what_happened(one) for one in SLOW] == [
        "it was too slow to start or to save: still running after 26 s: 0.05 s of budget and 1 s for start and end "
        "are over",
        "it was too slow to be scored: no end after 61 s",
        "it was too slow to start or to be scored, in a dry run of a few seconds",
    ]
    audit = Audit(4, 4, 0.0, 0.0, 90.0, "it could not be done: secret", overran=True)
    audited = dataclasses.replace(run(Ending.FINISHED), score=Score(1.0, 1.0, audit=audit))
    assert "secret" not in str(what_happened(attempt(audited)))
    assert "audit took too long" in str(what_happened(attempt(audited)))
    assert too_slow(attempt(audited)) is None


def test_the_search_keeps_away_from_what_was_too_slow_as_from_what_crashed():
    told = [dataclasses.replace(one, decision=Decision(Kind.WORSE, "")) for one in SLOW]
    assert all(crashed(one) for one in told)
    scored = dataclasses.replace(run(Ending.FINISHED), score=Score(1.0, 1.0))
    assert not crashed(attempt(scored, status=Status.DISCARD))
