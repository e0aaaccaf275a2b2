"""The verdict: a pure function of scores."""

import dataclasses
import math

from agent.experiment import Attempt, Audit, Decision, Ending, Proposal, Run, Score, Status
from agent.judge import Greedy, trusted


def attempt(number: int, *scores: float | None, ending: Ending = Ending.FINISHED, **details: object) -> Attempt:
    facts = {"exit_code": 0, "last_lines": "", "wall_s": 1.0, **details}
    measured = [Score(value, 1.0, None if value else "no") if ending is Ending.FINISHED else None for value in scores]
    runs = tuple(
        Run(seed=seed, ending=ending, summary=None, score=score, **facts)  # type: ignore[arg-type]
        for seed, score in enumerate(measured)
    )
    return Attempt(number, None, Proposal("", "", "", ""), "", commit="c", runs=runs)


def kept(number: int, *scores: float) -> Attempt:
    old = attempt(number, *scores)
    return Attempt(number, None, old.proposal, "", "c", old.runs, Decision(Status.KEEP, ""), settled=True)


def judged(candidate: Attempt, *history: Attempt) -> Decision:
    return Greedy().judge(candidate, history)


def test_attempt_0_is_the_baseline():
    assert judged(attempt(0, 1.5)) == Decision(Status.KEEP, "baseline")


def test_strictly_lower_is_kept_and_says_by_how_much():
    decision = judged(attempt(1, 1.25), kept(0, 1.5))
    assert decision == Decision(Status.KEEP, "0.250000 below the incumbent")


def test_a_tie_is_a_discard():
    assert judged(attempt(1, 1.5), kept(0, 1.5)).status is Status.DISCARD


def test_the_incumbent_is_the_last_kept_and_its_value_a_mean():
    assert judged(attempt(2, 1.45), kept(0, 1.6), kept(1, 1.3, 1.5)).status is Status.DISCARD
    assert judged(attempt(2, 1.35), kept(0, 1.6), kept(1, 1.3, 1.5)).status is Status.KEEP


def test_no_finite_score_is_a_crash_and_never_a_number():
    for value in (None, math.nan, math.inf, -0.5, 0.0):
        assert judged(attempt(1, value), kept(0, 1.5)).status is Status.CRASH


def test_one_crashed_run_among_several_is_a_crash():
    assert judged(attempt(1, 1.0, None), kept(0, 1.5)).status is Status.CRASH


def test_a_crash_names_exit_code_and_last_line():
    crashed = attempt(
        1, None, ending=Ending.CRASHED, exit_code=3, last_lines="so far so good\nloss is nan at step 17\n"
    )
    assert judged(crashed, kept(0, 1.5)).reason == "exit code 3: loss is nan at step 17"


def test_a_signal_is_named_and_the_killers_meaning_too():
    killed = attempt(1, None, ending=Ending.CRASHED, exit_code=-9, last_lines="step 17\n")
    assert judged(killed, kept(0, 1.5)).reason == "killed by signal 9, usually a sign that memory ran out: step 17"
    broken = attempt(1, None, ending=Ending.CRASHED, exit_code=-11)
    assert judged(broken, kept(0, 1.5)).reason == "killed by signal 11"


def test_an_overrun_names_its_seconds():
    late = attempt(1, None, ending=Ending.OVERRAN, exit_code=None, wall_s=601.4)
    assert judged(late, kept(0, 1.5)).reason == "still running after 601 s"


def test_interrupted_runs_do_not_count():
    lost = attempt(1, 1.0, ending=Ending.LOST)
    assert lost.done_runs == ()
    assert lost.val_bpb is None


# ---- confirmed, audited, believed ------------------------------------------------------------------------------------


def test_what_would_be_kept_is_measured_with_more_seeds_first():
    judge, best = Greedy(confirm=2), kept(0, 1.5)
    for scores in ((1.4,), (1.4, 1.45)):
        assert judge.judge(attempt(1, *scores), (best,)).status is None
    assert judge.judge(attempt(1, 1.4, 1.45, 1.46), (best,)).status is Status.KEEP
    assert judge.judge(attempt(1, 1.4, 1.7), (best,)).status is Status.DISCARD


def test_a_script_that_ignores_its_seed_confirms_nothing():
    decision = Greedy(confirm=1).judge(attempt(1, 1.4, 1.4), (kept(0, 1.5),))
    assert decision == Decision(Status.DISCARD, "it ignores its seed: two seeds gave the very same score")


def test_a_gain_beyond_the_plausible_is_not_kept():
    verdict = Decision(Status.KEEP, "lower")
    assert trusted(verdict, attempt(1, 1.2), kept(0, 1.5), plausible=0.25) == verdict
    doubted = trusted(verdict, attempt(1, 1.0), kept(0, 1.5), plausible=0.25)
    assert doubted.status is Status.DISCARD
    assert doubted.reason.startswith("quarantine: 33% below the incumbent, more than 25%")


def test_the_first_attempt_has_nothing_to_be_compared_with():
    verdict = Decision(Status.KEEP, "baseline")
    assert trusted(verdict, attempt(0, 0.1), None) == verdict


def test_one_failed_audit_is_enough():
    honest, cheat = attempt(1, 1.4, 1.3).runs
    runs = tuple(
        dataclasses.replace(run, score=dataclasses.replace(run.score, audit=Audit(256, wrong, 1.0, 0.0, 1.0, failure)))
        for run, wrong, failure in ((honest, 0, None), (cheat, 9, "9 are wrong"))
    )
    candidate = dataclasses.replace(attempt(1, 1.4, 1.3), runs=runs)
    assert trusted(Decision(Status.KEEP, "lower"), candidate, kept(0, 1.5)).reason == "audit: 9 are wrong"
