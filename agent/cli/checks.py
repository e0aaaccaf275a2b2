"""Check whether this machine can run a night: one line a check, with the remedy if something is missing."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console

from agent.cli.answer import Answer
from agent.errors import MachineError, NightshiftError
from agent.git import Repo
from agent.invocation import SCRIPT, command_for, install_command, typed
from agent.night.opening import MIN_FREE_BYTES
from agent.pools.leases import gpus_of_machine, gpus_unused
from agent.records.place import Place, read_script
from agent.sandbox.box import Mode, choose
from agent.script.contract import fixed_files

LOOK_S = 120  # a first import of MLX on a slow disk
SLOW_GFLOPS = 30  # MLX's reference BLAS reaches about 8, an optimised one over 100
TRIES_OUT = "now the machine is tried out, which takes minutes: steps, their memory, a night of one experiment"
CONTENDED_SHARE = 0.25  # of the cores that we may use: the share that others may take unnoticed

# Asked of a short process each: a broken MLX must not take the doctor with it.
# Speed is the best of several short measurements, with pauses in which other programs' load shows.
DEVICE = """
import json, os, time
from agent.lab import hardware
from agent.sandbox.watch import Counters, others_share
blas = hardware.tune()
kind, name, flops = hardware.device_kind(), hardware.device_name(), []
before = Counters.now()
while len(flops) < 3 or time.monotonic() - before.at_s < 1.2:
    flops.append(hardware.matmul_flops(1024, repeats=2))
    time.sleep(0.1)
others, cores = others_share(before, Counters.now()) or 0.0, os.cpu_count()
print(json.dumps(dict(
    kind=kind, name=name, gflops=max(flops) / 1e9, blas=blas, cores=hardware.usable_cores(),
    others=max(0.0, others * cores), machine_cores=cores,
)))
"""
KERNELS = """
import json
from agent.lab import hardware
hardware.tune()
from agent.lab.kernels.device import kernel_device
print(json.dumps([hardware.device_kind(), kernel_device() is not None]))
"""
# Where there are none: whether a night could prepare them.
DATA = """
import json, os
from agent.lab.data import data_dir, load_data
from agent.lab.hardware import cache_root
root = cache_root()
there = next(place for place in (root, *root.parents) if place.exists())
closed = not (there.is_dir() and os.access(there, os.W_OK | os.X_OK))
folder = None if closed and "NIGHTSHIFT_DATA" not in os.environ else data_dir()
if folder is not None:
    print(json.dumps([str(folder), load_data(folder).fingerprint]))
else:
    import rustbpe, tiktoken
    print(json.dumps({"closed": str(there)} if closed else None))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    good: bool
    what: str
    remedy: str = ""
    essential: bool = True  # a night needs it; else it only runs better with it
    measured: Mapping[str, object] = field(default_factory=dict)  # for verify.json: no text of a user or a script

    @property
    def mark(self) -> str:
        return "[green]✓[/]" if self.good else "[red]✗[/]" if self.essential else "[yellow]![/]"

    def as_json(self) -> dict[str, object]:
        """Return the finding for programs; a check that is passed needs no remedy."""
        remedy = None if self.good else self.remedy or None
        return {"name": self.name, "ok": self.good, "detail": self.what, "remedy": remedy, "essential": self.essential}


