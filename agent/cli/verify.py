"""Verify by runs of a few minutes that this machine computes, encloses and scores as nightshift expects.

`nightshift doctor --verify` does this after its other checks, above all on a kind of machine that has not run it yet.
"""

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent import __version__
from agent.cli.checks import Finding, ask, ask_python
from agent.clock import SLEEP_TOLERANCE_S, Stopwatch, kept_awake
from agent.experiment import Status
from agent.files import throwaway_folder
from agent.invocation import SCRIPT, STARTER, own_command
from agent.lab.hardware import MEMORY_SHARE
from agent.profile import steps
from agent.records.journal import Journal
from agent.records.place import Place
from agent.sandbox.box import Mode, Open, choose
from agent.sandbox.environment import SETTINGS, TMP, boxed_env
from agent.sandbox.places import View

BUDGET_S = 20.0
NIGHT_S = 1800  # corpus, start and compilation come on top of the budgets
STEPS_S = 600  # of a machine that is busy; most of it is MLX's compiler
TAG = "verify"
REPORT = "verify.json"
CLOSE = {"mlx.core.float32": 1e-4, "mlx.core.bfloat16": 0.02, "mlx.core.float16": 0.02}  # relative
NATS = {"bfloat16": 0.05, "float32": 0.02}  # of a loss beside float32 on a CPU; TF32 rounds to three bits more
COMPILED_NATS = {"bfloat16": 0.05, "float32": 0.001}  # a compiled step rounds less often
OPERATIONS = "from agent.lab.kernels.check import main; main()"
DEVICE = "import json; from agent.lab import hardware; hardware.tune(); print(json.dumps(hardware.describe()))"
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
    found: list[tuple[Finding, float]] = []
    began = time.monotonic()
    with _sigterm_as_exit():
        for check in (_operations, _steps, _estimate, _box, _clock, _assertion, lambda: _night(budget_s)):
            for finding in check():
                found.append((finding, time.monotonic() - began))
                began = time.monotonic()
                yield finding
    Path(REPORT).write_text(json.dumps(_report(found), indent=2) + "\n")
    what = f"{REPORT}: written, without names and paths; attach it to an issue in nightshift's repository"
    yield Finding("report", True, what, essential=False)


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """End by an exception on SIGTERM, so that subprocess.run() kills what it waits for, which would run on else."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _operations() -> Iterator[Finding]:
    """Compare every operation of agent/lab/kernels with plain MLX in float32."""
    match ask(OPERATIONS):
        case {"dtype": str(dtype), "errors": dict(errors)}:
            worst = max(errors, key=lambda name: errors[name])
            good = all(error < CLOSE[dtype] for error in errors.values())  # false for nan, too
            what = f"operations: {len(errors)} agree with float32, {worst} least ({errors[worst]:.1e}, {dtype})"
            remedy = f"beyond {CLOSE[dtype]:g}: train with NIGHTSHIFT_KERNELS=plain"
            yield Finding("operations", good, what, remedy, measured={"dtype": dtype, "errors": errors})
        case failure:
            yield Finding("operations", False, f"operations: {failure}")


def _steps() -> Iterator[Finding]:
    """Compare losses of the script's own step with those of plain MLX on the CPU, and compiled with uncompiled."""
    truth, here = _of_step("truth", NIGHTSHIFT_KERNELS="plain"), _of_step("here")
    for failure in (truth, here):
        if isinstance(failure, str):
            yield Finding("step", False, f"step: {failure}", f"if you changed {SCRIPT}, verify with the shipped one")
            return
    assert isinstance(truth, list)
    assert isinstance(here, dict)
    apart = {name: _apart(here[name], truth) for name in NATS}
    said = " and ".join(f"{nats:.1e} nats in {name}" for name, nats in apart.items())
    good = all(apart[name] < nats for name, nats in NATS.items())
    remedy = f"more than {' or '.join(f'{nats:g}' for nats in NATS.values())}: gradients on this device are wrong"
    what = f"step: {len(truth)} losses are off those of float32 on the CPU by {said}"
    yield Finding("step", good, what, remedy, measured={"nats": apart})
    own, compiled = here["own"], here["compiled"]
    if isinstance(compiled, str):
        remedy = "install a C++ compiler such as g++, which MLX calls on a CPU; scripts that do not compile need none"
        yield Finding("compiled", False, f"compiled: {compiled}", remedy, essential=here["compiles"])
        return
    nats = _apart(compiled, here[own])
    what = f"compiled: the step's losses are off those without mx.compile by {nats:.1e} nats in {own}"
    good, measured = nats < COMPILED_NATS[own], {"nats": {own: nats}}
    yield Finding("compiled", good, what, "set COMPILE = False", essential=here["compiles"], measured=measured)


def _estimate() -> Iterator[Finding]:
    """Compare the memory that a step was estimated to fill with what it fills, where half of the free memory is enough.

    A step is allowed MEMORY_SHARE of the device's memory, so an estimate may be short by the rest.
    """
    match _of_step("memory"):
        case {"rows": [], "allowed_gb": allowed_gb}:
            what = f"estimate: not checked, since one row takes more than {allowed_gb:.1f} GB, half of what is free"
            yield Finding("estimate", False, what, "close other programs", essential=False)
        case {"rows": list(rows), "estimated_gb": list(estimated), "filled_gb": list(filled)}:
            measured = {"rows": rows, "estimated_gb": estimated, "filled_gb": filled}
            good = all(full <= told / MEMORY_SHARE for full, told in zip(filled, estimated, strict=True))
            what = (
                f"estimate: {_listed(rows, 'd')} rows fill {_listed(filled, '.2f')} GB, "
                f"and {_listed(estimated, '.2f')} GB were estimated"
            )
            yield Finding("estimate", good, what, "correct gigabytes_of_a_step", essential=False, measured=measured)
        case failure:
            yield Finding("estimate", False, f"estimate: {failure}", essential=False)


