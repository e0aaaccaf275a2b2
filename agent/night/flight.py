"""Make the jobs of a night, each with all that a worker has to know."""

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import count

from agent.experiment import Attempt, Ending, Run, Split
from agent.judging.early_stop import Bound
from agent.night.state import NightContext, State
from agent.pools.pool import Pool
from agent.runs.jobs import AuditRun, Job, Measure, Trial
from agent.runs.score import most_weights_bytes, scoring_limit_s, usual_scoring_s
from agent.runs.speed import usual_steps_s
from agent.runs.train import FIRST_ALLOWANCE_S, learnt_allowance_s, learnt_bounds


@dataclass(slots=True)
class Flight:
    """Tell which workers are busy with which attempts. The driver changes it, the plan reads it."""

    pool: Pool
    jobs: dict[str, Job] = field(default_factory=dict)  # by worker
    has_idea: bool = False  # one is made, and only has to be entered
    awaits_idea: bool = False  # a source was asked, and has no answer yet
    is_out_of_ideas: bool = False
    is_held: bool = False  # nothing begins until all that is in flight has ended, and attempt 0 was tried

    @property
    def idle(self) -> int:
        """Return how many workers have no job; one where there is no worker now, and one may come."""
        if not self.pool.workers and not self.jobs:
            return int(self.pool.expects_workers)
        return sum(worker not in self.jobs for worker in self.pool.workers)

    def has(self, attempt: int) -> bool:
        return any(job.attempt == attempt for job in self.jobs.values())

    def seeds_of(self, attempt: int) -> Collection[int]:
        """Return the seeds of the attempt's runs that are measured, scored or audited now."""
        jobs = self.jobs.values()
        return [job.seed for job in jobs if job.attempt == attempt and not isinstance(job, Trial)]

    def worker_for(self, job: Job) -> str | None:
        """Return a worker that can begin this job now."""
        return None if self.is_held and not tries_machine(job) else self.pool.free_for(job)


def tries_machine(job: Job) -> bool:
    """Return whether a job shows if the machine is to blame for failures: attempt 0 is rehearsed for nothing else."""
    return isinstance(job, Trial) and job.attempt == 0


DAWN_SEED = 1000  # from one dawn to the next: each confirms with seeds that no choice before it has seen


@dataclass(frozen=True, slots=True)
class Jobs:
    """Make jobs of a night as it stands now."""

    context: NightContext
    state: State
    flight: Flight

    def measure(self, attempt: Attempt, dawn: int = 0) -> Measure:
        """Return the job of the attempt's next run; at night and at each dawn, all attempts use the same seeds."""
        runner, done = self.context.runner, attempt.dawn_runs(dawn) if dawn else attempt.done_runs
        taken = {*self.flight.seeds_of(attempt.number), *(run.seed for run in done)}
        seed = next(seed for seed in count(self.context.night.seed + DAWN_SEED * dawn) if seed not in taken)
        was_spoilt = bool(attempt.runs) and attempt.runs[-1].ending is Ending.SPOILT
        return Measure(
            attempt=attempt.number,
            script=attempt.proposal.script,
            seed=seed,
            allowance_s=self.allowed_s(attempt.number),
            machine=self.trial(self.state.first),
            dawn=dawn,
            bounds=() if dawn else self._bounds_ahead(attempt),
            has_run_well=bool(dawn) or any(run.score and run.score.val_bpb is not None for run in attempt.counted_runs),
            may_be_void=attempt.may_be_void(seed),
            usual_steps_s=usual_steps_s(attempt),
            usual_scoring_s=self._usual_scoring_s(attempt),
            most_weights_bytes=most_weights_bytes(self.state.attempts),
            wait_s=runner.rest_s if was_spoilt else 0.0,
        )

    def audit(self, attempt: Attempt, run: Run, split: Split = "validation") -> AuditRun:
        """Return the job of an audit against the committed losses of the parent, hardest at the largest gains."""
        beyond_s = max(0.0, run.wall_s - self.context.night.budget_s)
        return AuditRun(
            attempt=attempt.number,
            script=attempt.proposal.script,
            seed=run.seed,
            limit_s=self._scoring_limit_s(attempt, beyond_s),
            machine=self.trial(self.state.first),
            split=split,
            reference=self.audit_reference(attempt, run, split),
        )

    def trial(self, attempt: Attempt) -> Trial:
        """Return the job of an attempt's trial run; that of attempt 0 shows whether this machine still trains."""
        return Trial(
            attempt=attempt.number,
            script=attempt.proposal.script,
            allowance_s=self.allowed_s(attempt.number),
            scoring_s=self._scoring_limit_s(attempt),
            machine=self.trial(self.state.first) if attempt.number else None,
        )

    def _usual_scoring_s(self, attempt: Attempt) -> float | None:
        return usual_scoring_s(self.state.attempts) if attempt.number else None

    def _scoring_limit_s(self, attempt: Attempt, beyond_s: float = 0.0) -> float:
        return scoring_limit_s(self._usual_scoring_s(attempt), beyond_s, self.allowed_s(attempt.number))

    def allowed_s(self, number: int) -> float:
        """Return the seconds that a run may take beyond its budget: the user's choice, else learnt from attempt 0.

        Attempt 0 itself gets FIRST_ALLOWANCE_S, since the machine may become busy. The others get little more than its
        slowest run took.
        """
        runner = self.context.runner
        if runner.allowance_s is not None:
            return runner.allowance_s
        return learnt_allowance_s(self.state.attempts, self.context.night.budget_s) if number else FIRST_ALLOWANCE_S

    def _bounds_ahead(self, attempt: Attempt) -> tuple[Bound, ...]:
        """Return the bounds that may stop an idea's first run early; further seeds are run to the end."""
        state = self.state
        if not self.context.early_stop or attempt.number == 0 or attempt.decision is not None or attempt.done_runs:
            return ()
        return learnt_bounds(self.context.runner, state.others(attempt.number), state.parent_of(attempt))

    def audit_reference(self, attempt: Attempt, run: Run, split: Split) -> tuple[int, int] | None:
        """Return the attempt and seed of the run that an audit counts gains from; None if no losses are there.

        It is a run of the attempt's parent, else of attempt 0. Only runs at dawn have losses on the holdout; there
        it is a run of the same dawn, at which attempt 0 always runs first.
        """
        parent = self.state.parent_of(attempt)
        for before in (parent, self.state.first) if parent is not None else ():
            for other in before.counted_runs if split == "validation" else before.dawn_runs(run.dawn):
                if self.context.runner.losses(before.number, other.seed, split).is_file():
                    return before.number, other.seed
        return None
