"""The loop: plan the next step, carry it out, record each result as it comes.

Only the driver writes. Its plan depends on the state alone, and the state is read from the journal. So continuing and
resuming are the same: after a kill, the same state leads to the same step. Workers execute jobs beside it, and know
nothing of journal, git or screen.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

from agent.clock import boot_id
from agent.errors import MachineError
from agent.experiment import Attempt, DryRun, History
from agent.night.context import NightContext
from agent.night.ideas import Ideas, Supply
from agent.night.opening import check_disk
from agent.night.planning.flight import Flight, InFlight, tries_machine
from agent.night.planning.merging import left_over, merge
from agent.night.planning.plan import plan
from agent.night.planning.state import State, unscored
from agent.night.planning.steps import (
    Begin,
    Commit,
    Decide,
    EnterIdea,
    Leave,
    Merge,
    NextStep,
    Reconsider,
    Settle,
    Wait,
)
from agent.night.record import (
    commit,
    reconsider,
    record,
    record_begin,
    record_loss,
    settle,
    tell_settled,
    tell_standing,
)
from agent.night.streak import check_not_slow, end_after_crashes, is_streak
from agent.pools.local import LocalPool
from agent.pools.pool import Ended
from agent.profile.of_night import limit_s, measure_phases, phases_were_measured
from agent.runs.jobs import Evaluate, Job, Measure, Reexamine, Rehearse

POLL_S, REPLAN_S = 0.05, 1.0
LONGEST_STREAK = 64  # of the attempts that were settled last, as many are remembered


def run_night(context: NightContext) -> None:
    """Run until a limit is reached, the user stops the night or the proposer is exhausted; raise NightshiftError."""
    context.journal.mark_lost_runs(boot_id())
    state = context.state()
    tell_standing(context, state)
    with Ideas(context, state) as ideas, at_work(context, state) as driver:
        driver.ideas = ideas
        while driver.take_a_step():
            pass
        left = left_over(state, context.runner.night.tag)
        if left is not None:
            context.watcher.said(left)


@contextmanager
def at_work(context: NightContext, state: State) -> Iterator["Driver"]:
    """Yield a driver; where an error ends its work, end all jobs and record what they brought."""
    with ExitStack() as undo:
        pool = context.pool or undo.enter_context(closing(LocalPool([context.runner])))
        driver = Driver(replace(context, pool=pool), state)
        try:
            yield driver
        except BaseException:
            driver.abandon()
            raise


class Driver:
    """Carry out the steps of a plan, and record what the workers bring."""

    def __init__(self, context: NightContext, state: State) -> None:
        assert context.pool is not None
        self.context, self.state, self.pool = context, state, context.pool
        self.ideas: Ideas | None = None
        self.flight = Flight(self.pool)
        self._introduced: set[int] = set()  # the attempts that the watcher knows to be at work
        self._resting: set[str] = set()  # the workers that it knows to be idle
        self._settled: deque[int] = deque(maxlen=LONGEST_STREAK)  # in this order, in this call
        self.state.workers = max(1, len(self.pool.workers))

    # ---- steps of a night --------------------------------------------------------------------------------------------

    def take_a_step(self) -> bool:
        """Plan and carry out one step; return False when nothing is left to do or the user stopped the night."""
        if not self.flight.jobs:  # what a run takes is watched, and freed again
            check_disk(self.context.place.repo.root)
        if self.ideas is not None:
            self.ideas.note_news()
        self._check_streak()
        is_made = self.ideas is not None and self.ideas.is_one_made
        step = plan(self.context, self.state, self.flight, idea_is_made=is_made)
        if step is not None:
            self.take(step)
        return step is not None

    def take(self, step: NextStep) -> None:
        """Carry out a step."""
        context, state = self.context, self.state
        match step:
            case Begin(job, worker):
                self.begin(job, worker)
            case Commit(number):
                self._introduce(state.attempts[number])
                commit(context, state, state.attempts[number])
            case Decide(number, decision):
                self._introduce(state.attempts[number])
                state.decide(number, decision)
                self._settled.append(number)
                self._settle(number)
            case Settle(number):
                self._settle(number)
            case Reconsider():
                reconsider(context, state, step)
            case Leave(number, why):
                context.watcher.said(why)
                self.flight.left.add(number)
            case Merge(number):
                merge(context, state, number)
            case EnterIdea(wanted):
                self._go_on_to_ideas(wanted)
            case Wait():
                self.wait()

    def _go_on_to_ideas(self, wanted: int) -> None:
        assert self.ideas is not None
        if self._wants_phases():
            if self.flight.jobs:
                self.wait()  # where the time of a step goes is measured while nothing else runs
                return
            found = measure_phases(self.context.runner, self.state.first)
            if found is not None:
                self.context.watcher.said(found)
            return
        supply = self.ideas.enter_next(wanted)
        self.flight.awaits_idea = supply is Supply.LATER
        self.flight.is_out_of_ideas = supply is Supply.OVER

    def _wants_phases(self) -> bool:
        """Return whether to measure now where a step's time goes: once, after calibration, if the hours allow it."""
        context, state = self.context, self.state
        if not context.measures_phases or state.best is None or phases_were_measured(context.runner.folder):
            return False
        return not context.limits.reached(state.ideas, state.pace, limit_s(context.runner.night.budget_s, state.first))

    def _settle(self, number: int) -> None:
        settle(self.context, self.state, number, self.flight.seeds_of(number))
        self._introduced.discard(number)
        tell_settled(self.context, self.state, self.state.attempts[number])

    def _check_streak(self) -> None:
        """While the latest attempts have all failed, hold what would begin; attempt 0 is tried first, to see why."""
        self.flight.is_held = is_streak(self._latest)
        if self.flight.is_held and not self.flight.jobs:
            check_not_slow(self.context, self._latest)

    @property
    def _latest(self) -> History:
        """Return the attempts that were settled in this call, the last ones."""
        return [self.state.attempts[number] for number in self._settled]

    # ---- jobs --------------------------------------------------------------------------------------------------------

    def begin(self, job: Job, worker: str) -> None:
        """Begin a job on a worker that is free for it."""
        attempt = self.state.attempts[job.attempt]
        if not attempt.settled:
            self.state.check_in_place()  # before minutes are spent whose result could not be recorded
        if isinstance(job, Measure) or not attempt.settled:
            self._introduce(attempt)
        self._announce(attempt, job, worker)
        run_id = record_begin(self.state, job, worker)
        if self.ideas is not None and not isinstance(job, Rehearse):
            self.ideas.ask_ahead()
        self.flight.jobs[worker] = InFlight(job, run_id)
        self._resting.discard(worker)
        self.pool.begin(worker, job)

    def wait(self) -> None:
        """Wait until something has happened that the plan may depend on, or for REPLAN_S; record what has ended."""
        for worker in self.pool.workers:
            if worker not in self.flight.jobs and worker not in self._resting:
                self._resting.add(worker)
                self.context.watcher.worker_rests(worker)
        # to plan takes milliseconds in a long night, which runs on the same processors would miss
        until_s = time.monotonic() + (0.0 if self.flight.awaits_idea else REPLAN_S)
        was_stopped = self.context.stop.after_run
        while not self._poll() and time.monotonic() < until_s and self.context.stop.after_run == was_stopped:
            pass
        self.flight.awaits_idea = False  # it is asked again whether there is one
        self.state.workers = max(1, len(self.pool.workers))

    def _poll(self) -> bool:
        """Record and show what is new; return whether a job has ended or a worker has come or left."""
        watcher = self.context.watcher
        if self.ideas is not None and self.flight.awaits_idea and not self.flight.jobs:
            self.ideas.wait(POLL_S)
            ended = self.pool.ended(0.0)
        else:
            ended = self.pool.ended(POLL_S)
        errors = [error for one in ended if (error := self._end(one)) is not None]
        if errors:
            raise errors[0]
        news = self.pool.news()
        for sentence in news:
            watcher.said(sentence)
        for worker, working in self.pool.at_work.items():
            watcher.progressed(working.progress, working.elapsed_s, worker)
        if self.ideas is not None:
            self.ideas.note_news()
        return bool(ended or news)

    def abandon(self) -> None:
        """End all jobs, and record what they have brought nevertheless: an error ends the night."""
        self.pool.close()
        for ended in self.pool.ended(0.0):
            self._end(ended)  # its error may be the same, as of a full disk

    def _end(self, ended: Ended) -> Exception | None:
        """Record what a worker has brought; return the error that ends the night: of the job, or of recording it."""
        before = self.flight.jobs.pop(ended.worker)
        try:
            self._record(ended, before)
        except Exception as error:
            return error
        return ended.error

    def _record(self, ended: Ended, before: InFlight) -> None:
        job = before.job
        if ended.lost is not None:
            record_loss(self.context, self.state, job, ended.lost, before.run_id)
        elif tries_machine(job):
            self._end_streak(ended)
        elif ended.result is not None:
            record(self.context, self.state, job, ended.result, before.run_id)
        attempt = self.state.attempts[job.attempt]
        if attempt.settled:
            self._introduced.discard(job.attempt)
            self._drop_late(attempt, job)

    def _end_streak(self, ended: Ended) -> None:
        """End the night with the cause of the latest crashes, unless the user stopped attempt 0's trial run."""
        found = DryRun(0.0, str(ended.error)) if isinstance(ended.error, MachineError) else ended.result
        if isinstance(found, DryRun):
            end_after_crashes(self.context, self.state, self._latest, found)

    def _drop_late(self, attempt: Attempt, job: Job) -> None:
        """Drop the weights of a run whose attempt was revoked meanwhile, once they are scored."""
        if attempt.number in self.state.kept or isinstance(job, Rehearse) or not attempt.is_idea:
            return
        due = unscored(attempt)
        if due is None or due.seed != job.seed:
            self.pool.drop_weights(job.attempt, job.seed)

    def _introduce(self, attempt: Attempt) -> None:
        if attempt.number not in self._introduced:
            self._introduced.add(attempt.number)
            self.context.watcher.attempt_began(attempt)

    def _announce(self, attempt: Attempt, job: Job, worker: str) -> None:
        watcher = self.context.watcher
        match job:
            case Rehearse():
                watcher.dry_run_began(attempt, worker)
            case Measure():
                watcher.run_began(attempt, job.seed, worker)
            case Evaluate():
                watcher.scoring_began(attempt, worker)
            case Reexamine():
                watcher.audit_began(attempt, worker)
