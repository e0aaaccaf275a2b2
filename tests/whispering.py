"""Whisper from one sandbox to the next: the program that benchmarks/whispers.py runs in both. It needs no other file.

python whispering.py read [known]    print what this sandbox shows, as JSON: a number under each name
python whispering.py send NAME S     do for S seconds what moves a number, and print how often
python whispering.py mark WAY BITS   use the files of a list whose bit is 1
python whispering.py marks WAY N     print the bits that the first N files of that list show
"""

import ctypes
import fcntl
import hashlib
import json
import mmap
import os
import random
import re
import resource
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import chain, count, islice

LIBC = ctypes.CDLL(None, use_errno=True)
# Each kind of sandbox lists these; Landlock's does not list all of /usr.
FOLDERS = ("/usr/include", os.path.dirname(os.__file__))
INODES = 1024  # inodes that the kernel deals to a core at a time
NUMBER = re.compile(r"(?<![\w.])[0-9a-f]{1,16}(?![\w.])")
MOST_BYTES, MOST_NUMBERS = 1 << 14, 400
OWN_MEMORY = ("pagemap", "mem", "environ", "auxv", "smaps", "smaps_rollup", "numa_maps", "maps", "map_files", "attr")
OPTIONS = range(1, 90)  # options of SOL_SOCKET
FAMILIES = {socket.AF_INET: ("127.0.0.1", 0), socket.AF_INET6: ("::1", 0), socket.AF_NETLINK: (0, 0)}
FIEMAP, LARGE = 0xC020660B, 1 << 20
FORGET_EXTENTS, KNOWN_EXTENTS = 0x6628, 0xC020662A  # commands of ext4
GET_HINT, SET_HINT, SHORT_LIVED = 1035, 1036, 2  # commands of fcntl, and a value: written data will be deleted soon
THREADS = 64
LOOP = 1_000_000


# ---- what a sandbox shows --------------------------------------------------------------------------------------------


def readings(*, all_of_them: bool) -> dict[str, int]:
    """Return the numbers by which sandboxes are known to tell something, or all that can be read."""
    with closing(socket.socket(socket.AF_UNIX)) as own:
        descriptors = {"pipe": os.pipe()[0], "memory": os.memfd_create(""), "socket": own.fileno()}
        known = {
            "pipes": os.fstat(descriptors["pipe"]).st_ino // INODES,
            "shared memory": os.fstat(descriptors["memory"]).st_ino // INODES,
            "processes": os.getpid(),
            "load": struct.unpack_from("L", sysinfo(), 8)[0],
            "free memory": os.sysconf("SC_AVPHYS_PAGES"),
            "free blocks": os.statvfs(".").f_bfree,
            "inodes of files": inode_of_a_file("."),
            "time": int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e3),
            "speed": loop_us(),
        }
        if not all_of_them:
            return known
        found = dict(of_descriptors(descriptors)) | dict(of_calls())
    places = (("/proc", 6), ("/proc/self/", 2), ("/proc/self/net/", 2), ("/sys", 8))
    for path, text in (each for folder, depth in places for each in walk(folder, depth)):
        for at, match in enumerate(islice(NUMBER.finditer(text), MOST_NUMBERS)):
            found[f"{path} {at}"] = int(match[0], 10 if match[0].isdecimal() else 16)
    return known | found


