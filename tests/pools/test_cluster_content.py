"""Content by its checksum: what goes to a node arrives whole, or not at all."""

import hashlib
import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from nights import mounted

from agent.errors import MachineError
from agent.experiment import Night
from agent.pools.cluster import content
from agent.pools.cluster import node as node_room
from agent.pools.cluster.content import (
    blob,
    code_of_harness,
    digests_of,
    folder_with,
    missing,
    pieces,
    put_file,
    store,
    take_files,
)
from agent.pools.cluster.messages import Content, NodeShare, Perform, Piece, Returned
from agent.pools.cluster.node import Reporter, core_sets, drop, fetch, lacks, leased, night_folder, perform
from agent.records.place import new_id
from agent.runs.jobs import AuditRun, Trial
from agent.runs.runner import Runner
from agent.sandbox.box import Open
from agent.sandbox.watch import ResourceLimits

NIGHT = Night(
    tag="t", branch="b", script="train_mlx.py", base="", budget_s=1.0, seed=0, device_kind="cpu", device="here",
    protocol="0" * 12, data="/data", started="2026-01-31T23:59:59Z",
)  # fmt: skip
TEXT = b"0123456789" * 10


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a node for nights of a cluster."""
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ray"


def sent(text: bytes = TEXT) -> str:
    return hashlib.sha256(text).hexdigest()


def test_the_code_that_is_sent_runs_and_has_the_same_checksum_each_time():
    digest, code = code_of_harness()
    assert (digest, code) == code_of_harness()
    names = zipfile.ZipFile(io.BytesIO(code)).namelist()
    assert {"agent/pools/cluster/node.py", "agent/sandbox/keeper.py", "agent/lab/kernels/cpu.c"} <= {*names}
    assert not any("__pycache__" in name or name.startswith("tests") for name in names)


def test_a_file_arrives_in_pieces_and_takes_its_name_once_it_is_whole(node, tmp_path, monkeypatch):
    monkeypatch.setattr(content, "PIECE_BYTES", 33)
    (tmp_path / "file").write_bytes(TEXT)
    for offset, piece, last in pieces(tmp_path / "file"):
        assert not blob(sent()).exists()
        store(sent(), "driver", offset, piece, last=last)
    assert blob(sent()).read_bytes() == TEXT
    assert missing({sent(): "/elsewhere"}) == ()


def test_an_empty_file_is_one_piece(tmp_path):
    (tmp_path / "file").touch()
    assert [*pieces(tmp_path / "file")] == [(0, b"", True)]


def test_a_damaged_file_is_refused_and_asked_for_again(node):
    with pytest.raises(MachineError, match="arrived damaged"):
        store(sent(), "driver", 0, TEXT[:-1] + b"x", last=True)
    assert missing({sent(): "/elsewhere"}) == (sent(),)
    store(sent(), "driver", 0, TEXT, last=True)
    blob(sent()).write_bytes(b"changed later")
    assert missing({sent(): "/elsewhere"}) == (sent(),)


def test_a_node_takes_the_same_file_from_its_own_disk(node, tmp_path):
    (tmp_path / "file").write_bytes(TEXT)
    _, digests = lacks({sent(): str(tmp_path / "file"), sent(b"other"): str(tmp_path / "file")})
    assert digests == (sent(b"other"),)


def test_a_folder_is_made_of_its_files_and_made_again_if_one_is_gone(node, tmp_path):
    (tmp_path / "one" / "sub").mkdir(parents=True)
    for name in ("a", "sub/b"):
        (tmp_path / "one" / name).write_text(name)
    files = digests_of(tmp_path / "one", ("a", "sub/b"))
    assert missing({checksum: str(tmp_path / "one" / name) for name, checksum in files.items()}) == ()
    folder = folder_with("fixed", files)
    assert digests_of(folder, ("a", "sub/b")) == files
    (folder / "a").unlink()
    assert digests_of(folder_with("fixed", files), ("a", "sub/b")) == files
    with pytest.raises(MachineError, match="is gone"):
        put_file(sent(b"never sent"), tmp_path / "elsewhere")


def test_weights_are_fetched_in_pieces_with_a_checksum_and_dropped(node, monkeypatch):
    monkeypatch.setattr("agent.pools.cluster.node.PIECE_BYTES", 60)
    weights = night_folder(NIGHT) / "runs" / "0003" / "seed7" / "out" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(TEXT)
    first, last = (fetch(NIGHT, 3, 7, offset) for offset in (0, 60))
    assert isinstance(first, Piece)
    assert isinstance(last, Piece)
    assert (first.content + last.content, first.digest, last.digest) == (TEXT, None, sent())
    drop(NIGHT, ((3, 7),))
    with pytest.raises(MachineError, match="the weights of #3 with seed 7 are gone"):
        fetch(NIGHT, 3, 7, 0)


def test_a_changed_file_is_replaced_when_the_node_is_looked_at_again(node, tmp_path):
    """It has the same name as before, and the file by its checksum may be the same one: both were changed."""
    (tmp_path / "a").write_bytes(TEXT)
    files = digests_of(tmp_path, ("a",))
    there = {checksum: str(tmp_path / name) for name, checksum in files.items()}
    assert missing(there) == ()
    folder = folder_with("corpora", files)
    (folder / "a").write_bytes(b"changed later")
    assert missing(there) == ()
    assert digests_of(folder_with("corpora", files, verify=True)) == files


class Alone(Reporter):
    """Of a node whose driver is never asked, as Ray need not be installed here."""

    def _report(self) -> None:
        pass


def test_two_nights_of_a_tag_that_begin_in_the_same_second_have_folders_of_their_own(node):
    folders = {night_folder(replace(NIGHT, id=new_id())) for _ in range(2)}
    assert len(folders | {night_folder(NIGHT)}) == 3
    assert night_folder(NIGHT).name == "t-000000000000-20260131235959"  # begun before there were ids


@pytest.mark.parametrize("left", ["runs/0003/seed7/out", "runs/0003/seed7/out/model.safetensors"])
def test_weights_are_not_received_through_a_link_that_a_script_has_left(node, tmp_path, left):
    """It had run there before: its run was lost, and made again on another node, which is gone."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "model.safetensors").write_bytes(b"precious")
    link = night_folder(NIGHT) / left
    link.parent.mkdir(parents=True)
    link.symlink_to(mine if left.endswith("out") else mine / "model.safetensors")
    for text in (TEXT, b"other"):
        store(sent(text), "driver", 0, text, last=True)
    other, trial = {"a": sent(b"other")}, Trial(attempt=0, script="", allowance_s=1.0, scoring_s=1.0)
    audit = AuditRun(attempt=3, script="", seed=7, limit_s=1.0, machine=trial)
    weights = {"runs/0003/seed7/out/model.safetensors": sent()}
    there = Content(other, other, "", "", "off")
    asked = Perform(NIGHT, there, audit, "w", NodeShare(1), Open("a test"), None, weights)
    returned = perform(asked, Alone(None, "w"))
    assert isinstance(returned, Returned)
    assert "came after night t had opened" in (returned.error or "")  # the weights were there by then
    assert (mine / "model.safetensors").read_bytes() == b"precious"
    assert (night_folder(NIGHT) / "runs/0003/seed7/out/model.safetensors").read_bytes() == TEXT


