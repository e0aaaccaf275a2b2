"""Say what the driver of a night asks of the workers that execute its jobs, and be the workers of this machine."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

from agent.runs.execute import execute
from agent.runs.jobs import Job, Result
from agent.runs.runner import Runner
from agent.work import Progress

CLOSE_S = 8.0  # s for the processes of all workers together to end


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of a job; without result, error and loss: the user stopped the job."""

    worker: str
    job: Job
    result: Result | None = None
    error: Exception | None = None  # an error of the worker, which the driver raises again
    lost: str | None = None  # why the job has to be done elsewhere: its worker is gone


class WorkerThread:
    """Execute one job after another in a thread that lives as long as the pool.

    A process ends when the thread that has started it ends (PR_SET_PDEATHSIG).
    """

    def __init__(self, name: str, execute: Callable[[Job], Ended], ended: SimpleQueue[Ended]) -> None:
        self.name = name
        self.job: Job | None = None  # None again once the driver has been given its end
        self.progress: Progress | None = None  # None: no training, or nothing is known yet
        self._execute, self._ended = execute, ended
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"worker {name}", daemon=True)
        self._thread.start()

    def begin(self, job: Job) -> None:
        self.job, self.progress = job, None
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._ended.put(self._execute(job))
            except Exception as error:  # the driver raises it
                self._ended.put(Ended(self.name, job, error=error))

    @staticmethod
    def end_all(threads: Sequence["WorkerThread"], most_s: float = CLOSE_S) -> None:
        """End the threads whose jobs were told to end; wait at most so long for all together."""
        for thread in threads:
            thread._jobs.put(None)
        deadline = time.monotonic() + most_s
        for thread in threads:
            thread._thread.join(max(0.0, deadline - time.monotonic()))


class Pool:
    """Execute jobs, at most one a worker at a time. Only the driver's thread calls it."""

    expects_workers = False  # whether one may come, or be ready for jobs again: a night that lacks one waits for it

    def __init__(self, runner: Runner) -> None:
        self._runner = runner  # the night's runner, with its folder on this machine
        self._threads: dict[str, WorkerThread] = {}  # name of a worker → its thread
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._closing = False

    @property
    def workers(self) -> Sequence[str]:
        """Return the names of all workers that can be given work, busy ones included; they may come and go."""
        return tuple(self._threads)

    @property
    def jobs(self) -> Mapping[str, Job]:
        """Return the job of each busy worker, until the driver has been given its end."""
        return {name: thread.job for name, thread in self._threads.items() if thread.job is not None}

    def progress(self, worker: str) -> Progress | None:
        """Return how far a worker is; None: no training, or nothing is known yet."""
        return self._threads[worker].progress

    @property
    def free(self) -> str | None:
        """Return a worker that can begin a job now, if there is one."""
        return next((name for name in self.workers if self._threads[name].job is None), None)

    def begin(self, worker: str, job: Job) -> None:
        """Begin a job on a free worker; return at once."""
        self._threads[worker].begin(job)

    def ended(self, wait_s: float) -> Sequence[Ended]:
        """Return the jobs that have ended since the last call; wait at most wait_s for the first."""
        ended = []
        with suppress(Empty):
            ended.append(self._ended.get(wait_s > 0, wait_s))
            while True:
                ended.append(self._ended.get_nowait())
        for end in ended:
            self._threads[end.worker].job = None
        return ended

    def news(self) -> Sequence[str]:
        """Return sentences for the user since the last call: a worker has come, left, or is unwell."""
        return ()

    def close(self) -> None:
        """End all jobs; on return, or at most 10 s later, no process of the night runs anywhere."""
        self._closing = True
        WorkerThread.end_all([*self._threads.values()])

    def _stops(self) -> bool:
        """Return whether what runs is to end."""
        return self._closing or self._runner.stopped()


class LocalPool(Pool):
    """Execute jobs on this machine: a thread for each worker, with its own part of the machine."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        super().__init__(runners[0])
        self._threads = {runner.slot.worker: self._thread(runner) for runner in runners}

    def _thread(self, runner: Runner) -> WorkerThread:
        def progressed(progress: Progress | None) -> None:
            thread.progress = progress

        def perform(job: Job) -> Ended:
            own = replace(runner, progressed=progressed, stopped=self._stops)
            return Ended(thread.name, job, execute(job, own))

        thread = WorkerThread(runner.slot.worker, perform, self._ended)
        return thread
