"""Which nodes take part in a night, and what the driver makes of their answers: it believes none that cannot be."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from jobs import AUDIT, MEASURE, runner_in
from nights import PROJECT
from samples import NIGHT

from agent.errors import MachineError, NightError
from agent.experiment import Audit, DryRun, Ending, Run, Score
from agent.judging.failures import process_failure
from agent.pools.cluster import Cluster, ClusterNode, different, usual
from agent.pools.node import Content, Returned
from agent.pools.pool import Ended
from agent.pools.ray_pool import Killed, RayPool, files_for, unusable
from agent.runs.fixed import protocol
from agent.runs.jobs import Job

FACTS = {"fingerprint": "text", "device_kind": "cpu", "settings": "", "device": "EPYC"}
HERE = replace(NIGHT, device="EPYC", protocol=protocol(FACTS, NIGHT.budget_s))
RUN = Run(0, Ending.FINISHED, 0, 310.0, None, "")
PASSED = Audit(9, 0.0, 0.0)
DONE, UNWELL = Returned(RUN), Returned(failure="its disk is full")


def a_node(name: str = "n1", facts: dict[str, Any] = FACTS) -> ClusterNode:
    return ClusterNode(name, name, 16, 0, facts)


# ---- its process -----------------------------------------------------------------------------------------------------


def test_ctrl_c_interrupts_before_the_night_opens_however_native_code_takes_it():
    code = """
import os, signal, time
from agent.pools.cluster import outlive_cluster
try:
    outlive_cluster()
except KeyboardInterrupt:
    raise SystemExit(130)
signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGSEGV))
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""
    waits = subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT, stdout=subprocess.PIPE)
    assert waits.stdout is not None
    assert waits.stdout.readline() == b"ready\n"
    for _ in range(100):  # one that comes in the microsecond before a wait is seen with the next; not while it ends
        waits.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            waits.wait(5)
            break
    assert waits.returncode == 130
    waits.stdout.close()


# ---- nodes -----------------------------------------------------------------------------------------------------------


def test_an_address_without_its_port_is_refused_before_ray_is_asked():
    pytest.importorskip("ray", reason="Ray comes with uv run --group proofs")
    for address in ("10.0.0.1", "ray://10.0.0.1:10001"):
        with pytest.raises(NightError, match="is no HOST:PORT"):
            Cluster(address)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, None),
        ({"device": "Xeon"}, "it has Xeon, and night t runs on EPYC, so scores would not compare"),
        ({"fingerprint": "another text"}, f"and night t has {HERE.protocol}"),
        ({"settings": "NIGHTSHIFT_BLAS=off"}, f"settings give protocol {HERE.protocol}+NIGHTSHIFT_BLAS=off"),
    ],
)
def test_a_node_whose_scores_would_not_compare_is_refused(facts, words):
    why = different(a_node(facts=FACTS | facts), HERE)
    assert (why is None) if words is None else (words in (why or ""))


def test_a_night_runs_on_the_device_that_most_nodes_have_unless_it_has_one():
    h100, h200 = ({"device": name, "device_kind": "cuda"} for name in ("H100", "H200"))
    assert usual([h100, h200, h200]) == h200
    assert usual([h100, h200, h200], "H100") == h100
    assert usual([FACTS, FACTS, h100]) == h100


# ---- answers ---------------------------------------------------------------------------------------------------------


def scored(val_bpb: float | None) -> Run:
    return replace(RUN, score=Score(val_bpb, 2.0))


LOSSES = {"runs/0003/seed0.losses.f32": b"\0\0\x80?", "runs/0003/seed0/out/model.safetensors": b"weights"}


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (Returned(), None),  # the driver asked to end the job
        (Returned(DryRun(1.0, None)), "the result of another job"),
        (Returned(replace(RUN, seed=5)), "the result of another job"),
        (Returned(scored(1.5), files=LOSSES), None),
        (Returned(scored(None)), None),
        (Returned(scored(1.5)), "none of the losses"),
        (Returned(scored(float("nan")), files=LOSSES), "a score that is no number"),
        *(
            (Returned(scored(1.5), files=LOSSES | {name: b""}), f"{name!r}, a file that its job does not have")
            for name in ("journal.sqlite", "runs/../stop", "runs/0004/seed0.losses.f32", "/etc/passwd")
        ),
    ],
)
def test_a_node_whose_answer_is_no_result_of_its_job_is_not_believed(returned, words, tmp_path):
    why = unusable(runner_in(tmp_path), MEASURE, returned)
    assert (why is None) if words is None else (words in (why or ""))


