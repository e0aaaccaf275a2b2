"""The commands that look at the machine: nightshift doctor, nightshift doctor --verify and nightshift profile.

Doctor says a line a check, with the remedy where something is missing. With --verify it also verifies, by runs of a few
minutes, that this machine computes, encloses and scores as nightshift expects, above all on a kind of machine that has
not run it yet.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.text import Text

from agent import __version__
from agent.cli.answer import Answer
from agent.cli.options import SCRIPT, PositiveInt, Seed
from agent.clock import SLEEP_TOLERANCE_S, Stopwatch, kept_awake
from agent.errors import MachineError, NightshiftError
from agent.experiment import Status
from agent.files import throwaway_folder
from agent.git import Repo
from agent.invocation import STARTER, command_for, install_command, own_command, typed
from agent.night.lock import handling
from agent.night.opening import MIN_FREE_BYTES
from agent.pools.leases import gpus_of_machine, gpus_unused
from agent.profile import steps as steps_of_script
from agent.records.journal import Journal
from agent.records.place import Place, read_script
from agent.sandbox.box import Mode, Open, choose
from agent.sandbox.environment import SETTINGS, TMP, boxed_env
from agent.sandbox.places import View
from agent.script.contract import fixed_files
from agent.view.screen import folded, print_folded, print_lines, terminal_width

LOOK_S = 120  # a first import of MLX on a slow disk
SLOW_GFLOPS = 30  # MLX's reference BLAS reaches about 8, an optimised one over 100
TRIES_OUT = "now the machine is tried out, which takes minutes: steps, a night of one experiment"
CONTENDED_SHARE = 0.25  # of the cores that we may use: the share that others may take unnoticed

# Asked of a short process each: a broken MLX must not take the doctor with it.
# Speed is the best of several short measurements, with pauses in which other programs' load shows.
DEVICE = """
import json, os, time
from agent.lab import hardware
import psutil
blas = hardware.tune()
from agent.lab.kernels.device import kernel_device
kind, name, flops = hardware.device_kind(), hardware.device_name(), []
others, began = psutil.cpu_percent(0.5) / 100, time.monotonic()
while len(flops) < 3 or time.monotonic() - began < 1.2:
    flops.append(hardware.matmul_flops(1024, repeats=2))
    time.sleep(0.1)
cores = os.cpu_count()
print(json.dumps(dict(
    kind=kind, name=name, gflops=max(flops) / 1e9, blas=blas, cores=hardware.usable_cores(),
    others=others * cores, machine_cores=cores, has_kernels=kernel_device() is not None,
)))
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
    measured: Mapping[str, object] = field(default_factory=dict)  # for verify.json: no text of a user or a script


def doctor(*, script: Path = SCRIPT, verify: bool = False) -> Answer:
    """Check Python, MLX, BLAS, script, git, disk, memory and data.

    Args:
        script: the training script (default: train_mlx.py)
        verify: also try out the machine, which takes minutes: operations and steps against float32, sandbox,
            clocks, and a night of one experiment; writes verify.json
    """
    width, findings = terminal_width(), []

    def examine(check: Callable[[], Iterator[Finding]]) -> None:
        for finding in check():
            mark, colour = ("✓", "green") if finding.ok else ("✗", "red") if finding.essential else ("!", "yellow")
            advice = f": {finding.remedy}" if finding.remedy and not finding.ok else ""
            line = Text.assemble((mark, colour), f" {finding.detail}{advice}")
            print_lines([line] if width is None else folded(line, width))
            findings.append(finding)

    examine(_mlx)
    for check in (_device, _sandbox) if findings[-1].ok else ():  # a box is tried with a program that imports MLX
        examine(check)
    for check in (lambda: _script(script), _git, _disk, _memory, _data):
        examine(check)
    if verify:
        print_folded([TRIES_OUT])
        examine(verified)
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


# ---- MLX and the device ----------------------------------------------------------------------------------------------


