"""Execute a job and return its result, without journal, git or screen: the worker's part of a night.

If a failure may be the machine's fault, attempt 0 is tried here before the attempt is blamed.
"""

from dataclasses import replace

from agent.drift.power import Power
from agent.drift.speeds import MOST_VOIDS, Usual, points_of, slowness, speed
from agent.errors import MachineError, Starved
from agent.experiment import DENIED, Audit, DryRun, Ending, Run, Score
from agent.invocation import typed
from agent.judging.machine_words import told_by
from agent.runs.jobs import Evaluate, Job, Measure, Reexamine, Reference, Rehearse, Trial
from agent.runs.runner import STARVED_TRIES, Runner
from agent.runs.score import audit, score
from agent.runs.train import read_curve, train, train_in
from agent.runs.trial import rehearse
from agent.sandbox.process import LOG

FAILED = frozenset({Ending.CRASHED, Ending.OVERRAN, Ending.EXCEEDED})
Result = DryRun | Run | Score | Audit


def execute(job: Job, runner: Runner) -> Result | None:
    """Execute the job; return None if the user stopped it in the middle.

    Raise MachineError if not even attempt 0 would have succeeded here. A run is returned in any case, with an ending
    that says so.
    """
    match job:
        case Rehearse():
            return _rehearse(job, runner)
        case Measure():
            return _measure(job, runner)
        case Evaluate():
            return _evaluate(job, runner)
        case Reexamine():
            return _reexamine(job, runner)


def _rehearse(job: Rehearse, runner: Runner) -> DryRun | None:
    try:
        return try_dry(job.trial, runner)
    except Starved as error:
        why = _unless_machine_is_full(job.machine, runner, error)
        return None if why is None else DryRun(0.0, why)


def _measure(job: Measure, runner: Runner) -> Run:
    runner.wait(job.wait_s)
    run = train(runner, job.attempt, job.script, job.seed, job.allowance_s, job.bounds)
    run = given_a_second_chance(run, job)
    run = _unless_machine_ended_it(job, runner, run)
    if (run.ending in FAILED and (job.dawn or job.has_run_well)) or is_denied_again(run.ending, job):
        run = _unless_machine_is_broken(job, runner, run)
    return run if job.usual is None else _unless_machine_is_slow(job, job.usual, runner, run)


def _evaluate(job: Evaluate, runner: Runner) -> Score | None:
    measured: Score | None = Score(None, 0.0, job.refusal)
    if job.refusal is None:
        try:
            measured = score(runner, job.attempt, job.script, job.seed, job.limit_s, job.split)
        except Starved as error:
            why = _unless_machine_is_full(job.machine if job.attempt else None, runner, error)
            measured = None if why is None else Score(None, 0.0, why)
    if measured is None or measured.val_bpb is not None or not job.has_run_well:
        return measured
    return measured if _machine_scores(job.machine, runner) else None


def _reexamine(job: Reexamine, runner: Runner) -> Audit | None:
    """Audit the losses against the reference run, most of all where the gains are largest."""
    try:
        found = audit(runner, job.attempt, job.script, job.seed, job.limit_s, job.reference, job.split)
    except Starved as error:
        why = _unless_machine_is_full(job.machine if job.attempt else None, runner, error)
        found = None if why is None else Audit(0, 0, 0.0, 0.0, 0.0, f"it could not be done: {why}")
    if found is None:
        return None
    no_answer = not found.passed and found.worst_nats == 0.0
    return None if no_answer and not _machine_scores(job.machine, runner) else found


# ---- second chances --------------------------------------------------------------------------------------------------


def given_a_second_chance(run: Run, job: Measure) -> Run:
    """Turn a first overrun into a delay if the script was in time before; count the second in any case."""
    if run.ending not in (Ending.OVERRAN, Ending.DELAYED):
        return run
    if Ending.DELAYED in job.before or not job.has_chances:
        return replace(run, ending=Ending.OVERRAN)
    if run.ending is Ending.OVERRAN and job.was_in_time:
        return replace(run, ending=Ending.DELAYED, last_lines=f"{run.last_lines}\nwith another seed it was in time")
    return run


def is_denied_again(ending: Ending, job: Measure) -> bool:
    """Return whether so many runs with this seed lacked what other programs had taken, or were disrupted.

    Other endings in between make no difference: a script could choose among them.
    """
    if ending not in DENIED:
        return False
    return not job.has_chances or sum(one in DENIED for one in job.before) + 1 >= STARVED_TRIES


# ---- whose fault it is -----------------------------------------------------------------------------------------------


def try_dry(trial: Trial, runner: Runner) -> DryRun | None:
    """Make a trial run; None when the user stopped it. Raises Starved."""
    return rehearse(runner, trial.attempt, trial.script, trial.allowance_s, trial.scoring_s)


def check_machine(machine: Trial, runner: Runner) -> DryRun | None:
    """Make a trial run of attempt 0, to see whether it still works here; None if the user stopped it."""
    try:
        return try_dry(machine, runner)
    except Starved as error:
        return DryRun(0.0, str(error))


