"""Which nodes take part in a night, and what the driver makes of their answers: it believes none that cannot be."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import MachineError, NightError
from agent.experiment import Audit, DryRun, Ending, Night, Run, Score
from agent.judging.failures import training_failure
from agent.pools.cluster import Cluster, Node, different, usual
from agent.pools.node import Content, Returned, Share
from agent.pools.pool import Ended
from agent.pools.ray_pool import Killed, RayPool, shares_of_node, unusable
from agent.runs.execute import AuditRun, Job, Measure, Trial
from agent.runs.fixed import protocol
from agent.runs.runner import Runner
from agent.sandbox.box import Open
from agent.sandbox.watch import ResourceLimits

FACTS = {"fingerprint": "text", "device_kind": "cpu", "settings": "", "device": "EPYC"}
NIGHT = Night(
    tag="t", branch="b", script="train_mlx.py", base="", budget_s=300.0, seed=0, device_kind="cpu", device="EPYC",
    protocol=protocol(FACTS, 300.0), data="/data", started="2026-01-31T23:59:59Z",
)  # fmt: skip
TRIAL = Trial(attempt=0, script="first", allowance_s=10.0, scoring_s=10.0)
UNWELL = Returned(failure="its disk is full")


def a_node(name: str = "n1", facts: dict[str, Any] = FACTS) -> Node:
    return Node(name, name, 16, 0, facts)


def run(seed: int = 0) -> Run:
    return Run(seed, Ending.FINISHED, 0, 310.0, None, "")


def measure(attempt: int, *, may_be_void: bool = True) -> Measure:
    return Measure(
        attempt=attempt, script=f"{attempt}", seed=0, allowance_s=10.0, machine=TRIAL, may_be_void=may_be_void
    )


AUDIT = AuditRun(attempt=3, script="", seed=0, limit_s=9.0, machine=TRIAL)
PASSED = Audit(9, 0, 0.0, 0.0, 0.0)


# ---- nodes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["10.0.0.1", "ray://10.0.0.1:10001", "10.0.0.1:port", "::1"])
def test_an_address_without_its_port_is_refused_before_ray_is_asked(address):
    pytest.importorskip("ray", reason="Ray comes with uv run --group proofs")
    with pytest.raises(NightError, match="is no HOST:PORT"):
        Cluster(address)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, None),
        ({"device": "Xeon"}, "it has Xeon, and night t runs on EPYC, so scores would not compare"),
        ({"fingerprint": "another text"}, f"and night t has {NIGHT.protocol}"),
        ({"settings": "NIGHTSHIFT_BLAS=off"}, f"settings give protocol {NIGHT.protocol}+NIGHTSHIFT_BLAS=off"),
    ],
)
def test_a_node_whose_scores_would_not_compare_is_refused(facts, words):
    found = different(a_node(facts=FACTS | facts), NIGHT)
    assert (found is None) if words is None else (words in (found or ""))


def test_a_night_runs_on_the_device_that_most_nodes_have_unless_it_has_one():
    h100, h200, cpu = (
        {"device": name, "device_kind": kind} for name, kind in (("H100", "cuda"), ("H200", "cuda"), ("E", "cpu"))
    )
    assert usual([h100, h200, h200]) == h200
    assert usual([h100, h200, h200], "H100") == h100
    assert usual([h100], "A100") == h100  # and the night says that it runs on another device
    assert usual([]) is None
    assert usual([cpu, cpu, h100]) == h100


def test_workers_are_named_after_their_node():
    gpus = Node("i", "n", 16, 2, {"device_kind": "cuda"})
    assert shares_of_node(gpus, None) == dict.fromkeys(("n gpu 0", "n gpu 1"), Share(8, 1, 0.5))
    cores = replace(gpus, facts={"device_kind": "cpu"})
    assert shares_of_node(cores, None) == {"n": Share(16)}
    assert shares_of_node(cores, 5) == {f"n share {at}": Share(5, 0, 1 / 3) for at in range(3)}
    assert shares_of_node(cores, 17) == {}


# ---- answers ---------------------------------------------------------------------------------------------------------


def scored(val_bpb: float | None) -> Run:
    return replace(run(), score=Score(val_bpb, 2.0))


LOSSES = {"runs/0003/seed0.losses.f32": b"\0\0\x80?"}


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (Returned(run()), None),
        (Returned(), None),  # it was ended
        (Returned(DryRun(1.0, None)), "a DryRun in answer to another job"),
        (Returned(run(seed=5)), "a run with seed 5 for one with seed 0"),
        (Returned(scored(1.5), files=LOSSES), None),
        (Returned(scored(None)), None),
        (Returned(scored(1.5)), "none of the losses"),
        (Returned(scored(float("nan")), files=LOSSES), "a score that is no number"),
        *(
            (Returned(scored(1.5), files=LOSSES | {name: b""}), f"{name!r}, a file that its job does not have")
            for name in ("journal.sqlite", "runs/../stop", "runs/", "runs/0004/seed0.losses.f32", "/etc/passwd")
        ),
    ],
)
def test_a_node_whose_answer_is_no_result_of_its_job_is_not_believed(returned, words, tmp_path):
    found = unusable(runner_in(tmp_path), measure(3), returned)
    assert (found is None) if words is None else (words in (found or ""))


def runner_in(folder: Path) -> Runner:
    box, limits = Open("a test"), ResourceLimits(1, 1, 1)
    return Runner(NIGHT, folder, box, limits, None, lambda: False, lambda progress, elapsed_s: None)


class Played(Cluster):
    """A cluster whose nodes the test has, and of which nothing is asked."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.cores_each = None
        self.content = Content("", "", "off")
        self.sent: list[tuple[str, list[str]]] = []

    def look_around(self) -> None:
        pass

    def call(self, node: Node, function: Callable[..., Any], *arguments: object, share: Share = Share(0)) -> Any:  # noqa: B008
        return ()

    begin_call = call

    def send(self, node: Node, folder: str, files: Any) -> None:
        self.sent.append((node.name, [*files]))


