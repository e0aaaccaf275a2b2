"""Run one command between the harness and the sandbox, and end every process that it leaves behind.

On Linux it adopts all descendants of the command, daemons included. So it can end the whole tree when the command ends
or exceeds a limit, on SIGTERM, and when the harness dies. It writes a Report as JSON to its standard output; the
command writes to its standard error, which is the log.

    python keeper.py ORDER COMMAND...        ORDER: Order as JSON
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import psutil

sys.path[0] = str(Path(__file__).parents[2])  # import our own package, installed or not, and nothing of a run's folder
from agent.sandbox.watch import GRACE_S, Excess, Order, Report, ResourceLimits, Watch  # noqa: E402

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_S = 0.02
MAX_TASKS = 4096  # the kernel counts threads as processes, and libraries start many on a large machine
MAX_OPEN_FILES = 4096
OOM_SCORE = b"1000"  # if the machine runs out of memory, the kernel kills the run, not the harness


def main(order: Order, command: list[str]) -> None:
    """Run the command until it ends or has to end, end its tree, and report."""
    limits = order.limits
    if order.cores:
        os.sched_setaffinity(0, order.cores)
    signals: list[int] = []  # that asked for the end
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: signals.append(number))
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # descendants whose parents end become ours
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    start = partial(on_start, limits, own_tasks(), os.getpid())
    child = subprocess.Popen(command, stdout=sys.stderr, preexec_fn=start)  # safe: no threads here
    watch = Watch(limits, Path.cwd(), descendants) if limits else None
    over: Excess | None = None
    while alive(child) and child.returncode is None and not signals and over is None and has_harness(order):
        time.sleep(POLL_S)
        over = watch.exceeded() if watch else None
    if watch and over is None and child.poll():
        over = watch.disk()  # the command may have failed on a full disk before the watch looked
    # no grace for a command that exceeded a limit, nor for an orphan: a resumed night may need its folder
    end_tree(child, GRACE_S if over is None and has_harness(order) else 0)
    report = Report(exit_code(child.returncode), over, watch.peak_bytes if watch else None)
    with suppress(OSError):  # the harness may be gone
        os.write(sys.stdout.fileno(), json.dumps(asdict(report)).encode())


def exit_code(status: int) -> int:
    """Return a command's exit code; a shell's and bubblewrap's 128 + n after signal n as -n, but 255 as it is."""
    return 128 - status if 128 < status <= 128 + max(signal.valid_signals()) else status


def has_harness(order: Order) -> bool:
    """Return whether the harness that has started this process still runs."""
    return os.getppid() == order.harness


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def own_tasks() -> int:
    """Return the number of threads of all processes of this user, which is what RLIMIT_NPROC counts."""
    facts = (process.info for process in psutil.process_iter(["uids", "num_threads"]))
    return sum(info["num_threads"] or 0 for info in facts if info["uids"] and info["uids"].real == os.getuid())


def on_start(limits: ResourceLimits | None, tasks: int, keeper: int) -> None:
    """Apply the limits to the calling child before it becomes the command; `tasks` is the user's thread count."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)  # it was killed before this child could ask for the signal
    limit(resource.RLIMIT_CORE, 0)
    if limits is not None:
        limit(resource.RLIMIT_FSIZE, limits.file_bytes)
        limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)  # deleted files that are open are in no folder that is counted
        limit(resource.RLIMIT_NPROC, tasks + MAX_TASKS)  # the kernel does not apply it to root
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(OOM_SCORE)


def limit(resource_id: int, most: int) -> None:
    """Set a limit of this process, but keep a lower one that the user has set: only root may raise it."""
    _, hard = resource.getrlimit(resource_id)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource_id, (most, most))


def end_tree(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """Send SIGTERM, then SIGKILL in rounds until no descendant is left: the next round finds one that forked."""
    if grace_s:
        tell(psutil.Process.terminate, but="bwrap")  # bubblewrap would kill the processes inside without grace
    deadline = time.monotonic() + grace_s
    while alive(child) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    while alive(child):
        child.kill()  # if it is bubblewrap, all processes inside end with it
        tell(psutil.Process.suspend)  # a suspended process cannot fork while the others are killed
        tell(psutil.Process.kill)
        chase(child)
        time.sleep(POLL_S)


def alive(child: subprocess.Popen[bytes]) -> bool:
    """Return whether a process of the tree is left, and reap zombies, which fill the table of processes.

    Ask the kernel for children to wait for: a list of all processes can miss one that forks and ends meanwhile.
    """
    with suppress(ChildProcessError):  # no child is left
        for _ in range(MAX_TASKS):
            dead, status = os.waitpid(-1, os.WNOHANG)
            if dead == child.pid:
                child.returncode = os.waitstatus_to_exitcode(status)  # Popen cannot ask for it any more
            if dead == 0:
                break
        return True
    return False


def chase(child: subprocess.Popen[bytes]) -> None:
    """Kill our direct children for POLL_S: a chain of forks that each end at once always leaves us its last process."""
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    deadline = time.monotonic() + POLL_S
    with suppress(FileNotFoundError):  # on a Mac, or a kernel built without this list
        while alive(child) and time.monotonic() < deadline:
            for pid in own.read_text().split():
                os.kill(int(pid), signal.SIGKILL)  # safe: a child's id is reused only after we have reaped it


def descendants() -> list[psutil.Process]:
    """Return the descendants of this process that still run, without zombies."""
    running = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


def tell(message: Any, but: str = "") -> None:
    """Call a method of psutil.Process on every descendant, except on those named `but`."""
    for process in descendants():
        with suppress(psutil.Error):
            if not but or process.name() != but:
                message(process)


if __name__ == "__main__":
    facts = json.loads(sys.argv[1])  # without msgspec, whose import takes longer than the rest of a keeper's start
    main(Order(**facts | {"limits": facts["limits"] and ResourceLimits(**facts["limits"])}), sys.argv[2:])
