"""Runs one command and lets nothing of it survive: a program of its own, between the harness and the command.

It adopts whatever the command leaves behind (daemons too, on Linux), so when the command ends or goes beyond its caps,
when SIGTERM comes, or when the harness dies, it can end the whole tree. It exits with the command's exit code, 128 + n
after signal n, and tells through a pipe which cap was exceeded and what the tree took (Report as JSON).

    python keeper.py ORDER COMMAND...        ORDER: Order as JSON
"""

import ctypes
import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path[0] = str(Path(__file__).parents[2])  # its own package, which may not be installed, and no folder of a run
from agent.sandbox import cgroup  # noqa: E402
from agent.sandbox.limits import GB, Caps, Excess, Report, Watch  # noqa: E402
from agent.sandbox.load import tree_cpu_s  # noqa: E402

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_S = 0.02
MAX_TASKS = 4096  # where the kernel counts, threads are processes, and a large machine's libraries start many
OOM_SCORE = b"1000"  # should the machine run out of memory all the same, the kernel takes the run, not the night


@dataclass(frozen=True, slots=True)
class Order:
    harness: int  # the process to live for
    grace_s: float  # between SIGTERM and SIGKILL
    report: int  # file descriptor
    caps: dict[str, Any] | None = None  # None: the user's own rights

    def limits(self) -> Caps | None:
        return Caps(**self.caps) if self.caps else None


def main(order: Order, command: list[str]) -> int:
    told = Told()
    adopt_orphans()
    die_with_parent(signal.SIGTERM)
    caps = order.limits()
    with cgroup.group(caps.memory_bytes, MAX_TASKS) if caps else nullcontext() as group:
        tasks = own_tasks()
        child = subprocess.Popen(command, preexec_fn=lambda: on_start(caps, group, tasks))  # safe: no threads here
        watch = Watch(caps, Path.cwd(), descendants, group.filled_bytes if group else lambda: None) if caps else None
        over: Excess | None = None
        while child.poll() is None and not told.to_end and over is None and os.getppid() == order.harness:
            time.sleep(POLL_S)
            alive(child)  # buries the dead
            over = out_of_memory(watch, caps, group) or (watch.exceeded() if watch else None)
        if watch and over is None and child.poll():
            over = watch.disk()  # which it may have met before the watch did
        cpu_s = taken_cpu_s()
        # what takes too much ends at once; so does an orphan, for the night may be resumed and want the same folder
        end_tree(child, group, order.grace_s if over is None and os.getppid() == order.harness else 0)
        over = over or out_of_memory(watch, caps, group)
        over = watch.once_ended(over) if watch and over else over
    words, own = (over.words, over.own) if over else (None, True)
    report = Report(words, own, cpu_s, watch.peak_bytes if watch else None)
    with suppress(OSError):  # the harness may be gone
        os.write(order.report, json.dumps(dataclasses.asdict(report)).encode())
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


def own_tasks() -> int:
    """Threads of all processes of this user, which the kernel's limit counts."""
    count = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            count += process.num_threads() if process.uids().real == os.getuid() else 0
    return count


def on_start(caps: Caps | None, group: cgroup.Group | None, tasks: int) -> None:
    die_with_parent(signal.SIGKILL)
    limit(resource.RLIMIT_CORE, 0)
    if group is not None:
        group.join()
    if caps is not None:
        limit(resource.RLIMIT_FSIZE, caps.file_bytes)
        limit(resource.RLIMIT_NPROC, tasks + MAX_TASKS)  # root is above it
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(OOM_SCORE)


def limit(what: int, most: int) -> None:
    """A lower limit of the user's own stays: only root may lift it."""
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def out_of_memory(watch: Watch | None, caps: Caps | None, group: cgroup.Group | None) -> Excess | None:
    """What the kernel killed for its memory may be one of many, and the others would wait for it.

    It may have been killed though it had taken little: for what others took of the container's or the machine's memory.
    """
    if watch is None or caps is None or group is None or not group.out_of_memory():
        return None
    if group.at_its_limit():
        return Excess(f"out of memory: {caps.memory_bytes / GB:.1f} GB are allowed")
    words = f"out of memory: this run used {watch.peak_bytes / GB:.2f} GB when the machine had none left"
    return Excess(words, watch.peak_bytes > caps.fair_memory_bytes)


def taken_cpu_s() -> float:
    """Processor time of what still runs, of what has ended, and of this process.

    Asked before the tree is ended: what a box kills inside as it ends is not counted by anybody.
    """
    kinds = (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)
    own_s = sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))
    return own_s + tree_cpu_s(descendants())


def end_tree(child: subprocess.Popen[bytes], group: cgroup.Group | None, grace_s: float) -> None:
    """SIGTERM, then SIGKILL until no descendant is left: one that forks meanwhile is found in the next round."""
    if grace_s:
        tell(psutil.Process.terminate, but="bwrap")  # a box that ends takes what is inside with it, without grace
    deadline = time.monotonic() + grace_s
    while alive(child) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    while alive(child):
        if child.poll() is None:
            child.kill()  # of a box this is the end, however many are inside
        if group is not None:
            group.kill()
        tell(psutil.Process.suspend)  # what stands still forks no more while the others are killed
        tell(psutil.Process.kill)
        chase(child)
        time.sleep(POLL_S)
    child.wait()


def alive(child: subprocess.Popen[bytes]) -> bool:
    """Whether anything of the tree is left. The dead are buried, for zombies fill the table of processes, too.

    The kernel knows who is left to wait for; in a list of all processes, one that forks and ends meanwhile is missing.
    """
    child.poll()
    if sys.platform != "linux":
        return bool(descendants())
    with suppress(ChildProcessError):  # nobody is left
        for _ in range(MAX_TASKS):
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if dead is None:
                return True
            if dead.si_pid == child.pid and child.returncode is None:
                child.poll()  # its exit code is for nobody else
            else:
                os.waitpid(dead.si_pid, 0)
        return True
    return False


def chase(child: subprocess.Popen[bytes]) -> None:
    """A chain that forks and ends every millisecond is in no list, but its last link is always adopted by us."""
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    deadline = time.monotonic() + POLL_S
    with suppress(FileNotFoundError):  # a Mac, or a kernel built without this list
        while alive(child) and time.monotonic() < deadline:
            for pid in own.read_text().split():
                os.kill(int(pid), signal.SIGKILL)  # nobody else's: a child's number is free only once it is buried


def descendants() -> list[psutil.Process]:
    """Those that still run."""
    running = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


def tell(message: Any, but: str = "") -> None:
    for process in descendants():
        with suppress(psutil.Error):
            if not but or process.name() != but:
                message(process)


if __name__ == "__main__":
    sys.exit(main(Order(**json.loads(sys.argv[1])), sys.argv[2:]))