def test_files_of_a_node_are_not_written_through_what_a_script_has_left(tmp_path):
    """As in a night that went on with --pool ray after it had run on this machine."""
    mine, folder = tmp_path / "mine", tmp_path / "night"
    mine.write_text("precious")
    (folder / "runs" / "0003" / "dry").mkdir(parents=True)
    (folder / "runs" / "0003" / "dry" / "log.txt").symlink_to(mine)
    os.mkfifo(folder / "runs" / "0003" / "seed7")
    box = Open("a test")
    runner = Runner(NIGHT, folder, box, ResourceLimits(1, 1, 1), None, lambda: False, lambda progress, elapsed_s: None)
    files = {"runs/0003/dry/log.txt": b"of a script", "runs/0003/seed7/out/metrics.jsonl": b"{}"}
    take_files(runner, files)
    assert mine.read_text() == "precious"
    assert {name: (folder / name).read_bytes() for name in files} == files


def test_a_node_whose_disk_is_full_takes_no_job(tmp_path, monkeypatch):
    with mounted(tmp_path / "small", "size=1m") as small:
        monkeypatch.setenv("NIGHTSHIFT_CACHE", str(small))
        trial = Trial(attempt=0, script="", allowance_s=1.0, scoring_s=1.0)
        asked = Perform(
            NIGHT, Content({}, {}, "", "", "off"), trial, "w", NodeShare(1),
            Open("a test"), None, {},
        )  # fmt: skip
        returned = perform(asked, Reporter(None, "w"))
    assert isinstance(returned, Returned)
    assert "less than 1 GB are free on the disk" in (returned.unwell or "")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be pinned here")
def test_two_workers_of_a_machine_have_different_cores(node, monkeypatch):
    sets, threads = core_sets(NodeShare(1))
    if threads < 2:
        pytest.skip("there is one core")
    with leased("a", NodeShare(1)) as one, leased("b", NodeShare(1)) as other:
        assert (one.cores, other.cores) == tuple(sets[:2])
        assert one.of_cores == threads
    with leased("c", NodeShare(threads)) as whole:
        assert whole.cores == ()
    monkeypatch.setattr(node_room, "LOCK_S", 0.0)
    with leased("a", NodeShare(1)), pytest.raises(OSError, match="another night uses all of them"):
        leased("of a night with larger sets", NodeShare(threads)).__enter__()
