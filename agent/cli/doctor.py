"""Check the machine: nightshift doctor, a line a check."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.text import Text

from agent.cli.options import SCRIPT, Metric, UserPath
from agent.errors import MachineError, NightshiftError
from agent.files import MIN_FREE_BYTES
from agent.invocation import command_for, install_command, own_python, typed, typed_python
from agent.pools.device_slots import gpus_of_machine, gpus_unused
from agent.records.options import opened
from agent.records.place import Place, read_script
from agent.sandbox.crash import why_crashed
from agent.sandbox.sandboxes import choose
from agent.script.contract import fixed_files
from agent.view.answer import Answer
from agent.view.screen import at_work, print_folded, print_lines

IMPORT_S = 120  # a first import of MLX on a slow disk
SLOW_GFLOPS = 30  # MLX's reference BLAS reaches about 8, an optimised one over 100

# Asked of a short process each: a broken MLX must not take the doctor with it.
# Speed is the best of several short measurements.
DEVICE = """
import json
from agent.lab import hardware
has_blas = hardware.tune() is not None
import mlx.core as mx
from agent.lab.kernels.device import kernel_device
gflops = max(hardware.matmul_flops(1024, repeats=2) for _ in range(5)) / 1e9
kind, name = hardware.device_kind(), hardware.device_name()
has_kernels = kernel_device() is not None
facts = dict(kind=kind, name=name, mlx=mx.__version__, gflops=gflops, has_kernels=has_kernels, has_blas=has_blas)
print(json.dumps(facts))
"""
# Where there are none: whether a night could prepare them.
DATA = """
import json, tempfile
from agent.lab.data import data_dir, load_data
from agent.lab.hardware import cache_root
folder = data_dir()
if folder is None:
    import rustbpe, tiktoken
    cache_root().mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=cache_root()).close()
