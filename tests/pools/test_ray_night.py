"""Nights whose workers are tasks of a real Ray cluster on this machine: records, kills, and what is left running."""

import os
import re
import signal
import socket
from pathlib import Path

import psutil
import pytest
from nights import Grounds
from rays import SWEEP_S, Followed, processes_in, wait_until

from agent.experiment import Attempt, Ending, Status
from agent.pools.leases import cores_of_machine

pytest.importorskip("ray", reason="Ray comes with uv run --group proofs")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sum(map(len, cores_of_machine())) < 2, reason="two workers need two cores"),
]
SHORT = ("--budget-s", "0.5", "--proposer", "search", "--judge", "greedy", "--experiments", "3", "--no-report")
SECRET = "not-for-ray"
RAY = ("--pool", "ray", "--workers", "2", "--cores-each", "1")


def check_whole(grounds: Grounds, tag: str, attempts: tuple[Attempt, ...]) -> None:
    """Nothing lost, nothing counted twice, and the files of a night on one machine."""
    assert [attempt.number for attempt in attempts] == list(range(4))
    assert all(attempt.settled and attempt.status in (Status.KEEP, Status.DISCARD) for attempt in attempts)
    for attempt in attempts:
        seeds = [run.seed for run in attempt.done_runs]
        assert len(set(seeds)) == len(seeds)
        for run in attempt.done_runs:
            folder = grounds.folder(tag) / "runs" / f"{attempt.number:04d}" / f"seed{run.seed}"
            assert (folder / "out" / "metrics.jsonl").stat().st_size > 0
            assert (folder / "log.txt").is_file()
            has_weights = (folder / "out" / "model.safetensors").is_file()
            assert has_weights == (attempt.status is Status.KEEP)
    assert len([row for row in grounds.rows() if row["tag"] == tag]) == 4
    assert grounds.git("for-each-ref", f"refs/experiments/{tag}").count("\n") == 3


def left_of(grounds: Grounds) -> list[str]:
    """The processes of a night and of its cluster that still run."""
    return processes_in(grounds.root.parent, Path(os.environ["NIGHTSHIFT_CACHE"]))


def test_a_night_on_ray_has_the_records_of_one_on_this_machine(grounds, monkeypatch):
    long = grounds.root.parent / ("long" * 25)  # a socket's path has 107 bytes at most
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    on_ray = grounds.nightshift_process("run", "--tag", "r", *RAY, *SHORT)
    assert on_ray.returncode == 0, on_ray.stdout + on_ray.stderr
    assert re.search(r"\n  workers  2: ray share 0; ray share 1, of the Ray cluster on this machine\n", on_ray.stdout)
    assert left_of(grounds) == []
    here = grounds.nightshift_process("run", "--tag", "l", "--workers", "2", "--cores-each", "1", *SHORT)
    assert here.returncode == 0, here.stdout + here.stderr
    ours, theirs = grounds.attempts("l"), grounds.attempts("r")
    for tag, attempts in (("l", ours), ("r", theirs)):
        check_whole(grounds, tag, attempts)
    assert theirs[0].val_bpb == ours[0].val_bpb
    assert len(theirs[0].done_runs) == len(ours[0].done_runs)
    assert len({run.worker for attempt in theirs for run in attempt.runs}) == 2
    assert grounds.nightshift("show", "r:0").returncode == 0
    kept = [attempt.number for attempt in theirs if attempt.status is Status.KEEP]
    assert kept[0] == 0
    nodes = list((Path(os.environ["NIGHTSHIFT_CACHE"]) / "ray" / "nights").glob("r-*"))
    assert len(nodes) == 1
    assert list(nodes[0].rglob("model.safetensors")) == []  # they have come back


def test_whatever_is_killed_of_a_night_on_ray_it_goes_on_and_nothing_is_left(grounds):
    words = ("--tag", "k", *RAY, "--budget-s", "3", *SHORT[2:])
    night = Followed(grounds, *words)
    assert wait_until(lambda: trains(grounds), 300)
    night.process.kill()
    assert wait_until(lambda: left_of(grounds) == [], SWEEP_S), left_of(grounds)
    night = Followed(grounds, *words)
    assert wait_until(lambda: trains(grounds), 300)
    worker = next(process for process in psutil.process_iter(["name"]) if holds_run(process, grounds))
    worker.send_signal(signal.SIGKILL)
    assert night.says("its process was killed"), night.said
    below = psutil.Process(night.process.pid).children(recursive=True)
    next(one for one in below if "gcs_server" in line(one)).send_signal(signal.SIGKILL)
    assert night.says("the Ray cluster is gone, and is asked for again"), night.said
    assert night.end() == 0, night.said
    check_whole(grounds, "k", grounds.attempts("k"))
    assert left_of(grounds) == []


def trains(grounds: Grounds) -> bool:
    return any("train_mlx.py" in words for words in left_of(grounds))


def holds_run(process: psutil.Process, grounds: Grounds) -> bool:
    """Whether it is a worker of Ray that has begun a training process."""
    try:
        if not process.name().startswith("ray::NodeWorker"):
            return False
        below = process.children(recursive=True)
        return any("train_mlx.py" in line(one) and str(grounds.root.parent) in line(one) for one in below)
    except psutil.Error:
        return False


def line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_an_address_where_no_head_answers_is_said_in_one_sentence(grounds):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        done = grounds.nightshift_process("run", "--tag", "x", *RAY, "--ray-address", address, *SHORT)
    assert done.returncode == 2
    assert done.stderr.startswith(f"nightshift: the Ray cluster at {address} cannot be used (")
    assert done.stderr.count("\n") == 1
    assert left_of(grounds) == []


def test_a_second_wish_to_end_ends_the_runs_and_the_night_goes_on_where_it_was(grounds, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    words = ("--tag", "s", *RAY, "--budget-s", "60", *SHORT[2:])
    night = Followed(grounds, *words)
    assert wait_until(lambda: trains(grounds), 300)
    of_ray = [process for process in psutil.process_iter(["name"]) if process.name().startswith("ray::")]
    assert of_ray
    assert not any(SECRET in process.environ().values() for process in of_ray)
    night.process.send_signal(signal.SIGINT)
    assert night.says("the night ends after what runs now"), night.said
    night.process.send_signal(signal.SIGINT)
    assert wait_until(lambda: night.process.poll() is not None, 3 * SWEEP_S), night.said
    assert left_of(grounds) == []
    runs = grounds.attempts("s")[0].runs
    assert {run.ending for run in runs} == {Ending.STOPPED}
