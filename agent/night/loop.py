"""Plan the next step, carry it out, and record each result as it comes: journal first, then refs and results.

Only the driver writes. Its plan depends on the state alone, and the state is read from the journal. So continuing and
resuming are the same: after a kill, the same state leads to the same step. Workers execute jobs beside it, and know
nothing of journal, git or screen. To record something twice does no harm.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from agent.clock import utc_now
from agent.errors import MachineError
from agent.experiment import Attempt, Audit, DryRun, Ending, Noise, Run, Status, attempt_ref, short
from agent.files import check_disk
from agent.invocation import typed
from agent.judging.noise import FEW_STEPS, noise
from agent.night.limits import few_steps_words
from agent.night.merging import not_merged
from agent.night.plan import (
    Begin,
    Decide,
    Enter,
    EnterIdea,
    InFlight,
    NextStep,
    Plan,
    Settle,
    Wait,
    latest_crashes,
)
from agent.night.proposals import NextProposal, Proposals
from agent.night.state import NightContext, State, unaudited
from agent.pools.device_slots import slowdown_lines, slowdown_of
from agent.pools.pool import Ended
from agent.records.results import write_results
from agent.runs.execute import check_machine
from agent.runs.jobs import AuditRun, Job, Measure, Trial
from agent.runs.runner import Stopped
from agent.script.dials import read_dials
from agent.text import duration, numbered
from agent.view.words import Form, noise_lines
from agent.work import Doing, Progress, Work

POLL_S, REPLAN_S = 0.05, 1.0
TELLING_STEPS, TELLING_SHARE = 5, 0.3  # steps of the first run, or share of its budget, that tell how many it makes
DOING = {Trial: Doing.DRY_RUN, Measure: Doing.TRAINING, AuditRun: Doing.AUDITING}


def run_night(context: NightContext) -> None:
    """Run until a limit is reached, the user stops the night or all proposers are exhausted; raise NightshiftError."""
    context.journal.mark_lost_runs()
    state = context.state()
    if state.attempts:  # a kill, a power cut or a user may have taken what tells of attempts that are all settled
        write_results(context.place, (context.night, state.attempts), context.watcher.said)
        record_noise(state)
    with Proposals(state) as proposals, at_work(state) as driver:
        driver.proposals = proposals
        plan = Plan(state, driver.in_flight)
        while driver.take_a_step(plan):
            pass
        waiting = {*(attempt.number for attempt in state.unsettled), *not_merged(state.attempts)}
        is_over = context.limits.is_over(state.pace)
        if (waiting or is_over) and not context.stop.after_run:
            left_out = numbered(waiting) if waiting else f"another run, of {duration(state.pace.run_s / 3600)}"
            go_on = typed("run", "--tag", context.night.tag)
            context.watcher.said(f"no time is left for {left_out}; to go on: {go_on}")


@contextmanager
def at_work(state: State) -> Iterator["Driver"]:
    """Yield a driver; where an error ends its work, end all jobs and record what they brought."""
    driver = Driver(state)
    try:
        driver.warm_up()
        yield driver
    except BaseException:
        driver.pool.close()
        for ended in driver.pool.ended(0.0):
            driver.record(ended)  # an error here may be the one that is raised already, such as a full disk
        raise


class Driver:
    """Carry out the steps of a plan, and record what the workers bring."""

    def __init__(self, state: State) -> None:
        self.context, self.state, self.pool = state.context, state, state.context.pool
        self.journal, self.say = state.context.journal, state.context.watcher.said
        self.proposals: Proposals | None = None  # None: no proposer is asked
        self.in_flight = InFlight(self.pool)
        self._run_ids: dict[str, int] = {}  # worker → id of its run in the journal
        self._is_pace_told = False
        self._scoring: set[str] = set()  # workers that score what they have trained

    def warm_up(self) -> None:
        """Train attempt 0 for a second on a machine that the night has moved to, so that no other run has to compile.

        Raise MachineError where it does not train. Of a cluster, each node has its own compiled code, unknown here.
        """
        context, state, runner = self.context, self.state, self.context.runner
        is_here = context.night.options.pool == "local"
        # Without a best script, attempt 0 itself runs next.
        if runner.is_warm or state.best is None or context.stop.after_run or not is_here:
            return
        self.say("nothing of this night is compiled on this machine yet: attempt 0 trains for a second first")
        with suppress(Stopped):
            check_machine(Plan(state, self.in_flight).trial(state.first), runner)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def take_a_step(self, plan: Plan) -> bool:
        """Plan and carry out one step; return False when nothing is left to do or the user stopped the night."""
        in_flight = self.in_flight
        if not in_flight.jobs:  # running jobs have limits of their own, and free the disk that they fill
            check_disk(self.context.place.repo.root)
        if self.proposals is not None:
            self.proposals.note_news()
            in_flight.has_idea = self.proposals.has_idea
        step = plan.next_step()
        if step is not None:
            self._take(step)
        return step is not None

    def _take(self, step: NextStep) -> None:
        state = self.state
        match step:
            case Begin(job, worker):
                self.begin(job, worker)
            case Decide(decisions):
                # the latest attempt's first: after a kill in between, no keep stands on a revoked one
                for number in sorted(decisions, reverse=True):
                    self.journal.record_decision(number, decisions[number])
                    state.read(number)
            case Settle(number):
                self.settle(number)
                if state.attempts[number].is_idea:
                    tell_settled(state, state.attempts[number])
            case Enter(parent, proposal):
                state.enter(parent, proposal)
            case EnterIdea(wanted):
                assert self.proposals is not None
                self.in_flight.next_proposal = self.proposals.enter_next(wanted)
            case Wait():
                self.wait()

    def commit(self, number: int) -> str:
        """Return an attempt's commit. Make it and its ref, from recorded facts alone, if there is none yet."""
        attempt, night, repo = self.state.attempts[number], self.context.night, self.context.place.repo
        if attempt.commit is not None:
            return attempt.commit
        parent, proposal = night.base if attempt.parent is None else self.commit(attempt.parent), attempt.proposal
        facts = f"Proposer: {proposal.proposer}\nNight: {night.tag}\nAttempt: {number}\n"
        message = f"{proposal.title}\n\n{proposal.hypothesis}\n\n{facts}"
        commit = repo.commit_script(parent, night.script, proposal.script, message, when=attempt.started)
        repo.set_ref(attempt_ref(night.tag, number), commit, f"attempt {number}")
        self.journal.record_commit(number, commit)
        self.state.read(number)
        return commit

    def settle(self, number: int) -> None:
        """Make branch, results and weights follow the decision."""
        context, state = self.context, self.state
        self.commit(number)
        self._drop_weights(number)
        best = state.best
        if best is not None:
            self.point_branch(context.night.branch, self.commit(best.number), f"best is attempt {best.number}")
        write_results(context.place, (context.night, state.attempts), self.say)
        self.journal.settle(number)
        state.read(number)
        self.journal.check_in_place()
        context.record_changed()

    def _drop_weights(self, number: int) -> None:
        """Drop the weights of an idea that is not kept, unless a job needs them; a confirmation drops its own."""
        attempt = self.state.attempts[number]
        needed = {*self.in_flight.seeds_of(number), *(run.seed for run, _ in unaudited(attempt) if attempt.counts)}
        for run in attempt.runs if attempt.is_idea and attempt.status not in (None, Status.KEEP) else ():
            if run.seed not in needed:
                self.context.runner.drop_weights(number, run.seed)

    def point_branch(self, branch: str, commit: str, why: str) -> None:
        """Move a branch of the night; it waits while somebody has it checked out, since HEAD and index are theirs.

        Raise RepoError where it is at a commit that this night did not make.
        """
        repo = self.context.place.repo
        now = repo.find(branch)
        if now == commit:
            return
        if branch in repo.checked_out():
            self.say(f"{short(branch)} is checked out and stays; the best script is {commit[:7]}")
            return
        ours = {attempt.commit for attempt in self.state.attempts}
        repo.move_ref(branch, commit, now if now in ours else commit, why)

    # ---- jobs --------------------------------------------------------------------------------------------------------

    def begin(self, job: Job, worker: str) -> None:
        """Begin a job on a worker that is free for it; the journal knows of it first."""
        number = job.attempt
        self.journal.check_in_place()  # better now than after minutes of a run whose result could not be recorded
        self.commit(number)
        if isinstance(job, Measure):
            self._run_ids[worker] = self.journal.start_run(
                number, job.seed, confirmation=job.confirmation, worker=worker
            )
            self.state.read(number)
        self._note(worker, DOING[type(job)], job)
        if self.proposals is not None and not isinstance(job, Trial):
            self.proposals.ask_ahead()
        self._scoring.discard(worker)
        self.pool.begin(worker, job)

    def _note(self, worker: str, doing: Doing, job: Job) -> None:
        """Record and show what a worker begins to do."""
        attempt, seed = self.state.attempts[job.attempt], None if isinstance(job, Trial) else job.seed
        confirmation = next((run.confirmation for run in attempt.runs if run.seed == seed), 0)
        work = Work(worker, doing, attempt.number, utc_now("milliseconds"), seed, confirmation)
        self.journal.begin(work)
        self.context.watcher.work_began(attempt, work)

    def wait(self) -> None:
        """Wait for news that may change the plan, at most REPLAN_S; record the jobs that have ended."""
        # Planning takes milliseconds in a long night, on the processors that the runs use.
        awaits_idea = self.in_flight.next_proposal is NextProposal.LATER
        until_s = time.monotonic() + (0.0 if awaits_idea else REPLAN_S)
        while not self._has_news() and time.monotonic() < until_s:
            pass
        if awaits_idea:
            self.in_flight.next_proposal = NextProposal.ENTERED  # the next plan asks for an idea again
        self.state.workers = max(1, len(self.pool.workers))

    def _has_news(self) -> bool:
        """Record and show what is new; return whether a job has ended or a worker has come or left."""
        ended = self.pool.ended(POLL_S)
        errors = [error for end in ended if (error := self.record(end)) is not None]
        if errors:
            raise errors[0]
        news = self.pool.news()
        for sentence in news:
            self.say(sentence)
        for worker, job in self.pool.jobs.items():
            progress = self.pool.progress(worker)
            is_scoring = progress is not None and progress.is_scoring
            if is_scoring and isinstance(job, Measure) and worker not in self._scoring:
                self._scoring.add(worker)
                self._note(worker, Doing.SCORING, job)
            if progress is not None and not is_scoring and job.attempt == 0:
                self._warn_of_few_steps(progress)
            self.context.watcher.progressed(None if is_scoring else progress, worker)
        if not self.in_flight.jobs:
            self.context.watcher.progressed(None)  # the panel shows that an idea is awaited
        return bool(ended or news)

    def _warn_of_few_steps(self, progress: Progress) -> None:
        """Say once, in the first run of a new night, that its runs make too few steps."""
        steps, night = progress.step or 0.0, self.context.night
        is_early = steps < TELLING_STEPS and progress.fraction < TELLING_SHARE
        if self._is_pace_told or self.state.first.done_runs or is_early or not steps or not progress.fraction:
            return
        self._is_pace_told = True
        if steps / progress.fraction < FEW_STEPS:
            dials = read_dials(self.state.first.proposal.script, night.device_kind, strict=False)
            step_s = night.budget_s * progress.fraction / steps
            self.say(few_steps_words(step_s, night.budget_s, FEW_STEPS, dials))

    # ---- results -----------------------------------------------------------------------------------------------------

    def record(self, ended: Ended) -> Exception | None:
        """Record what a worker has brought; return the error that ends the night: of the job, or of recording it."""
        job = ended.job
        try:
            self._record_result(ended)
            self.journal.rest(ended.worker)
            if isinstance(ended.error, MachineError):
                self._invalidate(latest_crashes(self.state.attempts), ended.error)
            self._drop_weights(job.attempt)  # an attempt may have been revoked while it was measured
            if self.state.attempts[job.attempt].settled:  # results, noise and page have told of it already
                write_results(self.context.place, (self.context.night, self.state.attempts), self.say)
                record_noise(self.state)
                self.context.record_changed()
        except Exception as error:
            return error
        return ended.error

    def _record_result(self, ended: Ended) -> None:
        """Record the result of a job; what does not count is done again, and the user is told why."""
        job, number, why_invalid = ended.job, ended.job.attempt, ended.lost
        match job, ended.result:
            case Trial(), DryRun() as dry_run:
                self.journal.record_dry_run(number, dry_run)
            case AuditRun(), Audit() as audit:
                self.journal.record_audit(number, job.seed, audit, job.split)
            case Measure(), Run() as run:
                self.journal.end_run(self._run_ids[ended.worker], run)
                if run.ending in (Ending.SLEPT, Ending.INVALID):
                    why_invalid = (
                        run.last_lines.rpartition("\n")[2] if run.ending is Ending.INVALID else "the machine slept"
                    )
                if run.score is not None and run.holdout is not None:
                    on_holdout = Form().number(run.holdout.val_bpb) or run.holdout.failure
                    scores = f"val_bpb {Form().number(run.score.val_bpb)}, on the holdout {on_holdout}"
                    self.say(f"#{number}, seed {job.seed}: {scores}")
            case Measure(), None:
                ending = (
                    Ending.LOST if why_invalid is not None else Ending.STOPPED if ended.error is None else Ending.BROKEN
                )
                run = Run(job.seed, ending, None, 0.0, None, why_invalid or str(ended.error or ""))
                self.journal.end_run(self._run_ids[ended.worker], run)
        self.state.read(number)
        if why_invalid is not None:
            kind = "audit" if isinstance(job, AuditRun) else "run"
            self.say(f"this {kind} of #{number} does not count and is done again: {why_invalid}")

    def _invalidate(self, crashed: Sequence[Attempt], why: MachineError) -> None:
        """Make crashes invalid that came before the machine was found to be broken: a resumed night repeats them."""
        numbers = [attempt.number for attempt in crashed]
        if numbers:
            self.journal.invalidate(numbers, str(why))
            self.state.read(*numbers)
            write_results(self.context.place, (self.context.night, self.state.attempts), self.say)
            self.say(f"the crashes of {numbered(numbers)} do not count and are done again")


def record_noise(state: State) -> Noise | None:
    """Record how far scores move with the seed, where views read it; return it."""
    spread = noise(state.attempts)
    state.context.journal.record_facts(noise=spread)
    return spread


def tell_settled(state: State, attempt: Attempt) -> None:
    """Show the verdict; of attempt 0, also how far its scores move with the seed, and how fast the night will go."""
    context, spread = state.context, record_noise(state)
    context.watcher.attempt_settled(attempt)
    if attempt.number == 0:
        lines = noise_lines(spread) if spread is not None else []
        for line in [*lines, *slowdown_lines(slowdown_of(state.attempts))]:
            context.watcher.said(line)
        context.watcher.said(f"pace: {context.limits.pace_words(state.pace)}")
