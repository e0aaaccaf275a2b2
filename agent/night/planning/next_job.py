"""Make the jobs that an attempt needs, each with all that a worker has to know, from the state alone."""

from collections.abc import Collection
from itertools import count
from statistics import median
from typing import Any

from agent.drift.speeds import IN_A_ROW, LEAST_S, Usual, least_tokens_s, speeds, step_at, threshold
from agent.experiment import Attempt, Ending, History, Run
from agent.judging.early_stop import Bound
from agent.night.planning.context import NightContext
from agent.night.planning.state import State
from agent.pools.cluster.slots import node_of
from agent.records.terms import Terms
from agent.runs.jobs import Evaluate, Measure, Reexamine, Reference, Rehearse, Trial, has_chances
from agent.runs.runner import STARVED_WAIT_S, Runner
from agent.runs.score import Split, scoring_limit_s, too_heavy
from agent.runs.train import FIRST_ALLOWANCE_S, curve_of_finished, learnt_allowance_s, learnt_bounds

LATEST = 100  # attempts whose speeds are compared, beside attempt 0 and the incumbent
REFERENCE_SHARE, REFERENCE_STEPS, REFERENCE_S = 0.05, 20, 5.0  # of a run: how long the reference is trained, at least …
MOST_REFERENCE = 0.25  # … and at most: else a void run would hardly cost more
COOL_SHARE = 0.2  # of the budget: the pause before a run that was slowed is done again
DAWN_SEED = 1000  # from one dawn to the next: each confirms with seeds that no choice before it has seen


def measure(
    context: NightContext, state: State, attempt: Attempt, dawn: int = 0, *, in_flight: Collection[int] = ()
) -> Measure:
    """Return the job of the attempt's next run; at night and at each dawn, all attempts use the same seeds in order.

    in_flight: seeds of its runs that have begun.
    """
    done = attempt.dawn_runs(dawn) if dawn else attempt.done_runs
    taken, budget_s = {*in_flight, *(run.seed for run in done)}, context.runner.night.budget_s
    seed = next(seed for seed in count(context.runner.night.seed + DAWN_SEED * dawn) if seed not in taken)
    before = tuple(run.ending for run in attempt.runs if run.seed == seed)
    usual = _usual(state, attempt) if budget_s >= LEAST_S and _is_one_machine(context) else None
    return Measure(
        attempt=attempt.number,
        script=attempt.proposal.script,
        seed=seed,
        allowance_s=allowed_s(context, state.attempts, attempt.number),
        usual_bytes=_usual_bytes(state, attempt),
        machine=machine_trial(context, state),
        dawn=dawn,
        bounds=() if dawn else _bounds_ahead(context, state, attempt),
        before=before,
        has_run_well=has_run_well(attempt),
        was_in_time=was_always_in_time(attempt),
        has_chances=has_chances(attempt),
        usual=usual,
        reference=None if usual is None or attempt.number == 0 else _reference(context, state),
        wait_s=min(STARVED_WAIT_S, COOL_SHARE * budget_s) if before[-1:] == (Ending.SLOWED,) else 0.0,
    )


def evaluation(
    context: NightContext, state: State, attempt: Attempt, run: Run, split: Split = "validation"
) -> Evaluate:
    """Return the job of scoring a run on a text."""
    return Evaluate(
        **_of_weights(context, state, attempt, run, split),
        refusal=too_heavy(run, state.attempts),
        has_run_well=bool(run.dawn) or has_run_well(attempt),
    )


def reexamination(
    context: NightContext, state: State, attempt: Attempt, run: Run, split: Split = "validation"
) -> Reexamine:
    """Return the job of an audit against the committed losses of the attempt's parent, hardest at the largest gains."""
    facts = _of_weights(context, state, attempt, run, split)
    return Reexamine(**facts, reference=reference_of(context.runner, state, attempt.number, run, split))


def _of_weights(context: NightContext, state: State, attempt: Attempt, run: Run, split: Split) -> dict[str, Any]:
    """Return the fields of jobs.OfWeights."""
    return {
        "attempt": attempt.number,
        "script": attempt.proposal.script,
        "seed": run.seed,
        "limit_s": scoring_allowed_s(context, state.attempts, attempt.number, run),
        "usual_bytes": _usual_bytes(state, attempt),
        "machine": machine_trial(context, state),
        "split": split,
    }


def rehearsal(context: NightContext, state: State, attempt: Attempt) -> Rehearse:
    return Rehearse(
        trial=_trial(context, state, attempt), machine=machine_trial(context, state) if attempt.number else None
    )


def machine_trial(context: NightContext, state: State) -> Trial:
    """Return the trial run of attempt 0, which shows whether this machine still trains and scores."""
    return _trial(context, state, state.first)


def _trial(context: NightContext, state: State, attempt: Attempt) -> Trial:
    return Trial(
        attempt=attempt.number,
        script=attempt.proposal.script,
        allowance_s=allowed_s(context, state.attempts, attempt.number),
        scoring_s=scoring_allowed_s(context, state.attempts, attempt.number),
        usual_bytes=_usual_bytes(state, attempt),
    )