def _mlx() -> Iterator[Finding]:
    yield Finding("python", True, f"Python {platform.python_version()} on {platform.platform()}")
    packages = []
    for name in ("mlx", "mlx-metal", "mlx-cpu", "mlx-cuda-13", "mlx-cuda-12"):
        with suppress(importlib.metadata.PackageNotFoundError):
            packages.append(f"{name} {importlib.metadata.version(name)}")
    yield Finding("mlx", bool(packages), f"MLX build: {', '.join(packages) or 'none'}", f"install it: {_mlx_command()}")


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
    cores: int  # that we may use
    others: float  # cores that other programs kept busy meanwhile
    machine_cores: int
    has_kernels: bool = False  # of our own, compiled for it

    @property
    def is_contended(self) -> bool:
        """Return whether other programs use cores that we may use; a container may have fewer than the machine."""
        return self.others > self.machine_cores - (1 - CONTENDED_SHARE) * self.cores


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
    """Say how fast a matrix product is, and why it is slow if it is: a missing package, or other programs."""
    said = f"float32 matmul: {device.gflops:,.0f} GFLOP/s"
    if device.is_contended:
        said += f" while other programs keep {device.others:.1f} of {device.machine_cores} cores busy"
    is_slow = device.gflops < SLOW_GFLOPS
    if is_slow and device.kind == "cpu" and device.blas is None and sys.platform == "linux":
        remedy = f"an optimised BLAS is missing; install it: {command_for('cpu')}"
        if os.environ.get("NIGHTSHIFT_BLAS") == "off":
            remedy = "the optimised BLAS is turned off; unset NIGHTSHIFT_BLAS"
    elif device.is_contended:
        remedy = "the machine is busy; runs beside other programs get fewer steps, and their scores compare badly"
    else:
        remedy = "this machine is slow, and nothing that could be installed is missing"
    return Finding("speed", not (is_slow or device.is_contended), said, remedy, essential=False)


# ---- the folder and the rest of the machine --------------------------------------------------------------------------


def _sandbox() -> Iterator[Finding]:
    box = choose(Mode.AUTO)
    gaps = f"; not covered: {', '.join(box.uncovered)}" if box.uncovered else ""
    remedy = (
        None if sys.platform == "darwin" else "install bubblewrap: apt install bubblewrap, dnf install bubblewrap …"
    )
    yield Finding("sandbox", not box.uncovered, f"sandbox: {box.name}{gaps}", remedy, essential=False)


def _script(script: Path) -> Iterator[Finding]:
    try:
        place = Place.of(script)
        fixed_files(place.script_path.parent, read_script(place))
        yield Finding("script", True, f"script: {script}")
    except NightshiftError as error:
        yield Finding("script", False, f"script: {error}")


def _git() -> Iterator[Finding]:
    try:
        yield Finding("git", True, f"git repository: {Repo.containing(Path.cwd()).root}")
    except NightshiftError as error:
        yield Finding("git", False, f"git: {error}")


def _disk() -> Iterator[Finding]:
    free, wanted = shutil.disk_usage(Path.cwd()).free, f"a night wants {MIN_FREE_BYTES / 2**30:.0f} GB"
    yield Finding("disk", free >= MIN_FREE_BYTES, f"disk: {free / 2**30:,.1f} GB free", wanted)
    try:
        tempfile.TemporaryFile(dir=Path.cwd()).close()
    except OSError as error:
        said = f"folder: {Path.cwd()} cannot be written ({error.strerror})"
        yield Finding("folder", False, said, "a night keeps its files there: make it writable, or clone it elsewhere")


def _memory() -> Iterator[Finding]:
    memory = psutil.virtual_memory()
    said = f"memory: {memory.available / 2**30:,.1f} of {memory.total / 2**30:,.1f} GB free"
    remedy = "close other programs or choose a smaller DEPTH"
    yield Finding("memory", memory.available >= 2 << 30, said, remedy, essential=False)


def _data() -> Iterator[Finding]:
    match ask(DATA):
        case [folder, fingerprint]:
            yield Finding("data", True, f"data: {folder} ({fingerprint}), checksums verified")
        case None:
            yield Finding("data", True, "data: none yet; a night prepares the text of Python's standard library first")
        case {"closed": str(place)}:
            remedy = "make it a folder that can be written, or set NIGHTSHIFT_CACHE to one"
            yield Finding("data", False, f"data: none, and {place} cannot hold any", remedy)
        case failure:
            yield Finding("data", False, f"data: {failure}", f"prepare it again: {typed('prepare')}")


def ask(program: str) -> Any:
    """Run a short Python program; return the JSON that it prints, or the last line of its error as a string."""
    return ask_python("-c", program)


def ask_python(*arguments: str, limit_s: float = LOOK_S, **variables: str) -> Any:
    """Run Python with these arguments and environment variables, and return as ask() does."""
    try:
        command, env = [sys.executable, *arguments], {**os.environ, **variables}
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, env=env)
    except subprocess.TimeoutExpired:
        return f"no answer within {limit_s} s"
    if done.returncode == 0:
        return json.loads(done.stdout)
    return last_line(done.stderr) or f"exit code {done.returncode}"


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


# ---- verify ----------------------------------------------------------------------------------------------------------

