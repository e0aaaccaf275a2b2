"""The commands that look at the machine: nightshift doctor, a line a check, and nightshift profile."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.text import Text

from agent.cli.answer import Answer
from agent.cli.options import SCRIPT, PositiveInt, Seed
from agent.errors import MachineError, NightshiftError
from agent.git import Repo
from agent.invocation import command_for, install_command, typed, typed_python
from agent.night.opening import MIN_FREE_BYTES
from agent.pools.leases import gpus_of_machine, gpus_unused
from agent.records.place import Place, read_script
from agent.sandbox.box import Mode, choose
from agent.script.contract import fixed_files
from agent.view.screen import folded, print_lines, terminal_width

LOOK_S = 120  # a first import of MLX on a slow disk
SLOW_GFLOPS = 30  # MLX's reference BLAS reaches about 8, an optimised one over 100

# Asked of a short process each: a broken MLX must not take the doctor with it.
# Speed is the best of several short measurements.
DEVICE = """
import json
from agent.lab import hardware
blas = hardware.tune()
from agent.lab.kernels.device import kernel_device
gflops = max(hardware.matmul_flops(1024, repeats=2) for _ in range(5)) / 1e9
kind, name = hardware.device_kind(), hardware.device_name()
print(json.dumps(dict(kind=kind, name=name, gflops=gflops, blas=blas, has_kernels=kernel_device() is not None)))
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
    """Hold what a check has found; a night can do without what is not essential."""

    name: str
    ok: bool
    detail: str
    remedy: str | None = None
    essential: bool = True


def doctor(*, script: Path = SCRIPT) -> Answer:
    """Check Python, MLX, BLAS, script, git, disk, memory and data.

    Args:
        script: the training script (default: train_mlx.py)
    """
    width, findings = terminal_width(), []
    for finding in _findings(script):
        mark, colour = ("✓", "green") if finding.ok else ("✗", "red") if finding.essential else ("!", "yellow")
        advice = f": {finding.remedy}" if finding.remedy and not finding.ok else ""
        line = Text.assemble((mark, colour), f" {finding.detail}{advice}")
        print_lines([line] if width is None else folded(line, width))
        findings.append(finding)
    missing = [finding.name for finding in findings if finding.essential and not finding.ok]
    checks = [asdict(finding) | {"remedy": None if finding.ok else finding.remedy} for finding in findings]
    facts = {"ready": not missing, "checks": checks}
    if missing:
        return Answer(facts, error=f"not ready for a night: see {', '.join(missing)}", exit_code=1)
    other = () if script == SCRIPT else ("--script", str(script))
    return Answer(facts, lambda: print(f"ready for a night; begin with: {typed('run', *other)}"))


def profile(*, script: Path = SCRIPT, steps: PositiveInt = 16, seed: Seed = 0) -> Answer:
    """Show where the time of a training step goes, phase by phase.

    Args:
        script: the training script (default: train_mlx.py)
        steps: to train (default: 16)
        seed: of the run (default: 0)
    """
    from agent.profile.profile import profile as take_apart

    return Answer(take_apart(script, steps, seed, Console()))


def _findings(script: Path) -> Iterator[Finding]:
    yield Finding("python", True, f"Python {platform.python_version()} on {platform.platform()}")
    mlx = _mlx()
    yield mlx
    if mlx.ok:  # a box is tried with a program that imports MLX
        yield from _device()
        yield _sandbox()
    yield from (_script(script), _git(), *_disk(), _memory(), _data())


# ---- MLX and the device ----------------------------------------------------------------------------------------------


def _mlx() -> Finding:
    packages = []
    for name in ("mlx", "mlx-metal", "mlx-cpu", "mlx-cuda-13", "mlx-cuda-12"):
        with suppress(importlib.metadata.PackageNotFoundError):
            packages.append(f"{name} {importlib.metadata.version(name)}")
    said = f"MLX build: {', '.join(packages) or 'none'}"
    return Finding("mlx", bool(packages), said, f"install it: {_mlx_command()}")


def _mlx_command() -> str:
    on_linux = f"{command_for('cpu')}, or with an NVIDIA GPU: {command_for('cuda')}"
    return install_command("mlx") if sys.platform == "darwin" else on_linux


@dataclass(frozen=True, slots=True)
class Device:
    """Hold what a short process has measured of the device."""

    kind: str
    name: str
    gflops: float
    blas: str | None  # the optimised one that was put in front of MLX's own
    has_kernels: bool = False  # of our own, compiled for it


