"""A machine that stays slow: the incumbent comes first, and scores from before are compared by its difference."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from drifting import timed
from nights import scripted_context, unigram

from agent.drift.speeds import UNKNOWN
from agent.experiment import Audit, Decision, Ending, Kind, Proposal, Run, Score
from agent.night.context import NightContext
from agent.night.planning.flight import Flight
from agent.night.planning.next_job import measure
from agent.night.planning.plan import plan
from agent.night.planning.state import State
from agent.night.planning.steps import Begin, Decide
from agent.pools.local import LocalPool
from agent.runs.jobs import Measure, Reexamine

PASSED = Audit(256, 0, 0.0, 0.0, 1.0)

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def planned(grounds) -> Iterator[tuple[NightContext, State, Flight]]:
    """A night whose runs are written down instead of made: attempt 0, and an edit of it."""
    with (
        scripted_context(grounds.root, "t", [], budget_s=300.0) as context,
        closing(LocalPool([context.runner])) as pool,
    ):
        context = replace(context, pool=pool)
        state = context.state()
        for parent, title in ((None, "baseline"), (0, "an edit")):
            number = state.add(
                parent, Proposal(unigram(SHARPNESS=0.5 + len(state.attempts) / 10), title, "", "you")
            ).number
            state.record_commit(number, f"{number:040}")
        for seed, steps_s in enumerate((9.0, 10.0)):
            note(state, 0, timed(steps_s, seed=seed), 1.0)
        state.decide(0, Decision(Kind.BASELINE, "baseline"))
        state.settle(0)
        yield context, state, Flight(pool)


def note(state: State, number: int, run: Run, val_bpb: float | None = None) -> None:
    """Write down a run, and its score."""
    state.end_run(number, state.start_run(number, run.seed, 0), run)
    if val_bpb is not None:
        state.record_score(number, run.seed, Score(val_bpb, 1.0), "validation")


def next_measure(context: NightContext, state: State, flight: Flight) -> tuple[int, int]:
    step = plan(context, state, flight)
    assert isinstance(step, Begin)
    assert isinstance(step.job, Measure)
    return step.job.attempt, step.job.seed


def test_a_run_knows_the_speeds_of_its_script_and_the_first_of_an_edit_none(planned):
    context, state, flight = planned
    repeat, first = (measure(context, state, state.attempts[number]) for number in (0, 1))
    assert repeat.usual is not None
    assert (repeat.usual.same, repeat.usual.threshold) == ((10.0,), UNKNOWN)
    assert first.usual is not None
    assert (first.usual.same, first.wait_s) == ((), 0.0)
    assert state.comparable is state.attempts
    note(state, 1, timed(10.0), 1.05)
    step = plan(context, state, flight)
    assert isinstance(step, Decide)
    assert step.decision.kind is Kind.WORSE


def test_a_slow_run_is_done_again_and_where_it_stays_slow_the_incumbent_comes_first(planned):
    context, state, flight = planned
    for times in (1, 2):
        note(state, 1, timed(6.0, Ending.SLOWED))
        assert next_measure(context, state, flight) == (1, 0)
        job = measure(context, state, state.attempts[1])
        assert (job.before, job.wait_s) == ((Ending.SLOWED,) * times, 60.0)
        assert state.paces == ()
    note(state, 1, timed(6.0), 1.05)
    assert len(state.paces) == 1
    assert next_measure(context, state, flight) == (0, 2)
    note(state, 0, timed(6.0, seed=2), 1.1)
    assert next_measure(context, state, flight) == (0, 3)
    usual = measure(context, state, state.attempts[0]).usual
    assert usual is not None
    assert usual.same == (6.0,), "the speeds of the present pace"
    note(state, 0, timed(6.0, seed=3), 1.1)
    step = plan(context, state, flight)
    assert isinstance(step, Begin)
    assert isinstance(step.job, Reexamine), "1.05 is better than 1.1, and about to be kept"
    assert [one.val_bpb for one in state.comparable] == pytest.approx([1.1, 1.05])
    assert state.attempts[0].scores_bpb == (1.0, 1.0, 1.1, 1.1), "the records stay as they are"


def test_attempt_0_alone_tells_whether_the_machine_is_slow_and_is_measured_at_each_pace(planned):
    context, state, flight = planned
    note(state, 1, timed(10.0), 0.9)
    state.record_audit(0, 0, PASSED, "validation")
    state.record_audit(1, 0, PASSED, "validation")
    state.decide(1, Decision(Kind.KEPT, "better"))
    state.settle(1)
    for number, seed in ((0, 1), (1, 0)):
        leave_a_curve(context, number, seed)
    reference = measure(context, state, state.attempts[1]).reference
    assert reference is not None
    assert reference.trial.attempt == 0, "also for a script whose speed is known: it counts its own steps"
    assert measure(context, state, state.attempts[0]).reference is None, "its own word is believed"
    for at in (Ending.SLOWED, Ending.SLOWED, Ending.FINISHED):
        note(state, 1, timed(6.0, at, seed=1), None if at is Ending.SLOWED else 0.95)
    state.record_audit(1, 1, PASSED, "validation")
    assert len(state.paces) == 1
    assert next_measure(context, state, flight) == (1, 2)
    note(state, 1, timed(6.0, seed=2), 0.95)
    state.record_audit(1, 2, PASSED, "validation")
    leave_a_curve(context, 1, 2)
    assert measure(context, state, state.attempts[1]).reference is None, "by no edit's word"
    assert next_measure(context, state, flight) == (0, 2)
    note(state, 0, timed(6.0, seed=2), 1.05)
    leave_a_curve(context, 0, 2)
    assert measure(context, state, state.attempts[1]).reference is not None


def leave_a_curve(context: NightContext, number: int, seed: int) -> None:
    out = context.runner.run_folder(number, seed) / "out"
    out.mkdir(parents=True)
    lines = (f'{{"step": {20 * at}, "progress": {at / 100}, "loss": 1.0}}\n' for at in range(1, 101))
    (out / "metrics.jsonl").write_text("".join(lines))
