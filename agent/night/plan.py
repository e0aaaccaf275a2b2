"""Plan what a night does next: pure, except that it reads the clock and the curves and losses of earlier runs.

plan() looks at the whole night, plan_attempt() at one attempt that has no decision yet. Neither writes or prints
anything, so after a kill the same state leads to the same step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.drift.paces import is_measured
from agent.experiment import Attempt, Decision, History, Kind, Review, Status
from agent.invocation import typed
from agent.judging.confirmation import QUESTION, adoption
from agent.judging.failures import failure, fault, stopped_early, too_slow
from agent.judging.judge import trusted
from agent.night import merging
from agent.night.context import NightContext
from agent.night.flight import Flight
from agent.night.next_job import evaluation, measure, reexamination, rehearsal
from agent.night.opening.limits import calibration_runs
from agent.night.state import State, unaudited, unscored
from agent.runs.jobs import Evaluate, Job, Reexamine
from agent.runs.train import learnt_bounds, read_losses
from agent.script.dials import only_dials_differ

MEASURED = frozenset({Kind.REVOKED, Kind.PASSENGER, Kind.OVERTAKEN})  # an edit of such a script may make up for it


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a job on a worker that is free for it."""

    job: Job
    worker: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit an attempt's script, before it is measured."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Decide:
    """Record the decision on an attempt, and settle it."""

    attempt: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class Settle:
    """Make branch, ledger and weights follow the decision on an attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Reconsider:
    """Record later decisions about settled attempts."""

    decisions: Mapping[int, Decision]
    sentences: tuple[str, ...] = ()  # to be said before


@dataclass(frozen=True, slots=True)
class Merge:
    """Carry an overtaken attempt's edit onto the incumbent, as an attempt of its own."""

    overtaken: int


@dataclass(frozen=True, slots=True)
class NextIdea:
    """Enter the next idea as an attempt; the first is the user's own script."""

    wanted: int  # as many ideas could be tried now


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Leave the attempt as it is, for another call."""

    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait: nothing can begin before something in flight has ended, or before a source has answered."""


NextStep = Begin | Commit | Decide | Settle | Reconsider | Merge | NextIdea | Unfinished | Wait


def plan(context: NightContext, state: State, flight: Flight, *, idea_is_made: bool = False) -> NextStep | None:
    """Return the next step that can be carried out now; None when the night is over.

    After a wish to end the night, no run begins; those in flight end, and are scored and settled. No time is reserved
    for asking if an idea is made already.
    """
    step = None
    if not context.stop.now:
        stops = context.stop.after_run
        step = step_of_attempts(context, state, flight, state.unsettled, stops=stops)
        step = step or loose_end(context, state, flight)
        if step is None and not stops and not flight.left and not flight.is_held:
            step = _go_on(context, state, flight, idea_is_made=idea_is_made)
    return step or (Wait() if flight.jobs or flight.awaits_idea else None)


def _go_on(context: NightContext, state: State, flight: Flight, *, idea_is_made: bool) -> NextStep | None:
    """Return what begins, or is decided once more, beside the attempts that have no decision yet."""
    review = state.once("review", lambda: second_thoughts(context, state))
    if review.decisions:
        return Reconsider(review.decisions)
    pace = state.pace
    if context.limits.has_enough_ideas(state.ideas) or 0 in state.unsettled or flight.idle == 0:
        return None
    confirmed = adoption(state.attempts, state.last_dawn) if state.dawns else {}
    if confirmed:
        waits = bool(flight.jobs) or context.limits.reached(state.ideas, pace)
        return None if waits else _go_on_from(confirmed, state.attempts)
    unmeasured = state.once("unmeasured", lambda: _unmeasured_incumbent(context, state))
    again = review.again if unmeasured is None else unmeasured.number
    if again is not None:
        if not flight.has(again):
            if not context.limits.allows_run(again, pace):
                return None
            step = _begin(flight, measure(context, state, state.attempts[again]))
            if step is not None:
                return step
        if unmeasured is not None:
            return None  # edits made from it are compared with these runs
    wanted, overtaken = _ideas_wanted(context, state, flight), merging.due(state)
    at_once = replace(pace, asking_s=0.0) if idea_is_made or overtaken is not None else pace
    if wanted < 1 or context.limits.reached(state.ideas, at_once):
        return None
    if overtaken is not None:
        return Merge(overtaken)
    left = context.limits.left(state.ideas).experiments
    if left is not None and state.attempts:  # merges count as well: leave room for those of the attempts in flight
        wanted = min(wanted, left - int(merging.EXPECTED * len(flight.jobs)))
    return None if flight.awaits_idea or flight.is_out_of_ideas or wanted < 1 else NextIdea(wanted)


