"""A dry run tries what the run of minutes executes, and takes seconds."""

import dataclasses
from collections.abc import Iterator

import pytest
from judged import scored_attempt
from nights import scripted_context, unigram

from agent.experiment import DryRun, Ending, Run, Summary
from agent.runs import execute
from agent.runs.execute import check_machine, run_dry, steps_of_trial
from agent.runs.jobs import Measure, Trial
from agent.runs.runner import Runner
from agent.runs.train import train
from agent.sandbox.process import LOG

OPTION = '    parser.add_argument("--no-eval", action="store_true")\n'
START = "    start = time.monotonic()\n"
LOOP = "while (elapsed := time.monotonic() - start) < options.budget_s:\n"
COUNTS = unigram().replace(OPTION, f'{OPTION}    parser.add_argument("--max-steps", type=int)\n')
STOPS = COUNTS.replace(LOOP, "for elapsed in range(options.max_steps):\n")
CHOOSES = STOPS.replace(START, f"{START}    assert options.budget_s == 300, 'another model'\n")


@pytest.fixture
def runner(grounds, monkeypatch) -> Iterator[Runner]:
    """Of a night of five minutes a run."""
    monkeypatch.setattr(execute, "LONG_TRIAL_S", 60.0)  # a busy machine must not end the dry run
    with scripted_context(grounds.root, "t", [], budget_s=300.0) as context:
        yield context.runner


def dry(runner: Runner, script: str, attempt: int = 1, allowance_s: float = 30.0) -> DryRun:
    trial = Trial(attempt=attempt, script=script, allowance_s=allowance_s, scoring_s=30.0, steps=3)
    return run_dry(trial, runner)


def test_a_script_that_chooses_its_model_by_the_budget_is_tried_with_the_model_of_the_run(runner):
    assert dry(runner, CHOOSES).failure is None


def test_a_dry_run_a_warm_up_and_a_run_choose_one_model_by_their_tokens_and_their_budget(runner):
    # tokens for a second of the budget: the text is long for the first, and short for the second
    chosen = "print(*('large' if len(tokens) >= rate * options.budget_s else 'small' for rate in (1, 10**6)))"
    script = COUNTS.replace(LOOP, f"{chosen}\n    for elapsed in range(options.max_steps or 1):\n")
    assert dry(runner, script).failure is None
    check_machine(Trial(attempt=0, script=script, allowance_s=30.0, scoring_s=30.0, steps=3), runner)
    measured, _ = train(runner, Measure(attempt=1, script=script, seed=0, allowance_s=30.0))
    assert measured.ending is Ending.FINISHED
    logs = [folder / LOG for folder in (runner.dry_folder(1), runner.dry_folder(0), runner.run_folder(1, 0))]
    assert [log.read_text().split() for log in logs] == [["large", "small"]] * 3


def test_its_end_is_tried_too(runner):
    failure = dry(runner, STOPS.replace('{"logits": mx.array', '{"logit": mx.array')).failure
    assert failure is not None
    assert "KeyError: 'logits'" in failure


@pytest.mark.slow
@pytest.mark.parametrize("script", [COUNTS, unigram()], ids=["ignores its steps", "knows of no steps"])
def test_a_script_that_trains_on_is_ended_and_has_not_failed(runner, script, monkeypatch):
    monkeypatch.setattr(execute, "LONG_TRIAL_S", 0.3)
    tried = dry(runner, script, attempt=0)
    assert (tried.failure, tried.overran) == (None, False)
    assert tried.wall_s < 30.0
    assert runner.is_warm
    check_machine(Trial(attempt=0, script=script, allowance_s=30.0, scoring_s=30.0, steps=3), runner)


@pytest.mark.slow
def test_a_script_that_makes_no_step_is_too_slow(runner):
    tried = dry(runner, STOPS.replace(START, f"{START}    time.sleep(60)\n"), allowance_s=1.0)
    assert tried.failure is not None
    assert tried.overran
    assert (runner.dry_folder(1) / LOG).is_file()


def test_it_has_as_many_steps_as_attempt_0_makes_in_a_second():
    def of(*steps: int | None) -> int:
        runs = [Run(0, Ending.FINISHED, 0, 1.0, Summary(training_seconds=20.0, num_steps=count), "") for count in steps]
        return steps_of_trial(dataclasses.replace(scored_attempt(0), runs=tuple(runs)))

    assert [of(400, 500), of(None, 500)] == [25, 25]
    assert [of(5), of(None), of()] == [1, 1, 1]
