"""Real Ray clusters on this machine, each node a process tree that a test can kill, and gone afterwards."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

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

    def start(self, name: str, cpus: int = 1, **environment: str) -> None:
        """The first one is the head."""
        ports = ["--address", self.address] if self.running else ["--head", "--port", str(self.port)]
        words = [str(RAY), "start", *ports, "--node-name", name]
        words += ["--num-cpus", str(cpus), "--object-store-memory", str(100 << 20), "--include-dashboard", "false"]
        words += ["--temp-dir", str(self.folder / name[:2]), "--disable-usage-stats", "--block"]
        if self.running:
            words.remove("--include-dashboard"), words.remove("false")
        self.running[name] = subprocess.Popen(
            words, env={**os.environ, **TOKEN, "NIGHTSHIFT_CACHE": str(self.cache(name)), **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        if len(self.running) == 1:
            assert wait_until(lambda: is_open(self.port), 60)

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


def is_open(port: int) -> bool:
    with socket.socket() as door:
        return door.connect_ex(("127.0.0.1", port)) == 0


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
