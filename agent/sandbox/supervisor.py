"""Run one command between the harness and the sandbox, within its part of the machine, and end all that it leaves.

On Linux it adopts all descendants of the command, daemons included. So it can end the whole tree when the command ends
or exceeds a limit, on SIGTERM, and when the harness dies. The kernel enforces some limits (RLIMIT_*). A watch covers
the others: the memory of all processes together with what their descriptors hold, the size of a folder with deleted
files, and the machine's reserves of memory and disk, which no run may use up. A Report as JSON goes to its standard
output; the command writes to its standard error, which is the log.

process.py starts it with the parameters of main().
"""

import ctypes
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_S = 0.02
QUICK_S, THOROUGH_S = 0.1, 1.0  # s between checks: a gigabyte fills in 0.08 s, listing all processes costs milliseconds
GRACE_S = 2.0  # s between SIGTERM and SIGKILL
MAX_TASKS = 4096  # the kernel counts threads as processes, and libraries start many on a large machine
MAX_OPEN_FILES = 1024  # per process; this also bounds the descriptors that are on their way in sockets
MOST_DEPTH = 64  # folders inside one another
OOM_SCORE = b"1000"  # if the machine runs out of memory, the kernel kills the run, not the harness
GB = 1 << 30
QUEUE_BYTES = 1 << 20  # a pipe may hold this much, and a socket holds less
STEP_BYTES = 64 << 20  # if files in memory grow by this much, the watch finds out again whose they are
DELETED = b" (deleted)\n"  # marks a mapped file in /proc that has no name any more
MEMORY_FOLDERS = (Path("/tmp"), Path("/dev/shm"))  # each sandbox has its own
CONTAINER = Path("/sys/fs/cgroup")  # the limits of the container around this process


# ---- limits ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """The most that one process tree and its folder may use, and the reserves of the machine."""

    memory_bytes: int  # memory of all its processes together
    spare_memory_bytes: int  # the reserve: the tree ends when less is available on the machine
    spare_disk_bytes: int
    folder_bytes: int = 16 * GB  # weights, logs and caches are in the folder
    folder_files: int = 10_000
    file_bytes: int = 16 * GB
    processes: int = 256
    descriptors: int = 10_000
    threads: int = 2048  # the user's limit leaves a run twice as many: another worker's run counts toward it, too


