"""Record results: the journal first, then refs, branch, ledger and weights; then tell the watcher.

Each record is made before the next step is planned. Making it twice does no harm.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from agent.errors import NightError
from agent.experiment import (
    Attempt,
    Audit,
    DryRun,
    Ending,
    Run,
    Score,
    attempt_ref,
    short,
)
from agent.judging.noise import noise
from agent.night.context import NightContext
from agent.night.pace import Ahead, experience, pace_words
from agent.night.planning.state import State
from agent.night.planning.steps import Reconsider
from agent.pools.contention import contention_of
from agent.runs.execute import Result
from agent.runs.jobs import Evaluate, Job, Measure, OfWeights, Reexamine, Rehearse
from agent.view.status import noise_lines


def commit(context: NightContext, state: State, attempt: Attempt) -> None:
    """Make the attempt's commit and ref, from recorded facts alone, so that a second call gives the same commit."""
    if attempt.commit is not None:
        return
    night, repo = context.runner.night, context.place.repo
    parent = night.base if attempt.parent is None else state.attempts[attempt.parent].commit
    if parent is None:
        raise NightError(f"attempt {attempt.parent} of night {night.tag} has no commit; its journal was edited by hand")
    proposal = attempt.proposal
    facts = f"Source: {proposal.source}\nNight: {night.tag}\nAttempt: {attempt.number}\n"
    message = f"{proposal.title}\n\n{proposal.hypothesis}\n\n{facts}"
    sha = repo.commit_script(parent, night.script, proposal.script, message, when=attempt.started)
    ref = attempt_ref(night.tag, attempt.number)
    repo.set_ref(ref, sha, f"attempt {attempt.number}")
    state.record_commit(attempt.number, sha)


def record_begin(state: State, job: Job, worker: str) -> int:
    """Record that a worker begins a job; return the id of the run that it makes, 0 where it makes none."""
    match job:
        case Measure():
            return state.start_run(job.attempt, job.seed, job.dawn, worker)
        case OfWeights():
            doing = "scoring" if isinstance(job, Evaluate) else "auditing"
            state.start_examination(worker, doing, job.attempt, job.seed, job.split)
    return 0


def record(context: NightContext, state: State, job: Job, result: Result, run_id: int) -> None:
    """Record the result of a job."""
    match result:
        case Run():
            assert isinstance(job, Measure)
            state.end_run(job.attempt, run_id, result)
            _tell_void(context, job, result)
        case DryRun():
            state.record_dry_run(job.attempt, result)
        case Score():
            assert isinstance(job, Evaluate)
            state.record_score(job.attempt, job.seed, result, job.split)
            if job.split == "holdout":
                _tell_holdout(context, state, job, result)
        case Audit():
            assert isinstance(job, Reexamine)
            state.record_audit(job.attempt, job.seed, result, job.split)


def record_loss(context: NightContext, state: State, job: Job, why: str, run_id: int) -> None:
    """Record that a job's worker is gone, or the weights that it needs: the run is made again, whatever it was for."""
    if isinstance(job, Measure):
        state.end_run(job.attempt, run_id, Run(job.seed, Ending.LOST, None, 0.0, None, why))
    elif isinstance(job, OfWeights):
        state.lose_run(job.attempt, job.seed, why)
    what = "dry run" if isinstance(job, Rehearse) else "run"
    context.watcher.said(f"this {what} of #{job.attempt} does not count and is done again: {why}")


def _tell_void(context: NightContext, job: Measure, run: Run) -> None:
    """Say why a run is void, if it is."""
    if run.ending is Ending.SLEPT:
        context.watcher.said("the machine slept during this run: it does not count and is done again")
    if run.ending is Ending.SPOILT:
        reason = run.last_lines.rpartition("\n")[2]
        context.watcher.said(f"this run of #{job.attempt} does not count and is done again, once: {reason}")


