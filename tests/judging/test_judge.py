"""The verdict: a pure function of scores."""

import dataclasses

import pytest
from judged import scored_attempt, scored_run

from agent.experiment import Attempt, Audit, Decision, Ending, Kind, Proposal, Run, Score, Status
from agent.judging.failures import trusted
from agent.judging.judges import Balanced, Greedy, Strict
from agent.judging.noise import noise
from agent.records.summary import earned


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
    return Attempt(number, None, old.proposal, "", "c", old.runs, Decision(Kind.KEPT, ""), settled=True)


def judged(candidate: Attempt, *history: Attempt) -> Decision:
    return Greedy().judge(candidate, history)


def test_strictly_lower_is_kept_and_says_by_how_much():
    decision = judged(attempt(1, 1.25), kept(0, 1.5))
    assert decision == Decision(Kind.KEPT, "0.250000 below the incumbent")


def test_the_incumbent_is_the_last_kept_and_its_value_a_mean():
    assert judged(attempt(2, 1.45), kept(0, 1.6), kept(1, 1.3, 1.5)).status is Status.DISCARD
    assert judged(attempt(2, 1.35), kept(0, 1.6), kept(1, 1.3, 1.5)).status is Status.KEEP


def test_one_crashed_run_among_several_is_a_crash():
    assert judged(attempt(1, 1.0, None), kept(0, 1.5)).status is Status.CRASH


# ---- confirmed, audited, believed ------------------------------------------------------------------------------------


def test_what_would_be_kept_is_measured_with_more_seeds_first():
    judge, best = Greedy(confirm=2), kept(0, 1.5)
    for scores in ((1.4,), (1.4, 1.45)):
        assert judge.judge(attempt(1, *scores), (best,)).status is None
    assert judge.judge(attempt(1, 1.4, 1.45, 1.46), (best,)).status is Status.KEEP
    assert judge.judge(attempt(1, 1.4, 1.7), (best,)).status is Status.DISCARD


def test_a_gain_beyond_the_plausible_is_not_kept():
    verdict = Decision(Kind.KEPT, "lower")
    assert trusted(verdict, attempt(1, 1.2), kept(0, 1.5), plausible=0.25) == verdict
    doubted = trusted(verdict, attempt(1, 1.0), kept(0, 1.5), plausible=0.25)
    assert doubted.status is Status.DISCARD
    assert doubted.reason.startswith("quarantine: 33% below the incumbent, more than 25%")


def test_one_failed_audit_is_enough():
    honest, cheat = attempt(1, 1.4, 1.3).runs
    runs = tuple(
        dataclasses.replace(run, score=dataclasses.replace(run.score, audit=Audit(256, wrong, 1.0, 0.0, 1.0, failure)))
        for run, wrong, failure in ((honest, 0, None), (cheat, 9, "9 are wrong"))
    )
    candidate = dataclasses.replace(attempt(1, 1.4, 1.3), runs=runs)
    assert trusted(Decision(Kind.KEPT, "lower"), candidate, kept(0, 1.5)).reason == "audit: 9 are wrong"


# ---- balanced: what the whole night says -----------------------------------------------------------------------------

BASELINE = scored_attempt(0, 1.500, 1.506, 1.494, status=Status.KEEP, reason="baseline")


def worse(first: int, count: int, parent: int, val_bpb: float) -> list[Attempt]:
    """Discarded children of a parent: the best has this score, others are clearly worse."""
    more = (0.0, 0.02, 0.05, 0.012, 0.1, 0.03)
    return [
        scored_attempt(first + k, val_bpb + more[k % 6] + 0.001 * k, parent=parent, reason="above")
        for k in range(count)
    ]


def candidate(number: int, *scores: float, parent: int = 0, **details: object) -> Attempt:
    return scored_attempt(number, *scores, parent=parent, status=None, **details)  # type: ignore[arg-type]


def test_attempt_0_is_measured_until_the_noise_is_known():
    for judge, runs in ((Balanced(), 3), (Strict(), 4), (Greedy(), 1)):
        for done in range(1, runs):
            assert judge.judge(scored_attempt(0, *[1.5, 1.51, 1.49][:done], status=None), ()).status is None
        full = scored_attempt(0, *[1.5, 1.51, 1.49, 1.5][:runs], status=None)
        assert judge.judge(full, ()) == Decision(Kind.BASELINE, "baseline")


