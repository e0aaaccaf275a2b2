"""The loop: plan the next step, carry it out, record each result as it comes: journal first, then refs and ledger.

Only the driver writes. Its plan depends on the state alone, and the state is read from the journal. So continuing and
resuming are the same: after a kill, the same state leads to the same step. Workers execute jobs beside it, and know
nothing of journal, git or screen. To record something twice does no harm.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import takewhile

from agent.clock import boot_id, utc_now
from agent.errors import MachineError, NightError
from agent.experiment import (
    Attempt,
    Audit,
    Doing,
    DryRun,
    Ending,
    History,
    Run,
    Status,
    Work,
    attempt_ref,
    short,
)
from agent.invocation import typed
from agent.judging.failures import too_slow
from agent.night.ideas import Ideas, Supply
from agent.night.limits import experience, pace_words
from agent.night.merging import merge, not_merged
from agent.night.opening import check_disk
from agent.night.plan import (
    Begin,
    Commit,
    Decide,
    EnterIdea,
    Flight,
    Merge,
    NextStep,
    Reconsider,
    Settle,
    Wait,
    plan,
    tries_machine,
)
from agent.night.state import NightContext, State, why_and_where
from agent.pools.contention import contention_of
from agent.pools.local import LocalPool
from agent.pools.pool import Ended
from agent.profile.of_night import limit_s, measure_phases, phases_were_measured
from agent.runs.execute import Result, broken_by
from agent.runs.jobs import AuditRun, Job, Measure, Trial
from agent.view.status import noise_lines

POLL_S, REPLAN_S = 0.05, 1.0
# A lost GPU or data folder crashes every attempt within seconds, and the night would fill with them; five ideas that
# are bad one after another are rare, and resuming costs a person one command. A dry run breaks more easily.
CRASHES_IN_A_ROW, BROKEN_IN_A_ROW = 5, 15
SLOW_IN_A_ROW = 10  # overruns, which cost minutes each and are rare, on a machine that is fit for the night


def run_night(context: NightContext) -> None:
    """Run until a limit is reached, the user stops the night or the proposer is exhausted; raise NightshiftError."""
    context.journal.mark_lost_runs(boot_id())
    state = context.state()
    context.tell_standing(state)
    with Ideas(context, state) as ideas, at_work(context, state) as driver:
        driver.ideas = ideas
        while driver.take_a_step():
            pass
        again = typed("run", "--tag", context.runner.night.tag)
        for attempt in () if context.stop.after_run else state.unsettled:
            wants = f"{'another seed' if attempt.done_runs else 'its run'} of #{attempt.number}"
            title = attempt.proposal.title
            context.watcher.said(
                f"no time is left for {wants} ({title}): it stays unfinished and goes on with: {again}"
            )
        unmerged = ", ".join(f"#{number}" for number in sorted(not_merged(state.attempts)))
        if unmerged:
            better = f"better than the scripts they were made from, and not merged onto the best one yet: {unmerged}"
            context.watcher.said(f"{better}; the night goes on with them: {again}")


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
        self._scoring: set[str] = set()  # the workers that score what they have trained
        self._settled: list[int] = []  # attempts, in this order, in this call
        self.state.workers = max(1, len(self.pool.workers))

    # ---- steps -------------------------------------------------------------------------------------------------------

    def take_a_step(self) -> bool:
        """Plan and carry out one step; return False when nothing is left to do or the user stopped the night."""
        if not self.flight.jobs:  # what a run takes is watched, and freed again
            check_disk(self.context.place.repo.root)
        if self.ideas is not None:
            self.ideas.note_news()
        # while the latest attempts have all failed, nothing begins; attempt 0 is tried first, to see why
        self.flight.is_held = is_streak(self._latest)
        if self.flight.is_held and not self.flight.jobs:
            check_not_slow(self.context, self._latest)
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
                self.commit(state.attempts[number])
            case Decide(number, decision):
                self._introduce(state.attempts[number])
                state.decide(number, decision)
                self._settled.append(number)
                self._settle_aloud(number)
            case Settle(number):
                self._settle_aloud(number)
            case Reconsider(decisions, sentences):
                for sentence in sentences:
                    context.watcher.said(sentence)
                # the latest attempt's first: after a kill in between, no keep stands on a revoked one
                for number in sorted(decisions, reverse=True):
                    state.decide(number, decisions[number])
            case Merge(number):
                merge(context, state, number)
            case EnterIdea(wanted):
                self._go_on_to_ideas(wanted)
            case Wait():
                self.wait()

    def _go_on_to_ideas(self, wanted: int) -> None:
        assert self.ideas is not None
        if not self._wants_phases():
            supply = self.ideas.enter_next(wanted)
            self.flight.awaits_idea = supply is Supply.LATER
            self.flight.is_out_of_ideas = supply is Supply.OVER
        elif self.flight.jobs:
            self.wait()  # where the time of a step goes is measured while nothing else runs
        else:
            phases = measure_phases(self.context.runner, self.state.first)
            if phases is not None:
                self.context.watcher.said(phases)

    def _wants_phases(self) -> bool:
        """Return whether to measure now where a step's time goes: once, after calibration, if the hours allow it."""
        context, state = self.context, self.state
        if not context.measures_phases or state.best is None or phases_were_measured(context.runner.folder):
            return False
        return not context.limits.reached(state.ideas, state.pace, limit_s(context.runner.night.budget_s, state.first))

    def commit(self, attempt: Attempt) -> None:
        """Make the attempt's commit and ref, from recorded facts alone, so that a second call gives the same commit."""
        if attempt.commit is not None:
            return
        night, repo, proposal = self.context.runner.night, self.context.place.repo, attempt.proposal
        parent = night.base if attempt.parent is None else self.state.attempts[attempt.parent].commit
        if parent is None:
            raise NightError(
                f"attempt {attempt.parent} of night {night.tag} has no commit; its journal was edited by hand"
            )
        facts = f"Source: {proposal.source}\nNight: {night.tag}\nAttempt: {attempt.number}\n"
        message = f"{proposal.title}\n\n{proposal.hypothesis}\n\n{facts}"
        sha = repo.commit_script(parent, night.script, proposal.script, message, when=attempt.started)
        repo.set_ref(attempt_ref(night.tag, attempt.number), sha, f"attempt {attempt.number}")
        self.state.record_commit(attempt.number, sha)

    def settle(self, number: int) -> None:
        """Make branch, ledger and weights follow the decision; the weights of dawn's questions are dawn's to drop."""
        context, state = self.context, self.state
        attempt, best, needed = state.attempts[number], state.best, self.flight.seeds_of(number)
        for run in attempt.runs:
            if attempt.status is Status.KEEP:
                if run.ending is Ending.FINISHED:
                    self.pool.bring_weights(number, run.seed)
            elif (attempt.is_idea or not run.dawn) and run.seed not in needed:
                self.pool.drop_weights(number, run.seed)
        if best is not None and best.commit is not None:
            self.point_branch(context.runner.night.branch, best.commit, f"best is attempt {best.number}")
        context.ledger.write(live=(context.runner.night, state.attempts))
        state.settle(number)
        state.check_in_place()
        context.attempt_settled()

    def point_branch(self, branch: str, commit: str, why: str) -> None:
        """Move a branch of the night, unless somebody has it checked out: HEAD and index are theirs; it waits then.

        Raises RepoError where it is at a commit that this night did not make.
        """
        repo = self.context.place.repo
        now = repo.find(branch)
        if now == commit:
            return
        if branch in repo.checked_out():
            self.context.watcher.said(f"{short(branch)} is checked out and stays; the best script is {commit[:7]}")
            return
        ours = {attempt.commit for attempt in self.state.attempts}
        repo.move_ref(branch, commit, now if now in ours else commit, why)

    def _settle_aloud(self, number: int) -> None:
        self.settle(number)
        self._introduced.discard(number)
        tell_settled(self.context, self.state, self.state.attempts[number])

    # ---- jobs --------------------------------------------------------------------------------------------------------

    def begin(self, job: Job, worker: str) -> None:
        """Begin a job on a worker that is free for it; the journal knows of it first."""
        state, watcher, attempt = self.state, self.context.watcher, self.state.attempts[job.attempt]
        if not attempt.settled:
            state.check_in_place()  # before minutes are spent whose result could not be recorded
        if isinstance(job, Measure) or not attempt.settled:
            self._introduce(attempt)
        run_id = 0  # of a job that makes no run
        began = utc_now("milliseconds")
        match job:
            case Trial():
                work = Work(worker, Doing.REHEARSING, job.attempt, began)
            case Measure():
                work = Work(worker, Doing.TRAINING, job.attempt, began, job.seed, job.dawn)
            case AuditRun():
                dawn = next((run.dawn for run in attempt.runs if run.seed == job.seed), 0)
                work = Work(worker, Doing.AUDITING, job.attempt, began, job.seed, dawn)
        state.begin(work)
        watcher.work_began(attempt, work)
        if isinstance(job, Measure):
            run_id = state.start_run(job.attempt, job.seed, job.dawn, worker)
        if self.ideas is not None and not isinstance(job, Trial):
            self.ideas.ask_ahead()
        self.flight.jobs[worker] = job, run_id
        self._resting.discard(worker)
        self._scoring.discard(worker)
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
        errors = [error for end in ended if (error := self._end(end)) is not None]
        if errors:
            raise errors[0]
        news = self.pool.news()
        for sentence in news:
            watcher.said(sentence)
        for worker, working in self.pool.at_work.items():
            is_scoring = working.progress is not None and working.progress.is_scoring
            if is_scoring:
                self._note_scoring(worker)
            watcher.progressed(None if is_scoring else working.progress, working.elapsed_s, worker)
        if self.ideas is not None:
            self.ideas.note_news()
        return bool(ended or news)

    def _note_scoring(self, worker: str) -> None:
        """Tell once that a worker has trained, and scores now."""
        job, _ = self.flight.jobs[worker]
        if isinstance(job, Measure) and worker not in self._scoring:
            self._scoring.add(worker)
            began = utc_now("milliseconds")
            work = Work(worker, Doing.SCORING, job.attempt, began, job.seed, job.dawn)
            self.state.begin(work)
            self.context.watcher.work_began(self.state.attempts[job.attempt], work)

    def abandon(self) -> None:
        """End all jobs, and record what they have brought nevertheless: an error ends the night."""
        self.pool.close()
        for ended in self.pool.ended(0.0):
            self._end(ended)  # its error may be the same, as of a full disk

    def _end(self, ended: Ended) -> Exception | None:
        """Record what a worker has brought; return the error that ends the night: of the job, or of recording it."""
        job, run_id = self.flight.jobs.pop(ended.worker)
        try:
            if ended.lost is not None:
                self._record_loss(job, ended.lost, run_id)
            elif tries_machine(job):
                self._end_streak(ended)
            elif ended.result is not None:
                self._record(job, ended.result, run_id)
            elif isinstance(job, Measure):
                ending = Ending.STOPPED if ended.error is None else Ending.BROKEN
                run = Run(job.seed, ending, None, 0.0, None, str(ended.error or ""))
                self.state.end_run(job.attempt, run_id, run)
            self.state.rest(ended.worker)
            self._clear_up(job)
        except Exception as error:
            return error
        return ended.error

    def _clear_up(self, job: Job) -> None:
        """Drop the weights of a run whose attempt was revoked meanwhile, once they are scored."""
        attempt = self.state.attempts[job.attempt]
        if not attempt.settled:
            return
        self._introduced.discard(job.attempt)
        if attempt.status is Status.KEEP or isinstance(job, Trial) or not attempt.is_idea:
            return
        self.pool.drop_weights(job.attempt, job.seed)

    def _introduce(self, attempt: Attempt) -> None:
        if attempt.number not in self._introduced:
            self._introduced.add(attempt.number)
            self.context.watcher.attempt_began(attempt)

    # ---- results -----------------------------------------------------------------------------------------------------

    def _record(self, job: Job, result: Result, run_id: int) -> None:
        state, number = self.state, job.attempt
        match job, result:
            case Trial(), DryRun():
                state.record_dry_run(number, result)
            case Measure(), Run():
                state.end_run(number, run_id, result)
                self._tell_void(job, result)
                self._tell_holdout(job, result)
            case AuditRun(), Audit():
                state.record_audit(number, job.seed, result, job.split)

    def _record_loss(self, job: Job, why: str, run_id: int) -> None:
        """Record that a job's worker is gone, or the weights that it needs: the run is made again in any case."""
        if isinstance(job, Measure):
            self.state.end_run(job.attempt, run_id, Run(job.seed, Ending.LOST, None, 0.0, None, why))
        elif isinstance(job, AuditRun):
            self.state.lose_run(job.attempt, job.seed, why)
        what = "dry run" if isinstance(job, Trial) else "run"
        self.context.watcher.said(f"this {what} of #{job.attempt} does not count and is done again: {why}")

    def _tell_void(self, job: Measure, run: Run) -> None:
        """Say why a run is void, if it is."""
        if run.ending is Ending.SLEPT:
            self.context.watcher.said("the machine slept during this run: it does not count and is done again")
        if run.ending is Ending.SPOILT:
            reason = run.last_lines.rpartition("\n")[2]
            again = "done again, once" if job.attempt else "done again"  # attempt 0 has more tries
            self.context.watcher.said(f"this run of #{job.attempt} does not count and is {again}: {reason}")

    def _tell_holdout(self, job: Measure, run: Run) -> None:
        """Say what a run at dawn has scored on both texts."""
        if run.score is not None and run.holdout is not None:
            on_holdout = run.holdout.failure if run.holdout.val_bpb is None else f"{run.holdout.val_bpb:.6f}"
            bpb = f"val_bpb {run.score.val_bpb:.6f}"
            self.context.watcher.said(f"#{job.attempt} · seed {job.seed} · {bpb} · on the holdout {on_holdout}")

    # ---- one failure after another -----------------------------------------------------------------------------------

    @property
    def _latest(self) -> History:
        """Return the attempts that were settled in this call."""
        return [self.state.attempts[number] for number in self._settled]

    def _end_streak(self, ended: Ended) -> None:
        """End the night with the cause of the latest crashes, unless the user stopped attempt 0's trial run.

        The crashes are void if attempt 0 fails here as well, and are done again when the night goes on.
        """
        context, crashed = self.context, _crashes(self._latest)
        trial = DryRun(0.0, str(ended.error)) if isinstance(ended.error, MachineError) else ended.result
        if not isinstance(trial, DryRun):
            return
        why = broken_by(trial, context.runner)
        crashes = f"{len(crashed)} attempts in a row crashed, the last with: {why_and_where(context, crashed[0])}"
        go_on = f"go on with: {typed('run', '--tag', context.runner.night.tag)}"
        if why is None:
            raise MachineError(f"{crashes}; attempt 0 still runs here, so see what they share, repair it, {go_on}")
        self.state.make_void([attempt.number for attempt in crashed], why)
        context.ledger.write(live=(context.runner.night, self.state.attempts))
        raise MachineError(f"{crashes}; {why}; repair that and {go_on} (these crashes do not count and are done again)")


