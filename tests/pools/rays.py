"""Real Ray clusters on this machine, each node a process tree that a test can kill, and gone afterwards."""

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
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from nights import Grounds, command, environment

RAY = Path(sys.executable).with_name("ray")
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
TOKEN |= {"RAY_raylet_start_wait_time_s": "120", "RAY_worker_niceness": "0"}
SWEEP_S = 10.0  # after which nothing of a night may run anywhere


@dataclass
class Nodes:
    """A cluster whose nodes each have a cache folder of their own, as on machines of their own."""

    folder: Path
    port: int
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, name: str, cpus: int = 1) -> None:
        """Start a node and wait for it; the first one is the head."""
        head = ["--head", "--port", str(self.port), "--include-dashboard", "false"]
        words = [str(RAY), "start", *(["--address", self.address] if self.running else head), "--node-name", name]
        words += ["--num-cpus", str(cpus), "--object-store-memory", str(100 << 20), "--disable-usage-stats", "--block"]
        words += ["--temp-dir", str(self.folder / name)]
        environment = {**os.environ, **TOKEN, "NIGHTSHIFT_CACHE": str(self.cache(name))}
        with self.log(name).open("wb") as log:
            self.running[name] = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        assert wait_until(lambda: "Ray runtime started" in self.log(name).read_text(), 200), self.log(name).read_text()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def cache(self, name: str) -> Path:
        return self.folder / f"cache-{name}"

    def kill(self, name: str) -> None:
        """As a machine that loses its power: every process at once."""
        process = self.running.pop(name)
        tree = [process, *psutil.Process(process.pid).children(recursive=True)]
        for one in tree:
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                os.kill(one.pid, signal.SIGSTOP)
        for one in tree:
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def cluster() -> Iterator[Nodes]:
    """A place for nodes; all are ended with the block."""
    with tempfile.TemporaryDirectory(prefix="rays-", dir="/tmp") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        nodes = Nodes(Path(folder), port)
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
        assert self.process.stdout is not None
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
    while time.monotonic() < deadline:
        if is_so():
            return True
        time.sleep(0.1)
    return bool(is_so())


def processes_in(*folders: Path) -> list[str]:
    """Command lines of the processes that name one of these folders, or work in it."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "pid", "status"]):
        words = " ".join(process.info["cmdline"] or [])
        places = [words, process.info["cwd"] or ""]
        ended = process.info["status"] == psutil.STATUS_ZOMBIE or process.info["pid"] == os.getpid()
        if not ended and any(str(folder) in place for folder in folders for place in places):
            found.append(words)
    return found
