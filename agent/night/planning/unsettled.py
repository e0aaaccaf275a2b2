"""Plan the next step of the attempts that are not settled: rehearse, measure, score, judge and audit them."""

from collections.abc import Iterable, Iterator

from agent.experiment import Attempt, Decision, Kind, Status
from agent.invocation import typed
from agent.judging.champion import QUESTION
from agent.judging.failures import failure, stopped_early, too_slow, trusted
from agent.night.context import NightContext
from agent.night.limits import calibration_runs
from agent.night.planning import merging
from agent.night.planning.flight import Flight
from agent.night.planning.next_job import evaluation, measure, reexamination, rehearsal
from agent.night.planning.state import State, unaudited, unscored
from agent.night.planning.steps import Candidate, Commit, Decide, Leave, Settle
from agent.runs.jobs import Job
from agent.runs.train import learnt_bounds, read_losses
from agent.script.dials import only_dials_differ


def steps_of_attempts(
    context: NightContext, state: State, flight: Flight, numbers: Iterable[int]
) -> Iterator[Candidate]:
    """Yield the next step of each of these unsettled attempts; those with a decision come first."""
    attempts = [state.attempts[number] for number in numbers]
    for attempt in sorted(attempts, key=lambda one: (one.decision is None, one.number)):
        step = _step_of(context, state, flight, attempt)
        if step is not None:
            yield step


def _step_of(context: NightContext, state: State, flight: Flight, attempt: Attempt) -> Candidate | None:
    if attempt.decision is not None:
        return Settle(attempt.number)  # even with a run in flight: others are judged by what is settled
    calibrates = attempt.number == 0 and len(flight.pool.workers) > 1
    if attempt.number in flight.left or (flight.has(attempt.number) and not calibrates):
        return None
    if attempt.commit is None:
        return Commit(attempt.number)
    found = (_calibrate if calibrates else _plan_attempt)(context, state, flight, attempt)
    return Decide(attempt.number, found) if isinstance(found, Decision) else found


def _plan_attempt(
    context: NightContext, state: State, flight: Flight, attempt: Attempt
) -> Job | Decision | Leave | None:
    """Return the next job of an attempt without a decision, or the decision itself; None: another comes first."""
    if not attempt.is_idea:
        return Decision(Kind.QUESTION, QUESTION)
    if attempt.dry_run is None and _wants_dry_run(context, state, attempt):
        return _in_time(context, state, attempt, rehearsal(context, state, attempt), state.pace.dry_run_s)
    failed = _decided_by_failure(attempt)
    if failed is not None:
        return failed
    finished = unscored(attempt)
    if finished is not None:
        return evaluation(context, state, attempt, finished)
    if not attempt.done_runs:
        return _in_time(context, state, attempt, measure(context, state, attempt))
    if merging.waits_for_parent(state, attempt):
        return None
    return _decided_by_early_stop(context, state, attempt) or _judge(context, state, attempt)


def _judge(context: NightContext, state: State, attempt: Attempt) -> Job | Decision | Leave:
    """Return the decision on a scored attempt, or the run or the audit that has to come before it."""
    decision = context.judge.judge(attempt, state.others(attempt.number))
    if decision.status is None:
        return _in_time(context, state, attempt, measure(context, state, attempt))
    suspect = unaudited(attempt) if decision.status is Status.KEEP else None
    if suspect is not None:
        return reexamination(context, state, attempt, suspect)
    if decision.status is Status.KEEP or decision.kind is Kind.OVERTAKEN:
        decision = trusted(decision, attempt, state.parent_of(attempt), context.plausible_gain)
    return decision


def _calibrate(context: NightContext, state: State, flight: Flight, first: Attempt) -> Job | Decision | Leave | None:
    """Return the next job of attempt 0, which runs alone at first, and then on all workers beside itself.

    So its runs tell the noise, and how much slower a run is while others train. None: its runs in flight come first.
    """
    busy = flight.seeds_of(first.number)
    finished = unscored(first, in_flight=busy)
    if finished is not None:
        return evaluation(context, state, first, finished)
    found = _plan_attempt(context, state, flight, first) if not busy else None
    wanted = calibration_runs(context.judge.calibration, len(flight.pool.workers))
    begun = {*busy, *(run.seed for run in first.done_runs)}
    if not first.scores_bpb or failure(first) is not None or len(begun) >= wanted:
        return found
    further = _in_time(context, state, first, measure(context, state, first, in_flight=busy))
    return found if isinstance(further, Leave) else further


def _in_time(context: NightContext, state: State, attempt: Attempt, job: Job, before_s: float = 0.0) -> Job | Leave:
    """Return the job, if a run of the attempt that begins `before_s` seconds later still ends within the hours.

    Attempt 0 is begun in any case: a night whose hours are less than a run was refused.
    """
    begins = attempt.number == 0 and not attempt.runs
    if begins or context.limits.allows_run(attempt.number, state.pace, before_s):
        return job
    wants = "another seed" if attempt.done_runs else "its run"
    return Leave(
        attempt.number,
        f"no time is left for {wants} of #{attempt.number} ({attempt.proposal.title}): it stays unfinished and goes on "
        f"with: {typed('run', '--tag', context.runner.night.tag)}",
    )


def _wants_dry_run(context: NightContext, state: State, attempt: Attempt) -> bool:
    """Return whether an edit needs a dry run: one that only turns dials breaks nothing."""
    if not context.dry_runs or attempt.parent is None or attempt.done_runs:
        return False
    before = state.attempts[attempt.parent].proposal.script
    return not only_dials_differ(before, attempt.proposal.script, context.runner.night.device_kind)


# ---- decisions without the judge -------------------------------------------------------------------------------------


def _decided_by_failure(attempt: Attempt) -> Decision | None:
    """Return the decision on an attempt that was too slow, or whose dry run failed; None for any other."""
    slow = too_slow(attempt)
    if slow is not None:
        return Decision(Kind.TOO_SLOW, slow)
    if attempt.dry_run is not None and attempt.dry_run.failure is not None:
        return Decision(Kind.CRASHED, failure(attempt) or "dry run")
    return None


def _decided_by_early_stop(context: NightContext, state: State, attempt: Attempt) -> Decision | None:
    """Return the decision on an attempt that was stopped early, with a forecast as its gain; None for any other."""
    why = stopped_early(attempt)
    if why is None:
        return None
    parent = state.parent_of(attempt)
    known = read_losses(context.runner.run_folder(attempt.number, attempt.done_runs[0].seed) / "out")
    bounds = learnt_bounds(context.runner, state.others(attempt.number), parent)
    exceeded = (bound for bound in bounds if bound.verdict(known) is not None)
    forecast_bpb = next((bound.forecast_bpb(known) for bound in exceeded), None)
    if forecast_bpb is None or parent is None or parent.val_bpb is None:
        return Decision(Kind.STOPPED_EARLY, why)  # its curve is no longer there
    return Decision(Kind.STOPPED_EARLY, why, gain_bpb=parent.val_bpb - forecast_bpb)
