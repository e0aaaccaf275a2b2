"""Which nodes of a cluster take part in a night, and what their workers are called."""

from dataclasses import replace

import pytest

from agent.errors import NightError
from agent.experiment import DryRun, Ending, Night, Run, Score, Summary
from agent.pools.cluster.checks import different, most_each, unfit, unusable, usual
from agent.pools.cluster.cluster import Cluster
from agent.pools.cluster.messages import NodeDevice, NodeJoined, NodeShare, Returned, Versions
from agent.pools.cluster.slots import shares_of_node
from agent.runs.fixed import protocol
from agent.runs.jobs import Measure, Trial
from agent.sandbox.box import Open

FACTS = {"fingerprint": "text", "device_kind": "cuda", "settings": ""}
NIGHT = Night(
    tag="t", branch="b", script="train_mlx.py", base="", budget_s=300.0, seed=0, device_kind="cuda", device="H200",
    protocol=protocol(FACTS, 300.0), data="/data", started="2026-01-31T23:59:59Z",
)  # fmt: skip
H200 = NodeDevice("cuda", "H200", "text", 300.0, 16, 1 << 37, Open("a test"))
OURS = Versions("3.11", "0.32.4")
NODE = NodeJoined("0a1b2c", "10.0.0.7", 16, 2, OURS, H200)
TRIAL = Trial(attempt=0, script="first", allowance_s=10.0, scoring_s=10.0)


def run(tokens_s: float, worker: str = "10.0.0.7 gpu 0") -> Run:
    said = Summary(training_seconds=300.0, total_tokens_M=310.0 * tokens_s / 1e6, num_steps=int(3 * tokens_s))
    return Run(0, Ending.FINISHED, 0, 310.0, said, "", worker=worker)


def measure(attempt: int) -> Measure:
    return Measure(attempt=attempt, script=f"{attempt}", seed=0, allowance_s=10.0, machine=TRIAL)


def test_a_node_like_the_driver_takes_part():
    assert unfit(NODE, OURS) is None
    assert different(NODE, NIGHT) is None


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (replace(NODE, versions=Versions("3.12", "0.32.4")), "it has Python 3.12, and here it is 3.11"),
        (replace(NODE, versions=Versions("3.11", "0.32.9")), "it has MLX 0.32.9, and here it is 0.32.4"),
        (replace(NODE, versions=Versions("3.11", None)), "it has MLX not at all, and here it is 0.32.4"),
        (replace(NODE, device=None, why="its Python lacks psutil"), "its Python lacks psutil"),
    ],
)
def test_a_node_with_other_software_is_refused(node, words):
    assert words in (unfit(node, OURS) or "")


@pytest.mark.parametrize("address", ["10.0.0.1", "ray://10.0.0.1:10001", "10.0.0.1:port", "10.0.0.1:6379/", "::1"])
def test_an_address_without_its_port_is_refused_before_ray_is_asked(address):
    pytest.importorskip("ray", reason="Ray comes with uv run --group proofs")
    with pytest.raises(NightError, match="is no HOST:PORT"):
        Cluster(address)


@pytest.mark.parametrize("address", ["10.0.0.1:6379", "head:6379", "[::1]:6379", "auto", None])
def test_an_address_with_a_port_is_taken(address):
    pytest.importorskip("ray", reason="Ray comes with uv run --group proofs")
    assert Cluster(address).address == address


@pytest.mark.parametrize(
    ("device", "words"),
    [
        (replace(H200, device="H100"), "it has H100, and night t runs on H200"),
        (replace(H200, fingerprint="another text"), f"and night t has {NIGHT.protocol}"),
        (replace(H200, settings="MLX_ENABLE_TF32=0"), f"settings give protocol {NIGHT.protocol}+MLX_ENABLE_TF32=0"),
    ],
)
def test_a_node_whose_scores_would_not_compare_is_refused(device, words):
    assert words in (different(replace(NODE, device=device), NIGHT) or "")


def scored(val_bpb: float | None) -> Run:
    return replace(run(100.0), score=Score(val_bpb, 2.0))


LOSSES = {"runs/0003/seed0.losses.f32": b"\0\0\x80?"}


@pytest.mark.parametrize(
    ("job", "returned", "words"),
    [
        (measure(3), Returned(run(100.0)), None),
        (measure(3), Returned(error="the disk is gone"), None),
        (measure(3), Returned(), None),  # it was ended
        (measure(3), Returned(DryRun(1.0, None)), "a DryRun in answer to another job"),
        (measure(3), Returned(replace(run(100.0), seed=5)), "a run with seed 5 for one with seed 0"),
        (measure(3), Returned(scored(1.5), files=LOSSES), None),
        (measure(3), Returned(scored(None)), None),
        (measure(3), Returned(scored(1.5)), "none of the losses"),
        (measure(3), Returned(scored(float("nan")), files=LOSSES), "a score that is no number"),
        (measure(3), Returned(scored(1.5), files=LOSSES | {"journal.sqlite": b""}), "a file that no job has"),
        (measure(3), Returned(scored(1.5), files=LOSSES | {"runs/../stop": b""}), "a file that no job has"),
    ],
)
def test_a_node_whose_answer_is_no_result_of_its_job_is_not_believed(job, returned, words):
    found = unusable(job, returned)
    assert (found is None) if words is None else (words in (found or ""))


def test_a_night_runs_on_the_device_that_most_nodes_have_unless_it_has_one():
    h100 = replace(H200, device="H100")
    assert usual([h100, H200, H200]) == H200
    assert usual([h100, H200, H200], "H100") == h100
    assert usual([h100], "A100") == h100  # and the night says that it runs on another device
    assert usual([]) is None
    cpu = replace(H200, device_kind="cpu", device="AMD EPYC")
    assert usual([cpu, cpu, h100]) == h100


def test_cores_are_divided_so_that_all_workers_have_as_many():
    nodes = [replace(NODE, cpus=8), replace(NODE, cpus=6)]
    assert [most_each(nodes, workers) for workers in (1, 2, 3, 14, 20)] == [8, 6, 4, 1, 1]


def test_workers_are_named_after_their_node():
    assert shares_of_node(NODE, 8, 1) == dict.fromkeys(("10.0.0.7 gpu 0", "10.0.0.7 gpu 1"), NodeShare(8, 0.5))
    assert shares_of_node(NODE, 16, 0) == {"10.0.0.7": NodeShare(16, 1.0)}
    assert shares_of_node(NODE, 5, 0) == {f"10.0.0.7 share {place}": NodeShare(5, 1 / 3) for place in range(3)}
    assert shares_of_node(NODE, 17, 0) == {}
