"""A night on a cluster of several nodes, while one loses its corpus, one its power, and then the head goes down."""

import pytest
from nights import Grounds
from rays import SWEEP_S, Followed, Nodes, cluster, processes_in, wait_until

from agent.experiment import Ending, Status

pytest.importorskip("ray", reason="Ray comes with uv run --group proofs")
pytestmark = pytest.mark.slow
OPTIONS = ("--budget-s", "4", "--proposer", "search", "--judge", "greedy", "--experiments", "4", "--no-report")


def trains(nodes: Nodes, name: str) -> bool:
    return any("train_mlx.py" in words for words in processes_in(nodes.cache(name)))


def test_a_night_outlives_its_nodes_and_its_head(grounds):
    with cluster() as nodes:
        nodes.start("head", cpus=0)
        nodes.start("b")
        nodes.start("c")
        night = Followed(
            grounds, "--tag", "n", "--pool", "ray", "--ray-address", nodes.address, "--workers", "2",
            "--cores-each", "1", *OPTIONS,
        )  # fmt: skip
        try:
            go_through(grounds, nodes, night)
        finally:
            night.process.kill()
        assert wait_until(lambda: not any(trains(nodes, name) for name in "bcd"), SWEEP_S)
    attempts = grounds.attempts("n")
    assert [attempt.number for attempt in attempts] == list(range(5)), night.said
    assert all(attempt.settled and attempt.status in (Status.KEEP, Status.DISCARD) for attempt in attempts)
    assert all(len({run.seed for run in one.done_runs}) == len(one.done_runs) for one in attempts)
    assert sum(run.ending is Ending.LOST for attempt in attempts for run in attempt.runs) >= 2
    kept = [attempt for attempt in attempts if attempt.status is Status.KEEP]
    assert kept[0].number == 0
    assert processes_in(nodes.folder, grounds.root) == []


def go_through(grounds: Grounds, nodes: Nodes, night: Followed) -> None:
    """Damage, kill and start nodes while the night goes on; it must end by itself."""
    assert wait_until(lambda: trains(nodes, "c") or night.process.poll() is not None, 300), night.said
    for file in nodes.cache("c").glob("ray/corpora/*/validation*"):
        file.unlink()
        file.write_bytes(b"another text")
    assert night.says("node c gets no work for 60 s"), night.said
    assert "validation" in night.said
    assert night.says("#0 · baseline"), night.said
    nodes.kill("c")
    assert night.says("node c has left the cluster"), night.said
    assert wait_until(lambda: trains(nodes, "b"), 200), night.said
    nodes.kill("head")
    assert wait_until(lambda: not trains(nodes, "b"), SWEEP_S + 5)
    assert night.says("the Ray cluster is gone, and is asked for again"), night.said
    nodes.kill("b")
    nodes.start("head", cpus=0)
    nodes.start("d")
    assert night.end() == 0, night.said
    assert grounds.nightshift("show", "n:4").returncode == 0
