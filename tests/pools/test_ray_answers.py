"""Answers of nodes that cannot be, or come too late: the driver believes none of them, and goes on."""

from dataclasses import replace
from pathlib import Path

import pytest
from test_cluster_nodes import FACTS, H200, NIGHT, NODE, measure, run

from agent.experiment import Run
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
from agent.runs.runner import Runner
from agent.sandbox.box import Open
from agent.sandbox.limits import ResourceLimits

HERE = replace(NODE, gpus=1, device=replace(H200, device_kind="cpu"), versions=None)


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
    cluster.nodes[HERE.id] = HERE
    box, limits = Open("a test"), ResourceLimits(1, 1, 1)
    night = replace(NIGHT, device_kind="cpu", protocol=protocol(FACTS | {"device_kind": "cpu"}, 300.0))
    runner = Runner(night, tmp_path / "t", box, limits, None, lambda: False, lambda progress, elapsed_s: None)
    return RayPool(cluster, runner, 1)


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
    assert heard(pool, cluster, Done(order.perform.worker, order.number, wrong)) == []
    (said,) = pool.news()
    assert "gets no work for a while: it sent a run with seed 99 for one with seed 0" in said
    assert not (pool._runner.folder / "runs").exists()
    for slot in pool._slots.values():
        slot.rests_until = 0.0
    (ended,) = heard(pool, cluster)
    assert "it sent a run with seed 99" in (ended.lost or "")


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
