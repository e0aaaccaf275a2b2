"""What a node of a cluster is sent, and where it puts it: files by their checksums, and never through a link."""

import hashlib
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from jobs import MEASURE, STAYS, TRIAL, runner_in
from nights import mounted

from agent.errors import MachineError
from agent.experiment import Ending, Run, Score
from agent.pools import node as node_room
from agent.pools.node import (
    NodeWorker,
    Part,
    core_sets,
    home,
    lacks,
    lock_one,
    put_files,
    store,
)

TEXT = b"0123456789" * 10


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))


def test_a_file_is_sent_once_and_again_where_it_is_gone_or_has_changed():
    texts = {"a": TEXT, "sub/b": b"other"}
    files = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    assert lacks("corpora/c", files) == ["a", "sub/b"]
    store("corpora/c", texts)
    assert lacks("corpora/c", files) == []
    (home() / "corpora/c/a").write_bytes(b"changed later")
    (home() / "corpora/c/sub/b").unlink()
    assert lacks("corpora/c", files) == ["a", "sub/b"]


@pytest.mark.parametrize("left", ["runs/0003/seed7/out", "runs/0003/seed7/out/model.safetensors"])
def test_files_are_not_written_through_a_link_that_a_script_has_left(tmp_path, left):
    """As in a night that went on with --pool ray after it had run on this machine."""
    mine, weights = tmp_path / "mine", "runs/0003/seed7/out/model.safetensors"
    mine.mkdir()
    (mine / "model.safetensors").write_bytes(b"precious")
    link = tmp_path / "night" / left
    link.parent.mkdir(parents=True)
    link.symlink_to(mine / "model.safetensors" if left == weights else mine)
    put_files(tmp_path / "night", {weights: TEXT})
    assert (tmp_path / "night" / weights).read_bytes() == TEXT
    assert {path.name: path.read_bytes() for path in mine.iterdir()} == {"model.safetensors": b"precious"}


# ---- jobs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(tmp_path: Path) -> NodeWorker:
    """A worker that has entered a night, as open() leaves it."""
    worker = NodeWorker()
    worker._runner = replace(runner_in(tmp_path / "t"), stopped=worker._stopped, progressed=worker._note)
    home().mkdir(parents=True)
    return worker


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_job_ends_where_the_driver_asks_for_it_or_is_not_heard_any_more(worker, monkeypatch, is_asked):
    if is_asked:
        worker.progress(is_to_end=True)
    else:
        monkeypatch.setattr(node_room, "DEAF_S", 0.5)
    job = replace(MEASURE, script=STAYS)
    returned = worker.execute(job, {})
    assert returned.result.ending == "stopped"
    assert "runs/0003/seed0/log.txt" in returned.files


@pytest.mark.parametrize("val_bpb", [None, 1.5])
def test_weights_leave_their_node_where_they_have_a_score_and_are_deleted_there(worker, monkeypatch, val_bpb):
    run = Run(0, Ending.FINISHED, 0, 1.0, None, "", score=Score(val_bpb, 2.0))
    monkeypatch.setattr(node_room, "execute", lambda job, runner: run)
    files = {"runs/0003/seed0/out/model.safetensors": TEXT, "runs/0003/seed0/log.txt": b"words"}
    returned = worker.execute(MEASURE, files)
    assert returned.result == run
    assert returned.files == (files if val_bpb else {"runs/0003/seed0/log.txt": b"words"})
    assert not worker._runner.weights(3, 0).exists()


def test_a_node_whose_disk_is_full_takes_no_job(worker, tmp_path, monkeypatch):
    with mounted(tmp_path / "small", "size=1m") as small:
        monkeypatch.setenv("NIGHTSHIFT_CACHE", str(small))
        home().mkdir()
        returned = worker.execute(TRIAL, {})
    assert "less than 1 GB are free on the disk" in (returned.failure or "")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be pinned here")
def test_two_workers_of_a_machine_have_different_cores(monkeypatch):
    sets, all_cores = core_sets(Part(1)), core_sets(Part(os.cpu_count() or 1))
    if len(sets) < 2:
        pytest.skip("there is one core")
    with ExitStack() as first, ExitStack() as second:
        assert [lock_one("core", sets, held) for held in (first, second)] == sets[:2]
    monkeypatch.setattr(node_room, "LOCK_S", 0.0)
    with ExitStack() as first, ExitStack() as second:
        lock_one("core", sets, first)
        with pytest.raises(MachineError, match="another night uses all of its cores"):
            lock_one("core", all_cores, second)  # a lock of a night with larger sets
