"""Answers of nodes that cannot be, or come too late: the driver believes none of them, and goes on."""

from dataclasses import replace
from pathlib import Path

import pytest
from test_cluster_nodes import FACTS, H200, NIGHT, NODE, TRIAL, measure, run

from agent.errors import MachineError
from agent.experiment import Ending, Run
from agent.judging.failures import training_failure
from agent.pools.cluster.cluster import Cluster
from agent.pools.cluster.messages import (
    BeginJob,
    Consult,
    Consulted,
    Content,
    Done,
    FromBroker,
    NodeJoined,
    NodeLeft,
    Returned,
    ToBroker,
)
from agent.pools.cluster.pool import RayPool
from agent.pools.pool import Ended
from agent.runs.fixed import protocol
from agent.runs.jobs import AuditRun, Job
from agent.runs.runner import Runner
from agent.sandbox.box import Open
from agent.sandbox.watch import ResourceLimits

HERE = replace(NODE, gpus=1, device=replace(H200, device_kind="cpu"), versions=None)

UNWELL = Returned(unwell="its disk is full")


class Played(Cluster):
    """A cluster whose broker is the test: it reads the orders, and says what has happened."""

    def __init__(self) -> None:
        super().__init__("10.0.0.1:6379")
        self.orders: list[BeginJob] = []
        self.said: list[FromBroker] = []
        self.content = Content({}, {}, "", "", "off", 16)

    @property
    def is_started(self) -> bool:
        return True

    def send(self, order: ToBroker) -> None:
        if isinstance(order, Consult):
            self.said.append(Consulted(order.number, ()))
        elif isinstance(order, BeginJob):
            self.orders.append(order)

    def events(self, wait_s: float) -> list[FromBroker]:
        found, self.said = self.said, []
        for event in found:
            if isinstance(event, NodeJoined):
                self.nodes[event.id] = event
            elif isinstance(event, NodeLeft):
                del self.nodes[event.node_id]
        return found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setattr("agent.pools.cluster.cluster.find_spec", lambda name: True)  # Ray has no part in this
    return Played()


@pytest.fixture
def pool(cluster: Played, tmp_path: Path) -> RayPool:
    return pool_on(cluster, tmp_path, 1)


def pool_on(cluster: Played, tmp_path: Path, workers: int) -> RayPool:
    cluster.nodes[HERE.id] = HERE
    box, limits = Open("a test"), ResourceLimits(1, 1, 1)
    night = replace(NIGHT, device_kind="cpu", protocol=protocol(FACTS | {"device_kind": "cpu"}, 300.0))
    runner = Runner(night, tmp_path / "t", box, limits, None, lambda: False, lambda progress, elapsed_s: None)
    return RayPool(cluster, runner, workers)


def begun(pool: RayPool, cluster: Played, attempt: int) -> BeginJob:
    """The order for a job that was just begun."""
    (worker,) = pool.workers
    pool.begin(worker, measure(attempt))
    return cluster.orders[-1]


def heard(pool: RayPool, cluster: Played, *events: FromBroker) -> list[Ended]:
    cluster.said += events
    return list(pool.ended(0.0))


def test_a_result_is_taken_once(pool, cluster):
    order = begun(pool, cluster, 3)
    done = Done(order.perform.worker, order.number, Returned(run(100.0)))
    (ended,) = heard(pool, cluster, done, done)
    assert isinstance(ended.result, Run)


def test_an_answer_that_cannot_be_is_no_result_and_its_node_rests(pool, cluster):
    order = begun(pool, cluster, 3)
    wrong = Returned(replace(run(100.0), seed=99), files={"runs/0003/seed0/log.txt": b"words"})
    (ended,) = heard(pool, cluster, Done(order.perform.worker, order.number, wrong))
    assert (ended.result, "it sent a run with seed 99" in (ended.lost or "")) == (None, True)
    assert pool.free_for(measure(3)) is None
    (said,) = pool.news()
    assert "gets no work for 60 s: it sent a run with seed 99 for one with seed 0" in said
    assert not (pool._runner.folder / "runs").exists()


def test_where_all_nodes_have_left_no_worker_is_free_and_one_is_expected(pool, cluster):
    assert heard(pool, cluster, NodeLeft(HERE.id)) == []
    assert (pool.workers, pool.free_for(measure(3)), pool.expects_workers) == ((), None, True)
    assert heard(pool, cluster, HERE) == []
    assert heard(pool, cluster) == []  # it has answered what it holds
    assert pool.free_for(measure(3)) == pool.workers[0]


def lost(order: BeginJob) -> Done:
    """Word of a job that has no end, for its node."""
    return Done(order.perform.worker, order.number, lost="its node has left")


def done(order: BeginJob, returned: Returned | None) -> Done:
    """Word of a job that has ended; None: its process was killed."""
    if returned is not None:
        return Done(order.perform.worker, order.number, returned)
    return Done(order.perform.worker, order.number, lost="its process was killed", was_killed=True)


def fails(pool: RayPool, cluster: Played, attempt: int, *outcomes: Returned | None) -> list[Ended]:
    """A job of the attempt for each outcome, all at the same time; None: it was lost. No worker rests then."""
    orders = []
    for worker in [one for one in pool.workers if one not in pool.at_work][: len(outcomes)]:
        pool.begin(worker, measure(attempt))
        orders.append(cluster.orders[-1])
    ended = []
    for order, returned in zip(orders, outcomes, strict=True):
        ended += heard(pool, cluster, done(order, returned) if returned is not None else lost(order))
    for slot in pool._slots.values():
        slot.rests_until = 0.0
    return [*ended, *heard(pool, cluster)]