def is_streak(latest: History) -> bool:
    """Return whether the attempts that were settled last, in their order, have all failed in the same way."""
    crashes = _crashes(latest)
    after_minutes = sum(bool(attempt.done_runs) for attempt in crashes)
    are_too_many = after_minutes >= CRASHES_IN_A_ROW or len(crashes) >= BROKEN_IN_A_ROW
    return are_too_many or len(_slow(latest)) >= SLOW_IN_A_ROW


def check_not_slow(context: NightContext, latest: History) -> None:
    """Raise MachineError if the attempts that were settled last were all too slow."""
    slow = _slow(latest)
    if len(slow) >= SLOW_IN_A_ROW:
        raise MachineError(
            f"{len(slow)} attempts in a row were too slow, the last with: {why_and_where(context, slow[0])}; this "
            f"machine is slower or busier than when attempt 0 ran: end what else is running and go on with: "
            f"{typed('run', '--tag', context.runner.night.tag)}, or allow more with --allowance-s in a new night"
        )


def _slow(latest: History) -> list[Attempt]:
    return _last(latest, lambda attempt: too_slow(attempt) is not None)


def _crashes(latest: History) -> list[Attempt]:
    return _last(latest, lambda attempt: attempt.status is Status.CRASH)


def _last(latest: History, alike: Callable[[Attempt], bool]) -> list[Attempt]:
    """Return the unbroken series of latest settled attempts that are alike, the last one first."""
    return list(takewhile(lambda attempt: attempt.settled and alike(attempt), reversed(latest)))


def tell_settled(context: NightContext, state: State, attempt: Attempt) -> None:
    """Show the verdict; of attempt 0, also how far its scores move with the seed, and how fast the night will go."""
    say, spread = context.watcher.said, state.noise  # which is recorded with each verdict
    context.watcher.attempt_settled(attempt, state.parent_of(attempt))
    if attempt.number == 0:
        beside = contention_of(state.attempts)
        for line in noise_lines(spread) if spread is not None else ():
            say(line)
        if beside is not None and beside.is_notable:
            say(beside.words)
        measured = experience(context.place, context.runner.night, state.attempts)
        if measured is not None and measured.tag is None:
            dawn = context.limits.runs_at_dawn(replace(state.pace, run_s=measured.run_s))
            say(f"pace: {pace_words(measured, context.limits.left(state.ideas), 0, dawn, state.workers)}")
    context.tell_standing(state)