def limits_of_machine(share: float = 1.0) -> ResourceLimits:
    """Return the limits of a run on this machine, or of one of several runs that divide its memory.

    Runs may use all memory except a tenth (at least 2 GB, at most half of a small machine's memory). A quarter of that
    tenth is the machine's reserve. The last half gigabyte of the disk is reserved for the night's records.
    """
    total, _ = memory()
    spare = min(max(2 * GB, total // 10), total // 2)
    return ResourceLimits(int(share * (total - spare)), spare // 4, GB // 2)


def memory(container: Path = CONTAINER) -> tuple[int, int]:
    """Return the bytes of the machine's memory, all and available, or of the container's around us if it has less."""
    machine = psutil.virtual_memory()
    with suppress(OSError, ValueError):  # there are no control groups of version 2, or the limit is "max"
        limit = int((container / "memory.max").read_bytes())
        if limit < machine.total:
            stat = dict(line.split() for line in (container / "memory.stat").read_text(encoding="utf-8").splitlines())
            # pages of files, such as the corpus's, count as used, but are dropped when memory is needed
            droppable = int(stat["active_file"]) + int(stat["inactive_file"])
            left = limit - int((container / "memory.current").read_bytes()) + droppable
            return limit, min(machine.available, left)
    return machine.total, machine.available


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit that was exceeded, in words for the results."""

    words: str
    is_shortage: bool = False  # the machine's memory or disk ran out, by this tree or by other programs


@dataclass(frozen=True, slots=True)
class Report:
    """What the supervisor says of a tree of processes that has ended; all None if it was killed itself."""

    exit_code: int | None = None  # the command's exit code; -n after signal n
    over: Excess | None = None
    peak_bytes: int | None = None  # the most memory filled at one time; None if it was not watched


# ---- the program -----------------------------------------------------------------------------------------------------


def main(command: list[str], harness: int, limits: dict[str, int] | None, cores: Sequence[int]) -> None:
    """Run the command until it ends or has to end, end its tree, and report.

    harness: process id; when this process is gone, the command is ended. limits: fields of ResourceLimits; None: none
    are enforced. cores: the command is pinned to these; none: it is not pinned.
    """
    most = ResourceLimits(**limits) if limits else None
    if cores:
        os.sched_setaffinity(0, cores)
    signals: list[int] = []  # signals that asked for the end
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: signals.append(number))
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # descendants whose parents end become ours
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    start = partial(on_start, most, own_tasks(), os.getpid())
    child = subprocess.Popen(command, stdout=sys.stderr, preexec_fn=start)  # safe, as there are no threads here
    watch = Watch(most, Path.cwd()) if most else None
    over: Excess | None = None
    while alive(child) and child.returncode is None and not signals and over is None and has_harness(harness):
        time.sleep(POLL_S)
        over = watch.exceeded() if watch else None
    if watch and over is None and child.poll():
        over = watch.disk()  # the command may have failed on a full disk before the watch looked
    # There is no grace for a command that exceeded a limit, nor for an orphan: a resumed night may need its folder.
    end_tree(child, GRACE_S if over is None and has_harness(harness) else 0)
    report = Report(exit_code(child.returncode), over, watch.peak_bytes if watch else None)
    with suppress(OSError):  # the harness may be gone
        os.write(sys.stdout.fileno(), json.dumps(asdict(report)).encode())


def exit_code(status: int) -> int:
    """Return a command's exit code; a shell's and bubblewrap's 128 + n after signal n as -n, but 255 as it is."""
    return 128 - status if 128 < status <= 128 + max(signal.valid_signals()) else status


def has_harness(harness: int) -> bool:
    """Return whether the harness that has started this process still runs."""
    return os.getppid() == harness


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def own_tasks() -> int:
    """Return the number of threads of all processes of this user, which is what RLIMIT_NPROC counts."""
    facts = (process.info for process in psutil.process_iter(["uids", "num_threads"]))
    return sum(info["num_threads"] or 0 for info in facts if info["uids"] and info["uids"].real == os.getuid())


def on_start(limits: ResourceLimits | None, tasks: int, supervisor: int) -> None:
    """Apply the limits to the calling child before it becomes the command; `tasks` is the user's thread count."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)  # the supervisor was killed before this child could ask for the signal
    limit(resource.RLIMIT_CORE, 0)
    if limits is not None:
        limit(resource.RLIMIT_FSIZE, limits.file_bytes)
        limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
        limit(resource.RLIMIT_NPROC, tasks + MAX_TASKS)  # the kernel does not apply it to root
    offer(os.getpid())


def offer(pid: int) -> None:
    """Have the kernel end this process before others where memory runs out; the process itself can take that back."""
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_bytes(OOM_SCORE)


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
        child.kill()  # if the child is bubblewrap, all processes inside end with it
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
    with suppress(FileNotFoundError):  # a Mac has no such list, and a kernel may be built without it
        while alive(child) and time.monotonic() < deadline:
            for pid in own.read_bytes().split():
                os.kill(int(pid), signal.SIGKILL)  # this is safe: a child's id is reused only after we have reaped it


def descendants() -> list[psutil.Process]:
    """Return the descendants of this process, zombies among them."""
    return list(psutil.Process().children(recursive=True))


def running(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those of these processes that still run.

    One whose first thread has ended looks like a zombie: another of its threads is returned, which shows the same.
    """
    found = []
    for process in processes:
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
            elif others := [thread.id for thread in process.threads() if thread.id != process.pid]:
                found.append(psutil.Process(others[-1]))
    return found


def tell(message: Callable[[psutil.Process], None], but: str = "") -> None:
    """Call a method of psutil.Process on every descendant, except on those named `but`."""
    for process in running(descendants()):
        with suppress(psutil.Error):
            if not but or process.name() != but:
                message(process)


# ---- the watch -------------------------------------------------------------------------------------------------------


Footprint = tuple[int, int]  # bytes: a process's own, and those of files in memory that it maps


@dataclass(frozen=True, slots=True)
class Kept:
    """What the descriptors of a tree keep, which the size of no process and of no folder shows."""

    descriptors: int = 0
    queue_bytes: int = 0  # at most this much is in its pipes and sockets
    memory_bytes: int = 0  # size of its files in memory without a name
    disk_bytes: int = 0  # size of its deleted files


class Watch:
    """Check repeatedly whether the descendants of this process and their folder stay within their limits."""

    def __init__(self, limits: ResourceLimits, folder: Path) -> None:
        self.peak_bytes = 0  # the most memory filled at one time
        self._limits = limits
        self._folder = folder
        self._processes: list[psutil.Process] = []
        self._zombies = 0  # how many there are: each keeps its number, and some kilobytes of the kernel's memory
        self._quick_s = self._thorough_s = 0.0
        self._again_bytes = 0  # size of shared pages that the sum over processes counts again, as last measured
        self._kept = Kept()
        self._in_memory_files_then = self._in_memory_files_at_start = files_in_memory_bytes()
        self._free_bytes_at_start = shutil.disk_usage(folder).free

    def exceeded(self) -> Excess | None:
        """Return the first limit that is exceeded, else None; cheap enough for a call every few milliseconds."""
        # The disk is looked at in each call: another run's files may soon be gone again.
        over, now_s = self.disk(), time.monotonic()
        if over is not None or now_s - self._quick_s < QUICK_S:
            return over
        self._quick_s, in_memory_files = now_s, files_in_memory_bytes()
        is_thorough = now_s - self._thorough_s >= THOROUGH_S
        if is_thorough:
            every = descendants()
            self._thorough_s, self._again_bytes, self._processes = now_s, 0, running(every)
            self._zombies = len(every) - len(self._processes)
        if is_thorough or in_memory_files > self._in_memory_files_then + STEP_BYTES:
            self._in_memory_files_then = in_memory_files
            self._kept = kept_by(self._processes, self._limits.descriptors)
        for process in self._processes:
            offer(process.pid)
        return (self._crowd() or self._hoard() if is_thorough else None) or self._memory(in_memory_files)

    def disk(self) -> Excess | None:
        """Return an excess if the disk's reserve is used up."""
        with suppress(FileNotFoundError):  # outside of a sandbox, a script can remove its own folder
            spare, least = shutil.disk_usage(self._folder).free, self._limits.spare_disk_bytes
            if spare < least:
                left = f"{spare / GB:.2f} GB are left, {least / GB:.2f} GB are the night's reserve"
                return Excess(f"disk full: {left}", is_shortage=True)
        return None

    def _crowd(self) -> Excess | None:
        processes, threads = len(self._processes), sum(map(threads_of, self._processes))
        allowed = (
            ("processes", processes, self._limits.processes),
            ("threads", threads, self._limits.threads),
            ("dead processes", self._zombies, self._limits.threads),
            ("open files", self._kept.descriptors, self._limits.descriptors),
        )
        beyond = (f"too many {name}: {count}, {most} are allowed" for name, count, most in allowed if count > most)
        return next(map(Excess, beyond), None)

    def _hoard(self) -> Excess | None:
        """Return an excess of files: those in its folder, deleted ones in use, and names in its sandbox's memory."""
        most_bytes, most_files = self._limits.folder_bytes, self._limits.folder_files
        usage = folder_usage(self._folder, most_bytes, most_files, self._kept.disk_bytes)
        if usage is not None:
            and_deleted = ", with deleted files that are open," if self._kept.disk_bytes else ""
            return Excess(f"its folder{and_deleted} holds {usage}")
        if files_in_memory(self._processes) > most_files:
            return Excess(f"its /tmp and /dev/shm hold more than the {most_files:,} files that are allowed")
        with suppress(FileNotFoundError):
            taken = self._free_bytes_at_start - shutil.disk_usage(self._folder).free
            if taken > most_bytes and any(may_hide(DELETED, process) for process in self._processes):
                words = f"{taken / GB:.1f} GB of the disk went while it ran, which it may hold in deleted files"
                return Excess(f"{words}; {most_bytes / GB:.1f} GB are allowed", is_shortage=True)
        return None

    def _memory(self, in_memory_files: int) -> Excess | None:
        (_, spare), least, most = memory(), self._limits.spare_memory_bytes, self._limits.memory_bytes
        used, in_files = self._used_bytes(footprint)
        if used - self._again_bytes > most:  # finding shared pages is slow, so it is done only now
            self._again_bytes = used - self._used_bytes(footprint_once)[0]
        used -= self._again_bytes
        self.peak_bytes = max(self.peak_bytes, used)
        if used > most:
            return Excess(f"out of memory: it used {used / GB:.1f} GB, {most / GB:.1f} GB are allowed")
        unseen = in_memory_files - self._in_memory_files_at_start - in_files
        if used + unseen > most and any(may_hide(mark_of_memory(), process) for process in self._processes):
            hidden = f"{unseen / GB:.1f} GB became shared memory while it ran, which it may hold unseen"
            words = f"out of memory: it used {used / GB:.1f} GB, and {hidden}; {most / GB:.1f} GB are allowed"
            return Excess(words, is_shortage=True)
        if spare < least:
            left = f"the machine had {spare / GB:.2f} GB left, {least / GB:.2f} GB are its reserve"
            return Excess(f"out of memory: this run used {used / GB:.2f} GB, {left}", is_shortage=True)
        return None

    def _used_bytes(self, read: Callable[[psutil.Process], Footprint]) -> tuple[int, int]:
        """Return the memory of the whole tree, and what of it is in files in memory, mapped or held open."""
        own, mapped = map(sum, zip(*map(read, self._processes), strict=True)) if self._processes else (0, 0)
        in_files = max(mapped, self._kept.memory_bytes)
        return own + self._kept.queue_bytes + in_files, in_files


def files_in_memory_bytes() -> int:
    """Return the machine's memory that is in files: those of tmpfs, memfd and shared memory. On a Mac there is none."""
    return getattr(psutil.virtual_memory(), "shared", 0)


def footprint(process: psutil.Process) -> Footprint:
    """Return the memory that this process fills, its own and that of files in memory; nothing if it has just ended.

    Shared pages count in full. Pages of files, such as the corpus, do not count: the kernel can drop them.
    """
    with suppress(OSError, psutil.Error):
        if sys.platform == "darwin":  # this is unverified on a Mac
            return int(process.memory_full_info().uss), 0
        status = Path(f"/proc/{process.pid}/status").read_bytes()
        return _kilobytes(rb"RssAnon|VmSwap|VmPTE", status), _kilobytes(rb"RssShmem", status)
    return 0, 0


def footprint_once(process: psutil.Process) -> Footprint:
    """Return its footprint with a page that n processes share counted as 1/n; slow for large processes."""
    try:
        facts = b"".join(Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("status", "smaps_rollup"))
    except OSError:  # this is not Linux, or the process is closed to us
        return footprint(process)
    return _kilobytes(rb"VmPTE|Pss_Anon|SwapPss", facts), _kilobytes(rb"Pss_Shmem", facts)


def _kilobytes(names: bytes, facts: bytes) -> int:
    """Return the sum of these lines of a file of /proc, in bytes."""
    return 1024 * sum(map(int, re.findall(rb"(?m)^(?:%b):\s*(\d+) kB" % names, facts)))


def kept_by(processes: Iterable[psutil.Process], most: int) -> Kept:
    """Return what the descriptors of these processes hold; stop beyond the most descriptors."""
    seen: set[tuple[int, int]] = set()
    count = queue_bytes = memory_bytes = disk_bytes = 0
    for process in processes:
        with suppress(OSError), os.scandir(f"/proc/{process.pid}/fd") as descriptors:
            for descriptor in descriptors:
                count += 1
                if count > most:
                    return Kept(count, queue_bytes, memory_bytes, disk_bytes)
                with suppress(OSError):  # the descriptor was closed meanwhile
                    file = descriptor.stat()
                    if (file.st_dev, file.st_ino) in seen:
                        continue
                    seen.add((file.st_dev, file.st_ino))
                    if stat.S_ISFIFO(file.st_mode) or stat.S_ISSOCK(file.st_mode):
                        queue_bytes += QUEUE_BYTES
                    elif stat.S_ISREG(file.st_mode) and file.st_nlink == 0:
                        if file.st_dev == device_of_memory():
                            memory_bytes += 512 * file.st_blocks
                        else:
                            disk_bytes += 512 * file.st_blocks
    return Kept(count, queue_bytes, memory_bytes, disk_bytes)


@cache
def device_of_memory() -> int:
    """Return the device of files in memory that have no name."""
    with os.fdopen(os.memfd_create(""), "wb") as file:
        return os.fstat(file.fileno()).st_dev


def mark_of_memory() -> bytes:
    """Return what a mapped file in memory without a name shows in /proc: its device."""
    return f" {os.major(device_of_memory()):02x}:{os.minor(device_of_memory()):02x} ".encode()


def may_hide(mark: bytes, process: psutil.Process) -> bool:
    """Return whether a process may keep files that no descriptor shows: in a socket, or mapped ones with this mark."""
    own = Path(f"/proc/{process.pid}")
    try:
        if mark in (own / "maps").read_bytes():
            return True
        return any(
            b"scm_fds: 0\n" not in (own / "fdinfo" / descriptor.name).read_bytes()
            for descriptor in (own / "fd").iterdir()
            if descriptor.is_socket()
        )
    except PermissionError:  # the process has closed itself to us
        return True
    except OSError:  # the process has just ended, or this is a Mac
        return False


def files_in_memory(processes: Iterable[psutil.Process]) -> int:
    """Return how many files the sandbox keeps in memory: each takes a kilobyte of the kernel's that no size shows."""
    counts: dict[int, int] = {}
    for process in processes:
        for place in MEMORY_FOLDERS:
            with suppress(OSError):
                seen = Path(f"/proc/{process.pid}/root{place}")
                device = seen.stat().st_dev
                if device not in counts and device != place.stat().st_dev:
                    disk = os.statvfs(seen)
                    counts[device] = disk.f_files - disk.f_ffree
    return sum(counts.values())


def threads_of(process: psutil.Process) -> int:
    """Return the number of its threads; 0 if it has just ended."""
    with suppress(psutil.Error):
        return int(process.num_threads())
    return 0


def folder_usage(folder: Path, most_bytes: int, most_files: int, deleted_bytes: int = 0) -> str | None:
    """Return in words which limit a folder and deleted files exceed, else None; stop reading at the first excess."""
    used_bytes, files = deleted_bytes, 0
    waiting, deepest = [str(folder)], str(folder).count(os.sep) + MOST_DEPTH
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        if entry.path.count(os.sep) > deepest:  # long paths are slow to follow
                            return f"folders more than the {MOST_DEPTH} deep that are allowed"
                    with suppress(FileNotFoundError):
                        used_bytes += 512 * entry.stat(follow_symlinks=False).st_blocks
                    if used_bytes > most_bytes:
                        return f"more than the {most_bytes / GB:.1f} GB that are allowed"
                    if files > most_files:
                        return f"more than the {most_files:,} files that are allowed"
        except (FileNotFoundError, NotADirectoryError):
            continue  # it was removed meanwhile, or replaced by a file
        except OSError as error:  # the script has closed it, or it is nested deeper than the longest possible path
            return f"a part that cannot be measured ({error.strerror})"
    return None