class Pool(RayPool):
    """A pool whose jobs end as the test says, one after another on each worker."""

    outcomes: dict[str, list[Returned | Exception]]

    def _started(self, place):
        return object()

    def _returned(self, place, job):
        outcome = self.outcomes[place.worker.name].pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def make(tmp_path, request):
    def made(*nodes: Node, cores_each: int | None = None) -> Pool:
        cluster = Played(*nodes)
        cluster.cores_each = cores_each
        pool = Pool(cluster, runner_in(tmp_path / "t"), 2)
        pool.outcomes = {}
        request.addfinalizer(pool.close)
        return pool

    return made


def ended(pool: Pool, job: Job, **outcomes: Any) -> list[Ended]:
    """How jobs end that begin at the same time, on the worker of each name; lists: of a job that is done again."""
    for worker, outcome in outcomes.items():
        pool.outcomes[worker] = outcome if isinstance(outcome, list) else [outcome]
        pool.begin(worker, job)
    found: list[Ended] = []
    deadline = time.monotonic() + 10.0
    while len(found) < len(outcomes) and time.monotonic() < deadline:
        found += pool.ended(0.1)
    for node in pool._cluster.nodes.values():
        node.rests_until = 0.0
    return sorted(found, key=lambda one: one.worker)


def test_an_answer_that_cannot_be_is_no_result_and_its_node_rests(make):
    pool = make(a_node())
    wrong = Returned(run(seed=99), files={"runs/0003/seed0/log.txt": b"words"})
    pool.outcomes["n1"] = [wrong]
    pool.begin("n1", measure(3))
    (end,) = pool.ended(5.0)
    assert (end.result, end.lost) == (None, "worker n1: it sent a run with seed 99 for one with seed 0")
    assert pool.free_for(measure(3)) is None
    assert "node n1 gets no work for 60 s: it sent a run with seed 99" in pool.news()[-1]
    assert not (pool._runner.folder / "runs").exists()


