"""Execute a job and return its result, without journal, git or screen: the worker's part of a night.

A run that the machine makes invalid is repeated; the last time it counts as the script's failure.
If a script fails that ran well before, or that follows many failures, attempt 0 is tried. If attempt 0 fails as well,
the machine is broken, and the night ends.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent.clock import Stopwatch
from agent.errors import MachineError
from agent.experiment import Attempt, Audit, DryRun, Ending, Run, Score
from agent.files import remove
from agent.judging.failures import process_failure, run_failure
from agent.runs.jobs import AuditRun, Job, Measure, Result, Trial
from agent.runs.reported import score_of
from agent.runs.runner import Runner, Stopped, beside
from agent.runs.score import (
    Rows,
    Unscored,
    audit,
    committed_losses,
    score,
    scoring_limit_s,
    too_heavy,
)
from agent.runs.train import read_progress, slow, train, train_in
from agent.sandbox.process import LOG

TRIAL_S, TRIAL_ROWS = 1.0, 2
LONG_TRIAL_S = 10.0  # s from the first step to the end of saving; a script that needs more ignores --max-steps
STEPS_OPTION = "--max-steps"  # a script may lack this option
FAILED = frozenset({Ending.CRASHED, Ending.OVERRAN, Ending.EXCEEDED})


def execute(job: Job, runner: Runner) -> Result | None:
    """Execute the job; return None if the user stopped it in the middle.

    Raise MachineError if the machine is to blame for a failure: the job is done again when the night goes on.
    """
    result: Result
    try:
        match job:
            case Trial():
                result = run_dry(job, runner)
            case Measure():
                result = _measure(job, runner)
            case AuditRun():
                result = audit(runner, job)
        if job.machine is not None and has_failed(result):
            check_machine(job.machine, runner)
    except Stopped:
        return Run(job.seed, Ending.STOPPED, None, 0.0, None, "") if isinstance(job, Measure) else None
    return result


def has_failed(result: Result) -> bool:
    """Return whether a job failed in a way that a broken machine would explain."""
    match result:
        case DryRun():
            return result.failure is not None
        case Run():
            return result.ending in FAILED or (result.ending is Ending.FINISHED and run_failure(result) is not None)
        case Audit():
            return not result.passed and result.worst_nats == 0.0


def run_dry(trial: Trial, runner: Runner) -> DryRun:
    """Train for a second and score two rows; keep only the log, and the code that attempt 0 compiled in training.

    Both use training text only, so the proposer of the edit may see their error messages. A script that does not stop
    training is killed; nothing is then known of its end. Raise Stopped if the user stopped it.
    """
    watch, folder = Stopwatch(), runner.dry_folder(trial.attempt)
    out, seed, train_s = folder / "out", runner.night.seed, min(TRIAL_S, runner.night.budget_s)
    can_be_short = STEPS_OPTION in trial.script
    options = (STEPS_OPTION, str(trial.steps)) if can_be_short else ()
    outcome = runner.until_it_counts(
        trial.attempt,
        lambda: train_in(runner, folder, trial.script, seed, train_s, trial.allowance_s, _trains_long(out), *options),
    )
    was_ended = outcome.ending in (Ending.OVERRAN, Ending.HOPELESS)
    trains_on = was_ended and (read_progress(out) is not None or not can_be_short)
    failure, overran = (None, False) if trains_on else (process_failure(outcome), was_ended)
    if failure is None and trial.attempt == 0:
        runner.keep_warm(folder)
    if outcome.ending is Ending.FINISHED and not runner.night.options.metric:
        try:
            rows = Rows.of_training(runner.night, TRIAL_ROWS)
            committed_losses(runner, trial, folder, trial.scoring_s, rows)
        except Unscored as why:
            failure, overran = why.quoting, why.overran
        remove(beside(folder, "score"))
    runner.keep_only(folder)
    return DryRun(watch.elapsed_s, failure, overran)


def steps_of_trial(first: Attempt) -> int:
    """Return how many steps attempt 0 makes in a second of training, by its own count."""
    speeds = (run.steps_s for run in first.counted_runs)
    return max(1, round(TRIAL_S * max(filter(None, speeds), default=0.0)))


def _trains_long(out: Path) -> Callable[[], bool]:
    """Return what tells whether the script that writes here has trained for long."""
    since: Stopwatch | None = None

    def trains_long() -> bool:
        nonlocal since
        if since is None and read_progress(out) is not None:
            since = Stopwatch()
        return since is not None and since.elapsed_s > LONG_TRIAL_S

    return trains_long


def _measure(job: Measure, runner: Runner) -> Run:
    runner.wait(job.wait_s)
    run, why_invalid = train(runner, job)
    if run.ending is Ending.OVERRAN and job.attempt and run.others_share is None:
        why_invalid = "it was too slow, as where other programs keep the machine busy"
    elif run.ending is Ending.FINISHED:
        why_invalid = slow(run, job.usual_steps_s)
    if why_invalid is not None and job.may_be_repeated:
        return replace(run, ending=Ending.INVALID, last_lines=f"{run.last_lines}\n{why_invalid}".strip())
    if run.ending in FAILED:
        runner.check_not_baseline(job.attempt, why_invalid)
    if run.ending is Ending.FINISHED:
        return _scored(job, runner, run)
    return run


def _scored(job: Measure, runner: Runner, run: Run) -> Run:
    """Return a finished run with its score; in the confirmation with that on the holdout, too."""
    metric = runner.night.options.metric
    if metric is not None:
        return replace(run, score=score_of(runner.run_folder(job.attempt, job.seed), metric))
    heavy = too_heavy(run, job.most_weights_bytes)
    if heavy is not None:
        return replace(run, score=Score(None, 0.0, heavy))
    limit_s = scoring_limit_s(job.usual_scoring_s, run.given_s - runner.night.budget_s, job.allowance_s)
    run = replace(run, score=score(runner, job, limit_s))
    if not job.confirmation or run.val_bpb is None:
        return run
    return replace(run, holdout=score(runner, job, limit_s, "holdout"))


def check_machine(machine: Trial, runner: Runner) -> None:
    """Raise MachineError if not even attempt 0 trains and scores here, Stopped if the user stopped its dry run."""
    failure = run_dry(machine, runner).failure
    if failure is not None:
        raise MachineError(
            f"not even attempt 0 trains here any more: {failure} (log: {runner.dry_folder(0) / LOG}); repair that and "
            f"give the same command: what it has broken is done again"
        )
