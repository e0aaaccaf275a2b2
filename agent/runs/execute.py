"""Execute a job and return its result, without journal, git or screen: the worker's part of a night.

What the machine has spoilt is void once and made again; the second time it counts as the script's. Where a script fails
that has run well before, attempt 0 is tried: if that fails as well, the machine is broken, and the night ends.
"""

from dataclasses import replace

from agent.errors import MachineError
from agent.experiment import Audit, DryRun, Ending, Run, Score
from agent.invocation import typed
from agent.runs.jobs import Evaluate, Job, Measure, Reexamine, Rehearse, Trial
from agent.runs.runner import Runner
from agent.runs.score import audit, score
from agent.runs.speed import slow
from agent.runs.train import train
from agent.runs.trial import rehearse
from agent.sandbox.process import LOG

FAILED = frozenset({Ending.CRASHED, Ending.OVERRAN, Ending.EXCEEDED})
Result = DryRun | Run | Score | Audit


def execute(job: Job, runner: Runner) -> Result | None:
    """Execute the job; return None if the user stopped it in the middle.

    Raise MachineError if the machine is to blame for a failure: the job is done again when the night goes on.
    """
    match job:
        case Rehearse():
            return _rehearse(job.trial, runner)
        case Measure():
            result: Result | None = _measure(job, runner)
        case Evaluate():
            result = Score(None, 0.0, job.refusal)
            if job.refusal is None:
                result = score(runner, job.attempt, job.script, job.seed, job.limit_s, job.split)
        case Reexamine():
            result = audit(runner, job.attempt, job.script, job.seed, job.limit_s, job.reference, job.split)
    if not (job.has_run_well and _has_failed(result)) or _machine_works(job.machine, runner):
        return result
    return None


def _rehearse(trial: Trial, runner: Runner) -> DryRun | None:
    return rehearse(runner, trial.attempt, trial.script, trial.allowance_s, trial.scoring_s)


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


def _has_failed(result: Result | None) -> bool:
    """Return whether a run, a score or an audit has failed, and not by what the model is worth."""
    match result:
        case Run():
            return result.ending in FAILED
        case Score():
            return result.val_bpb is None
        case Audit():
            return not result.passed and result.worst_nats == 0.0
    return False


def _machine_works(machine: Trial, runner: Runner) -> bool:
    """Return whether attempt 0 still trains and scores here, False if the user stopped it; else raise MachineError."""
    trial = _rehearse(machine, runner)
    why = None if trial is None else broken_by(trial, runner)
    if why is not None:
        raise MachineError(f"{why}; repair that and give the same command: what it has broken is done again")
    return trial is not None


def broken_by(trial: DryRun, runner: Runner) -> str | None:
    """Return what is wrong with the machine by a trial run of attempt 0; None if that succeeded."""
    if trial.failure is None:
        return None
    return f"not even attempt 0 trains here any more: {trial.failure} (log: {runner.dry_folder(0) / LOG})"