def _ideas_wanted(context: NightContext, state: State, flight: Flight) -> int:
    """Return how many ideas could be tried now: as many as workers have neither a job nor an attempt that needs one."""
    unsettled = (state.attempts[number] for number in state.unsettled if not flight.has(number))
    queued = sum(not (one.done_runs and merging.waits(state, one)) for one in unsettled)
    left = context.limits.left(state.ideas).experiments
    free = flight.idle - queued
    return free if left is None or not state.attempts else min(free, left)


def _begin(flight: Flight, job: Job) -> Begin | None:
    worker = flight.worker_for(job)
    return None if worker is None else Begin(job, worker)


# ---- attempts without a decision -------------------------------------------------------------------------------------


def step_of_attempts(
    context: NightContext, state: State, flight: Flight, numbers: Iterable[int], *, stops: bool
) -> NextStep | None:
    """Return the first step that one of these unsettled attempts can take now; those with a decision come first."""
    attempts = sorted(
        (state.attempts[number] for number in numbers), key=lambda one: (one.decision is None, one.number)
    )
    steps = (_step_of(context, state, flight, attempt, stops=stops) for attempt in attempts)
    return next((step for step in steps if step is not None), None)


def _step_of(context: NightContext, state: State, flight: Flight, attempt: Attempt, *, stops: bool) -> NextStep | None:
    calibrates = attempt.number == 0 and attempt.decision is None and len(flight.pool.workers) > 1
    if attempt.decision is not None:
        return Settle(attempt.number)  # even with a run in flight: others are judged by what is settled
    if attempt.number in flight.left or (flight.has(attempt.number) and not calibrates):
        return None
    if attempt.commit is None:
        return Commit(attempt.number)
    found = (_calibrate if calibrates else plan_attempt)(context, state, flight, attempt)
    match found:
        case Decision():
            return Decide(attempt.number, found)
        case Unfinished() | None:
            return found
        case Evaluate() | Reexamine():
            return _begin(flight, found)
        case job:
            return None if stops else _begin(flight, job)


def plan_attempt(
    context: NightContext, state: State, flight: Flight, attempt: Attempt
) -> Job | Decision | Unfinished | None:
    """Return the next job of an attempt without a decision, or the decision itself; None: its parent comes first."""
    if not attempt.is_idea:
        return Decision(Kind.QUESTION, QUESTION)
    if attempt.dry_run is None and _wants_dry_run(context, state, attempt):
        return in_time(context, state, attempt, rehearsal(context, state, attempt), state.pace.dry_run_s)
    slow = too_slow(attempt)
    if slow is not None:
        return Decision(Kind.TOO_SLOW, slow)
    if attempt.dry_run is not None and attempt.dry_run.failure is not None:
        return Decision(Kind.CRASHED, failure(attempt) or "dry run")
    finished = unscored(attempt)
    if finished is not None:
        return evaluation(context, state, attempt, finished)
    if not attempt.done_runs:
        return in_time(context, state, attempt, measure(context, state, attempt))
    if merging.waits(state, attempt):
        return None
    if state.best is not None and attempt.number != state.best.number and not is_measured(state.best, state.paces):
        return _measure_incumbent(context, state, flight, state.best, attempt)
    given_up = _hopeless(context, state, attempt)
    if given_up is not None:
        return given_up
    known = state.comparable
    others = (*known[: attempt.number], *known[attempt.number + 1 :])
    decision = context.judge.judge(known[attempt.number], others)
    if decision.status is None:
        return in_time(context, state, attempt, measure(context, state, attempt))
    if decision.status is Status.KEEP:
        suspect = unaudited(attempt)
        if suspect is not None:
            return reexamination(context, state, attempt, suspect)
    if decision.status is Status.KEEP or decision.kind is Kind.OVERTAKEN:
        decision = trusted(decision, attempt, state.parent_of(attempt), context.plausible_gain)
    return decision


def _measure_incumbent(
    context: NightContext, state: State, flight: Flight, best: Attempt, attempt: Attempt
) -> Job | Unfinished | None:
    """Return a run of the incumbent at the machine's present pace, before the attempt is compared with it."""
    if flight.has(best.number) or unscored(best) is not None:
        return None
    return in_time(context, state, attempt, measure(context, state, best))


def _calibrate(
    context: NightContext, state: State, flight: Flight, first: Attempt
) -> Job | Decision | Unfinished | None:
    """Return the next job of attempt 0, which runs alone at first, and then on all workers beside itself.

    So its runs tell the noise, and how much slower a run is while others train. None: its runs in flight come first.
    """
    busy = flight.seeds_of(first.number)
    finished = unscored(first, in_flight=busy)
    if finished is not None:
        return evaluation(context, state, first, finished)
    found = plan_attempt(context, state, flight, first) if not busy else None
    wanted = calibration_runs(context.judge.calibration, len(flight.pool.workers))
    begun = {*busy, *(run.seed for run in first.done_runs)}
    if not first.scores_bpb or failure(first) is not None or len(begun) >= wanted:
        return found
    further = in_time(context, state, first, measure(context, state, first, in_flight=busy))
    return found if isinstance(further, Unfinished) else further


