"""A night on a cluster of two nodes, and scripts whose process of Ray is killed wherever they run."""

import pytest
from nights import unigram
from rays import Followed, cluster, processes_in

from agent.experiment import Ending, Kind, Status

pytest.importorskip("ray", reason="Ray comes with uv run --group proofs")
pytestmark = pytest.mark.slow
TRAINS, LOADS = "    data = prepare.load_data(verify=False)\n", "def load_model(weights_path: str) -> Unigram:\n"
KILLS = """
    import psutil
    above = psutil.Process().parents()
    next(one for one in above if one.name().startswith("ray::NodeWorker")).kill()
    time.sleep(60)
"""


def test_scripts_whose_process_is_killed_again_and_again_end_and_the_night_goes_on(grounds, tmp_path):
    ideas = [
        unigram(SHARPNESS=0.6).replace(TRAINS, KILLS + TRAINS),
        unigram(SHARPNESS=0.7).replace(LOADS, LOADS + KILLS),
        unigram(SHARPNESS=0.8),
    ]
    for number, idea in enumerate(ideas, 1):
        (tmp_path / f"{number}.py").write_text(idea)
        grounds.nightshift("submit", str(tmp_path / f"{number}.py"), "-m", f"idea {number}")
    with cluster() as nodes:
        nodes.start("head", cpus=0)
        nodes.start("b")
        nodes.start("c")
        night = Followed(
            grounds, "--tag", "k", "--pool", "ray", "--ray-address", nodes.address, "--workers", "2",
            "--cores-each", "1", "--budget-s", "1", "--sandbox", "off", "--judge", "greedy", "--no-report",
            "--proposer", "queue", "--experiments", "3",
        )  # fmt: skip
        try:
            assert night.end() == 0, night.said
        finally:
            night.process.kill()
    trains, scores, well = grounds.attempts("k")[1:]
    assert [run.ending for run in trains.runs] == [Ending.SPOILT, Ending.EXCEEDED], night.said
    assert night.said.count("this run of #1 does not count and is done again: its process was killed on ") == 1
    assert [run.ending for run in scores.runs] == [Ending.SPOILT, Ending.EXCEEDED], night.said
    for one in (trains, scores):
        assert one.kind is Kind.CRASHED
        assert one.decision.reason.startswith("its process was killed on ")
        assert one.decision.reason.endswith(", for the second time")
    assert well.status is Status.KEEP
    assert processes_in(nodes.folder, grounds.root) == []
