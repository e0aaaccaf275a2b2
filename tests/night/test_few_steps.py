"""A night says in its first run that the runs make too few steps, and what would give them more."""

import re

import pytest
from nights import unigram

from agent.night.limits import few_steps_words
from agent.script.dials import Choices, Dial


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "is_said"), [(12, True), (500, False)])
def test_a_budget_with_too_few_steps_is_answered_once_in_the_first_run(grounds, steps, is_said):
    (grounds.root / "train_mlx.py").write_text(unigram(JITTER=0.01).replace("steps = 500", f"steps = {steps}"))
    grounds.git("commit", "-qam", "another number of steps")
    said = grounds.nightshift(
        "run", "--experiments", "1", "--budget-s", "1", "--proposer", "search", "--sandbox", "off"
    )
    assert said.returncode == 0, said.stderr
    answers = re.findall(r"one step takes .*", said.stdout)
    assert len(answers) == is_said
    assert all("a run of 1 s makes 12 steps" in answer and "--budget-s 10" in answer for answer in answers)


def test_the_answer_names_the_least_of_the_dials_that_make_a_step_short():
    rows, depth = Dial("BATCH_ROWS", 4, Choices((1, 2, 4))), Dial("DEPTH", 6, Choices((2, 6)))
    rate, least = Dial("MATRIX_LR", 0.04, Choices((0.01, 0.04))), Dial("DEPTH", 2, Choices((2, 6)))
    said = few_steps_words(9.0, 10.0, 50, (rows, depth, rate))
    assert said.startswith("one step takes 9 s here, and a run of 10 s makes 1 step, too few")
    assert said.endswith("use --budget-s 450, or BATCH_ROWS 1 and DEPTH 2")
    assert few_steps_words(9.0, 10.0, 50, (least,)).endswith("use --budget-s 450")
