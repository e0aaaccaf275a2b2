"""Hold the jobs that workers execute now, and what a call of a night has to remember beside the night's state."""

from collections.abc import Collection
from dataclasses import dataclass, field

from agent.pools.pool import Pool
from agent.runs.jobs import Job, Rehearse


@dataclass(frozen=True, slots=True)
class InFlight:
    """Hold a job that a worker executes."""

    job: Job
    run_id: int  # of the run in the journal; 0 where the job is none


@dataclass(slots=True)
class Flight:
    """Tell which workers are busy with which attempts. The driver changes it, the plan reads it."""

    pool: Pool
    jobs: dict[str, InFlight] = field(default_factory=dict)  # by worker
    left: set[int] = field(default_factory=set)  # attempts for which no time is left: another call goes on with them
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
        return any(one.job.attempt == attempt for one in self.jobs.values())

    def seeds_of(self, attempt: int) -> Collection[int]:
        """Return the seeds of the attempt's runs that are measured, scored or audited now."""
        jobs = (one.job for one in self.jobs.values())
        return [job.seed for job in jobs if job.attempt == attempt and not isinstance(job, Rehearse)]

    def worker_for(self, job: Job) -> str | None:
        """Return a worker that can begin this job now."""
        return None if self.is_held and not tries_machine(job) else self.pool.free_for(job)


def tries_machine(job: Job) -> bool:
    """Return whether a job shows if the machine is to blame for failures: attempt 0 is rehearsed for nothing else."""
    return isinstance(job, Rehearse) and job.attempt == 0
