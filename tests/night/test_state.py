"""The state in memory: what the journal would say, without asking it."""

import dataclasses

import pytest
from nights import SCRIPTS, scripted_context, unigram

from agent.experiment import Ask, Dawn, Decision, Ending, Kind, Proposal, Run, Score
from agent.judging.judges import Balanced
from agent.night.ideas import Ideas
from agent.night.loop import at_work
from agent.night.plan import Plan
from agent.night.state import State

pytestmark = pytest.mark.usefixtures("own_cache")

DIVERGES = (SCRIPTS / "diverges.py").read_text()
JITTER = 0.01


def facts(state: State) -> dict[str, object]:
    """Return everything that a state knows, except for its journal and for answers that it keeps for a while."""
    return {name: value for name, value in vars(state).items() if name not in ("_journal", "_answers")}


def test_after_every_step_the_state_is_what_a_fresh_reading_of_the_journal_gives(grounds):
    (grounds.root / "train_mlx.py").write_text(unigram(JITTER=JITTER))
    edit = unigram(SHARPNESS=0.9, JITTER=JITTER).replace("time.sleep(0.02)", "time.sleep(0.03)")
    with scripted_context(grounds.root, "t", [edit, DIVERGES]) as context:
        context = dataclasses.replace(context, judge=Balanced(), dry_runs=True)
        state, steps = context.state(), 0
        with at_work(context, state) as driver, Ideas(driver.context, state) as driver.ideas:
            plan = Plan(driver.context, state, driver.flight)
            while driver.take_a_step(plan):
                steps += 1
                assert facts(state) == facts(context.state())
    assert steps >= 6
    assert [one.status for one in state.attempts] == ["keep", "keep", "crash"]


def test_sums_follow_what_is_recorded(grounds):
    with scripted_context(grounds.root, "t", []) as context:
        state = context.state()
        assert (state.best, state.pace.run_s, state.ideas) == (None, 0.05 * 1.25 + 10, 0)
        state.enter(None, Proposal(unigram(), "baseline", "", "you"))
        crash, well = (Run(seed, ending, 0, wall_s, None, "") for seed, ending, wall_s in (
            (0, Ending.CRASHED, 3.0), (1, Ending.FINISHED, 2.0),
        ))  # fmt: skip
        journal = context.journal
        journal.end_run(journal.start_run(0, 0), crash)
        state.read(0)
        assert (state.pace.run_s, state.unsettled) == (3.0, state.attempts)
        journal.end_run(journal.start_run(0, 1), dataclasses.replace(well, score=Score(1.5, 0.5)))
        journal.record_decision(0, Decision(Kind.BASELINE, "baseline"))
        state.read(0)
        assert state.best == state.attempts[0]
        journal.end_run(journal.start_run(0, 1000, dawn=1), dataclasses.replace(well, seed=1000))
        state.read(0)
        assert state.pace.dawn_runs == 1
        journal.make_void([0], "the machine broke")
        state.read(0)
        assert (state.best, state.pace.run_s) == (None, 2.5)  # the crash is void
        for wall_s in (4.0, 5.0):
            journal.record_ask(Ask(1, "llm:x", "", wall_s))
        journal.put_dawn(Dawn(1, 0, 4, "then"))
        state.read()
        assert state.pace.asking_s == 9.0
        assert facts(state) == facts(context.state())