def walk(folder: str, depth: int) -> Iterator[tuple[str, str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in OWN_MEMORY or (folder == "/proc" and entry.name.isdecimal()):
                continue
            if entry.is_dir(follow_symlinks=False) and depth:
                yield from walk(entry.path, depth - 1)
            elif entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    file = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK)
                    try:
                        yield entry.path, os.read(file, MOST_BYTES).decode(errors="replace")
                    finally:
                        os.close(file)


def of_descriptors(given: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield the numbers of these descriptors, and of one of each other kind that can be made."""
    calls = {
        "epoll": lambda: LIBC.epoll_create1(0),
        "event": lambda: LIBC.eventfd(0, 0),
        "timer": lambda: LIBC.timerfd_create(1, 0),
        "signals": lambda: LIBC.signalfd(-1, (ctypes.c_ulong * 1)(0), 0),
        "process": lambda: os.pidfd_open(os.getpid()),
        "inotify": lambda: LIBC.inotify_init1(0),
        "folder": lambda: os.open(".", os.O_RDONLY),
        "file in memory": lambda: os.open("/tmp", os.O_TMPFILE | os.O_RDWR),
        "peer": lambda: int.from_bytes(socket.socketpair()[0].getsockopt(socket.SOL_SOCKET, 77, 4), "little"),
    }
    made = dict(given)
    for name, make in calls.items():
        with suppress(OSError, AttributeError):
            made[name] = make()
    for family in range(1, 64):
        with suppress(OSError):
            made[f"family {family}"] = socket.socket(family, socket.SOCK_STREAM).detach()
    for name, descriptor in made.items():
        with suppress(OSError):
            facts = os.fstat(descriptor)
            yield from ((f"descriptor {name} inode", facts.st_ino), (f"descriptor {name} device", facts.st_dev))


def of_calls() -> Iterator[tuple[str, int]]:
    """Yield the numbers that calls return."""
    for option in OPTIONS:
        with suppress(OSError), closing(socket.socket(socket.AF_UNIX)) as own:
            yield f"option {option}", int.from_bytes(own.getsockopt(socket.SOL_SOCKET, option, 8), "little")
    for at, number in enumerate(resource.getrusage(resource.RUSAGE_SELF)):
        yield f"usage {at}", int(number * 1000)
    for name in ("/", "/tmp", "/usr", "/dev/shm"):
        with suppress(OSError):
            facts = os.statvfs(name)
            yield from ((f"blocks {name}", facts.f_bfree), (f"files {name}", facts.f_ffree))
    for space in os.listdir("/proc/self/ns"):
        with suppress(OSError):
            own = os.open(f"/proc/self/ns/{space}", os.O_RDONLY)
            yield f"namespace {space}", os.fstat(own).st_ino
            yield f"namespace {space} id", struct.unpack("Q", fcntl.ioctl(own, 0x8008B70D, bytes(8)))[0]
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=".") as file:
        file.write(bytes(LARGE))
        os.fsync(file.fileno())
        extents = fcntl.ioctl(file.fileno(), FIEMAP, struct.pack("QQIIII56x", 0, LARGE, 1, 0, 1, 0))
        yield "place on the disk", struct.unpack_from("Q", extents, 40)[0] // LARGE
    yield "session", told_by_child(begin_session)
    yield "login", told_by_child(log_in)


def sysinfo() -> bytes:
    told = ctypes.create_string_buffer(128)
    LIBC.sysinfo(told)
    return told.raw


def inode_of_a_file(folder: str) -> int:
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_ino


def loop_us() -> int:
    began = time.perf_counter()
    sum(range(LOOP))
    return int((time.perf_counter() - began) * 1e6)


def told_by_child(deed: Callable[[], str]) -> int:
    """Return the number that a new process is told after a deed; 0 where there is none."""
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(OSError, ValueError):
            os.write(here, str(int(deed())).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(here)
    with os.fdopen(there) as words:
        return int(words.read() or 0)


def begin_session() -> str:
    os.setsid()
    with open("/proc/self/autogroup") as file:
        return file.read().partition("-")[2].split()[0]


def log_in() -> str:
    with open("/proc/self/loginuid", "w") as file:
        file.write(str(os.getuid()))
    with open("/proc/self/sessionid") as file:
        return file.read()


# ---- what moves a number ---------------------------------------------------------------------------------------------


def fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def make_pipe() -> None:
    for made in os.pipe():
        os.close(made)


def look_up() -> None:
    with suppress(OSError):
        os.stat(f"/usr/lib/{random.random()}")  # the kernel remembers names that are not there


def fill_log() -> None:
    print("." * 4095, flush=True)  # a block of the disk, and the log stays


def make_file() -> None:
    with open("made", "w"):
        pass
    os.unlink("made")


def do_much() -> None:
    """Do whatever may be counted."""
    for _ in range(5):
        told_by_child(begin_session)
        told_by_child(log_in)
    for _ in range(20):
        for deed in (make_pipe, look_up, make_file, lambda: os.close(os.memfd_create(""))):
            deed()
        mmap.mmap(-1, 4096).close()
        for family, address in FAMILIES.items():
            with suppress(OSError), closing(socket.socket(family, socket.SOCK_DGRAM)) as own:
                own.bind(address)
                own.sendto(b"", own.getsockname())  # a packet
    with suppress(OSError):
        thread = threading.Thread(target=os.getpid)
        thread.start()
        thread.join()
    with suppress(OSError, AttributeError):
        os.close(os.pidfd_open(os.getpid()))
    for name in ("/tmp", "/dev/shm"):
        with suppress(OSError):
            tempfile.TemporaryFile(dir=name).close()
    with suppress(OSError):
        os.close(os.open("/dev/ptmx", os.O_RDWR))


DEEDS: Mapping[str, Callable[[], object]] = {
    "pipes": make_pipe,
    "shared memory": lambda: os.close(os.memfd_create("")),
    "processes": fork,
    "free memory": look_up,
    "free blocks": fill_log,
    "inodes of files": make_file,
    "time": lambda: time.sleep(0.001),
    "speed": lambda: sum(range(1000)),
    "everything": do_much,
}


def send(name: str, seconds: float) -> int:
    """Do a deed for a time; return how often."""
    if name == "load":
        threads = [threading.Thread(target=burn, args=(seconds,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return THREADS
    done, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        DEEDS[name]()
        done += 1
    return done


def burn(seconds: float) -> None:
    until, much = time.monotonic() + seconds, bytes(1 << 20)
    while time.monotonic() < until:
        hashlib.sha256(much)  # holds no lock of Python's meanwhile


# ---- one bit a file --------------------------------------------------------------------------------------------------


def small_files() -> Iterator[str]:
    for folder, _, names in chain.from_iterable(map(os.walk, FOLDERS)):
        for path in (os.path.join(folder, name) for name in names):
            with suppress(OSError):
                if not os.path.islink(path) and 0 < os.stat(path).st_size < 1 << 16:
                    yield path


def links() -> Iterator[str]:
    """Yield links that nobody has followed for long, beside the folder of the run."""
    yield from (f"../links/{number}" for number in count())


def was_fast(path: str) -> bool:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as page:
        before = waits()
        page[0]
        return waits() == before


def waits() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_majflt + usage.ru_inblock


def read_a_byte(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def was_read(path: str) -> bool:
    return time.time() - os.lstat(path).st_atime < 60


def files_of_python() -> Iterator[str]:
    """Yield files that belong to the user more often than the system's do."""
    for folder, _, names in os.walk(FOLDERS[-1]):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


def give_a_hint(path: str) -> None:
    with open(path, "rb") as file:
        fcntl.fcntl(file, SET_HINT, struct.pack("Q", SHORT_LIVED))


def has_a_hint(path: str) -> bool:
    with open(path, "rb") as file:
        return bool(fcntl.fcntl(file, GET_HINT, bytes(8)) == struct.pack("Q", SHORT_LIVED))


def forget_extents(path: str) -> None:
    with open(path, "rb") as file:
        fcntl.ioctl(file, FORGET_EXTENTS)


def has_forgotten_extents(path: str) -> bool:
    with open(path, "rb") as file:
        answer = fcntl.ioctl(file, KNOWN_EXTENTS, struct.pack("QQIIII56x", 0, LARGE, 0, 0, 1, 0))
        return struct.unpack_from("I", answer, 20)[0] == 0


WAYS: Mapping[str, tuple[Callable[[], Iterator[str]], Callable[[str], object], Callable[[str], bool]]] = {
    "files in memory": (small_files, read_a_byte, was_fast),
    "times of reading": (links, os.stat, was_read),
    "hints of files": (files_of_python, give_a_hint, has_a_hint),
    "extents in memory": (files_of_python, forget_extents, has_forgotten_extents),
}


def listed(way: str, most: int) -> list[str]:
    """Return the same files in each sandbox, of each few neighbours one: the kernel reads the folders of all of
    them."""
    paths = list(islice(WAYS[way][0](), 4 * most))
    random.Random(len(paths)).shuffle(paths)
    return paths[:most]


def marks(way: str, most: int) -> str:
    bits = ""
    for path in listed(way, most):
        try:
            bits += str(int(WAYS[way][2](path)))
        except OSError:
            bits += "0"
    return bits


def mark(way: str, bits: str) -> int:
    paths = [path for bit, path in zip(bits, listed(way, len(bits)), strict=False) if bit == "1"]
    for path in paths:
        with suppress(OSError):
            WAYS[way][1](path)
    return len(paths)


def main(doing: str, name: str = "", much: str = "") -> object:
    match doing:
        case "read":
            return readings(all_of_them=name != "known")
        case "send":
            return send(name, float(much))
        case "mark":
            return mark(name, much)
    return marks(name, int(much))


if __name__ == "__main__":
    print(f"\n{json.dumps(main(*sys.argv[1:]))}")
