"""Execute the jobs of a night on the nodes of a Ray cluster, with an actor a worker; journal and git stay here."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agent.errors import MachineError
from agent.experiment import Audit, DryRun, Ending, Run, repetitions
from agent.files import plain_bytes, remove
from agent.invocation import typed
from agent.pools.cluster import Cluster, ClusterNode, different, on, sentence
from agent.pools.node import DEAF_S, FileContents, NodeWorker, Part, Returned, enter, files_of, put_files
from agent.pools.pool import Ended, Pool, WorkerThread
from agent.runs.jobs import AuditRun, Job, Measure, Result, Trial
from agent.runs.runner import Runner
from agent.work import DeviceSlot

WATCH_S = 1.0  # s between two looks at the nodes, and at the progress of each job
REST_S = 60.0  # s until a node that has failed gets work again
FAILURES_IN_A_ROW = 3  # failures in a row after which a node gets no further job
LEAVE_S = 6.0  # s that Ray may need to notice that a node has left, once its processes are gone
START_S = 120.0  # s for an actor to start
RESULTS = {Trial: DryRun, Measure: Run, AuditRun: Audit}


class Lost(Exception):
    """Say why a job has to be done again, for which its node is not to blame."""


class Killed(Exception):
    """Say that the process of a job was killed while its node went on."""


@dataclass(eq=False, slots=True)
class _Worker:
    """Name a worker, and the place where its jobs are executed."""

    name: str
    node: ClusterNode
    part: Part
    actor: Any = None  # an actor of NodeWorker; None: none was started, or it was killed


class RayPool(Pool):
    """Execute jobs on workers of a cluster, any job on any of them: all files of a job come back to this machine.

    A job whose process is killed is done again like one that the machine made invalid; the last time, it counts.
    """

    expects_workers = True  # nodes that join, or are well again

    def __init__(self, cluster: Cluster, runner: Runner, most: int) -> None:
        """Give work to at most so many workers."""
        super().__init__(runner)
        self._cluster, self._most = cluster, most
        self._members: dict[str, _Worker] = {}
        self._news: list[str] = []
        self._watched_s = 0.0  # time of the last look at the nodes; 0: the night has not begun
        self._meet_nodes()
        if not self._members:
            raise MachineError("; ".join(self._news) or "no node of the Ray cluster has a free device")

    # ---- for the driver ----

    @property
    def workers(self) -> Sequence[str]:
        return tuple(name for name, worker in self._members.items() if self._is_here(worker.node))

    @property
    def free(self) -> str | None:
        rested = (name for name in self.workers if self._members[name].node.rests_until <= time.monotonic())
        return next((name for name in rested if self._threads[name].job is None), None)

    def ended(self, wait_s: float) -> Sequence[Ended]:
        if not self._closing and time.monotonic() - self._watched_s > WATCH_S:
            self._cluster.refresh_nodes()
            self._part_with_nodes()
            self._meet_nodes()
            self._watched_s = time.monotonic()
        return [self._noted(ended) for ended in super().ended(wait_s)]

    def news(self) -> Sequence[str]:
        news, self._news = self._news, []
        return news

    # ---- nodes ----

    def _is_here(self, node: ClusterNode) -> bool:
        return self._cluster.nodes.get(node.id) is node

    def _part_with_nodes(self) -> None:
        for name, worker in list(self._members.items()):
            if not self._is_here(worker.node) and self._threads[name].job is None:
                WorkerThread.end_all([self._threads.pop(name)], 0.0)
                del self._members[name]
                self._say(f"node {worker.node.name} has left the cluster")

    def _meet_nodes(self) -> None:
        """Give the workers of new nodes work, unless their scores would not compare, or there are enough workers."""
        for node in self._cluster.nodes.values():
            room = self._most - len(self.workers)
            if node.is_met or node.is_pending or room <= 0:
                continue
            node.is_met = True
            node.refused = node.refused or different(node, self._runner.night)
            if node.refused is None:
                self._enter(node, room)
            if node.refused is not None:
                self._say(f"node {node.name} is not used: {node.refused}")
            elif self._watched_s:  # the night's first lines name those that were there before
                self._say(f"node {node.name} has joined: {self._runner.night.device}")

    def _enter(self, node: ClusterNode, room: int) -> None:
        """Have a node lay out the night's folder, and take on so many of its workers at most."""
        try:
            self._cluster.call(node, enter, self._runner.night, self._cluster.content)
        except MachineError as error:
            node.refused = str(error)
            return
        if node.name in {worker.node.name for worker in self._members.values()}:
            node.name = f"{node.name} {node.id[:4]}"
        part = self._cluster.part_of(node)
        for name in workers_of(node, part)[:room]:
            worker = self._members[name] = _Worker(name, node, part)
            self._threads[name] = WorkerThread(name, partial(self._execute, worker), self._ended)

    def _say(self, sentence: str) -> None:
        self._news += [] if sentence in self._news else [sentence]

    # ---- in the thread of a worker ----

    def _execute(self, worker: _Worker, job: Job) -> Ended:
        """Execute a job; a dry run or an audit again if its process is killed, where the journal counts runs."""
        name, left = worker.name, 0 if isinstance(job, Measure) else repetitions(job.attempt)
        while True:
            try:
                return Ended(name, job, self._result(worker, job))
            except Lost as lost:
                return Ended(name, job, lost=f"worker {name}: {lost}")
            except Killed:
                if self._stops():
                    return Ended(name, job)
                if not left:
                    return Ended(name, job, result_of_killed(job, f"its process was killed on {worker.node.name}"))
                left -= 1

    def _result(self, worker: _Worker, job: Job) -> Result | None:
        """Return a job's result, and take its files; raise MachineError where its node has failed."""
        worker.actor = worker.actor or self._started(worker)
        returned = self._returned(worker, job)
        why = returned.failure or unusable(replace(self._runner, slot=DeviceSlot(worker.name)), job, returned)
        if why is not None:
            raise MachineError(why)
        result = returned.result
        was_ended = result is None or (isinstance(result, Run) and result.ending is Ending.STOPPED)
        if was_ended and not self._stops():
            raise Lost(f"it was not asked for {DEAF_S:.0f} s")
        if isinstance(job, Measure):
            remove(self._runner.run_folder(job.attempt, job.seed))
        put_files(self._runner.folder, returned.files)  # the files must be here before the journal records their run
        return result

    def _started(self, worker: _Worker) -> Any:
        """Return a new actor of a worker, which holds its part of the node."""
        import ray

        part, night = worker.part, self._runner.night
        options = {"num_cpus": part.cores, "num_gpus": part.gpus, "scheduling_strategy": on(worker.node)}
        try:
            actor = ray.remote(NodeWorker).options(max_concurrency=2, **options).remote()
            opened = actor.open.remote(night, self._cluster.content, worker.name, part)
            ray.get(opened, timeout=START_S)
        except Exception as error:
            raise MachineError(sentence(error)) from error
        return actor

    def _returned(self, worker: _Worker, job: Job) -> Returned:
        """Return what the actor brings back; meanwhile note its progress, and end the job where the driver wants it."""
        import ray
        from ray.exceptions import ActorDiedError, OutOfMemoryError, RayError

        actor = worker.actor
        try:
            answer = actor.execute.remote(job, files_for(self._runner, job))
            while not ray.wait([answer], timeout=WATCH_S)[0]:
                progress = actor.progress.remote(is_to_end=self._stops())
                with suppress(RayError):  # the answer tells of the actor's end
                    self._threads[worker.name].progress = ray.get(progress, timeout=WATCH_S)
            returned: Returned = ray.get(answer)
        except (ActorDiedError, OutOfMemoryError) as error:
            worker.actor = None
            time.sleep(0.0 if self._stops() else LEAVE_S)  # a node that leaves takes its processes first
            raise Killed if worker.node.id in self._cluster.listed() else Lost("its node has left") from error
        except Exception as error:  # a damaged answer may raise any error
            worker.actor = None
            ray.kill(actor)
            raise MachineError(sentence(error)) from error
        return returned

    # ---- ends ----

    def _noted(self, ended: Ended) -> Ended:
        """Return how a job has ended, for the driver; where its node has failed, the job is lost, and the node rests.

        What fails while its node rests had begun before. Where all nodes have failed again and again, the night ends.
        """
        node, error, now = self._members[ended.worker].node, ended.error, time.monotonic()
        has_failed = isinstance(error, MachineError)
        if self._stops():
            return replace(ended, lost=None, error=None if has_failed else error)
        if not has_failed:
            node.failures = node.failures if ended.lost else 0
            return ended
        if now >= node.rests_until:
            node.failures, node.rests_until = node.failures + 1, now + REST_S
            self._say(f"node {node.name} gets no work for {REST_S:.0f} s: {error}")
        if any(other.node.failures < FAILURES_IN_A_ROW for other in self._members.values()):
            return replace(ended, error=None, lost=f"worker {ended.worker}: {error}")
        again = typed("run", "--tag", self._runner.night.tag)
        why = f"no node of the Ray cluster does its work: node {node.name} failed {FAILURES_IN_A_ROW} times in a row"
        return replace(ended, error=MachineError(f"{why}, now with: {error}; repair that and go on with: {again}"))