def _usual_bytes(state: State, attempt: Attempt) -> int | None:
    return (state.first.peak_bytes or None) if attempt.number else None


def allowed_s(context: NightContext, history: History, number: int) -> float:
    """Return the seconds that a run may take beyond its budget: the user's choice, else learnt from attempt 0.

    Attempt 0 itself gets FIRST_ALLOWANCE_S, since the machine may become busy. The others get little more than its
    slowest run took.
    """
    if context.runner.allowance_s is not None:
        return context.runner.allowance_s
    if number == 0:
        return FIRST_ALLOWANCE_S
    return learnt_allowance_s(history, context.runner.night.budget_s)


def scoring_allowed_s(context: NightContext, history: History, number: int, run: Run | None = None) -> float:
    """Return the seconds for each process that scores or audits this run; without a run, for the dry run."""
    beyond_s = max(0.0, run.wall_s - context.runner.night.budget_s) if run is not None else 0.0
    return scoring_limit_s(history, number, beyond_s, allowed_s(context, history, number))


def _bounds_ahead(context: NightContext, state: State, attempt: Attempt) -> tuple[Bound, ...]:
    """Return the bounds that may stop an idea's first run early; further seeds are run to the end."""
    if not context.early_stop or attempt.number == 0 or attempt.decision is not None or attempt.done_runs:
        return ()
    others: History = state.others(attempt.number)
    if state.paces:  # curves of another pace would stop any run
        since = state.paces[-1]
        others = tuple(one for one in others if all((run.began or "") >= since for run in one.done_runs))
    parent = state.parent_of(attempt)
    return learnt_bounds(context.runner, others, parent if parent in others else None)


def _is_one_machine(context: NightContext) -> bool:
    """Return whether all runs are made on one machine; nodes of a cluster are compared with each other by the pool."""
    workers = () if context.pool is None else context.pool.workers
    return Terms.from_json(context.runner.night.terms).pool == "local" or len({node_of(one) for one in workers}) <= 1


def _usual(state: State, attempt: Attempt) -> Usual:
    """Return how fast runs of the attempt are at the machine's present pace, as far as the night knows."""
    since = state.paces[-1] if state.paces else ""
    known = state.once("speeds", lambda: _speeds(state, since))
    most = state.once("threshold", lambda: threshold(list(known.values())))
    same, parent = speeds(attempt, since), state.parent_of(attempt)
    if same or parent is None or parent.tokens_s is None:
        return Usual(most, same)
    return Usual(most, least_tokens_s=least_tokens_s(_shares(state, since, attempt.number), parent.tokens_s, most))


def _speeds(state: State, since: str) -> dict[int, tuple[float, ...]]:
    """Return the speeds of the runs of attempts by number: of attempt 0, the incumbent and the latest."""
    asked = {one.number: one for one in (*state.attempts[:1], *state.attempts[-LATEST:], state.best) if one is not None}
    return {number: speeds(one, since) for number, one in sorted(asked.items())}


def _shares(state: State, since: str, number: int) -> list[float]:
    """Return the speeds of the latest edits before an attempt, each as a share of its parent's."""
    found = []
    for one in state.attempts[max(1, number - 4 * IN_A_ROW) : number]:
        parent = state.parent_of(one)
        if parent is not None and one.is_idea and speeds(one, since) and one.tokens_s and parent.tokens_s:
            found.append(one.tokens_s / parent.tokens_s)
    return found


def _reference(context: NightContext, state: State) -> Reference | None:
    """Return how to find out whether the machine is slow now: by attempt 0, the only script whose curves are believed.

    None where a moment of its training is not enough. A moment costs about a tenth of a run, and a void one all of it:
    so only a run that may be void is worth it. Its first run is taken where there is no other: it is no faster.
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
    return Reference(trial=machine_trial(context, state), budget_s=moment_s, steps_s=median(reached) / moment_s)


def reference_of(runner: Runner, state: State, number: int, run: Run, split: Split) -> tuple[int, int] | None:
    """Return the attempt and seed of the run that an audit counts gains from; None if no losses are there.

    It is a run of the attempt's parent, else of attempt 0. Only runs at dawn have losses on the holdout; there
    it is a run of the same dawn, at which attempt 0 always runs first.
    """
    best = state.parent_of(state.attempts[number])
    for one in (best, state.first) if best is not None else ():
        for other in one.counted_runs if split == "validation" else one.dawn_runs(run.dawn):
            if runner.losses(one.number, other.seed, split).is_file():
                return one.number, other.seed
    return None


def has_run_well(attempt: Attempt) -> bool:
    """Return whether a run of the attempt was scored."""
    return any(run.score is not None and run.score.val_bpb is not None for run in attempt.counted_runs)


def was_always_in_time(attempt: Attempt) -> bool:
    """Return whether a run of the attempt was scored and none was repeated because it overran.

    A script that got another try with every seed could discard each run that it does not like.
    """
    return has_run_well(attempt) and not any(run.ending is Ending.DELAYED for run in attempt.runs)