def _of_step(way: str, **variables: str) -> object:
    return ask_python("-P", steps.__file__, str(STARTER / SCRIPT), way, limit_s=STEPS_S, **variables)


def _apart(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest distance; infinite where a loss is no number."""
    distances = [abs(one - other) for one, other in zip(some, others, strict=True)]
    return max(distances) if all(distance >= 0 for distance in distances) else float("inf")


def _listed(numbers: Sequence[float], style: str) -> str:
    return ", ".join(format(one, style) for one in numbers)


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
        deed = [sys.executable, "-c", INSIDE, str(secret), str(server.getsockname()[1])]
        done = subprocess.run(
            box.wrap(deed, View(inside)), cwd=inside, env=boxed_env(inside, data=""), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    told = json.loads(done.stdout) if done.returncode == 0 else {}
    good = told == {"compute": True, "read": False, "connect": False}
    what = f"box: in {box.name} a script " + ", ".join(
        f"{'can' if can else 'cannot'} {what}" for what, can in told.items()
    )
    lines = done.stderr.strip().splitlines()
    remedy = "it should compute, and neither read nor connect" if told else lines[-1] if lines else "it said nothing"
    what = what if told else f"box: {box.name} runs no script"
    yield Finding("box", good, what, remedy, measured={"box": box.name, **told})


def _clock() -> Iterator[Finding]:
    watch = Stopwatch()
    time.sleep(0.5)
    elapsed_s, slept_s = watch.elapsed_s, watch.slept_s
    good = 0.5 <= elapsed_s < 5 and slept_s < SLEEP_TOLERANCE_S
    what = f"clock: half a second took {elapsed_s:.2f} s, {slept_s:.2f} s of them asleep"
    yield Finding("clock", good, what, measured={"elapsed_s": elapsed_s, "slept_s": slept_s})


def _assertion() -> Iterator[Finding]:
    """Ask macOS whether it holds an assertion against sleep; elsewhere there is no one to ask."""
    if sys.platform != "darwin":
        return
    with kept_awake():
        held = subprocess.run(["pmset", "-g", "assertions"], capture_output=True, text=True, check=False).stdout
    good = "caffeinate" in held
    yield Finding("awake", good, f"awake: macOS {'holds' if good else 'lacks'} an assertion against sleep")


def _night(budget_s: float) -> Iterator[Finding]:
    """Run attempt 0 and one experiment in a new folder, with scores and audits."""
    with throwaway_folder() as folder:
        # greedy: one run of attempt 0 is enough, since no noise has to be known here
        options = ("--tag", TAG, "--experiments", "1", "--budget-s", f"{budget_s:g}", "--judge", "greedy")
        for words in (("init", str(folder / "night")), ("run", *options, "--sandbox", "auto")):
            cwd = folder if words[0] == "init" else folder / "night"
            try:
                done = subprocess.run(
                    own_command(*words), cwd=cwd, capture_output=True, text=True, timeout=NIGHT_S, check=False
                )
            except subprocess.TimeoutExpired:
                yield Finding("night", False, f"night: no end of {words[0]} within {NIGHT_S} s")
                return
            if done.returncode != 0:
                said = (done.stderr.strip() or done.stdout.strip()).splitlines()
                yield Finding("night", False, f"night: {words[0]} failed: {said[-1] if said else done.returncode}")
                return
        with Journal.read(Place.of(folder / "night" / SCRIPT).journal(TAG)) as journal:
            attempts = journal.attempts()
    audits = [run.score.audit for one in attempts for run in one.runs if run.score is not None and run.score.audit]
    good = attempts[0].status is Status.KEEP and all(audit.passed for audit in audits) and bool(audits)
    ends = ", ".join(f"#{one.number} {one.status} {one.val_bpb and round(one.val_bpb, 4)}" for one in attempts)
    passed = sum(audit.passed for audit in audits)
    what = f"night: {ends}; {passed} of {len(audits)} audits passed"
    scores = [{"status": one.status, "val_bpb": one.val_bpb} for one in attempts]
    measured = {"attempts": scores, "audits": len(audits), "audits_passed": passed}
    yield Finding("night", good, what, "attempt 0 should be kept and every audit passed", measured=measured)


# ---- the report ------------------------------------------------------------------------------------------------------


def _report(found: Sequence[tuple[Finding, float]]) -> dict[str, Any]:
    """Return what was measured under names of our own: nothing in it is a text of a user or a script."""
    device: Any = ask(DEVICE)
    told = ("kind", "name", "memory_bytes", "mlx") if isinstance(device, dict) else ()
    return {
        "nightshift": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "release": platform.release().partition("-")[0],  # what follows may be a name
        "machine": platform.machine(),
        "device": {key: device[key] for key in told},
        "settings": [one.name for one in SETTINGS if one.name in os.environ],
        "checks": [
            {"name": one.name, "ok": one.good, "wall_s": round(took_s, 1), **one.measured} for one, took_s in found
        ],
    }