def in_time(context: NightContext, state: State, attempt: Attempt, job: Job, before_s: float = 0.0) -> Job | Unfinished:
    """Return the job, if a run of the attempt would still end within the hours.

    Attempt 0 is begun in any case: a night whose hours are less than a run was refused.
    """
    begins = attempt.number == 0 and not attempt.runs
    if begins or context.limits.allows_run(attempt.number, state.pace, before_s):
        return job
    wants = "another seed" if attempt.done_runs else "its run"
    return Unfinished(
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


def _hopeless(context: NightContext, state: State, attempt: Attempt) -> Decision | None:
    """Return the decision on an attempt whose run was stopped early, with a forecast as its gain; else None."""
    why = stopped_early(attempt)
    if why is None:
        return None
    best = state.parent_of(attempt)
    known = read_losses(context.runner.run_folder(attempt.number, attempt.done_runs[0].seed) / "out")
    bounds = learnt_bounds(context.runner, state.others(attempt.number), best)
    exceeded = (bound for bound in bounds if bound.verdict(known) is not None)
    forecast_bpb = next((bound.forecast_bpb(known) for bound in exceeded), None)
    if forecast_bpb is None or best is None or best.val_bpb is None:
        return Decision(Kind.STOPPED_EARLY, why)  # its curve is no longer there
    return Decision(Kind.STOPPED_EARLY, why, gain_bpb=best.val_bpb - forecast_bpb)


# ---- second thoughts -------------------------------------------------------------------------------------------------


def loose_end(context: NightContext, state: State, flight: Flight) -> Begin | None:
    """Begin to score or audit a further run of a settled attempt; dawn's runs are left out."""
    for number in sorted(state.loose - state.unsettled):
        attempt = state.attempts[number]
        if flight.has(number):
            continue
        finished, suspect = unscored(attempt), unaudited(attempt) if attempt.status is Status.KEEP else None
        step = None
        if finished is not None:
            step = _begin(flight, evaluation(context, state, attempt, finished))
        elif suspect is not None:
            step = _begin(flight, reexamination(context, state, attempt, suspect))
        if step is not None:
            return step
    return None


def second_thoughts(context: NightContext, state: State) -> Review:
    """Return the judge's review, after revoking keeps whose further run crashed or failed its audit."""
    if state.best is None:
        return Review()
    fallen = fallen_keeps(state.attempts, state.kept)
    if fallen:
        return Review(decisions=fallen)
    review = context.judge.review(state.comparable)
    again = review.again if review.again is None or failure(state.attempts[review.again]) is None else None
    return Review(again, review.decisions)


def fallen_keeps(history: History, kept: Iterable[int]) -> dict[int, Decision]:
    """Return decisions that revoke keeps: a later run failed, at dawn too, or its audit, or their parent has fallen."""
    verdicts = {number: _fall(history[number], history) for number in sorted(kept) if number}
    return {number: verdict for number, verdict in verdicts.items() if verdict is not None}


def _fall(attempt: Attempt, history: History) -> Decision | None:
    if attempt.decision is None or attempt.status is not Status.KEEP:
        return None
    parent = None if attempt.parent is None else history[attempt.parent]
    if parent is not None and parent.status is not Status.KEEP and parent.kind not in MEASURED:
        return Decision(Kind.ORPHANED, f"made from #{attempt.parent}, which is no longer kept")
    slow = too_slow(attempt)
    if slow is not None:
        return Decision(Kind.TOO_SLOW, f"with another seed: {slow}")
    why = fault(attempt)
    if why is not None:
        return Decision(Kind.CRASHED, f"with another seed: {why}")
    verdict = trusted(attempt.decision, attempt, None)
    return verdict if verdict.status is not Status.KEEP else None


def _go_on_from(decisions: Mapping[int, Decision], history: History) -> Reconsider:
    sentences = []
    for number, decision in decisions.items():
        kept = decision.status is Status.KEEP
        where = f"#{number}, which dawn has confirmed" if kept else f"before #{number}"
        sentences.append(f"the night goes on from {where}: {history[number].proposal.title}")
    return Reconsider(decisions, tuple(sentences))


def _unmeasured_incumbent(context: NightContext, state: State) -> Attempt | None:
    """Return the script that dawn has confirmed, while it has fewer runs of the night than a fresh edit would get.

    Edits made from it are compared with these runs: the night must not choose by dawn's scores. So is any incumbent
    measured again where the machine has become slower for good.
    """
    best = state.best
    if best is not None and not is_measured(best, state.paces):
        return best
    if best is None or best.is_idea:
        return None
    if best.done_runs:
        fresh = replace(best, decision=None, settled=False)
        if context.judge.judge(fresh, state.others(best.number)).status is not None:
            return None
    return best