print(json.dumps(folder and [str(folder), load_data(folder).fingerprint]))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the machine, and its result."""

    name: str  # such as mlx, script, data
    ok: bool
    detail: str  # result for people
    remedy: str | None = None  # advice where it does not pass
    essential: bool = True  # a night cannot run without it


def doctor(*, script: UserPath = SCRIPT, metric: Metric = None) -> Answer:
    """Check Python, MLX, sandbox, script, git, disk, memory and data.

    Args:
        script: the training script (default: train_mlx.py)
        metric: the number that the script prints itself, if nightshift does not score it
    """
    checks, coming = list[Check](), _checks(script, metric)
    while True:
        with at_work("checking this machine"):
            check = next(coming, None)
        if check is None:
            break
        mark, colour = ("✓", "green") if check.ok else ("✗", "red") if check.essential else ("!", "yellow")
        advice = f": {check.remedy}" if check.remedy and not check.ok else ""
        print_folded([Text.assemble((mark, colour), f" {check.detail}{advice}")])
        checks.append(check)
    missing = [check.name for check in checks if check.essential and not check.ok]
    facts = {"ready": not missing, "checks": checks}
    if missing:
        return Answer(facts, error=f"not ready for a night: see {', '.join(missing)}", exit_code=1)
    other = [] if script == SCRIPT else ["--script", str(script)]
    other += [] if metric is None else [f"--metric={metric}"]
    return Answer(facts, lambda: print_lines([f"ready for a night; begin with: {typed('run', *other)}"]))


# ---- the checks ------------------------------------------------------------------------------------------------------


def _checks(script: Path, metric: str | None) -> Iterator[Check]:
    yield Check("python", True, f"Python {platform.python_version()} on {platform.platform()}")
    yield from _device()
    yield _script(script, metric)
    free, wanted = shutil.disk_usage(Path.cwd()).free, f"a night wants {MIN_FREE_BYTES / 2**30:.0f} GB"
    yield Check("disk", free >= MIN_FREE_BYTES, f"disk: {free / 2**30:,.1f} GB free", wanted)
    memory = psutil.virtual_memory()
    detail = f"memory: {memory.available / 2**30:,.1f} of {memory.total / 2**30:,.1f} GB free"
    remedy = "close other programs or choose a smaller DEPTH"
    yield Check("memory", memory.available >= 2 << 30, detail, remedy, essential=False)
    if metric is None:
        yield data(script.absolute().parent)


def _device() -> Iterator[Check]:
    device = ask(DEVICE)
    on_linux = f"{command_for('cpu')}, or with an NVIDIA GPU: {command_for('cuda')}"
    mlx_command = install_command("mlx") if sys.platform == "darwin" else on_linux
    if not isinstance(device, dict):
        remedy = None if "NIGHTSHIFT_CACHE" in device else f"install it: {mlx_command}"
        yield Check("mlx", False, f"MLX does not run ({device})", remedy)
        return  # a sandbox is tried with a program that imports MLX
    kind, gflops, has_kernels = device["kind"], device["gflops"], device["has_kernels"]
    yield Check("mlx", True, f"MLX {device['mlx']} on {device['name']} ({kind})")
    yield from gpus() if kind == "cuda" else ()
    remedy = "end other programs"
    if kind == "cpu" and not device["has_blas"]:
        remedy += f"; an optimised BLAS helps: {command_for('cpu')}"
    yield Check("speed", gflops >= SLOW_GFLOPS, f"float32 matmul: {gflops:,.0f} GFLOP/s", remedy, essential=False)
    needs = "a C compiler such as gcc" if kind == "cpu" else "NVRTC, which comes with MLX's CUDA build"
    trains = "compiled for this device" if has_kernels else "none of our own, plain MLX trains"
    yield Check("kernels", has_kernels or kind == "metal", f"kernels: {trains}", f"install {needs}", essential=False)
    sandbox = choose()
    gaps = f"; not covered: {', '.join(sandbox.uncovered)}" if sandbox.uncovered else ""
    remedy = "on Linux install bubblewrap: apt install bubblewrap, dnf install bubblewrap …"
    yield Check("sandbox", not gaps, f"sandbox: {sandbox.name}{gaps}", remedy, essential=False)


def gpus() -> Iterator[Check]:
    """Say how a night uses all GPUs, where there are several."""
    try:
        for line in gpus_unused(gpus_of_machine()):
            yield Check("gpus", True, f"GPUs: {line}")
    except MachineError as error:
        yield Check("gpus", False, f"GPUs: {error}", "without it a night has one worker", essential=False)


def _script(script: Path, metric: str | None) -> Check:
    try:
        opened({} if metric is None else {"metric": metric})  # refuses a name that no line can have
        place = Place.of(script)
        fixed_files(place.script_path.parent, read_script(place, metric), is_scored=metric is None)
    except NightshiftError as error:
        return Check("script", False, f"script: {error}")
    for folder in (place.repo.root, place.repo.common_dir):
        if not os.access(folder, os.W_OK):
            return Check("script", False, f"script: {folder} cannot be written to", "make it writable")
    return Check("script", True, f"script: {script}, in the git repository {place.repo.root}")


def data(folder: Path) -> Check:
    """Check the corpus that a night of a script in this folder would train on."""
    match ask(DATA, folder if folder.is_dir() else None):
        case [folder, fingerprint]:
            return Check("data", True, f"data: {folder} ({fingerprint}), checksums verified")
        case None:
            return Check("data", True, "data: none yet; a night prepares the text of Python's standard library first")
        case failure:
            remedy = f"prepare it again: {typed_python('prepare.py')}, with NIGHTSHIFT_CACHE as a folder of your own"
            return Check("data", False, f"data: {failure}", remedy)


def ask(program: str, folder: Path | None = None) -> Any:
    """Run a short Python program in a folder; return the JSON that it prints, or why it crashed."""
    command = own_python(program.strip())
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=IMPORT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {IMPORT_S} s"
    if done.returncode == 0:
        return json.loads(done.stdout)
    return why_crashed(done.stderr.decode(errors="replace"), done.returncode) or f"exit code {done.returncode}"
