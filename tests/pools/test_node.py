"""What a node of a cluster is sent, and where it puts it: files by their checksums, and never through a link."""

import hashlib
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from nights import mounted

from agent.errors import MachineError
from agent.experiment import Night
from agent.pools import node as node_room
from agent.pools.node import NodeWorker, Share, core_sets, drop, fetch, home, lacks, lock_one, night_folder, store
from agent.pools.ray_pool import take_files
from agent.records.place import new_id
from agent.runs.execute import Measure, Trial
from agent.runs.runner import Runner
from agent.sandbox.box import Open
from agent.sandbox.watch import ResourceLimits, limits_of_machine

NIGHT = Night(
    tag="t", branch="b", script="train_mlx.py", base="", budget_s=1.0, seed=0, device_kind="cpu", device="here",
    protocol="0" * 12, data="/data", started="2026-01-31T23:59:59Z",
)  # fmt: skip
TEXT = b"0123456789" * 10
TRIAL = Trial(attempt=0, script="", allowance_s=1.0, scoring_s=1.0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))


def sha(text: bytes = TEXT) -> str:
    return hashlib.sha256(text).hexdigest()


def runner_in(folder: Path) -> Runner:
    limits = ResourceLimits(1, 1, 1)
    return Runner(NIGHT, folder, Open("a test"), limits, None, lambda: False, lambda progress, elapsed_s: None)


def test_a_file_is_sent_once_and_again_where_it_is_gone_or_has_changed():
    files = {"a": sha(), "sub/b": sha(b"other")}
    assert lacks("corpora/c", files) == ["a", "sub/b"]
    store("corpora/c", "a", TEXT)
    store("corpora/c", "sub/b", b"other")
    assert lacks("corpora/c", files) == []
    (home() / "corpora/c/a").write_bytes(b"changed later")
    (home() / "corpora/c/sub/b").unlink()
    assert lacks("corpora/c", files) == ["a", "sub/b"]


@pytest.mark.parametrize("left", ["runs/0003/seed7/out", "runs/0003/seed7/out/model.safetensors"])
def test_weights_are_not_received_through_a_link_that_a_script_has_left(tmp_path, left):
    """It had run there before: its run was lost, and made again on another node, which is gone."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "model.safetensors").write_bytes(b"precious")
    link = night_folder(NIGHT) / left
    link.parent.mkdir(parents=True)
    link.symlink_to(mine if left.endswith("out") else mine / "model.safetensors")
    there, weights = f"nights/{night_folder(NIGHT).name}", "runs/0003/seed7/out/model.safetensors"
    for content in (TEXT, b"precious"):  # the second is what the link leads to
        assert lacks(there, {weights: sha(content)}) == [weights]
        store(there, weights, content)
        assert lacks(there, {weights: sha(content)}) == []
        assert (mine / "model.safetensors").read_bytes() == b"precious"
    assert (night_folder(NIGHT) / weights).stat().st_nlink == 1  # else weights are refused


def test_files_of_a_node_are_not_written_through_what_a_script_has_left(tmp_path):
    """As in a night that went on with --pool ray after it had run on this machine."""
    mine, folder = tmp_path / "mine", tmp_path / "night"
    mine.write_text("precious")
    (folder / "runs" / "0003" / "dry").mkdir(parents=True)
    (folder / "runs" / "0003" / "dry" / "log.txt").symlink_to(mine)
    os.mkfifo(folder / "runs" / "0003" / "seed7")
    files = {"runs/0003/dry/log.txt": b"of a script", "runs/0003/seed7/out/metrics.jsonl": b"{}"}
    take_files(runner_in(folder), files)
    assert mine.read_text() == "precious"
    assert {name: (folder / name).read_bytes() for name in files} == files


def test_weights_are_fetched_and_dropped():
    weights = night_folder(NIGHT) / "runs" / "0003" / "seed7" / "out" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(TEXT)
    assert fetch(NIGHT, 3, 7) == TEXT
    drop(NIGHT, 3, 7)
    with pytest.raises(MachineError, match="the weights of #3 with seed 7 are gone"):
        fetch(NIGHT, 3, 7)


def test_two_nights_of_a_tag_that_begin_in_the_same_second_have_folders_of_their_own():
    folders = {night_folder(replace(NIGHT, id=new_id())) for _ in range(2)}
    assert len(folders | {night_folder(NIGHT)}) == 3


# ---- jobs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(tmp_path: Path) -> NodeWorker:
    """A worker that has entered a night, as open() leaves it."""
    worker = NodeWorker()
    night = replace(NIGHT, budget_s=600.0, data=str(tmp_path / "data"))
    runner = replace(runner_in(tmp_path / "t"), night=night, resource_limits=limits_of_machine())
    worker._runner = replace(runner, stopped=worker._stopped, progressed=worker._note)
    home().mkdir(parents=True)
    return worker


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_job_ends_where_the_driver_asks_for_it_or_is_not_heard_any_more(worker, monkeypatch, is_asked):
    if is_asked:
        worker.progress(is_to_end=True)
    else:
        monkeypatch.setattr(node_room, "DEAF_S", 0.5)
    script = "import time\ntime.sleep(600)\n"
    job = Measure(attempt=3, script=script, seed=0, allowance_s=60.0, machine=TRIAL)
    returned = worker.execute(job)
    assert returned.result.ending == "stopped"
    assert "runs/0003/seed0/log.txt" in returned.files


def test_a_node_whose_disk_is_full_takes_no_job(worker, tmp_path, monkeypatch):
    with mounted(tmp_path / "small", "size=1m") as small:
        monkeypatch.setenv("NIGHTSHIFT_CACHE", str(small))
        home().mkdir()
        returned = worker.execute(TRIAL)
    assert "less than 1 GB are free on the disk" in (returned.failure or "")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be pinned here")
def test_two_workers_of_a_machine_have_different_cores(monkeypatch):
    sets, all_cores = core_sets(Share(1)), core_sets(Share(os.cpu_count() or 1))
    if len(sets) < 2:
        pytest.skip("there is one core")
    with ExitStack() as first, ExitStack() as second:
        assert [lock_one("core", sets, held) for held in (first, second)] == sets[:2]
    monkeypatch.setattr(node_room, "LOCK_S", 0.0)
    with ExitStack() as first, ExitStack() as second:
        lock_one("core", sets, first)
        with pytest.raises(MachineError, match="another night uses all of its cores"):
            lock_one("core", all_cores, second)  # of a night with larger sets
    with ExitStack() as held:
        assert lock_one("core", all_cores, held) == all_cores[0]
