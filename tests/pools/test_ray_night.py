"""Nights on real Ray clusters: their records, kills of processes, nodes and heads, and what is left running."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from nights import Grounds, command, environment

from agent.experiment import Attempt, Ending, Status
from agent.pools.device_slots import cores_of_machine

pytest.importorskip("ray", reason="Ray comes with uv run --group proofs")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sum(map(len, cores_of_machine())) < 2, reason="two workers need two cores"),
]
SHORT = ("--proposer", "search", "--judge", "greedy", "--no-report")
SECRET = "not-for-ray"
RAY = ("--pool", "ray", "--workers", "2", "--cores-each", "1")
RAY_PROGRAM = Path(sys.executable).with_name("ray")
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
TOKEN |= {"RAY_raylet_start_wait_time_s": "120", "RAY_worker_niceness": "0"}
SWEEP_S = 10.0  # s after which no process of a night may be left anywhere


class Nodes:
    """A cluster whose nodes are process trees, each with a cache folder of its own, as on machines of their own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.address = folder, f"127.0.0.1:{port}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, cpus: int = 1) -> None:
        """Start a node and wait for it; the first one is the head."""
        port = self.address.rpartition(":")[2]
        head = ["--head", "--port", port, "--include-dashboard", "false"]
        words = [str(RAY_PROGRAM), "start", *(["--address", self.address] if self.running else head)]
        words += ["--node-name", name, "--num-cpus", str(cpus), "--object-store-memory", str(100 << 20), "--block"]
        words += ["--temp-dir", str(self.folder / name)]
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            self.running[name] = subprocess.Popen(
                words, env={**os.environ, **TOKEN, "NIGHTSHIFT_CACHE": str(self.cache(name))}, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        assert wait_until(lambda: "Ray runtime started" in log.read_text(), 200), log.read_text()

    def cache(self, name: str) -> Path:
        return self.folder / f"cache-{name}"

    def trains(self, name: str) -> bool:
        return any("train_mlx.py" in words for words in processes_in(self.cache(name)))

    def kill(self, name: str) -> None:
        """As a machine that loses its power: every process at once."""
        process = self.running.pop(name)
        tree = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in tree:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        process.wait()


@contextlib.contextmanager
def cluster() -> Iterator[Nodes]:
    """A place for nodes; all are ended with the block."""
    with tempfile.TemporaryDirectory(prefix="rays-", dir="/tmp") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nodes = Nodes(Path(folder), free.getsockname()[1])
        free.close()
        try:
            yield nodes
        finally:
            for name in list(nodes.running):
                nodes.kill(name)


class Followed:
    """A night in a process, and the lines that it has printed so far."""

    def __init__(self, grounds: Grounds, *words: str) -> None:
        self.process = subprocess.Popen(
            command("run", *words), cwd=grounds.root, env=environment(**TOKEN), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.said = ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.said += line

    def says(self, words: str) -> bool:
        return wait_until(lambda: words in self.said or self.process.poll() is not None, 400) and words in self.said

    def end(self) -> int:
        code = self.process.wait(900)
        self._thread.join()
        return code


def wait_until(is_so: Callable[[], object], most_s: float) -> bool:
    deadline = time.monotonic() + most_s
    while not (answer := is_so()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return bool(answer)


def processes_in(*folders: Path) -> list[str]:
    """Command lines of the processes that name one of these folders, or work in it."""
    lines = []
    for process in psutil.process_iter(["cmdline", "cwd", "pid", "status"]):
        words = " ".join(process.info["cmdline"] or [])
        ended = process.info["status"] == psutil.STATUS_ZOMBIE or process.info["pid"] == os.getpid()
        if not ended and any(str(folder) in f"{words} {process.info['cwd']}" for folder in folders):
            lines.append(words)
    return lines


def left_of(grounds: Grounds) -> list[str]:
    """The processes of a night and of its cluster that still run."""
    return processes_in(grounds.root.parent, Path(os.environ["NIGHTSHIFT_CACHE"]))


def trains(grounds: Grounds) -> bool:
    return any("train_mlx.py" in words for words in left_of(grounds))


def check_whole(grounds: Grounds, tag: str, count: int = 4) -> tuple[Attempt, ...]:
    """Nothing lost, nothing counted twice, and the files of a night on one machine; return its attempts."""
    attempts = grounds.attempts(tag)
    assert [attempt.number for attempt in attempts] == list(range(count))
    assert all(attempt.settled and attempt.status in (Status.KEEP, Status.DISCARD) for attempt in attempts)
    for attempt in attempts:
        seeds = [run.seed for run in attempt.done_runs]
        assert len(set(seeds)) == len(seeds)
        for run in attempt.done_runs:
            folder = grounds.folder(tag) / "runs" / f"{attempt.number:04d}" / f"seed{run.seed}"
            assert (folder / "out" / "metrics.jsonl").stat().st_size > 0
            assert (folder / "log.txt").is_file()
            if attempt.status is Status.DISCARD:
                assert not (folder / "out" / "model.safetensors").exists()
    assert len([row for row in grounds.rows() if row["tag"] == tag]) == count
    return attempts


# ---- a cluster of the night's own ------------------------------------------------------------------------------------


def test_a_night_on_ray_has_the_records_of_one_on_this_machine(grounds, monkeypatch):
    long = grounds.root.parent / ("long" * 25)  # a socket's path has 107 bytes at most
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    words = ("--budget-s", "0.5", "--experiments", "3", *SHORT)
    on_ray = grounds.nightshift_process("run", "--tag", "r", *RAY, *words)
    assert on_ray.returncode == 0, on_ray.stdout + on_ray.stderr
    assert "\n  workers  2: ray share 0; ray share 1; of the Ray cluster on this machine\n" in on_ray.stdout
    assert left_of(grounds) == []
    here = grounds.nightshift_process("run", "--tag", "l", *RAY[2:], *words)
    assert here.returncode == 0, here.stdout + here.stderr
    ours, theirs = (check_whole(grounds, tag) for tag in ("l", "r"))
    assert theirs[0].val_bpb == ours[0].val_bpb
    assert len({run.worker for attempt in theirs for run in attempt.runs}) == 2
    assert [*grounds.folder("r").glob("runs/0000/*/out/model.safetensors")] != []
    assert [*Path(os.environ["NIGHTSHIFT_CACHE"]).glob("ray/nights/**/model.safetensors")] == []


def test_whatever_is_killed_of_a_night_on_ray_it_goes_on_and_nothing_is_left(grounds):
    words = ("--tag", "k", *RAY, "--budget-s", "3", "--experiments", "3", *SHORT)
    night = Followed(grounds, *words)
    assert wait_until(lambda: trains(grounds), 300)
    sweeper = sweeper_of(night)
    assert sweeper is not None
    sweeper.kill()
    assert wait_until(lambda: sweeper_of(night) not in (None, sweeper), SWEEP_S)
    below = psutil.Process(night.process.pid).children(recursive=True)
    night.process.kill()
    assert wait_until(lambda: left_of(grounds) == [], SWEEP_S), left_of(grounds)
    assert wait_until(lambda: not any(process.is_running() for process in below), SWEEP_S), below
    night = Followed(grounds, *words)
    assert wait_until(lambda: trains(grounds), 300)
    worker = next(process for process in psutil.process_iter(["name"]) if holds_run(process, grounds))
    worker.send_signal(signal.SIGKILL)
    assert night.says("its process was killed"), night.said
    assert night.end() == 0, night.said
    check_whole(grounds, "k")
    assert left_of(grounds) == []


def sweeper_of(night: Followed) -> psutil.Process | None:
    """The process that ends what Ray leaves behind: a fork of the command, without children."""
    with contextlib.suppress(psutil.Error):
        waits = psutil.Process(night.process.pid)
        forks = [child for child in waits.children() if child.cmdline() == waits.cmdline()]
        return next((fork for fork in forks if not fork.children()), None)
    return None


def holds_run(process: psutil.Process, grounds: Grounds) -> bool:
    """Whether it is a worker of Ray that has begun a training process."""
    with contextlib.suppress(psutil.Error):
        if process.name().startswith("ray::NodeWorker"):
            below = [" ".join(child.cmdline()) for child in process.children(recursive=True)]
            return any("train_mlx.py" in words and str(grounds.root.parent) in words for words in below)
    return False


def test_a_second_wish_to_end_ends_the_runs_and_no_process_of_ray_has_keys(grounds, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    night = Followed(grounds, "--tag", "s", *RAY, "--budget-s", "1200", "--experiments", "3", *SHORT)
    assert wait_until(lambda: trains(grounds), 300)
    of_ray = [process for process in psutil.process_iter(["name"]) if process.name().startswith("ray::")]
    assert of_ray
    assert not any(SECRET in process.environ().values() for process in of_ray)
    night.process.send_signal(signal.SIGINT)
    assert night.says("the night ends after what runs now"), night.said
    night.process.send_signal(signal.SIGINT)
    assert wait_until(lambda: night.process.poll() is not None, 300), night.said
    assert left_of(grounds) == []
    assert {run.ending for run in grounds.attempts("s")[0].runs} == {Ending.STOPPED}


# ---- a cluster of several nodes --------------------------------------------------------------------------------------


def test_an_address_where_no_head_answers_is_said_in_one_sentence(grounds):
    with cluster() as nodes:
        done = grounds.nightshift_process("run", "--tag", "x", *RAY, "--ray-address", nodes.address, *SHORT)
    assert done.returncode == 1
    assert done.stderr.startswith(f"nightshift: the Ray cluster at {nodes.address} cannot be used (")
    assert done.stderr.count("\n") == 1
    assert left_of(grounds) == []


def test_a_night_outlives_a_damaged_corpus_its_nodes_and_its_head(grounds):
    with cluster() as nodes:
        nodes.start("head", cpus=0)
        nodes.start("b")
        nodes.start("c")
        words = ("--ray-address", nodes.address, "--budget-s", "4", "--experiments", "4", *SHORT)
        night = Followed(grounds, "--tag", "n", *RAY, *words)
        try:
            go_through(nodes, night)
        finally:
            night.process.kill()
        assert wait_until(lambda: not any(nodes.trains(name) for name in "bcd"), SWEEP_S)
    attempts = check_whole(grounds, "n", count=5)
    assert any(run.ending is Ending.LOST for attempt in attempts for run in attempt.runs)
    assert processes_in(nodes.folder, grounds.root) == []


def go_through(nodes: Nodes, night: Followed) -> None:
    """Damage, kill and start nodes while the night goes on; it must end by itself."""
    assert wait_until(lambda: nodes.trains("c") or night.process.poll() is not None, 300), night.said
    for file in nodes.cache("c").glob("ray/corpora/*/validation*"):
        file.unlink()
        file.write_bytes(b"another text")
    assert night.says("node c gets no work for 60 s"), night.said
    assert "validation" in night.said
    assert night.says("#0 · baseline"), night.said
    nodes.kill("c")
    assert night.says("node c has left the cluster"), night.said
    assert wait_until(lambda: nodes.trains("b"), 200), night.said
    nodes.kill("head")
    assert wait_until(lambda: not nodes.trains("b"), SWEEP_S + 5)
    assert night.says("the Ray cluster is gone, and is asked for again"), night.said
    nodes.kill("b")
    nodes.start("head", cpus=0)
    nodes.start("d")
    assert night.end() == 0, night.said