def _device() -> Iterator[Finding]:
    measured = ask(DEVICE)
    if not isinstance(measured, dict):
        yield Finding("device", False, f"MLX does not run ({measured})", f"reinstall it: {_mlx_command()}")
        return
    device = Device(**measured)
    yield Finding("device", True, f"device: {device.name} ({device.kind})")
    yield from gpus() if device.kind == "cuda" else ()
    yield speed(device)
    needs = "a C compiler such as gcc" if device.kind == "cpu" else "NVRTC, which comes with MLX's CUDA build"
    is_expected = device.has_kernels or device.kind == "metal" or os.environ.get("NIGHTSHIFT_KERNELS") == "plain"
    trains = "compiled for this device" if device.has_kernels else "none of our own, plain MLX trains"
    yield Finding("kernels", is_expected, f"kernels: {trains}", f"install {needs}", essential=False)


def gpus() -> Iterator[Finding]:
    """Say how a night uses all GPUs, where there are several."""
    try:
        for line in gpus_unused(gpus_of_machine()):
            yield Finding("gpus", True, f"GPUs: {line}")
    except MachineError as error:
        yield Finding("gpus", False, f"GPUs: {error}", "without it a night has one worker", essential=False)


def speed(device: Device) -> Finding:
    """Say how fast a matrix product is, and what may be missing where it is slow."""
    said, remedy = f"float32 matmul: {device.gflops:,.0f} GFLOP/s", "this machine is slow, or busy with other programs"
    if device.kind == "cpu" and device.blas is None and sys.platform == "linux":
        remedy = f"an optimised BLAS is missing; install it: {command_for('cpu')}"
        if os.environ.get("NIGHTSHIFT_BLAS") == "off":
            remedy = "the optimised BLAS is turned off; unset NIGHTSHIFT_BLAS"
    return Finding("speed", device.gflops >= SLOW_GFLOPS, said, remedy, essential=False)


# ---- the folder and the rest of the machine --------------------------------------------------------------------------


def _sandbox() -> Finding:
    box = choose(Mode.AUTO)
    gaps = f"; not covered: {', '.join(box.uncovered)}" if box.uncovered else ""
    remedy = "install bubblewrap: apt install bubblewrap, dnf install bubblewrap …"
    said, on_mac = f"sandbox: {box.name}{gaps}", sys.platform == "darwin"
    return Finding("sandbox", not box.uncovered, said, None if on_mac else remedy, essential=False)


def _script(script: Path) -> Finding:
    try:
        place = Place.of(script)
        fixed_files(place.script_path.parent, read_script(place))
    except NightshiftError as error:
        return Finding("script", False, f"script: {error}")
    return Finding("script", True, f"script: {script}")


def _git() -> Finding:
    try:
        return Finding("git", True, f"git repository: {Repo.containing(Path.cwd()).root}")
    except NightshiftError as error:
        return Finding("git", False, f"git: {error}")


def _disk() -> Iterator[Finding]:
    free, wanted = shutil.disk_usage(Path.cwd()).free, f"a night wants {MIN_FREE_BYTES / 2**30:.0f} GB"
    yield Finding("disk", free >= MIN_FREE_BYTES, f"disk: {free / 2**30:,.1f} GB free", wanted)
    try:
        tempfile.TemporaryFile(dir=Path.cwd()).close()
    except OSError as error:
        said = f"folder: {Path.cwd()} cannot be written ({error.strerror})"
        yield Finding("folder", False, said, "a night keeps its files there: make it writable, or clone it elsewhere")


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    said = f"memory: {memory.available / 2**30:,.1f} of {memory.total / 2**30:,.1f} GB free"
    remedy = "close other programs or choose a smaller DEPTH"
    return Finding("memory", memory.available >= 2 << 30, said, remedy, essential=False)


def _data() -> Finding:
    match ask(DATA):
        case [folder, fingerprint]:
            return Finding("data", True, f"data: {folder} ({fingerprint}), checksums verified")
        case None:
            return Finding("data", True, "data: none yet; a night prepares the text of Python's standard library first")
        case {"closed": str(place)}:
            remedy = "make it a folder that can be written, or set NIGHTSHIFT_CACHE to one"
            return Finding("data", False, f"data: none, and {place} cannot hold any", remedy)
        case failure:
            return Finding("data", False, f"data: {failure}", f"prepare it again: {typed_python('prepare.py')}")


def ask(program: str) -> Any:
    """Run a short Python program; return the JSON that it prints, or the last line of its error as a string."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=LOOK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {LOOK_S} s"
    if done.returncode == 0:
        return json.loads(done.stdout)
    return done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
