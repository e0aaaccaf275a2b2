"""Execute a job and return its result, without journal, git or screen: the worker's part of a night.

What the machine has spoilt is void once and made again; the second time it counts as the script's. Where a script fails
that has run well before, attempt 0 is tried: if that fails as well, the machine is broken, and the night ends.
"""

from dataclasses import replace

from agent.clock import Stopwatch
from agent.errors import MachineError
from agent.experiment import Audit, DryRun, Ending, Run, Score
from agent.files import remove
from agent.invocation import typed
from agent.judging.failures import training_failure
from agent.runs.jobs import Evaluate, Job, Measure, Rehearse, Trial
from agent.runs.runner import WEIGHTS, Repeats, Runner, Stopped
from agent.runs.score import Rows, Unscored, audit, committed_losses, score
from agent.runs.speed import slow
from agent.runs.train import train, train_in
from agent.sandbox.process import LOG

TRIAL_S, TRIAL_ROWS = 1.0, 2
FAILED = frozenset({Ending.CRASHED, Ending.OVERRAN, Ending.EXCEEDED})
Result = DryRun | Run | Score | Audit


def execute(job: Job, runner: Runner) -> Result | None:
    """Execute the job; return None if the user stopped it in the middle.

    Raise MachineError if the machine is to blame for a failure: the job is done again when the night goes on.
    """
    try:
        result = _execute(job, runner)
        if not isinstance(job, Rehearse) and job.has_run_well and _has_failed(result):
            why = broken_by(rehearse(job.machine, runner), runner)
            if why is not None:
                raise MachineError(f"{why}; repair that and give the same command: what it has broken is done again")
    except Stopped:
        return None
    return result


def _execute(job: Job, runner: Runner) -> Result:
    match job:
        case Rehearse():
            return rehearse(job.trial, runner)
        case Measure():
            return _measure(job, runner)
        case Evaluate() if job.refusal is not None:
            return Score(None, 0.0, job.refusal)
        case Evaluate():
            return score(runner, job.attempt, job.script, job.seed, job.limit_s, job.split)
    return audit(runner, job.attempt, job.script, job.seed, job.limit_s, job.reference, job.split)


def rehearse(trial: Trial, runner: Runner) -> DryRun:
    """Train for a second and score two rows, and keep the log alone. Raise Stopped if the user stopped it.

    Both use training text only, so their error messages may be shown to the author of the edit.
    """
    watch, folder, repeats = Stopwatch(), runner.dry_folder(trial.attempt), Repeats(runner)
    budget_s = min(TRIAL_S, runner.night.budget_s)
    while True:
        run, spoilt = train_in(runner, folder, trial.script, runner.night.seed, budget_s, trial.allowance_s)
        if not repeats.wanted(run.ending, spoilt):
            break
    failure, overran = training_failure(run), run.ending is Ending.OVERRAN
    if failure is None:
        aside, rows = folder.with_name(f"{folder.name}.score"), Rows.of_training(runner.night, TRIAL_ROWS)
        try:
            committed_losses(runner, aside, trial.script, folder / WEIGHTS, trial.scoring_s, rows)
        except Unscored as why:
            failure, overran = str(why), why.overran
        remove(aside)
    runner.drop_all_but_log(folder)
    return DryRun(watch.elapsed_s, failure, overran)


def _measure(job: Measure, runner: Runner) -> Run:
    runner.wait(job.wait_s)
    run, spoilt = train(runner, job.attempt, job.script, job.seed, job.allowance_s, job.bounds)
    if run.ending is Ending.OVERRAN and job.has_run_well:
        spoilt = spoilt or "with another seed it was in time"
    elif run.ending is Ending.FINISHED:
        spoilt = slow(run, job.usual_steps_s)
    if spoilt is None:
        return run
    told = replace(run, last_lines=f"{run.last_lines}\n{spoilt}".strip())
    if job.may_be_void:
        return replace(told, ending=Ending.SPOILT)
    if job.attempt == 0 and run.ending in FAILED:
        again = typed("run", "--tag", runner.night.tag)
        raise MachineError(f"attempt 0 was ended twice: {spoilt}; repair that and go on with: {again}")
    return told if run.ending is Ending.CRASHED else run


def _has_failed(result: Result) -> bool:
    """Return whether a run, a score or an audit has failed, and not by what the model is worth."""
    match result:
        case Run():
            return result.ending in FAILED
        case Score():
            return result.val_bpb is None
        case Audit():
            return not result.passed and result.worst_nats == 0.0
    return False


def broken_by(trial: DryRun, runner: Runner) -> str | None:
    """Return what is wrong with the machine by a trial run of attempt 0; None if that succeeded."""
    if trial.failure is None:
        return None
    return f"not even attempt 0 trains here any more: {trial.failure} (log: {runner.dry_folder(0) / LOG})"
