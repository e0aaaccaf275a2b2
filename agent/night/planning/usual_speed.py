"""Tell how fast a run should be, so that its worker can void it where the machine was slow: from the state alone."""

from statistics import median

from agent.drift.speeds import IN_A_ROW, LEAST_S, Usual, least_tokens_s, speeds, step_at, threshold
from agent.experiment import Attempt
from agent.night.context import NightContext
from agent.night.planning.state import State
from agent.pools.cluster.slots import node_of
from agent.records.terms import Terms
from agent.runs.jobs import Reference, Trial
from agent.runs.train import curve_of_finished

MOST_COMPARED = 100  # attempts whose speeds are compared, the latest, beside attempt 0 and the incumbent
REFERENCE_SHARE, REFERENCE_STEPS, REFERENCE_S = 0.05, 20, 5.0  # of a run: how long the reference is trained, at least …
MOST_REFERENCE = 0.25  # … and at most: else a void run would hardly cost more


def usual_speed(context: NightContext, state: State, attempt: Attempt) -> Usual | None:
    """Return how fast runs of the attempt are at the machine's present pace, as far as the night knows.

    None where speeds do not compare: the runs are too short, or not all made on one machine.
    """
    if context.runner.night.budget_s < LEAST_S or not is_one_machine(context):
        return None
    since = state.paces[-1] if state.paces else ""
    known = state.once("speeds", lambda: _speeds(state, since))
    most = state.once("threshold", lambda: threshold(list(known.values())))
    same, parent = speeds(attempt, since), state.parent_of(attempt)
    if same or parent is None or parent.tokens_s is None:
        return Usual(most, same)
    return Usual(most, least_tokens_s=least_tokens_s(_shares(state, since, attempt.number), parent.tokens_s, most))


def is_one_machine(context: NightContext) -> bool:
    """Return whether all runs are made on one machine; nodes of a cluster are compared with each other by the pool."""
    workers = () if context.pool is None else context.pool.workers
    return Terms.from_json(context.runner.night.terms).pool == "local" or len({node_of(one) for one in workers}) <= 1


def _speeds(state: State, since: str) -> dict[int, tuple[float, ...]]:
    """Return the speeds of the runs of attempts by number: of attempt 0, the incumbent and the latest."""
    asked = (*state.attempts[:1], *state.attempts[-MOST_COMPARED:], state.best)
    by_number = {one.number: one for one in asked if one is not None}
    return {number: speeds(one, since) for number, one in sorted(by_number.items())}


def _shares(state: State, since: str, number: int) -> list[float]:
    """Return the speeds of the latest edits before an attempt, each as a share of its parent's."""
    found = []
    for one in state.attempts[max(1, number - 4 * IN_A_ROW) : number]:
        parent = state.parent_of(one)
        if parent is not None and one.is_idea and speeds(one, since) and one.tokens_s and parent.tokens_s:
            found.append(one.tokens_s / parent.tokens_s)
    return found


def speed_reference(context: NightContext, state: State, trial: Trial) -> Reference | None:
    """Return how to find out whether the machine is slow now: by attempt 0, the only script whose curves are believed.

    trial: attempt 0's. None where a moment of its training is not enough. A moment costs about a tenth of a run, and a
    void one all of it: so only a run that may be void is worth it. Its first run is taken where there is no other: it
    is no faster.
    """
    budget_s, runner, first = context.runner.night.budget_s, context.runner, state.first
    since = state.paces[-1] if state.paces else ""
    done = first.done_runs[1:] or first.done_runs
    runs = [run for run in done if (run.began or "") >= since and run.score]
    curves = [curve_of_finished(runner.run_folder(first.number, run.seed) / "out") for run in runs]
    steps = [curve[-1][1] for curve in curves if curve and curve[-1][1] > 0]
    if not steps:
        return None
    share = max(REFERENCE_SHARE, REFERENCE_STEPS / median(steps), REFERENCE_S / budget_s)
    reached = [step for curve in curves if (step := step_at(curve, share)) is not None]
    if share > MOST_REFERENCE or not reached:
        return None
    moment_s = share * budget_s
    return Reference(trial=trial, budget_s=moment_s, steps_s=median(reached) / moment_s)
