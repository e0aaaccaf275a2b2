"""Make the jobs that an attempt needs, each with all that a worker has to know, from the state alone."""

from collections.abc import Collection
from itertools import count
from typing import Any

from agent.experiment import Attempt, Ending, History, Run
from agent.judging.early_stop import Bound
from agent.night.context import NightContext
from agent.night.planning.state import State
from agent.runs.jobs import Evaluate, Measure, Reexamine, Rehearse, Trial
from agent.runs.runner import Runner
from agent.runs.score import Split, scoring_limit_s, too_heavy
from agent.runs.speed import usual_steps_s
from agent.runs.train import FIRST_ALLOWANCE_S, learnt_allowance_s, learnt_bounds

DAWN_SEED = 1000  # from one dawn to the next: each confirms with seeds that no choice before it has seen


def measure(
    context: NightContext, state: State, attempt: Attempt, dawn: int = 0, *, in_flight: Collection[int] = ()
) -> Measure:
    """Return the job of the attempt's next run; at night and at each dawn, all attempts use the same seeds in order.

    in_flight: seeds of its runs that have begun.
    """
    done = attempt.dawn_runs(dawn) if dawn else attempt.done_runs
    taken = {*in_flight, *(run.seed for run in done)}
    seed = next(seed for seed in count(context.runner.night.seed + DAWN_SEED * dawn) if seed not in taken)
    was_spoilt = bool(attempt.runs) and attempt.runs[-1].ending is Ending.SPOILT
    return Measure(
        attempt=attempt.number,
        script=attempt.proposal.script,
        seed=seed,
        allowance_s=allowed_s(context, state.attempts, attempt.number),
        machine=machine_trial(context, state),
        dawn=dawn,
        bounds=() if dawn else _bounds_ahead(context, state, attempt),
        has_run_well=bool(dawn) or has_run_well(attempt),
        may_be_void=attempt.may_be_void(seed),
        usual_steps_s=usual_steps_s(attempt),
        wait_s=context.runner.rest_s if was_spoilt else 0.0,
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
    return Reexamine(
        **facts, has_run_well=True, reference=audit_reference(context.runner, state, attempt.number, run, split)
    )


def _of_weights(context: NightContext, state: State, attempt: Attempt, run: Run, split: Split) -> dict[str, Any]:
    """Return the fields of jobs.OfWeights."""
    return {
        "attempt": attempt.number,
        "script": attempt.proposal.script,
        "seed": run.seed,
        "limit_s": scoring_allowed_s(context, state.attempts, attempt.number, run),
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
    )


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
    return learnt_bounds(context.runner, state.others(attempt.number), state.parent_of(attempt))


def audit_reference(runner: Runner, state: State, number: int, run: Run, split: Split) -> tuple[int, int] | None:
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