BUDGET_S = 20.0
NIGHT_S = 1800  # corpus, start and compilation come on top of the budgets
STEPS_S = 600  # of a machine that is busy; most of it is MLX's compiler
TAG = "verify"
REPORT = "verify.json"
CLOSE = {"mlx.core.float32": 1e-4, "mlx.core.bfloat16": 0.02, "mlx.core.float16": 0.02}  # relative
NATS = {"bfloat16": 0.05, "float32": 0.02}  # of a loss beside float32 on a CPU; TF32 rounds to three bits more
COMPILED_NATS = {"bfloat16": 0.05, "float32": 0.001}  # a compiled step rounds less often
ALLOWED = {"compute": True, "read": False, "connect": False}  # of what a script in the box tries
OPERATIONS = "from agent.lab.kernels.check import main; main()"
DESCRIBED = "import json; from agent.lab import hardware; hardware.tune(); print(json.dumps(hardware.describe()))"
# Prints what a script in the box can do: compute, read a file of the user, reach a server on this machine.
INSIDE = """
import json, socket, sys
import mlx.core as mx

def can(deed):
    try:
        deed()
    except OSError:
        return False
    return True

told = {
    "compute": mx.sum(mx.ones((8, 8)) @ mx.ones((8, 8))).item() == 512.0,
    "read": can(lambda: open(sys.argv[1]).read()),
    "connect": can(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=5)),
}
print(json.dumps(told))
"""


def verified(budget_s: float = BUDGET_S) -> Iterator[Finding]:
    """Yield each finding as it is made, and write them all into verify.json in this folder."""
    checks, began = [], time.monotonic()
    # by an exception on SIGTERM, subprocess.run() kills what it waits for, which would run on else
    with handling(lambda number, _: sys.exit(128 + number), signal.SIGTERM):
        for check in (_operations, _steps, _box, _clock, _assertion, lambda: _night(budget_s)):
            for finding in check():
                checks.append(entry(finding, time.monotonic() - began))
                began = time.monotonic()
                yield finding
    device = ask(DESCRIBED)
    report = {
        "nightshift": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "release": platform.release().partition("-")[0],  # what follows may be a name
        "machine": platform.machine(),
        "device": {key: device[key] for key in ("kind", "name", "memory_bytes", "mlx")}
        if isinstance(device, dict)
        else {},
        "settings": [name for name in SETTINGS if name in os.environ],
        "checks": checks,
    }
    Path(REPORT).write_text(json.dumps(report, indent=2) + "\n")
    said = f"{REPORT}: written, without names and paths; attach it to an issue in nightshift's repository"
    yield Finding("report", True, said, essential=False)


def entry(finding: Finding, wall_s: float) -> dict[str, object]:
    """Return what verify.json holds of a finding: no text of a user or a script."""
    return {"name": finding.name, "ok": finding.ok, "wall_s": round(wall_s, 1), **finding.measured}


def _operations() -> Iterator[Finding]:
    """Compare every operation of agent/lab/kernels with plain MLX in float32."""
    measured = ask(OPERATIONS)
    if not isinstance(measured, dict):
        yield Finding("operations", False, f"operations: {measured}")
        return
    errors, close = measured["errors"], CLOSE[measured["dtype"]]
    worst = max(errors, key=errors.get)
    agree = all(error < close for error in errors.values())  # false for nan, too
    said = f"operations: {len(errors)} agree with float32, {worst} least ({errors[worst]:.1e}, {measured['dtype']})"
    remedy = f"beyond {close:g}: train with NIGHTSHIFT_KERNELS=plain"
    yield Finding("operations", agree, said, remedy, measured=measured)


def _steps() -> Iterator[Finding]:
    """Compare losses of the script's own step with those of plain MLX on the CPU, and compiled with uncompiled."""
    truth, here = _of_step("truth", NIGHTSHIFT_KERNELS="plain"), _of_step("here")
    if not isinstance(truth, list) or not isinstance(here, dict):
        failure = here if isinstance(truth, list) else truth
        yield Finding("step", False, f"step: {failure}", f"if you changed {SCRIPT}, verify with the shipped one")
        return
    nats = {name: _apart(here[name], truth) for name in NATS}
    said = f"step: {len(truth)} losses are off those of float32 on the CPU by {_listed(nats)}"
    remedy = f"more than {_listed(NATS)}: gradients on this device are wrong"
    yield Finding("step", all(nats[name] < NATS[name] for name in NATS), said, remedy, measured={"nats": nats})
    own, compiled, is_needed = here["own"], here["compiled"], here["compiles"]
    if isinstance(compiled, str):
        remedy = "install a C++ compiler such as g++, which MLX calls on a CPU; scripts that do not compile need none"
        yield Finding("compiled", False, f"compiled: {compiled}", remedy, is_needed)
        return
    nats = {own: _apart(compiled, here[own])}
    said = f"compiled: the step's losses are off those without mx.compile by {_listed(nats)}"
    is_close = nats[own] < COMPILED_NATS[own]
    yield Finding("compiled", is_close, said, "set COMPILE = False", is_needed, {"nats": nats})