def test_where_all_nodes_have_left_no_worker_is_free_and_one_is_expected(make):
    pool = make(a_node())
    (node,) = pool._cluster.nodes.values()
    pool._cluster.nodes = {}
    pool.ended(0.0)
    assert (pool.workers, pool.free_for(measure(3)), pool.expects_workers) == ((), None, True)
    pool._watched_s = -1.0  # long ago
    pool._cluster.nodes = {"other": replace(node, id="other")}  # it comes back
    pool.ended(0.0)
    assert pool.free_for(measure(3)) == pool.workers[0]
    assert pool.news()[-2:] == ["node n1 has left the cluster", "node n1 has joined: EPYC"]


def test_an_only_node_that_fails_three_times_in_a_row_ends_the_night_and_says_how_it_goes_on(make):
    pool = make(a_node())
    for outcome in (UNWELL, UNWELL, Returned(run()), UNWELL, UNWELL):  # a job that is done ends a row
        (end,) = ended(pool, measure(3), n1=outcome)
        assert (end.lost, end.error) == (None if outcome.result else "worker n1: its disk is full", None)
    (end,) = ended(pool, measure(3), n1=UNWELL)
    assert isinstance(end.error, MachineError)
    assert "node n1 failed 3 times in a row, now with: its disk is full; repair that and " in str(end.error)
    assert str(end.error).endswith("run --tag t")


def test_jobs_that_fail_at_the_same_time_are_one_failure(make):
    pool = make(a_node(), cores_each=8)
    for _ in range(2):
        ends = ended(pool, measure(3), **dict.fromkeys(("n1 share 0", "n1 share 1"), UNWELL))
        assert [end.error for end in ends] == [None, None]


def test_a_night_goes_on_while_one_of_its_nodes_does_its_work(make):
    pool = make(a_node("n1"), a_node("n2"))
    for _ in range(4):
        good, bad = ended(pool, measure(3), n1=Returned(run()), n2=UNWELL)
        assert (bad.error, bad.lost, good.result) == (None, "worker n2: its disk is full", run())


def test_a_job_that_ended_since_its_driver_was_not_heard_is_done_again(make):
    (end,) = ended(make(a_node()), measure(3), n1=Returned())
    assert end.lost == "worker n1: it was not asked for 15 s"


# ---- a job whose process is killed -----------------------------------------------------------------------------------


def test_a_run_whose_process_is_killed_is_void_once_and_then_its_scripts(make):
    pool = make(a_node())
    (first,) = ended(pool, measure(3), n1=Killed())
    (last,) = ended(pool, measure(3, may_be_void=False), n1=Killed())
    assert (first.result.ending, last.result.ending) == (Ending.SPOILT, Ending.EXCEEDED)
    assert training_failure(last.result) == "its process was killed on n1, for the second time"


def test_a_dry_run_or_an_audit_that_is_killed_is_done_again_and_then_has_failed(make):
    pool = make(a_node())
    ended(pool, measure(3), n1=Returned(replace(run(), weights_bytes=9)))
    for job in (replace(TRIAL, attempt=3, machine=TRIAL), AUDIT):
        good = Returned(PASSED if job is AUDIT else DryRun(1.0, None))
        (end,) = ended(pool, job, n1=[Killed(), good])
        assert end.result == good.result
        (end,) = ended(pool, job, n1=[Killed(), Killed()])
        assert "its process was killed on n1, for the second time" in end.result.failure
    (end,) = ended(pool, measure(0, may_be_void=False), n1=Killed())
    assert (end.result, end.lost) == (None, "worker n1: its process was killed on n1, for the second time")


# ---- weights ---------------------------------------------------------------------------------------------------------


def test_an_audit_goes_to_the_node_with_the_weights_and_is_lost_without_them(make):
    pool = make(a_node("n1"), a_node("n2"))
    ended(pool, measure(3), n2=Returned(replace(run(), weights_bytes=9)))
    assert pool.free_for(AUDIT) == "n2"
    del pool._cluster.nodes["n2"]
    assert pool.free_for(AUDIT) == "n1"
    (end,) = ended(pool, AUDIT, n1=Returned(PASSED))
    assert end.lost == "worker n1: the node with its weights is gone"
    weights = pool._runner.weights(3, 0)
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"of a kept attempt")
    ended(pool, AUDIT, n1=Returned(PASSED))
    assert pool._cluster.sent[-1] == ("n1", ["runs/0003/seed0/out/model.safetensors"])
