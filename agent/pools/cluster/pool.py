"""Execute the jobs of a night on the nodes of a Ray cluster. Journal and git stay with the driver."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.errors import MachineError
from agent.experiment import Audit, DryRun, Ending, Run
from agent.files import remove
from agent.invocation import typed
from agent.pools.cluster.checks import different, given_up, unusable
from agent.pools.cluster.cluster import Cluster
from agent.pools.cluster.content import files_for, put_pieces, take_files
from agent.pools.cluster.messages import (
    BeginJob,
    Consulted,
    Done,
    EndJob,
    FromBroker,
    NodeCall,
    NodeJoined,
    NodeLeft,
    Perform,
    Progressed,
    Returned,
)
from agent.pools.cluster.node import drop, enter, fetch
from agent.pools.cluster.slots import Failures, Slot, needs_on, shares_of_node
from agent.pools.pool import Ended, Working
from agent.records.checksums import digest
from agent.runs.execute import Result
from agent.runs.jobs import AuditRun, Job, Measure, Trial
from agent.runs.runner import Runner

LOST_REST_S, UNWELL_REST_S = 5.0, 60.0  # before a worker whose job was lost, and a node that is unwell, get work
AGAIN_S = 10.0  # between attempts to reach a cluster that is gone
FETCH_S = 600.0  # for the weights of a run
ENTER_S = 120.0  # for a node to lay out the night's folder
CLOSE_S = 7.0  # that jobs may take to end by themselves


class RayPool:
    """Execute jobs on workers of a cluster.

    The weights of a run stay on the node that has trained it until the run's attempt is kept. A job that needs them
    goes there. A job whose process is killed is done again once; the second time counts as the script's.
    """

    expects_workers = True  # nodes that join, or are well again

    def __init__(self, cluster: Cluster, runner: Runner, most: int) -> None:
        """Give work to at most so many workers."""
        self._cluster = cluster
        self._runner = runner  # of the driver: its folder is the night's
        self._most = most
        self._slots: dict[str, Slot] = {}
        self._held: dict[tuple[int, int], set[str]] = {}  # attempt and seed → ids of the nodes that have the weights
        self._ended: list[Ended] = []
        self._news: list[str] = []
        self._begun = self._awaited = 0  # jobs; the last question to a node whose answer is waited for
        self._answer: Consulted | None = None
        self._next_start = 0.0
        self._is_open = self._closing = False
        self._failures = Failures()
        # dry runs and audits whose process was killed once, by kind, attempt and seed; the journal counts runs
        self._killed: set[tuple[type[Job], int, int]] = set()
        self._entering: dict[int, str] = {}  # question → the node that lays out the night's folder
        for joined in list(cluster.nodes.values()):
            self._welcome(joined)
        self._wait_for(lambda: not self._entering, ENTER_S)
        self._is_open = True
        self._news += sorted(cluster.refused.values())
        if not self._slots:
            raise MachineError("; ".join(self._news) or "no node of the Ray cluster has a free device")
        if len(self._slots) < most:
            self._news.append(f"the cluster has {len(self._slots)} of {most} workers; nodes that join later add theirs")

    # ---- for the driver ----

    @property
    def workers(self) -> Sequence[str]:
        return tuple(self._slots)

    @property
    def at_work(self) -> Mapping[str, Working]:
        return {slot.name: slot.working_now for slot in self._slots.values() if slot.job is not None}

    def free_for(self, job: Job) -> str | None:
        unsaid = {one.worker for one in self._ended}
        slots = [slot for slot in self._slots.values() if slot.is_free and slot.name not in unsaid]
        if isinstance(job, AuditRun):
            nodes = self._held.get((job.attempt, job.seed), set()) & self._cluster.nodes.keys()
            slots = [slot for slot in slots if slot.node.id in nodes] if nodes else slots
        return next((slot.name for slot in slots), None)

    def begin(self, worker: str, job: Job) -> None:
        slot = self._slots[worker]
        files = files_for(self._runner, job, has_weights=self._has_weights(slot, job))
        if files is None:
            self._ended.append(Ended(worker, job, lost="the node with its weights is gone"))
            return
        self._send(slot, job, files)

    def _send(self, slot: Slot, job: Job, files: Iterable[Path]) -> None:
        self._begun += 1
        slot.begin(job, self._begun)
        content, device, runner = self._cluster.content, slot.node.device, self._runner
        assert content is not None
        assert device is not None
        sent = {path.relative_to(runner.folder).as_posix(): digest(path) for path in files}
        perform = Perform(runner.night, content, job, slot.name, slot.share, device.box, runner.allowance_s, sent)
        places = {checksum: str(runner.folder / name) for name, checksum in sent.items()}
        cpus, gpus = needs_on(slot.node, content)
        self._cluster.send(BeginJob(slot.number, slot.node.id, cpus, gpus, perform, places))

    def _has_weights(self, slot: Slot, job: Job) -> bool:
        return isinstance(job, AuditRun) and slot.node.id in self._held.get((job.attempt, job.seed), ())

    def ended(self, wait_s: float) -> Sequence[Ended]:
        if self._runner.stopped():
            self._end_jobs()
        self._pump(0.0 if self._ended else wait_s)
        found, self._ended = self._ended, []
        return [replace(one, lost=None) for one in found] if self._runner.stopped() else found

    def news(self) -> Sequence[str]:
        news, self._news = self._news, []
        return news

    def bring_weights(self, number: int, seed: int) -> None:
        """Fetch the weights of a run from a node that has them; without one, they are missed when they are needed."""
        at = self._runner.weights(number, seed)
        if at.is_file():
            return
        for node_id in self._held.get((number, seed), set()) & self._cluster.nodes.keys():
            aside = at.with_name(f"{at.name}.part")
            try:
                self._fetch(node_id, number, seed, aside)
                aside.rename(at)
            except (MachineError, OSError) as error:
                aside.unlink(missing_ok=True)
                self._news.append(f"the weights of #{number} with seed {seed} stay on their node: {error}")
            else:
                return

    def _fetch(self, node_id: str, number: int, seed: int, at: Path) -> None:
        put_pieces(at, lambda offset: self._ask(node_id, partial(fetch, self._runner.night, number, seed, offset)))

    def drop_weights(self, number: int, seed: int) -> None:
        self._runner.drop_weights(number, seed)
        for node_id in self._held.pop((number, seed), set()) & self._cluster.nodes.keys():
            self._drop(node_id, [(number, seed)])

    def _drop(self, node_id: str, runs: Sequence[tuple[int, int]]) -> None:
        self._cluster.consult(node_id, partial(drop, self._runner.night, tuple(runs)))

    def close(self) -> None:
        self._closing = True
        self._end_jobs()
        deadline = time.monotonic() + CLOSE_S
        while any(slot.job is not None for slot in self._slots.values()) and time.monotonic() < deadline:
            self._pump(0.1)
        self._drop_copies()
        self._lose_all("the night ended")
        self._cluster.close()

    def _drop_copies(self) -> None:
        """Delete on the nodes the weights that are here as well."""
        here = {run: nodes for run, nodes in self._held.items() if self._runner.weights(*run).is_file()}
        for node_id in self._cluster.nodes:
            runs = [run for run, nodes in here.items() if node_id in nodes]
            if runs:
                self._drop(node_id, runs)

    # ---- what goes with a job, and comes back ----

    def _take(self, slot: Slot, job: Job, returned: Returned) -> None:
        """Take a job's result and its files, or decide that it has to be done again."""
        wrong = unusable(job, returned)
        returned = Returned(unwell=wrong) if wrong is not None else returned
        result, why = returned.result, returned.unwell or returned.error
        others = {other.node.id for other in self._slots.values()} - {slot.node.id}
        if why is not None and (returned.unwell or others):
            self._fail(slot, job, why)
            return
        self._failures.forget(slot.node.id)
        if isinstance(job, Measure):
            remove(self._runner.run_folder(job.attempt, job.seed))
            if isinstance(result, Run) and result.weights_bytes is not None:
                self._held[job.attempt, job.seed] = {slot.node.id}
        take_files(self._runner, returned.files)
        error = MachineError(returned.error) if returned.error is not None else None
        self._ended.append(Ended(slot.name, job, result, error))

    def _end_killed(self, slot: Slot, job: Job, why: str) -> None:
        """End a job whose process was killed while its node went on: void once, and then the script's."""
        self._failures.forget(slot.node.id)
        key = (type(job), job.attempt, 0 if isinstance(job, Trial) else job.seed)
        why = f"{why} on {slot.node.name}"
        if isinstance(job, Measure) and job.may_be_void:
            self._ended.append(Ended(slot.name, job, Run(job.seed, Ending.SPOILT, None, 0.0, None, why)))
        elif not isinstance(job, Measure) and key not in self._killed:
            self._killed.add(key)
            if isinstance(job, AuditRun):
                self.begin(slot.name, job)  # where the weights are
            else:
                self._lose(slot, why)
        elif job.attempt:
            self._ended.append(Ended(slot.name, job, _counted(job, f"{why}, for the second time")))
        else:
            again = typed("run", "--tag", self._runner.night.tag)
            self._ended.append(Ended(slot.name, job, error=MachineError(f"{why}; see why, and go on with: {again}")))

    def _fail(self, slot: Slot, job: Job, why: str, rest_s: float | None = None) -> None:
        """Lose a job that has failed by its node; end the night where all nodes have failed again and again.

        rest_s: of this worker; None: its node rests.
        """
        node = slot.node
        if self._failures.note(slot, self._slots.values()):
            error = MachineError(given_up(node.name, why, self._runner.night.tag))
            self._ended.append(Ended(slot.name, job, error=error))
            return
        if rest_s is None:
            self._rest(node.id, UNWELL_REST_S, f"node {node.name} gets no work for {UNWELL_REST_S:.0f} s: {why}")
        else:
            slot.rests_until = time.monotonic() + rest_s
        self._lose(slot, why)

    # ---- events ----

    def _pump(self, wait_s: float) -> None:
        """Take the broker's events; reconnect if it has ended."""
        if not self._cluster.is_started and not self._closing and time.monotonic() > self._next_start:
            self._next_start = time.monotonic() + AGAIN_S
            self._cluster.start()
        try:
            for event in self._cluster.events(wait_s):
                self._hear(event)
        except EOFError:
            if self._slots:
                self._news.append(f"the Ray cluster is gone, and is asked for again: {self._cluster.why_not}")
            self._lose_all("the Ray cluster is gone")
            self._next_start = time.monotonic() + AGAIN_S

    def _hear(self, event: FromBroker) -> None:
        match event:
            case NodeJoined() as joined if joined.id in self._cluster.nodes:
                self._welcome(joined)
            case NodeJoined() as joined if joined.id in self._cluster.refused:
                self._news.append(self._cluster.refused[joined.id])
            case NodeLeft(node_id):
                self._part_with(node_id)
            case Progressed(worker, progress, elapsed_s) if worker in self._slots:
                self._slots[worker].note(progress, elapsed_s)
            case Consulted(number) as consulted if number in self._entering:
                self._note_weights(self._entering.pop(number), consulted.answer)
            case Consulted(number) as consulted if number == self._awaited:
                self._answer = consulted
            case Done() as done:
                self._note_done(done)

    def _part_with(self, node_id: str) -> None:
        """Lose the jobs of a node that has left, and give its place to nodes that had none."""
        gone = [slot for slot in self._slots.values() if slot.node.id == node_id]
        if gone:
            self._news.append(f"node {gone[0].node.name} has left the cluster")
        for slot in gone:
            self._lose(slot, "its node has left")
            del self._slots[slot.name]
        at_work = {slot.node.id for slot in self._slots.values()}
        for spare in [joined for joined in self._cluster.nodes.values() if joined.id not in at_work]:
            self._welcome(spare)

    def _note_done(self, done: Done) -> None:
        slot, returned = self._slots.get(done.worker), done.outcome
        if slot is None or slot.job is None or slot.number != done.number:
            return
        job = slot.job
        if returned is not None:
            self._take(slot, job, returned)
        elif done.was_killed and not self._closing:
            self._end_killed(slot, job, done.lost or "it was killed")
        else:
            self._fail(slot, job, done.lost or "it is not known why", LOST_REST_S)
        if slot.number == done.number:
            slot.job = None

    def _welcome(self, joined: NodeJoined) -> None:
        """Give a node's workers work, unless its scores would not compare, or there are enough workers."""
        why = different(joined, self._runner.night)
        if why is not None:
            self._cluster.refused[joined.id] = why
            del self._cluster.nodes[joined.id]
            self._news.append(why)
            return
        if joined.name in {slot.node.name for slot in self._slots.values()}:
            joined = replace(joined, name=f"{joined.name} {joined.id[:4]}")
        content = self._cluster.content
        assert content is not None
        shares = shares_of_node(joined, *needs_on(joined, content))
        for name, share in list(shares.items())[: self._most - len(self._slots)]:
            self._slots[name] = Slot(name, joined, share, rests_until=time.monotonic() + ENTER_S)
        self._entering[self._cluster.consult(joined.id, partial(enter, self._runner.night, content))] = joined.id
        if self._is_open:
            self._news.append(f"node {joined.name} has joined: {joined.device and joined.device.device}")

    def _rest(self, node_id: str, rest_s: float, why: str | None) -> None:
        self._news += [why] if why is not None else []
        for slot in self._slots.values():
            if slot.node.id == node_id:
                slot.rests_until = time.monotonic() + rest_s

    def _lose(self, slot: Slot, why: str) -> None:
        if slot.job is not None:
            self._ended.append(Ended(slot.name, slot.job, lost=f"worker {slot.name}: {why}"))
        slot.job = None

    def _lose_all(self, why: str) -> None:
        for slot in self._slots.values():
            self._lose(slot, why)
        self._slots.clear()

    def _end_jobs(self) -> None:
        for slot in self._slots.values():
            if slot.job is not None:
                self._cluster.send(EndJob(slot.name))

    # ---- questions ----

    def _note_weights(self, node_id: str, runs: object) -> None:
        """Note which weights a node has from an earlier call of the night, if it answers: it gets work from now on."""
        if isinstance(runs, tuple):
            for run in runs:
                self._held.setdefault(run, set()).add(node_id)
            self._rest(node_id, 0.0, None)

    def _ask(self, node_id: str, call: NodeCall, most_s: float = FETCH_S) -> object:
        """Return a node's answer; raise MachineError without one."""
        self._answer, self._awaited = None, self._cluster.consult(node_id, call)
        self._wait_for(lambda: self._answer is not None or node_id not in self._cluster.nodes, most_s)
        consulted = self._answer
        if consulted is None or consulted.why is not None:
            raise MachineError(consulted.why if consulted and consulted.why else "it gave no answer")
        return consulted.answer

    def _wait_for(self, is_so: Callable[[], bool], most_s: float) -> None:
        deadline = time.monotonic() + most_s
        while not is_so() and time.monotonic() < deadline:
            self._pump(0.1)


def _counted(job: Job, why: str) -> Result:
    """Return the result of a job that counts though its process was killed."""
    match job:
        case Measure():
            return Run(job.seed, Ending.EXCEEDED, None, 0.0, None, why)
        case Trial():
            return DryRun(0.0, why)
    return Audit(0, 0, 0.0, 0.0, 0.0, f"it could not be done: {why}")
