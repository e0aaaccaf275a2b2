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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent import __version__
from agent.cli.machine import Finding, ask, ask_python, last_line
from agent.clock import SLEEP_TOLERANCE_S, Stopwatch, kept_awake
from agent.experiment import Status
from agent.files import throwaway_folder
from agent.invocation import SCRIPT, STARTER, own_command
from agent.lab.hardware import MEMORY_SHARE
from agent.night.lock import handling
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
ALLOWED = {"compute": True, "read": False, "connect": False}  # of what a script in the box tries
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
    checks, began = [], time.monotonic()
    # by an exception on SIGTERM, subprocess.run() kills what it waits for, which would run on else
    with handling(lambda number, _: sys.exit(128 + number), signal.SIGTERM):
        for check in (_operations, _steps, _estimate, _box, _clock, _assertion, lambda: _night(budget_s)):
            for finding in check():
                checks.append(entry(finding, time.monotonic() - began))
                began = time.monotonic()
                yield finding
    device = ask(DEVICE)
    report = {
        "nightshift": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "release": platform.release().partition("-")[0],  # what follows may be a name
        "machine": platform.machine(),
        "device": {key: device[key] for key in ("kind", "name", "memory_bytes", "mlx")}
        if isinstance(device, dict)
        else {},
        "settings": [setting.name for setting in SETTINGS if setting.name in os.environ],
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
    return ask_python("-P", steps.__file__, str(STARTER / SCRIPT), way, limit_s=STEPS_S, **variables)


def _apart(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest distance; infinite where a loss is no number."""
    distances = [abs(loss - other) for loss, other in zip(some, others, strict=True)]
    return max(distances) if all(distance >= 0 for distance in distances) else float("inf")


def _listed(nats: Mapping[str, float]) -> str:
    return " and ".join(f"{value:.1e} nats in {name}" for name, value in nats.items())


def _estimate() -> Iterator[Finding]:
    """Compare the memory that a step was estimated to fill with what it fills, where half of the free memory is enough.

    A step is allowed MEMORY_SHARE of the device's memory, so an estimate may be short by the rest.
    """
    measured = _of_step("memory")
    if not isinstance(measured, dict):
        yield Finding("estimate", False, f"estimate: {measured}", essential=False)
    elif not measured["rows"]:
        said = (
            f"estimate: not checked, since one row takes more than half of the {measured['allowed_gb'] * 2:.1f} GB free"
        )
        yield Finding("estimate", False, said, "close other programs", essential=False)
    else:
        pairs = list(zip(measured["filled_gb"], measured["estimated_gb"], strict=True))
        fits = all(filled <= estimated / MEMORY_SHARE for filled, estimated in pairs)
        sizes = ", ".join(f"{filled:.2f} of {estimated:.2f}" for filled, estimated in pairs)
        said = f"estimate: steps of {measured['rows']} rows fill {sizes} GB that were estimated"
        yield Finding("estimate", fits, said, "correct gigabytes_of_a_step", essential=False, measured=measured)


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
            except subprocess.TimeoutExpired:
                yield Finding("night", False, f"night: no end of {words[0]} within {NIGHT_S} s")
                return
            except subprocess.CalledProcessError as failed:
                said = last_line(failed.stderr) or last_line(failed.stdout) or failed.returncode
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