@pytest.mark.parametrize("outcome", [UNWELL, None])
def test_an_only_node_that_fails_again_and_again_ends_the_night_and_says_how_it_goes_on(pool, cluster, outcome):
    why = "its disk is full" if outcome else "its node has left"
    for _ in range(2):
        (ended,) = fails(pool, cluster, 3, outcome)
        assert (ended.lost, ended.error) == (f"worker {ended.worker}: {why}", None)
    rests = ["gets no work for 60 s"] * 2 if outcome else []
    assert [said.partition(": ")[0] for said in pool.news()] == [f"node {HERE.name} {rest}" for rest in rests]
    (ended,) = fails(pool, cluster, 3, outcome)
    assert isinstance(ended.error, MachineError)
    assert f"node {HERE.name} failed 3 times in a row or more, now with: {why}; repair that and " in str(ended.error)
    assert "run --tag t (" in str(ended.error)


def test_a_job_that_is_done_ends_a_row_of_failures(pool, cluster):
    for outcome in (UNWELL, UNWELL, Returned(run(100.0)), UNWELL, UNWELL):
        (ended,) = fails(pool, cluster, 3, outcome)
        assert ended.error is None


def test_jobs_that_fail_at_the_same_time_are_one_failure(cluster, tmp_path):
    cluster.content = replace(cluster.content, cores_each=8)
    pool = pool_on(cluster, tmp_path, 2)
    for _ in range(2):
        assert [ended.error for ended in fails(pool, cluster, 3, UNWELL, UNWELL)] == [None, None]
    assert any(ended.error for ended in fails(pool, cluster, 3, UNWELL, UNWELL))


def test_a_night_goes_on_while_one_of_its_nodes_does_its_work(cluster, tmp_path):
    cluster.nodes["other"] = replace(HERE, id="other", name="n2")  # the first that gets work
    pool = pool_on(cluster, tmp_path, 2)
    for _ in range(7):
        bad, good = fails(pool, cluster, 3, UNWELL, Returned(run(100.0)))
        assert (bad.error, good.error) == (None, None)
    assert pool.news()[-1].startswith("node n2 gets no work for 60 s: ")


def test_what_is_heard_of_an_earlier_job_is_not_taken_for_the_present_one(pool, cluster):
    """The node had left and come back: its worker has the same name, and another job."""
    earlier = begun(pool, cluster, 3)
    again = replace(HERE, id="another")
    (lost,) = heard(pool, cluster, NodeLeft(HERE.id), again) + heard(pool, cluster)
    assert "its node has left" in (lost.lost or "")
    assert cluster.nodes == {"another": again}
    order = begun(pool, cluster, 4)
    assert order.perform.worker == earlier.perform.worker
    late = Done(earlier.perform.worker, earlier.number, Returned(run(100.0)))
    later = Done(earlier.perform.worker, earlier.number, lost="its process was killed")
    assert heard(pool, cluster, late, later) == []
    assert [*pool.at_work] == [order.perform.worker]
    (ended,) = heard(pool, cluster, Done(order.perform.worker, order.number, Returned(run(100.0))))
    assert ended.job.attempt == 4


# ---- a job whose process is killed -----------------------------------------------------------------------------------


def killed(pool: RayPool, cluster: Played, job: Job) -> Ended | None:
    """What comes of a job whose process is killed on the worker that it goes to."""
    worker = pool.free_for(job)
    assert worker is not None
    pool.begin(worker, job)
    return next(iter(heard(pool, cluster, done(cluster.orders[-1], None))), None)


def test_a_run_whose_process_is_killed_is_void_once_and_then_its_scripts(pool, cluster):
    first, last = (killed(pool, cluster, replace(measure(3), may_be_void=may_be)) for may_be in (True, False))
    assert first is not None
    assert isinstance(first.result, Run)
    assert first.result.ending is Ending.SPOILT
    assert last is not None
    assert isinstance(last.result, Run)
    assert last.result.ending is Ending.EXCEEDED
    assert training_failure(last.result) == f"its process was killed on {HERE.name}, for the second time"


def test_a_dry_run_that_is_killed_again_has_failed_and_attempt_0_ends_the_night(pool, cluster):
    job = replace(TRIAL, attempt=3, machine=TRIAL)
    first, last = (killed(pool, cluster, job) for _ in range(2))
    assert first.lost == f"worker {HERE.name}: its process was killed on {HERE.name}"
    assert last.result.failure.startswith("its process was killed on ")
    own = killed(pool, cluster, replace(measure(0), may_be_void=False))
    assert isinstance(own.error, MachineError)
    assert "nightshift run --tag t" in str(own.error)


@pytest.mark.parametrize("attempt", [3, 0])
def test_an_audit_that_is_killed_is_done_again_where_the_weights_are_and_no_run_is_drawn_again(pool, cluster, attempt):
    begun(pool, cluster, attempt)
    heard(pool, cluster, done(cluster.orders[-1], Returned(replace(run(100.0), weights_bytes=9))))
    job = AuditRun(attempt=attempt, script="", seed=0, limit_s=9.0, machine=TRIAL)
    assert killed(pool, cluster, job) is None
    assert cluster.orders[-1].perform.job == job
    (last,) = heard(pool, cluster, done(cluster.orders[-1], None))
    if attempt:
        assert "its process was killed on " in last.result.failure
    else:
        assert "go on with: nightshift run --tag t" in str(last.error)


def test_a_node_that_leaves_is_not_the_edits_fault(cluster, tmp_path):
    cluster.nodes["other"] = replace(HERE, id="other", name="n2")
    pool = pool_on(cluster, tmp_path, 2)
    pool.begin("n2", replace(measure(3), may_be_void=False))
    (ended,) = heard(pool, cluster, NodeLeft("other"))
    assert ended.lost == "worker n2: its node has left"
