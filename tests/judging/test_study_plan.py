"""A plan is read whole or refused in one sentence, with the line that is wrong."""

import pytest

from agent.errors import NightError
from agent.judging.study_plan import read_plan, read_rule

PLAN = """\
question = "Does width pay?"
margin = 0.003
seeds = 3

[[arm]]
name = "narrow"

[[arm]]
name = "wide"
dials = {WIDTH = 512}

[[hypothesis]]
name = "H1"
says = "It does."
falsified_if = ["wide < 0.01"]
"""


def test_a_plan_says_what_is_compared_and_what_would_falsify_it():
    plan = read_plan(PLAN)
    assert [arm.name for arm in plan.arms] == ["narrow", "wide"]
    assert (plan.seeds, plan.margin, plan.budget_s, plan.primary) == (3, 0.003, 300.0, "val_bpb")
    assert plan.arms[1].dials == {"WIDTH": 512}
    assert plan.hypotheses[0].falsified_if == ("wide < 0.01",)


@pytest.mark.parametrize(
    ("good", "bad", "line"),
    [
        ("seeds = 3", "seeds = 1", 3),
        ("seeds = 3", "seeds = 3.5", 3),
        ("seeds = 3", "sedes = 3", 3),
        ("margin = 0.003", "margin = 0", 2),
        ("margin = 0.003", "margin = nan", 2),
        ("margin = 0.003", "", 1),  # missing: where the table begins
        ('question = "Does width pay?"', 'question = ""', 1),
        ('name = "wide"', 'name = "narrow"', 9),
        ('name = "wide"', 'name = "wi de"', 9),
        ('name = "wide"', "", 8),
        ("dials = {WIDTH = 512}", "dials = 512", 10),
        ("dials = {WIDTH = 512}", 'patch = "wide.patch"', 10),
        ("seeds = 3", "seeds = ", 3),
        ("wide < 0.01", "wider < 0.01", 15),
        ("wide < 0.01", "wide", 15),
        ("wide < 0.01", "wide * narrow < 1", 15),
        ("wide < 0.01", "0 < wide < 1", 15),
        ("wide < 0.01", "wide <", 15),
        ("wide < 0.01", "wide(1) < 1", 15),
        ("wide < 0.01", "wide / 0 < 1", 15),
        ('falsified_if = ["wide < 0.01"]', 'falsified_if = "wide < 0.01"', 15),
    ],
)
def test_what_is_wrong_in_a_plan_is_told_with_its_line(good, bad, line):
    assert good in PLAN
    with pytest.raises(NightError) as refusal:
        read_plan(PLAN.replace(good, bad), "plan.toml")
    sentence = str(refusal.value)
    assert sentence.startswith(f"plan.toml line {line}: "), sentence
    assert "\n" not in sentence


def test_a_rule_is_a_weighted_sum_of_gains_on_one_side_of_zero():
    rule = read_rule("rope + swiglu / 2 < 0.5 * everything - (norm - 0.01)")
    assert rule.below
    assert rule.weights == {"rope": 1, "swiglu": 0.5, "everything": -0.5, "norm": 1, "": -0.01}
    assert read_rule("a * 2 < -0.2 * (b + 1)").weights == {"a": 2, "b": 0.2, "": 0.2}
    assert not read_rule("-a > 2 * -b").below
    assert read_rule("-a > 2 * -b").weights == {"a": -1, "b": 2}


def test_arms_may_stand_in_one_table_with_a_line_for_each():
    head, hypotheses = PLAN.partition("[[arm]]")[0], PLAN[PLAN.index("[[hypothesis]]") :]
    plan = f'{head}arm = [\n    {{name = "narrow"}},\n    {{name = "wide", dials = {{WIDTH = 512}}}},\n]\n{hypotheses}'
    assert read_plan(plan) == read_plan(PLAN)
    for bad in ('"wi de"', '"narrow"', "7"):
        with pytest.raises(NightError, match=r"plan line 7: "):
            read_plan(plan.replace('"wide"', bad))


def test_arms_on_one_line_are_told_by_it():
    head, hypotheses = PLAN.partition("[[arm]]")[0], PLAN[PLAN.index("[[hypothesis]]") :]
    for arms, line in (
        ('arm = [{name = "narrow"}, {name = "wi de"}]', 5),
        ('arm = [{name = "nar row"}, {name = "wide"}]', 5),
        ('arm = [{name = "narrow"},\n{name = "wide", why = 7}]', 6),
    ):
        with pytest.raises(NightError, match=rf"plan line {line}: "):
            read_plan(f"{head}{arms}\n{hypotheses}")