def test_an_audit_gets_the_weights_and_losses_that_the_night_has(tmp_path):
    runner = runner_in(tmp_path)
    for number, seed in ((3, 0), (0, 1)):
        runner.weights(number, seed).parent.mkdir(parents=True)
        runner.weights(number, seed).write_bytes(b"weights")
        runner.losses(number, seed).write_bytes(b"losses")
    names = ["runs/0003/seed0/out/model.safetensors", "runs/0003/seed0.losses.f32", "runs/0000/seed1.losses.f32"]
    assert [*files_for(runner, replace(AUDIT, reference=(0, 1)))] == names
    runner.weights(3, 0).unlink()
    runner.weights(3, 0).symlink_to("/etc/passwd")  # a link of a script that an earlier run has left
    assert [*files_for(runner, AUDIT)] == names[1:2]


class Played(Cluster):
    """A cluster whose nodes the test has, and of which nothing is asked."""

    def __init__(self, *nodes: ClusterNode) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.cores_each = None
        self.content = Content("", "", "off")

    def refresh_nodes(self) -> None:
        pass

    def call(self, node: ClusterNode, function: Callable[..., Any], *arguments: object, part: Any = None) -> Any:
        pass


class Pool(RayPool):
    """A pool whose jobs end as the test says, one after another on each worker."""

    outcomes: dict[str, list[Returned | Exception]]

    def _started(self, worker):
        return object()

    def _returned(self, worker, job):
        outcome = self.outcomes[worker.name].pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def make(tmp_path, request):
    def made(*nodes: ClusterNode, cores_each: int | None = None) -> Pool:
        cluster = Played(*nodes)
        cluster.cores_each = cores_each
        pool = Pool(cluster, replace(runner_in(tmp_path / "t"), night=HERE), 2)
        pool.outcomes = {}
        request.addfinalizer(pool.close)
        return pool

    return made


def ended(pool: Pool, job: Job, **outcomes: Any) -> list[Ended]:
    """How jobs end that begin at the same time, on the worker of each name; lists: of a job that is done again."""
    for worker, outcome in outcomes.items():
        pool.outcomes[worker] = outcome if isinstance(outcome, list) else [outcome]
        pool.begin(worker, job)
    ends: list[Ended] = []
    deadline = time.monotonic() + 10.0
    while len(ends) < len(outcomes) and time.monotonic() < deadline:
        ends += pool.ended(0.1)
    for node in pool._cluster.nodes.values():
        node.rests_until = 0.0
    return sorted(ends, key=lambda end: end.worker)


def test_an_answer_that_cannot_be_is_no_result_and_its_node_rests(make):
    pool = make(a_node())
    pool.outcomes["n1"] = [Returned(replace(RUN, seed=99), files={"runs/0003/seed0/log.txt": b"words"})]
    pool.begin("n1", MEASURE)
    (end,) = pool.ended(5.0)
    assert (end.result, end.lost) == (None, "worker n1: it sent the result of another job")
    assert pool.free is None
    assert "node n1 gets no work for 60 s: it sent the result of another job" in pool.news()[-1]
    assert not (pool._runner.folder / "runs").exists()


def test_an_only_node_that_fails_three_times_in_a_row_ends_the_night_and_says_how_it_goes_on(make):
    pool = make(a_node(), cores_each=8)
    two = "n1 share 0", "n1 share 1"
    for outcome in (UNWELL, UNWELL, DONE, UNWELL, UNWELL):  # a job that is done ends a row
        for end in ended(pool, MEASURE, **dict.fromkeys(two, outcome)):  # failures at the same time are one
            assert (end.lost, end.error) == (None if end.result else f"worker {end.worker}: its disk is full", None)
    (end,) = ended(pool, MEASURE, **{two[0]: UNWELL})
    assert isinstance(end.error, MachineError)
    assert "node n1 failed 3 times in a row, now with: its disk is full; repair that and " in str(end.error)


def test_a_job_whose_process_is_killed_is_done_again_once_and_then_counts(make):
    pool = make(a_node())
    last_try = replace(MEASURE, may_be_repeated=False)
    (first,) = ended(pool, MEASURE, n1=Killed())
    (last,) = ended(pool, last_try, n1=Killed())
    assert (first.result.ending, last.result.ending) == (Ending.INVALID, Ending.EXCEEDED)
    assert process_failure(last.result) == "its process was killed on n1, at its last try"
    (end,) = ended(pool, AUDIT, n1=[Killed(), Returned(PASSED)])
    assert end.result == PASSED
    (end,) = ended(pool, AUDIT, n1=[Killed(), Killed()])
    assert "its process was killed on n1, at its last try" in end.result.failure
