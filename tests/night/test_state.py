"""The state in memory: what the journal would say, without asking it."""

import dataclasses

import pytest
from nights import SCRIPTS, scripted_context, unigram

from agent.night.loop import at_work
from agent.night.plan import Plan
from agent.night.proposals import Proposals
from agent.night.state import State

pytestmark = pytest.mark.usefixtures("own_cache")

DIVERGES = (SCRIPTS / "diverges.py").read_text()
JITTER = 0.01


def facts(state: State) -> dict[str, object]:
    """Return everything that a state knows, except for its journal and for answers that it keeps for a while."""
    return {name: value for name, value in vars(state).items() if name not in ("context", "_journal", "_answers")}


@pytest.mark.slow
def test_after_every_step_the_state_is_what_the_journal_says_and_what_only_turns_dials_is_not_tried_dry(grounds):
    (grounds.root / "train_mlx.py").write_text(unigram(JITTER=JITTER))
    turned = unigram(SMOOTHING=2.0, JITTER=JITTER)
    edit = unigram(SHARPNESS=0.9, JITTER=JITTER).replace("time.sleep(0.02)", "time.sleep(0.03)")
    with scripted_context(grounds.root, "t", [turned, edit, DIVERGES]) as context:
        context = dataclasses.replace(context, dry_runs=True)
        state, steps = context.state(), 0
        with at_work(state) as driver, Proposals(state) as driver.proposals:
            plan = Plan(state, driver.in_flight)
            while driver.take_a_step(plan):
                steps += 1
                assert facts(state) == facts(context.state())
    assert steps >= 6
    assert [attempt.status for attempt in state.attempts][2:] == ["keep", "crash"]
    assert [attempt.dry_run is not None for attempt in state.attempts] == [False, False, True, True]
    assert not list(grounds.folder("t").glob("runs/0002/dry/model*"))
