"""The state in memory: what the journal would say, without asking it."""

import dataclasses

import pytest
from nights import SCRIPTS, scripted_context, unigram

from agent.night.ideas import Ideas
from agent.night.loop import at_work
from agent.night.plan import Plan
from agent.night.state import State

pytestmark = pytest.mark.usefixtures("own_cache")

DIVERGES = (SCRIPTS / "diverges.py").read_text()
JITTER = 0.01


def facts(state: State) -> dict[str, object]:
    """Return everything that a state knows, except for its journal and for answers that it keeps for a while."""
    return {name: value for name, value in vars(state).items() if name not in ("context", "_journal", "_answers")}


def test_after_every_step_the_state_is_what_a_fresh_reading_of_the_journal_gives(grounds):
    (grounds.root / "train_mlx.py").write_text(unigram(JITTER=JITTER))
    edit = unigram(SHARPNESS=0.9, JITTER=JITTER).replace("time.sleep(0.02)", "time.sleep(0.03)")
    with scripted_context(grounds.root, "t", [edit, DIVERGES]) as context:
        context = dataclasses.replace(context, dry_runs=True)
        state, steps = context.state(), 0
        with at_work(state) as driver, Ideas(state) as driver.ideas:
            plan = Plan(state, driver.flight)
            while driver.take_a_step(plan):
                steps += 1
                assert facts(state) == facts(context.state())
    assert steps >= 6
    assert [attempt.status for attempt in state.attempts] == ["keep", "keep", "crash"]
