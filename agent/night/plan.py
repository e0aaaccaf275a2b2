"""Plan what a night does next: pure, except that it reads the clock and the curves and losses of earlier runs.

A plan yields candidates, the most urgent first: attempts that wait for a decision, reviews of earlier decisions, then
new attempts. The next step is the first candidate that can be carried out now: a job needs a free worker, any other
step needs nothing.

Nothing here writes or prints anything, so after a kill the same state leads to the same step.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

from agent.experiment import Attempt, Decision, Ending, History, Kind, Proposal, Run, Split, Status
from agent.judging.ablation import QUESTION
from agent.judging.early_stop import Bound
from agent.judging.failures import failure, stopped_early, too_slow, trusted
from agent.night import merging
from agent.night.proposals import NextProposal
from agent.night.state import NightContext, State, unaudited
from agent.pools.pool import Pool
from agent.runs.execute import steps_of_trial
from agent.runs.jobs import AuditRun, Job, Measure, Trial
from agent.runs.score import most_weights_bytes, scoring_limit_s, usual_scoring_s
from agent.runs.train import FIRST_ALLOWANCE_S, learnt_allowance_s, learnt_bounds, usual_steps_s

# These attempts are no longer kept, but they were measured: an edit of such a script is judged all the same.
STILL_PARENTS = frozenset({Kind.REVOKED, Kind.OVERTAKEN})
# A lost GPU or data folder crashes every attempt within seconds, and the night would fill with them. After so many, a
# worker whose job fails tries attempt 0, which tells in seconds whether the machine still trains.
CRASHES_IN_A_ROW = 4


# ---- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a job on a worker that is free for it."""

    job: Job
    worker: str


@dataclass(frozen=True, slots=True)
class Decide:
    """Record decisions on attempts, first or later ones; each attempt is settled next."""

    decisions: Mapping[int, Decision]


@dataclass(frozen=True, slots=True)
class Settle:
    """Make branch, results and weights follow the decision on an attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Enter:
    """Enter an edit of an attempt that needs no proposer: a merge, or a question of the confirmation."""

    parent: int
    proposal: Proposal


@dataclass(frozen=True, slots=True)
class EnterIdea:
    """Enter the next idea as an attempt; the first is the user's own script."""

    wanted: int  # number of ideas that could be tried now


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a job has ended, a worker has come, or a proposer has answered: nothing can begin before."""


NextStep = Begin | Decide | Settle | Enter | EnterIdea | Wait
Candidate = Job | NextStep  # a job becomes a step, Begin, if a worker is free for it


# ---- what is in flight -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class InFlight:
    """Tell who is busy with which attempt, and whether ideas come. The driver changes it, the plan reads it."""

    pool: Pool
    has_idea: bool = False  # an idea has been checked, and waits to be entered
    next_proposal: NextProposal = NextProposal.ENTERED  # outcome of the last question for an idea

    @property
    def jobs(self) -> Collection[Job]:
        return self.pool.jobs.values()

    @property
    def idle(self) -> int:
        """Return how many workers have no job; one where there is no worker now, and one may come."""
        busy, workers = self.pool.jobs, self.pool.workers
        if not workers and not busy:
            return int(self.pool.expects_workers)
        return sum(worker not in busy for worker in workers)

    def has(self, attempt: int) -> bool:
        return any(job.attempt == attempt for job in self.jobs)

    def seeds_of(self, attempt: int) -> Collection[int]:
        """Return the seeds of the attempt's runs that are measured, scored or audited now."""
        return [job.seed for job in self.jobs if job.attempt == attempt and not isinstance(job, Trial)]


# ---- the plan --------------------------------------------------------------------------------------------------------


