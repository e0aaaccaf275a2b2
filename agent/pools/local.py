"""Execute jobs on this machine: one thread a worker, each with its own part of the machine."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue

from agent.experiment import Progress
from agent.pools.pool import Ended, Worker, Working, taken_from
from agent.runs.execute import Job, execute
from agent.runs.runner import Runner

CLOSE_S = 10.0  # that processes may take to end, all workers together


class LocalPool:
    """Execute jobs on the workers of this machine. All have one folder for the night, so any of them can go on."""

    expects_workers = False

    def __init__(self, runners: Sequence[Runner]) -> None:
        self._closing = threading.Event()
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._runner = runners[0]
        self._workers = {runner.lease.worker: self._worker(runner) for runner in runners}

    def _worker(self, runner: Runner) -> Worker:
        def stopped() -> bool:
            return self._closing.is_set() or runner.stopped()

        def progressed(progress: Progress | None, elapsed_s: float) -> None:
            worker.working = Working(progress, elapsed_s)

        def perform(job: Job) -> Ended:
            own = replace(runner, progressed=progressed, stopped=stopped)
            return Ended(worker.name, job, execute(job, own))

        worker = Worker(runner.lease.worker, perform, self._ended, runner.lease)
        return worker

    @property
    def workers(self) -> Sequence[str]:
        return tuple(self._workers)

    @property
    def at_work(self) -> Mapping[str, Working]:
        return {name: worker.working for name, worker in self._workers.items() if worker.job is not None}

    def free_for(self, job: Job) -> str | None:
        return next((name for name, worker in self._workers.items() if worker.job is None), None)

    def begin(self, worker: str, job: Job) -> None:
        self._workers[worker].begin(job)

    def ended(self, wait_s: float) -> Sequence[Ended]:
        ends = taken_from(self._ended, wait_s)
        for ended in ends:
            self._workers[ended.worker].job = None
        return ends

    def news(self) -> Sequence[str]:
        return ()

    def bring_weights(self, number: int, seed: int) -> None:
        """Do nothing: they are in the night's folder."""

    def drop_weights(self, number: int, seed: int) -> None:
        self._runner.drop_weights(number, seed)

    def close(self) -> None:
        self._closing.set()
        Worker.end_all([*self._workers.values()], CLOSE_S)
