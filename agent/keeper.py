"""Runs one command and lets nothing of it survive: a program of its own, between the harness and the command.

It adopts whatever the command leaves behind (daemons too, on Linux), so when the command ends, when SIGTERM comes, or
when the harness dies, it can end the whole tree. It exits with the command's exit code, 128 + n after signal n.

    python keeper.py HARNESS_PID SECONDS_OF_GRACE MAX_FILE_BYTES COMMAND...
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_S = 0.02


def main(harness: int, grace_s: float, max_file_bytes: int, command: list[str]) -> int:
    told = Told()
    adopt_orphans()
    die_with_parent(signal.SIGTERM)
    child = subprocess.Popen(command, preexec_fn=lambda: on_start(max_file_bytes))  # safe: no threads here
    while child.poll() is None and not told.to_end and os.getppid() == harness:
        time.sleep(POLL_S)
    # an orphan ends at once: the night may be resumed already, and wants the same folder
    end_tree(child, grace_s if os.getppid() == harness else 0)
    code = child.returncode
    return 128 - code if code < 0 else code


class Told:
    """Remembers that a signal asked for the end."""

    def __init__(self) -> None:
        self.to_end = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: object) -> None:
        self.to_end = True


def adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def on_start(max_file_bytes: int) -> None:
    die_with_parent(signal.SIGKILL)
    limit_file_size(max_file_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_file_size(max_file_bytes: int) -> None:
    """A lower limit of the user's own stays: only root may lift it."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = max_file_bytes if hard == resource.RLIM_INFINITY else min(max_file_bytes, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def end_tree(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM, then SIGKILL until no descendant is left: one that forks meanwhile is found in the next round."""
    me = psutil.Process()
    tell(me, psutil.Process.terminate)
    deadline = time.monotonic() + grace_s
    while alive(me) and time.monotonic() < deadline:
        time.sleep(POLL_S)
        child.poll()
    while alive(me):
        tell(me, psutil.Process.kill)
        time.sleep(POLL_S)
        child.poll()
    child.wait()


def alive(me: psutil.Process) -> list[psutil.Process]:
    """The descendants that still run. An adopted one that is dead stays a zombie until we end, and does not count."""
    running = []
    for process in me.children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
        except psutil.NoSuchProcess:
            continue
    return running


def tell(me: psutil.Process, message: object) -> None:
    for process in me.children(recursive=True):
        try:
            message(process)  # type: ignore[operator]
        except psutil.NoSuchProcess:
            continue


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