def test_a_clear_gain_is_kept_at_once_and_a_small_one_asks_for_another_seed():
    history = [BASELINE, *worse(1, 12, parent=0, val_bpb=1.5)]
    clear = Balanced().judge(candidate(13, 1.40), history)
    assert clear.status is Status.KEEP
    assert clear.sure > 0.99
    assert clear.gain_bpb == pytest.approx(0.1, abs=0.01)
    assert clear.kind is Kind.KEPT
    later = [BASELINE, *worse(1, 40, parent=0, val_bpb=1.5)]  # when ideas have turned out to be worth little
    assert Balanced().judge(candidate(41, 1.492), later).status is None


def kept_by_luck(children: float) -> list[Attempt]:
    """A keep that children of so much more have followed."""
    lucky = scored_attempt(
        1, 1.486, parent=0, status=Status.KEEP, reason="provisional: lower, 60% sure", kind=Kind.PROVISIONAL
    )
    return [BASELINE, lucky, *worse(2, 10, parent=1, val_bpb=1.486 + children)]


def test_a_keep_is_revoked_when_its_children_speak_against_it():
    history = kept_by_luck(children=0.03)
    decisions = Balanced().review(history).decisions
    assert (decisions[1].kind, decisions[1].status) == (Kind.REVOKED, Status.DISCARD)
    assert decisions[1].reason.startswith("revoked: ")
    confirmed = Balanced().review(kept_by_luck(children=-0.02)).decisions[1]
    assert (confirmed.kind, confirmed.status) == (Kind.CONFIRMED, Status.KEEP)


def test_what_did_not_count_says_nothing():
    history = [BASELINE, *worse(1, 8, parent=0, val_bpb=1.5)]
    verdict = Balanced().judge(candidate(12, 1.49, 1.488), history)
    odd = [
        scored_attempt(9, 0.9, parent=0, kind=Kind.QUARANTINED),
        scored_attempt(10, 1.0, parent=0, kind=Kind.FAILED_AUDIT),
        scored_attempt(11, parent=0, dawn=(1.2,), without=(3,), kind=Kind.QUESTION),
    ]
    assert Balanced().judge(candidate(12, 1.49, 1.488), [*history, *odd]) == verdict


def test_a_script_that_ignores_its_seed_is_not_kept():
    for judge in (Balanced(), Strict()):
        assert judge.judge(candidate(1, 1.4, 1.4), (BASELINE,)).reason.startswith("it ignores its seed")


def test_noise_says_what_two_runs_can_tell_apart():
    assert noise(()) is None
    assert noise((scored_attempt(0, 1.5, status=Status.KEEP),)) is None
    found = noise((scored_attempt(0, *(1.5 + 0.01 * k for k in (-1, 0, 1, 0.5, -0.5)), status=Status.KEEP),))
    assert found.runs == 5
    assert found.sigma_bpb == pytest.approx(0.008, rel=0.3)
    assert found.smallest_bpb == pytest.approx(2.77 * found.sigma_bpb, rel=0.01)


# ---- strict ----------------------------------------------------------------------------------------------------------


def test_strict_keeps_after_three_runs_at_the_earliest_and_asks_while_there_is_hope():
    baseline = scored_attempt(0, 1.500, 1.506, 1.494, 1.501, status=Status.KEEP)
    for scores, status in (
        ((1.40,), None),
        ((1.40, 1.402), None),
        ((1.40, 1.402, 1.398), Status.KEEP),
        ((1.499, 1.502, 1.504), Status.DISCARD),
        ((1.49, 1.496, 1.494, 1.499, 1.491, 1.5), Status.DISCARD),
    ):
        assert Strict().judge(candidate(1, *scores), (baseline,)).status is status


# ---- dawn ------------------------------------------------------------------------------------------------------------


def test_what_dawn_measures_is_not_for_the_night_to_judge_by():
    """Neither its verdicts, nor its noise, nor what its sources have earned."""
    history = kept_by_luck(children=0.0)
    seen = [
        dataclasses.replace(
            one, runs=(*one.runs, *(scored_run(1000 + k, 1.2 + 0.01 * k, dawn=1, holdout=1.3) for k in range(4)))
        )
        for one in history
    ]
    seen.append(scored_attempt(len(seen), parent=1, without=(1,), dawn=(1.2, 1.3), kind=Kind.QUESTION))
    for judge in (Balanced(), Strict(), Greedy()):
        assert judge.review(seen) == judge.review(history)
        tried = candidate(len(seen), 1.39, 1.41)
        assert judge.judge(tried, seen) == judge.judge(tried, history)
    assert noise(seen) == noise(history)
    assert earned(seen, ()) == earned(history, ())
    assert [(one.val_bpb, one.val_bpb_std, one.spent_s) for one in seen[:-1]] == [
        (one.val_bpb, one.val_bpb_std, one.spent_s) for one in history
    ]