def _tell_holdout(context: NightContext, state: State, job: Evaluate, held: Score) -> None:
    runs = (run for run in state.attempts[job.attempt].dawn_runs() if run.seed == job.seed)
    validated = next((run.score for run in runs if run.score is not None), None)
    if validated is not None and validated.val_bpb is not None:
        on_holdout = held.failure if held.val_bpb is None else f"{held.val_bpb:.6f}"
        bpb = f"val_bpb {validated.val_bpb:.6f}"
        context.watcher.said(f"#{job.attempt} · seed {job.seed} · {bpb} · on the holdout {on_holdout}")


def reconsider(context: NightContext, state: State, step: Reconsider) -> None:
    """Record later decisions, the latest attempt's first: after a kill in between, no keep stands on a revoked one."""
    for sentence in step.sentences:
        context.watcher.said(sentence)
    for number in sorted(step.decisions, reverse=True):
        state.decide(number, step.decisions[number])


def settle(context: NightContext, state: State, number: int, in_flight: Collection[int] = ()) -> None:
    """Make branch, ledger and weights follow the decision; the weights of dawn's questions are dawn's to drop.

    in_flight: seeds of its runs whose weights are still needed.
    """
    attempt, best, pool = state.attempts[number], state.best, context.pool
    assert pool is not None
    for run in attempt.runs:
        if number in state.kept:
            if run.ending is Ending.FINISHED:
                pool.bring_weights(number, run.seed)
        elif (attempt.is_idea or not run.dawn) and run.seed not in in_flight:
            pool.drop_weights(number, run.seed)
    if best is not None and best.commit is not None:
        point_branch(context, state, context.runner.night.branch, best.commit, f"best is attempt {best.number}")
    context.ledger.write(live=(context.runner.night, state.attempts))
    state.settle(number)
    state.check_in_place()
    context.attempt_settled()


def tell_settled(context: NightContext, state: State, attempt: Attempt) -> None:
    """Show the verdict; of attempt 0, also how far its scores move with the seed."""
    context.watcher.attempt_settled(attempt, None if attempt.parent is None else state.attempts[attempt.parent])
    found = noise(state.attempts) if attempt.number == 0 else None
    for line in noise_lines(found) if found is not None else ():
        context.watcher.said(line)
    beside = contention_of(state.attempts) if attempt.number == 0 else None
    if beside is not None and beside.is_notable:
        context.watcher.said(beside.words)
    known = experience(context.place, context.runner.night, state.attempts) if attempt.number == 0 else None
    if known is not None and known.tag is None:
        dawn = context.limits.runs_at_dawn(replace(state.pace, run_s=known.run_s))
        context.watcher.said(
            f"pace: {pace_words(known, Ahead(context.limits.left(state.ideas), 0, dawn, state.workers))}"
        )
    tell_standing(context, state)


def tell_standing(context: NightContext, state: State) -> None:
    """Show where the night stands now."""
    context.watcher.night_stands(state.attempts, state.asks, context.limits.left(state.ideas))


def point_branch(context: NightContext, state: State, branch: str, commit: str, why: str) -> None:
    """Move a branch of the night, unless somebody has it checked out: HEAD and index are theirs. It catches up later.

    Raises RepoError where it is at a commit that this night did not make.
    """
    repo = context.place.repo
    now = repo.find(branch)
    if now == commit:
        return
    if branch in repo.checked_out():
        context.watcher.said(f"{short(branch)} is checked out and stays; the best script is {commit[:7]}")
        return
    ours = {attempt.commit for attempt in state.attempts}
    repo.move_ref(branch, commit, now if now in ours else commit, why)


def why_and_where(context: NightContext, crashed: Attempt) -> str:
    """Return the reason of a crash, and the path of its log."""
    reason = crashed.decision.reason if crashed.decision else "no score"
    logs: list[Path] = [context.runner.log(crashed.number, run) for run in crashed.counted_runs]
    return f"{reason} (log: {logs[-1]})" if logs else reason