def result_of_killed(job: Job, why: str) -> Result:
    """Return a run that is invalid, or the result of a job whose process was killed at its last try.

    Raise MachineError for attempt 0: then its node has failed.
    """
    if isinstance(job, Measure) and job.may_be_repeated:
        return Run(job.seed, Ending.INVALID, None, 0.0, None, why)
    why = f"{why}, at its last try"
    if not job.attempt:
        raise MachineError(why)
    match job:
        case Trial():
            return DryRun(0.0, why)
        case Measure():
            return Run(job.seed, Ending.EXCEEDED, None, 0.0, None, why)
        case AuditRun():
            return Audit(0, 0.0, 0.0, f"it could not be done: {why}")


def files_for(runner: Runner, job: Job) -> FileContents:
    """Return the files that a node needs for a job: weights and committed losses, for an audit."""
    if not isinstance(job, AuditRun):
        return {}
    paths = [runner.weights(job.attempt, job.seed), runner.losses(job.attempt, job.seed, job.split)]
    paths += [runner.losses(*job.reference, job.split)] if job.reference else []
    there = [path for path in paths if plain_bytes(path) is not None]
    return {path.relative_to(runner.folder).as_posix(): path.read_bytes() for path in there}


def unusable(runner: Runner, job: Job, returned: Returned) -> str | None:
    """Return why what a node has sent cannot be the result of this job; None if it can, and where there is none.

    runner: of the worker, with the driver's folder.
    """
    result, sent = returned.result, returned.files
    if other := sent.keys() - files_of(runner, job).keys():
        return f"it sent {min(other)!r}, a file that its job does not have"
    if result is None:
        return None
    if not isinstance(result, RESULTS[type(job)]):
        return "it sent the result of another job"
    if isinstance(job, Measure) and isinstance(result, Run):
        if result.seed != job.seed:
            return "it sent the result of another job"
        scores = [score.val_bpb for score in (result.score, result.holdout) if score and score.val_bpb is not None]
        losses = [content for name, content in sent.items() if name.endswith(".f32") and content]
        if not all(map(math.isfinite, scores)) or len(losses) < len(scores):
            return "it sent a score that is no number, or none of the losses that it is of"
    return None


def workers_of(node: ClusterNode, part: Part) -> list[str]:
    """Return the name of each worker of a node, who takes such a part of it."""
    count, kind = (node.gpus, "gpu") if node.gpus else (node.cpus // part.cores, "share")
    return [f"{node.name} {kind} {at}" for at in range(count)] if count > 1 or node.gpus else [node.name] * count