Check = Callable[[], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Device:
    """Hold what a short process has measured of the device."""

    kind: str
    name: str
    gflops: float
    blas: str | None  # the optimised one that was put in front of MLX's own
    cores: int  # that we may use
    others: float  # cores that other programs kept busy meanwhile
    machine_cores: int

    @property
    def is_contended(self) -> bool:
        """Return whether other programs use cores that we may use; a container may have fewer than the machine."""
        return self.others > self.machine_cores - (1 - CONTENDED_SHARE) * self.cores


def examine(console: Console, script: Path, more: Sequence[Check] = ()) -> Answer:
    """Print every finding as it is made; the exit code is 1 if something essential is missing."""
    found: list[Finding] = []
    checks = (_python, _mlx, _device, _kernels, lambda: _script(script), _git, _sandbox, _disk, _memory, _data, *more)
    for check in checks:
        if check in OF_MLX and any(not finding.good for finding in found if finding.name == "mlx"):
            continue
        if check in more:
            console.print(TRIES_OUT, highlight=False, soft_wrap=True)
        for finding in check():
            found.append(finding)
            console.print(finding.mark, end=" ")
            advice = f": {finding.remedy}" if finding.remedy and not finding.good else ""
            console.print(finding.what + advice, markup=False, highlight=False, soft_wrap=True)
    missing = [finding.name for finding in found if finding.essential and not finding.good]
    facts = {"ready": not missing, "checks": [one.as_json() for one in found]}
    if missing:
        return Answer(facts, error=f"not ready for a night: see {', '.join(missing)}", exit_code=1)
    other = () if script == Path(SCRIPT) else ("--script", str(script))
    return Answer(facts, lambda: print(f"ready for a night; begin with: {typed('run', *other)}"))


def _python() -> Iterator[Finding]:
    yield Finding(
        "python",
        sys.version_info >= (3, 11),
        f"Python {platform.python_version()} on {platform.platform()}",
        "nightshift needs Python 3.11 or later",
    )


def _mlx() -> Iterator[Finding]:
    packages = [
        f"{name} {version}"
        for name in ("mlx", "mlx-metal", "mlx-cpu", "mlx-cuda-13", "mlx-cuda-12")
        if (version := _version(name))
    ]
    yield Finding("mlx", bool(packages), f"MLX build: {', '.join(packages) or 'none'}", f"install it: {_mlx_command()}")


def _mlx_command() -> str:
    on_linux = f"{command_for('cpu')}, or with an NVIDIA GPU: {command_for('cuda')}"
    return install_command("mlx") if sys.platform == "darwin" else on_linux


def _device() -> Iterator[Finding]:
    found = ask(DEVICE)
    if not isinstance(found, dict):
        yield Finding("device", False, f"MLX does not run ({found})", f"reinstall it: {_mlx_command()}")
        return
    device = Device(**found)
    yield Finding("device", True, f"device: {device.name} ({device.kind})")
    yield from gpus() if device.kind == "cuda" else ()
    yield speed(device)


def gpus() -> Iterator[Finding]:
    """Say how a night uses all GPUs, where there are several."""
    try:
        found = gpus_of_machine()
    except MachineError as error:
        yield Finding("gpus", False, f"GPUs: {error}", "without it a night has one worker", essential=False)
        return
    for line in gpus_unused(found):
        yield Finding("gpus", True, f"GPUs: {line}")


def speed(device: Device) -> Finding:
    """Say how fast a matrix product is, and why it is slow if it is: a missing package, or other programs."""
    what = f"float32 matmul: {device.gflops:,.0f} GFLOP/s"
    if device.is_contended:
        what += f" while other programs keep {device.others:.1f} of {device.machine_cores} cores busy"
    if device.gflops < SLOW_GFLOPS and device.kind == "cpu" and device.blas is None and sys.platform == "linux":
        remedy = f"an optimised BLAS is missing; install it: {command_for('cpu')}"
        if os.environ.get("NIGHTSHIFT_BLAS") == "off":
            remedy = "the optimised BLAS is turned off; unset NIGHTSHIFT_BLAS"
        return Finding("speed", False, what, remedy, essential=False)
    remedy = "this machine is slow, and nothing that could be installed is missing"
    if device.is_contended:
        remedy = "the machine is busy; runs beside other programs get fewer steps, and their scores compare badly"
    slow = device.gflops < SLOW_GFLOPS
    return Finding("speed", not (slow or device.is_contended), what, remedy, essential=False)


def _kernels() -> Iterator[Finding]:
    found = ask(KERNELS)
    if not isinstance(found, list):
        yield Finding("kernels", False, f"kernels: {found}", "plain MLX trains", essential=False)
        return
    kind, compiled = found
    expected = compiled or kind == "metal" or os.environ.get("NIGHTSHIFT_KERNELS") == "plain"
    yield Finding(
        "kernels",
        expected,
        f"kernels: {'compiled for this device' if compiled else 'none of our own, plain MLX trains'}",
        "install a C compiler such as gcc" if kind == "cpu" else "install NVRTC, which comes with MLX's CUDA build",
        essential=False,
    )


def _script(script: Path) -> Iterator[Finding]:
    try:
        place = Place.of(script)
        fixed_files(place.script_path.parent, read_script(place))
        yield Finding("script", True, f"script: {script}")
    except NightshiftError as error:
        yield Finding("script", False, f"script: {error}")


def _git() -> Iterator[Finding]:
    if shutil.which("git") is None:
        yield Finding("git", False, "git: not found", "install it from https://git-scm.com")
        return
    try:
        yield Finding("git", True, f"git repository: {Repo.containing(Path.cwd()).root}")
    except NightshiftError as error:
        yield Finding("git", False, f"git: {error}")


def _sandbox() -> Iterator[Finding]:
    box = choose(Mode.AUTO)
    gaps = f"; not covered: {', '.join(box.uncovered)}" if box.uncovered else ""
    remedy = "" if sys.platform == "darwin" else "install bubblewrap: apt install bubblewrap, dnf install bubblewrap …"
    yield Finding("sandbox", not box.uncovered, f"sandbox: {box.name}{gaps}", remedy, essential=False)


def _disk() -> Iterator[Finding]:
    free, wanted = shutil.disk_usage(Path.cwd()).free, f"a night wants {MIN_FREE_BYTES / 2**30:.0f} GB"
    yield Finding("disk", free >= MIN_FREE_BYTES, f"disk: {free / 2**30:,.1f} GB free", wanted)
    try:
        tempfile.TemporaryFile(dir=Path.cwd()).close()
    except OSError as error:
        what = f"folder: {Path.cwd()} cannot be written ({error.strerror})"
        yield Finding("folder", False, what, "a night keeps its files there: make it writable, or clone it elsewhere")


def _memory() -> Iterator[Finding]:
    free, total = psutil.virtual_memory().available, psutil.virtual_memory().total
    yield Finding(
        "memory",
        free >= 2 << 30,
        f"memory: {free / 2**30:,.1f} of {total / 2**30:,.1f} GB free",
        "close other programs or choose a smaller DEPTH",
        essential=False,
    )


def _data() -> Iterator[Finding]:
    match ask(DATA):
        case [folder, fingerprint]:
            yield Finding("data", True, f"data: {folder} ({fingerprint}), checksums verified")
        case None:
            yield Finding("data", True, "data: none yet; a night prepares the text of Python's standard library first")
        case {"closed": str(place)}:
            remedy = "make it a folder that can be written, or set NIGHTSHIFT_CACHE to one"
            yield Finding("data", False, f"data: none, and {place} cannot hold any", remedy)
        case found:
            yield Finding("data", False, f"data: {found}", f"prepare it again: {typed('prepare')}")


OF_MLX = (_device, _kernels, _sandbox)  # a box is tried with a program that imports MLX


def ask(program: str) -> object:
    """Run a short Python program; return the JSON that it prints, or the last line of its error as a string."""
    return ask_python("-c", program)


def ask_python(*arguments: str, limit_s: float = LOOK_S, **variables: str) -> object:
    """Run Python with these arguments and environment variables, and return as ask() does."""
    try:
        command, env = [sys.executable, *arguments], {**os.environ, **variables}
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, env=env)
    except subprocess.TimeoutExpired:
        return f"no answer within {limit_s} s"
    if done.returncode == 0:
        return json.loads(done.stdout)
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
