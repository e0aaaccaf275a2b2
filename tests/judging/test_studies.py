"""What a study says of its arms is what their scores say, and no word comes before the last run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from judged import scored_attempt

from agent.experiment import Attempt, Ending, History, Kind, Run, Study
from agent.judging.studies import (
    PROPOSER,
    EverySeed,
    Verdict,
    Word,
    holm,
    in_drawn_order,
    results_of,
    smallest_difference,
)
from agent.judging.study_plan import Arm, read_plan

NAMES = ("plain", "a", "b", "c")
LUCK = (0.00123, -0.00071, 0.00034, -0.00116, 0.00047)  # what each seed does to every arm
OWN = {"plain": (0, 0, 0, 0, 0), "a": (1, -2, 1, 2, -1), "b": (-1, 1, 2, -2, 1), "c": (2, -1, 0, 1, -2)}  # in 1e-4


def arm_of(number: int, *scores: float, **more: object) -> Attempt:
    return scored_attempt(number, *scores, parent=0 if number else None, proposer=PROPOSER, **more)  # type: ignore[arg-type]


def plan_of(*rules: str, seeds: int = 5, names: Sequence[str] = NAMES, **more: object) -> Study:
    facts = "".join(f"{name} = {str(value).lower()}\n" for name, value in more.items())
    arms = "".join(f'[[arm]]\nname = "{name}"\n' for name in names)
    says = f"[[hypothesis]]\nname = 'H'\nsays = 'It is so.'\nfalsified_if = {list(rules)}\n" if rules else ""
    return Study(f"question = 'Which?'\nmargin = 0.002\nseeds = {seeds}\n{facts}{arms}{says}", "0" * 64)


def measured(gains: Mapping[str, float], seeds: int = 5) -> History:
    """An attempt for each arm, which is better than the first by its gain, and moves with the seed."""
    return [
        arm_of(
            number,
            *(1.0 - gain + luck + own * 1e-4 for luck, own in zip(LUCK[:seeds], OWN[name], strict=False)),
            kind=Kind.MEASURED if number else Kind.BASELINE,
            title=name,
        )
        for number, (name, gain) in enumerate(gains.items())
    ]


GAINS = {"plain": 0.0, "a": 0.02, "b": -0.02, "c": 0.0}


def test_each_arm_gets_one_of_four_words():
    found = results_of(plan_of(), measured(GAINS))
    assert found.is_complete
    assert [arm.word for arm in found.arms] == [None, Word.BETTER, Word.WORSE, Word.EQUAL]
    assert "better: a (+0.02)" in found.answer
    noisy = measured(GAINS | {"c": 0.003})
    doubtful = arm_of(3, 1.01, 0.98, 1.02, 0.99, 1.0, kind=Kind.MEASURED, title="c")
    assert results_of(plan_of(), [*noisy[:3], doubtful]).arms[3].word is Word.UNDECIDED


def test_gains_are_paired_by_seed_and_their_interval_is_students():
    from scipy import stats

    history = measured(GAINS)
    differences = np.array(history[0].scores_bpb) - np.array(history[1].scores_bpb)
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    arm = results_of(plan_of(), history).arms[1]
    assert arm.gain == pytest.approx(0.02, abs=1e-4)
    assert (arm.gain_low, arm.gain_high) == pytest.approx((expected.low, expected.high))
    assert arm.gain_high - arm.gain_low < 0.001  # what a seed does to both arms is no noise of their difference


def test_where_seeds_do_not_pair_dunnetts_test_compares_the_arms():
    from scipy import stats

    history = measured(GAINS)
    base, *others = (-np.array(attempt.scores_bpb) for attempt in history)
    expected = stats.dunnett(*others, control=base, rng=0)
    found = results_of(plan_of(paired=False), history)
    assert [arm.p for arm in found.arms[1:]] == pytest.approx(list(expected.pvalue))
    assert [arm.word for arm in found.arms[1:]] == [Word.BETTER, Word.WORSE, Word.EQUAL]


def test_before_the_last_run_nothing_is_decided():
    study, history = plan_of("a < 0.01"), measured(GAINS)
    fewer = replace(history[2], runs=history[2].runs[:-1])
    for part in (history[:1], history[:3], [*history[:2], fewer, history[3]], []):
        found = results_of(study, part)
        assert not found.is_complete
        assert {arm.word for arm in found.arms} <= {None, Word.UNDECIDED}
        assert {hypothesis.verdict for hypothesis in found.hypotheses} == {Verdict.UNDECIDED}
        assert "runs are made, and nothing is decided" in found.answer


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        (["a < 0.01"], Verdict.NOT_FALSIFIED),
        (["a > 0.01"], Verdict.FALSIFIED),
        (["a < 0.5 * b"], Verdict.NOT_FALSIFIED),
        (["b < a / 2", "c > 1"], Verdict.FALSIFIED),
        (["c < 0"], Verdict.UNDECIDED),
        (["a < 0.01", "c < 0"], Verdict.UNDECIDED),
        (["plain > 0"], Verdict.UNDECIDED),
    ],
)
def test_a_hypothesis_is_falsified_by_a_rule_that_certainly_holds(rules, verdict):
    (hypothesis,) = results_of(plan_of(*rules), measured(GAINS)).hypotheses
    assert hypothesis.verdict is verdict
    assert [rule.rule for rule in hypothesis.rules] == rules


def test_an_arm_that_fails_is_told_and_the_others_are_compared():
    study, history = plan_of("b < 0"), measured(GAINS)
    crashed = replace(arm_of(2, kind=Kind.CRASHED, reason="exit code 1", title="b"), runs=())
    for broken, words in (
        (crashed, "exit code 1"),
        (arm_of(2, 1.0, kind=Kind.FAILED_AUDIT, reason="audit: it peeks", title="b"), "it peeks"),
        (arm_of(2, *[1.0] * 5, kind=Kind.MEASURED, title="b"), "ignores its seed"),
    ):
        found = results_of(study, [*history[:2], broken, history[3]])
        assert found.is_complete
        assert [arm.word for arm in found.arms] == [None, Word.BETTER, Word.UNDECIDED, Word.EQUAL]
        assert words in str(found.arms[2].fault)
        assert any(words in deviation and "arm b" in deviation for deviation in found.deviations)
        assert found.hypotheses[0].verdict is Verdict.UNDECIDED


def test_an_arm_of_which_two_seeds_agree_by_chance_is_compared():
    history = measured(GAINS)
    scores = history[2].scores_bpb
    history[2] = arm_of(2, *scores[:4], scores[0], kind=Kind.MEASURED, title="b")
    found = results_of(plan_of(), history)
    assert (found.arms[2].fault, found.arms[2].word) == (None, Word.WORSE)


def test_without_its_baseline_a_study_decides_nothing():
    history = measured(GAINS)
    lost = Run(5, Ending.CRASHED, 1, 1.0, None, "no such width")
    broken = replace(history[0], runs=(*history[0].runs[:-1], lost))
    found = results_of(plan_of(), [broken, *history[1:]])
    assert {arm.word for arm in found.arms[1:]} == {Word.UNDECIDED}
    assert "arm plain is not compared" in found.deviations[0]
    assert found.is_complete


def test_a_study_whose_arms_all_fail_is_over():
    crashed = [arm_of(number, kind=Kind.CRASHED, reason="exit code 1", title=name) for number, name in enumerate(NAMES)]
    found = results_of(plan_of(), crashed)
    assert found.is_complete
    assert {arm.word for arm in found.arms[1:]} == {Word.UNDECIDED}


def test_runs_that_the_machine_spoilt_and_later_changes_are_deviations():
    history = measured(GAINS)
    spoilt = replace(history[1].runs[0], ending=Ending.SLEPT, score=None)
    history[1] = replace(history[1], runs=(spoilt, *history[1].runs))
    study = replace(plan_of(), post_hoc=("plan: -seeds = 3",))
    assert results_of(study, history).deviations == (
        "post hoc, after runs of an earlier plan were seen: plan: -seeds = 3",
        "arm a: 1 run made again (slept)",
    )


# ---- the judge -------------------------------------------------------------------------------------------------------


def asked_for(judge: EverySeed, history: History) -> list[str]:
    return [history[number].title for number in judge.review(history).again]


def test_the_judge_asks_for_blocks_of_all_arms_with_one_seed_in_a_drawn_order():
    study, orders = plan_of(), set()
    judge, arms = EverySeed(study), read_plan(study.plan).arms
    for block in range(1, 5):
        order = in_drawn_order(arms, study, block)
        assert asked_for(judge, measured(GAINS, seeds=block)) == order
        assert sorted(order) == sorted(NAMES)
        orders.add(tuple(order))
    assert len(orders) > 1
    assert asked_for(judge, measured(GAINS)) == []


def test_the_judge_keeps_nothing_and_asks_nothing_before_all_arms_have_a_run():
    judge, history = EverySeed(plan_of()), measured(GAINS, seeds=1)
    assert judge.judge(replace(history[1], decisions=()), [history[0]]).kind is Kind.MEASURED
    assert judge.review(history[:3]).again == ()
    assert judge.review([*history[:3], replace(history[3], decisions=())]).again == ()


def test_the_judge_lets_a_crashed_arm_rest_and_finishes_the_block_of_the_others():
    judge, history = EverySeed(plan_of()), measured(GAINS, seeds=2)
    crashed = arm_of(2, kind=Kind.CRASHED, title="b")
    behind = replace(history[3], runs=history[3].runs[:1])
    again = asked_for(judge, [*history[:2], crashed, behind])
    assert again[0] == "c"
    assert sorted(again) == ["a", "c", "plain"]


def test_an_arm_that_crashes_with_a_later_seed_rests_and_without_the_baseline_all_do():
    judge, history, lost = EverySeed(plan_of()), measured(GAINS, seeds=1), Run(1, Ending.CRASHED, 1, 1.0, None, "")
    broken = [replace(attempt, runs=(*attempt.runs, lost)) for attempt in history]
    assert sorted(asked_for(judge, [*history[:2], broken[2], history[3]])) == ["a", "c", "plain"]
    assert asked_for(judge, [broken[0], *history[1:]]) == []


def test_somebodys_own_edit_in_a_study_is_no_arm():
    judge, study, history = EverySeed(plan_of()), plan_of(), measured(GAINS, seeds=2)
    edits = [scored_attempt(number, 0.5, parent=0, proposer="queue: 0001", title=title)
             for number, title in enumerate(("my own edit", "a"), len(history))]  # fmt: skip
    assert asked_for(judge, [*history, *edits]) == asked_for(judge, history)
    assert results_of(study, [*history, *edits]) == results_of(study, history)


# ---- statistics ------------------------------------------------------------------------------------------------------


def test_holms_correction_and_both_one_sided_tests_are_those_of_statsmodels():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 20):
        ps = rng.uniform(0, 0.1, size)
        assert holm(list(ps)) == pytest.approx(multitest.multipletests(ps, method="holm")[1])
    history = measured(GAINS)
    rows = [np.array(attempt.scores_bpb) for attempt in history]
    paired = [weightstats.ttost_paired(row, rows[0], -0.002, 0.002)[0] for row in rows[1:]]
    found = results_of(plan_of(), history)
    assert [arm.p_equal for arm in found.arms[1:]] == pytest.approx(multitest.multipletests(paired, method="holm")[1])
    apart = [weightstats.ttost_ind(row, rows[0], -0.002, 0.002, usevar="unequal")[0] for row in rows[1:]]
    found = results_of(plan_of(paired=False), history)
    assert [arm.p_equal for arm in found.arms[1:]] == pytest.approx(multitest.multipletests(apart, method="holm")[1])


def test_the_smallest_difference_is_that_of_the_planned_test():
    apart = read_plan(plan_of(paired=False).plan)
    assert smallest_difference(apart, 5) == pytest.approx(2.0, abs=0.05)
    assert smallest_difference(apart, 3) == pytest.approx(3.1, abs=0.05)
    paired = read_plan(plan_of().plan)
    assert smallest_difference(paired, 5) > smallest_difference(apart, 5)  # fewer degrees of freedom
    assert smallest_difference(paired, 5, tests=4) > smallest_difference(paired, 5)


def test_two_orders_of_one_plan_are_the_same_and_of_another_plan_differ():
    arms = [Arm(f"a{number}") for number in range(20)]
    study = plan_of()
    assert in_drawn_order(arms, study, 1) == in_drawn_order(arms, study, 1)
    assert in_drawn_order(arms, study, 1) != in_drawn_order(arms, replace(study, sha256="1" * 64), 1)