# distance between the seeds of two confirmations: each confirms with seeds that no choice before it has seen
CONFIRMATION_SEED = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """Find the next step of a night as it stands now, and make its jobs."""

    state: State
    in_flight: InFlight

    @property
    def context(self) -> NightContext:
        return self.state.context

    def next_step(self) -> NextStep | None:
        """Return the first candidate that is no job, or for which a worker is free; None when the night is over.

        Else wait if anything is in flight, or if a worker for one of the jobs may come before the hours are over or the
        user ends the night.
        """
        in_flight, lacks_worker = self.in_flight, False
        for candidate in self.candidates():
            if not isinstance(candidate, Job):
                return candidate
            worker = in_flight.pool.free
            if worker is not None:
                return Begin(candidate, worker)
            lacks_worker = True
        if in_flight.jobs or in_flight.next_proposal is NextProposal.LATER:
            return Wait()
        is_over = self.context.stop.after_run or self.context.limits.is_over(self.state.pace)
        return Wait() if lacks_worker and in_flight.pool.expects_workers and not is_over else None

    def candidates(self) -> Iterator[Candidate]:
        """Yield what may be done next. After a wish to end the night no run begins; those in flight are settled."""
        state, in_flight, stop = self.state, self.in_flight, self.context.stop
        if stop.now:
            return
        for attempt in sorted(state.unsettled, key=lambda attempt: attempt.decision is None):
            step = self.step_of(attempt)
            if step is not None and (not isinstance(step, Trial | Measure) or self._may_run(attempt)):
                yield step
        yield from self.missing_audits()
        if fallen := fallen_keeps(state.attempts):
            yield Decide(fallen)
        review = state.once("review", lambda: self.context.judge.review(state.attempts))
        if review.decisions:
            yield Decide(review.decisions)
        if not stop.after_run and in_flight.idle and (not state.attempts or state.first.settled):
            yield from self._beside_attempts(review.again)

    def step_of(self, attempt: Attempt) -> Candidate | None:
        """Return the next step of an unsettled attempt; None: a run in flight, or another attempt, comes first."""
        if attempt.decision is not None:
            return Settle(attempt.number)  # even with a run in flight: others are judged by what is settled
        if attempt.number == 0 and self._calibrates(attempt):
            return self.measure(attempt)
        if self.in_flight.has(attempt.number):
            return None
        step = self._measure_and_judge(attempt)
        return Decide({attempt.number: step}) if isinstance(step, Decision) else step

    def _measure_and_judge(self, attempt: Attempt) -> Job | Decision | None:
        """Return the next job of an attempt without a decision, or the decision itself."""
        parent, dry_run = self.state.parent_of(attempt), attempt.dry_run
        if not attempt.is_idea:
            return Decision(Kind.QUESTION, QUESTION)
        if dry_run is None and not attempt.done_runs and parent is not None and self._may_break(attempt, parent):
            return self.trial(attempt)
        slow = too_slow(attempt)
        if slow is not None:
            return Decision(Kind.TOO_SLOW, slow)
        if dry_run is not None and dry_run.failure is not None:
            return Decision(Kind.CRASHED, f"dry run: {dry_run.failure}")
        if not attempt.done_runs:
            return self.measure(attempt)
        audit = next(self._audits_of(attempt), None)
        if merging.waits_for_parent(self.state, attempt):
            return None if self._may_run(attempt) else audit
        stopped = stopped_early(attempt)
        if stopped is not None:
            forecast_bpb, before_bpb = attempt.done_runs[0].forecast_bpb, parent and parent.val_bpb
            gain_bpb = before_bpb - forecast_bpb if before_bpb and forecast_bpb else None
            return Decision(Kind.STOPPED_EARLY, stopped, gain_bpb)
        decision = self.context.judge.judge(attempt, self.state.others(attempt.number))
        if decision.status is None and self._may_run(attempt):
            return self.measure(attempt)
        # a night that ends can go on elsewhere, without the weights of what waits: those are audited before
        if (decision.status in (None, Status.KEEP) or decision.kind is Kind.MEASURED) and audit is not None:
            return audit
        if decision.kind is Kind.MEASURED:
            return trusted(decision, attempt, None)
        if decision.status is Status.KEEP or decision.kind is Kind.OVERTAKEN:
            return trusted(decision, attempt, parent, self.context.night.options.plausible_gain / 100)
        return None if decision.status is None else decision

    def _calibrates(self, first: Attempt) -> bool:
        """Return whether attempt 0 needs another run, now beside copies of itself on the other workers.

        So its runs tell the noise, and how much slower a run is while others train.
        """
        workers, begun = len(self.in_flight.pool.workers), {run.seed for run in first.done_runs}
        begun.update(self.in_flight.seeds_of(first.number))
        is_calibrated = failure(first) is not None or len(begun) >= max(self.context.judge.calibration, 1 + workers)
        is_calibrated |= self.context.night.options.study is not None  # no arm has its runs before the others
        return workers > 1 and bool(first.scores_bpb) and not is_calibrated and self._may_run(first)

    def _may_run(self, attempt: Attempt) -> bool:
        """Return whether a run of an attempt may begin, and will end within the hours; else another call makes it.

        Attempt 0 is begun in any case: hours of less than a run are refused.
        """
        begins = attempt.number == 0 and not attempt.runs
        is_in_time = begins or self.context.limits.allows_run(attempt.number, self.state.pace)
        return is_in_time and not self.context.stop.after_run

    def _may_break(self, attempt: Attempt, parent: Attempt) -> bool:
        """Return whether an edit needs a dry run: one that only turns dials breaks nothing."""
        return self.context.dry_runs and not attempt.outline.differs_in_dials_only(parent.outline)

    def _audits_of(self, attempt: Attempt, confirmation: int = 0) -> Iterator[Job]:
        """Yield the audits that the attempt lacks, at night or in a confirmation."""
        busy = self.in_flight.seeds_of(attempt.number)
        for run, split in unaudited(attempt, confirmation):
            if run.seed not in busy:
                yield self.audit(attempt, run, split)

    def missing_audits(self, confirmation: int = 0) -> Iterator[Job]:
        """Yield the audits that further runs of what counts lack; in a confirmation, of its runs and questions."""
        for attempt in self.state.attempts:
            if (attempt.settled and attempt.counts) or (confirmation and not attempt.is_idea):
                yield from self._audits_of(attempt, confirmation)

    # ---- beside unsettled attempts -----------------------------------------------------------------------------------

    def _beside_attempts(self, again: Sequence[int]) -> Iterator[Candidate]:
        """Yield runs that a review asks for; then a merge that is due, else the next idea, within the limits."""
        limits, state, in_flight = self.context.limits, self.state, self.in_flight
        left = limits.left(state.proposals).experiments
        if left == 0:
            return
        for number in again:
            if not in_flight.has(number) and limits.allows_run(number, state.pace):
                yield self.measure(state.attempts[number])
        # An idle worker takes an attempt that waits before a new idea.
        unsettled = (attempt for attempt in state.unsettled if not in_flight.has(attempt.number))
        queued = sum(not (attempt.done_runs and merging.waits_for_parent(state, attempt)) for attempt in unsettled)
        wanted, overtaken = in_flight.idle - queued, merging.due(state)
        asking_s = 0.0 if in_flight.has_idea or overtaken is not None else state.pace.asking_s
        # Without attempt 0 there would be nothing to read in the morning.
        if wanted < 1 or (state.attempts and limits.reached(state.proposals, state.pace, asking_s)):
            return
        if overtaken is not None:
            merged = merging.merge(state, overtaken)
            yield Decide({overtaken: merged}) if isinstance(merged, Decision) else Enter(*merged)
        if left is not None:  # merges count as well: leave room for those of the attempts in flight
            wanted = min(wanted, left - int(merging.EXPECTED * len(in_flight.jobs)))
        if wanted >= 1 and in_flight.next_proposal is NextProposal.ENTERED:
            yield EnterIdea(wanted)

    # ---- jobs, each with all that a worker has to know ---------------------------------------------------------------

    def measure(self, attempt: Attempt, confirmation: int = 0) -> Measure:
        """Return the job of the attempt's next run; in a night or a confirmation, all attempts use the same seeds."""
        done = attempt.confirmation_runs(confirmation) if confirmation else attempt.done_runs
        taken = {*self.in_flight.seeds_of(attempt.number), *(run.seed for run in done)}
        seed = next(
            seed for seed in count(self.context.night.seed + CONFIRMATION_SEED * confirmation) if seed not in taken
        )
        may_be_machine = bool(confirmation) or attempt.val_bpb is not None or self._suspects_machine()
        was_invalid = bool(attempt.runs) and attempt.runs[-1].ending is Ending.INVALID
        return Measure(
            attempt=attempt.number,
            script=attempt.proposal.script,
            seed=seed,
            allowance_s=self.allowed_s(attempt.number),
            machine=self.trial(self.state.first) if may_be_machine else None,
            confirmation=confirmation,
            bounds=self._bounds_ahead(attempt),
            may_be_repeated=attempt.may_be_repeated(seed),
            usual_steps_s=usual_steps_s(attempt),
            usual_scoring_s=self._usual_scoring_s(attempt),
            most_weights_bytes=most_weights_bytes(self.state.attempts),
            wait_s=self.context.runner.rest_s if was_invalid else 0.0,
        )

    def audit(self, attempt: Attempt, run: Run, split: Split) -> AuditRun:
        """Return the job of an audit against the committed losses of the parent, hardest at the largest gains."""
        return AuditRun(
            attempt=attempt.number,
            script=attempt.proposal.script,
            seed=run.seed,
            limit_s=self._scoring_limit_s(attempt, run.given_s - self.context.night.budget_s),
            machine=self.trial(self.state.first),
            split=split,
            reference=self._reference(attempt, run, split),
        )

    def trial(self, attempt: Attempt) -> Trial:
        """Return the job of an attempt's dry run; that of attempt 0 tells whether a machine still trains."""
        return Trial(
            attempt=attempt.number,
            script=attempt.proposal.script,
            allowance_s=self.allowed_s(attempt.number),
            scoring_s=self._scoring_limit_s(attempt),
            steps=steps_of_trial(self.state.first),
            machine=self.trial(self.state.first) if attempt.number and self._suspects_machine() else None,
        )

    def _suspects_machine(self) -> bool:
        return len(latest_crashes(self.state.attempts)) >= CRASHES_IN_A_ROW

    def _usual_scoring_s(self, attempt: Attempt) -> float | None:
        is_compared = self.context.night.options.study is not None  # and an arm may be larger, and scored for longer
        return None if attempt.number == 0 or is_compared else usual_scoring_s(self.state.attempts)

    def _scoring_limit_s(self, attempt: Attempt, beyond_s: float = 0.0) -> float:
        return scoring_limit_s(self._usual_scoring_s(attempt), beyond_s, self.allowed_s(attempt.number))

    def allowed_s(self, number: int) -> float:
        """Return the seconds that a run may take beyond its budget: the user's choice, else learnt from attempt 0.

        Attempt 0 itself and the arms of a study get FIRST_ALLOWANCE_S. The others get little more than the slowest run
        of attempt 0 took.
        """
        night = self.context.night
        if night.options.limit_s is not None:
            return night.options.limit_s - night.budget_s
        if night.options.allowance_s is not None:
            return night.options.allowance_s
        if number == 0 or night.options.study is not None:  # an arm may take longer than the baseline to compile
            return FIRST_ALLOWANCE_S
        return learnt_allowance_s(self.state.attempts, night.budget_s)

    def _bounds_ahead(self, attempt: Attempt) -> tuple[Bound, ...]:
        """Return the bounds that may stop an idea's first run early; further seeds are run to the end."""
        state, is_first = self.state, attempt.decision is None and not attempt.done_runs
        if attempt.number == 0 or not is_first or not self.context.night.options.early_stop:
            return ()
        return learnt_bounds(self.context.runner, state.others(attempt.number), state.parent_of(attempt))

    def _reference(self, attempt: Attempt, run: Run, split: Split) -> tuple[int, int] | None:
        """Return the attempt and seed of the run that an audit compares with; None if it has left no losses.

        It is a run of the attempt's parent, else of attempt 0. Only confirmation runs have losses on the holdout; there
        it is a run of the same confirmation, in which attempt 0 always runs first.
        """
        parent = self.state.parent_of(attempt)
        for before in (parent, self.state.first) if parent is not None else ():
            for other in before.counted_runs if split == "validation" else before.confirmation_runs(run.confirmation):
                if self.context.runner.losses(before.number, other.seed, split).is_file():
                    return before.number, other.seed
        return None


