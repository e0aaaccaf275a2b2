"""Execute jobs on this machine: one thread a worker, each with its own part of the machine."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

from agent.experiment import Progress
from agent.pools.leases import pin
from agent.pools.pool import Ended, Working
from agent.runs.execute import execute
from agent.runs.jobs import Job
from agent.runs.runner import Runner

CLOSE_S = 10.0  # that processes may take to end, all workers together


class LocalPool:
    """Execute jobs on the workers of this machine. All have one folder for the night, so any of them can go on.

    A process ends when the thread that has started it ends (PR_SET_PDEATHSIG): a worker's thread lives as long as the
    pool.
    """

    def __init__(self, runners: Sequence[Runner]) -> None:
        self._closing = threading.Event()
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._runner = runners[0]
        self._workers = {runner.lease.worker: _LocalWorker(runner, self._ended, self._closing) for runner in runners}

    @property
    def workers(self) -> Sequence[str]:
        return tuple(self._workers)

    @property
    def expects_workers(self) -> bool:
        return False

    @property
    def at_work(self) -> Mapping[str, Working]:
        return {name: worker.working for name, worker in self._workers.items() if worker.is_busy}

    def free_for(self, job: Job) -> str | None:
        return next((name for name, worker in self._workers.items() if not worker.is_busy), None)

    def begin(self, worker: str, job: Job) -> None:
        self._workers[worker].begin(job)

    def ended(self, wait_s: float) -> Sequence[Ended]:
        found = []
        try:
            found.append(self._ended.get(timeout=wait_s) if wait_s > 0 else self._ended.get_nowait())
            while True:
                found.append(self._ended.get_nowait())
        except Empty:
            pass
        for one in found:
            self._workers[one.worker].is_busy = False
        return found

    def news(self) -> Sequence[str]:
        return ()

    def bring_weights(self, number: int, seed: int) -> None:
        """Do nothing: they are in the night's folder."""

    def drop_weights(self, number: int, seed: int) -> None:
        self._runner.drop_weights(number, seed)

    def close(self) -> None:
        self._closing.set()
        for worker in self._workers.values():
            worker.begin(None)
        deadline = time.monotonic() + CLOSE_S
        for worker in self._workers.values():
            worker.join(max(0.0, deadline - time.monotonic()))


class _LocalWorker:
    """Execute one job after another in a thread."""

    def __init__(self, runner: Runner, ended: SimpleQueue[Ended], closing: threading.Event) -> None:
        def stopped() -> bool:
            return closing.is_set() or runner.stopped()

        self._runner = replace(runner, progressed=self._progressed, stopped=stopped)
        self._ended = ended
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.is_busy = False  # until the driver has been given the result
        self.working = Working(None, 0.0)
        name = f"worker {runner.lease.worker}"
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def begin(self, job: Job | None) -> None:
        """Begin a job, or end the thread once it is free."""
        if job is not None:
            self.is_busy, self.working = True, Working(None, 0.0)
        self._jobs.put(job)

    def join(self, wait_s: float) -> None:
        self._thread.join(wait_s)

    def _progressed(self, progress: Progress | None, elapsed_s: float) -> None:
        self.working = Working(progress, elapsed_s)

    def _work(self) -> None:
        pin(self._runner.lease)  # for what the harness itself computes of a run, such as its score
        while (job := self._jobs.get()) is not None:
            worker = self._runner.lease.worker
            try:
                self._ended.put(Ended(worker, job, execute(job, self._runner)))
            except Exception as error:  # the driver raises it
                self._ended.put(Ended(worker, job, error=error))