def broken_by(found: DryRun, runner: Runner) -> str | None:
    """Return a sentence on what is wrong with the machine; None if attempt 0 succeeded."""
    if found.failure is None:
        return None
    return f"not even attempt 0 trains here any more: {found.failure} (log: {runner.dry_folder(0) / LOG})"


def remedy(runner: Runner, ending: Ending = Ending.STARVED) -> str:
    """Return advice for a machine whose memory or disk other programs have filled, or whose driver ends runs."""
    first = "free some and " if ending is Ending.STARVED else ""
    again = typed("run", "--tag", runner.night.tag)
    return f"{first}go on with: {again} (what was cut off does not count and is done again)"


def _unless_machine_ended_it(job: Measure, runner: Runner, run: Run) -> Run:
    """Return a crash as void if the driver or the system says that it ended the process.

    Words that a script's own fault causes as well count only if attempt 0 fails, too.
    """
    message = told_by(run.last_lines, runner.night.device_kind) if run.ending is Ending.CRASHED else None
    if message is None:
        return run
    if message.is_doubtful:
        found = check_machine(job.machine, runner)
        if found is None:
            return replace(run, ending=Ending.STOPPED)
        if found.failure is None:
            return run
    return replace(run, ending=Ending.DISRUPTED, last_lines=f"{run.last_lines}\n{message.sentence}")


def _unless_machine_is_broken(job: Measure, runner: Runner, run: Run) -> Run:
    """Return a failed run that counts only if attempt 0 still succeeds; else mark it as the machine's fault.

    A run that lacked room, or was disrupted, again and again counts as too large if attempt 0 runs.
    """
    if run.ending in DENIED and job.attempt == 0:
        return run
    found = check_machine(job.machine, runner)
    if found is None:
        return replace(run, ending=Ending.STOPPED)
    why = broken_by(found, runner)
    if run.ending in DENIED:
        return replace(run, ending=Ending.EXCEEDED) if why is None else run
    return run if why is None else replace(run, ending=Ending.BROKEN, last_lines=f"{run.last_lines}\n{why}".strip())


def _unless_machine_is_slow(job: Measure, usual: Usual, runner: Runner, run: Run) -> Run:
    """Return a run that the machine has slowed as void; one that is slow for the third time counts, and says so.

    Attempt 0's own speed is believed. Of an edit's run, attempt 0 has to tell that the machine is slow.
    """
    if run.ending is not Ending.FINISHED:
        return run
    lost, how = usual.lost(run), "it trained {:.0%} slower than other runs of its script"
    if job.attempt and (lost is not None or _is_suspect(job, usual, runner, run)):
        # a script counts its own steps, and can take fewer: a run that it does not like would be void
        lost = None if job.reference is None else _lost_by(job.reference, runner)
        how = "#0, trained for a moment after it, was {:.0%} slower than in its own runs"
        if runner.stopped():
            return replace(run, ending=Ending.STOPPED)
    if lost is None or lost <= usual.threshold:
        return run
    is_last = job.before.count(Ending.SLOWED) >= MOST_VOIDS
    power = f", {words}" if (words := Power.now().words) is not None else ""
    told = (
        f"{'it counts all the same' if is_last else 'the machine was slow'}{power}: {how.format(lost)} "
        f"(at most {usual.threshold:.0%} is chance)"
    )
    ending = run.ending if is_last else Ending.SLOWED
    return replace(run, ending=ending, last_lines=f"{run.last_lines}\n{told}".strip())


def _is_suspect(job: Measure, usual: Usual, runner: Runner, run: Run) -> bool:
    """Return whether the reference has to tell if the machine slowed the run: always where it did the time before."""
    if Ending.SLOWED in job.before:
        return not usual.same
    return usual.is_suspect(run, points_of(read_curve(runner.run_folder(job.attempt, job.seed) / "out")))


def _lost_by(reference: Reference, runner: Runner) -> float | None:
    """Train the reference for a moment; return which share of its speed is lost, None if it did not finish."""
    trial, folder = reference.trial, runner.dry_folder(0)
    run = train_in(runner, folder, trial.script, runner.night.seed, reference.budget_s, trial.allowance_s)
    runner.drop_all_but_log(folder)
    own = speed(run)
    return None if own is None else slowness(own, [reference.steps_s])


def _unless_machine_is_full(machine: Trial | None, runner: Runner, error: Starved) -> str | None:
    """Return why a process that lacked room failed, if attempt 0 has room; None if the user stopped it.

    Raise MachineError if attempt 0 lacks room as well.
    """
    found = check_machine(machine, runner) if machine is not None else DryRun(0.0, str(error))
    if found is not None and found.failure is not None:
        raise MachineError(f"{error}; {remedy(runner)}") from error
    return None if found is None else str(error)


def _machine_scores(machine: Trial, runner: Runner) -> bool:
    """Return False if the user stopped it; raise MachineError if attempt 0 cannot be scored here either."""
    found = check_machine(machine, runner)
    why = None if found is None else broken_by(found, runner)
    if why is not None:
        raise MachineError(f"{why}; repair that and give the same command: the scoring is done again")
    return found is not None