def fallen_keeps(history: History) -> dict[int, Decision]:
    """Return decisions on attempts that no longer count: a later run or audit failed, or the parent fell.

    Runs of a confirmation are such later runs, too.
    """
    fallen = {}
    for attempt in history[1:]:
        verdict = attempt.decision
        if verdict is None or not attempt.counts:
            continue
        parent, slow, why = history[attempt.parent or 0], too_slow(attempt), failure(attempt)
        if parent.status is not Status.KEEP and parent.kind not in STILL_PARENTS:
            verdict = Decision(Kind.ORPHANED, f"made from #{parent.number}, which is no longer kept")
        elif slow is not None:
            verdict = Decision(Kind.TOO_SLOW, f"with another seed: {slow}")
        elif why is not None:
            verdict = Decision(Kind.CRASHED, f"with another seed: {why}")
        else:
            verdict = trusted(verdict, attempt, None)
        if verdict is not attempt.decision:
            fallen[attempt.number] = verdict
    return fallen


def latest_crashes(history: History) -> list[Attempt]:
    """Return the unbroken series of crashes among the attempts decided last, the last one first."""
    decided = (attempt for attempt in history if attempt.decision is not None)
    latest_first = sorted(decided, key=lambda attempt: attempt.decisions[-1].id, reverse=True)
    return list(takewhile(lambda attempt: attempt.status is Status.CRASH, latest_first))