def _of_step(way: str, **variables: str) -> Any:
    return ask_python("-P", steps_of_script.__file__, str(STARTER / SCRIPT), way, limit_s=STEPS_S, **variables)


def _apart(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest distance; infinite where a loss is no number."""
    distances = [abs(loss - other) for loss, other in zip(some, others, strict=True)]
    return max(distances) if all(distance >= 0 for distance in distances) else float("inf")


def _listed(nats: Mapping[str, float]) -> str:
    return " and ".join(f"{value:.1e} nats in {name}" for name, value in nats.items())


def _box() -> Iterator[Finding]:
    """Try to read a file and to reach a server from inside the box of a night's scripts."""
    box = choose(Mode.AUTO)
    if isinstance(box, Open):
        yield Finding("box", False, "box: there is none", "see the line about the sandbox above", essential=False)
        return
    with throwaway_folder() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        inside, secret = folder / "inside", folder / "secret"
        (inside / TMP).mkdir(parents=True)
        secret.write_text("a key")
        deed = box.wrap([sys.executable, "-c", INSIDE, str(secret), str(server.getsockname()[1])], View(inside))
        env = boxed_env(inside, data="")
        done = subprocess.run(deed, cwd=inside, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        yield Finding("box", False, f"box: {box.name} runs no script", last_line(done.stderr) or "it said nothing")
        return
    can = json.loads(done.stdout)
    words = ", ".join(f"{'can' if able else 'cannot'} {deed}" for deed, able in can.items())
    is_closed, remedy = can == ALLOWED, "it should compute, and neither read nor connect"
    yield Finding("box", is_closed, f"box: in {box.name} a script {words}", remedy, measured={"box": box.name, **can})


def _clock() -> Iterator[Finding]:
    watch = Stopwatch()
    time.sleep(0.5)
    elapsed_s, slept_s = watch.elapsed_s, watch.slept_s
    is_right = 0.5 <= elapsed_s < 5 and slept_s < SLEEP_TOLERANCE_S
    said = f"clock: half a second took {elapsed_s:.2f} s, {slept_s:.2f} s of them asleep"
    yield Finding("clock", is_right, said, measured={"elapsed_s": elapsed_s, "slept_s": slept_s})


def _assertion() -> Iterator[Finding]:
    """Ask macOS whether it holds an assertion against sleep; elsewhere there is no one to ask."""
    if sys.platform != "darwin":
        return
    held = ""
    with kept_awake():
        held = subprocess.run(["pmset", "-g", "assertions"], capture_output=True, text=True, check=False).stdout
    is_awake = "caffeinate" in held
    yield Finding("awake", is_awake, f"awake: macOS {'holds' if is_awake else 'lacks'} an assertion against sleep")


def _night(budget_s: float) -> Iterator[Finding]:
    """Run attempt 0 and one experiment in a new folder, with scores and audits."""
    # greedy: one run of attempt 0 is enough, since no noise has to be known here
    options = ("--tag", TAG, "--experiments", "1", "--budget-s", f"{budget_s:g}", "--judge", "greedy")
    with throwaway_folder() as folder:
        for words in (("init",), ("run", *options, "--sandbox", "auto")):
            try:
                subprocess.run(
                    own_command(*words), cwd=folder, capture_output=True, text=True, timeout=NIGHT_S, check=True
                )
            except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as failed:
                said = last_line(str(failed.stderr or failed.stdout or failed))
                yield Finding("night", False, f"night: {words[0]} failed: {said}")
                return
        with Journal.read(Place.of(folder / SCRIPT).journal(TAG)) as journal:
            attempts = journal.attempts()
    audits = [run.score.audit for one in attempts for run in one.runs if run.score is not None and run.score.audit]
    passed = sum(audit.passed for audit in audits)
    is_whole = attempts[0].status is Status.KEEP and 0 < passed == len(audits)
    ends = ", ".join(f"#{one.number} {one.status} {one.val_bpb and round(one.val_bpb, 4)}" for one in attempts)
    scores = [{"status": one.status, "val_bpb": one.val_bpb} for one in attempts]
    measured = {"attempts": scores, "audits": len(audits), "audits_passed": passed}
    said = f"night: {ends}; {passed} of {len(audits)} audits passed"
    remedy = "attempt 0 should be kept and every audit passed"
    yield Finding("night", is_whole, said, remedy, measured=measured)
