"""Verify by runs of a few minutes that this machine computes, encloses and scores as nightshift expects.

`nightshift doctor --verify` does this after its other checks, above all on a kind of machine that has not run it yet.
"""

import json
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from agent.cli.doctor import Finding, ask
from agent.clock import SLEEP_TOLERANCE_S, Stopwatch, kept_awake
from agent.experiment import Status
from agent.files import throwaway_folder
from agent.invocation import SCRIPT, own_command, version
from agent.records.journal import Journal
from agent.records.place import Place
from agent.sandbox.box import Mode, Open, View, choose
from agent.sandbox.environment import TMP, boxed_env

BUDGET_S = 20.0
NIGHT_S = 1800  # corpus, start and compilation come on top of the budgets
TAG = "verify"
REPORT = "verify.json"
CLOSE = {"mlx.core.float32": 1e-4, "mlx.core.bfloat16": 0.02, "mlx.core.float16": 0.02}  # relative
OPERATIONS = "from kernels.check import main; main()"
DEVICE = "import hardware, json; hardware.tune(); print(json.dumps(hardware.describe()))"
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
    found: list[Finding] = []
    for check in (_operations, _box, _clock, _assertion, lambda: _night(budget_s)):
        for finding in check():
            found.append(finding)
            yield finding
    Path(REPORT).write_text(json.dumps(_report(found), indent=2) + "\n")
    what = f"{REPORT}: written; it has no names and no paths, so attach it to an issue of nightshift"
    yield Finding("report", True, what, essential=False)


def _operations() -> Iterator[Finding]:
    """Compare every operation of kernels/ with plain MLX in float32."""
    match ask(OPERATIONS):
        case {"dtype": str(dtype), "errors": dict(errors)}:
            worst = max(errors, key=lambda name: errors[name])
            good = all(error < CLOSE[dtype] for error in errors.values())  # false for nan, too
            what = f"operations: {len(errors)} agree with float32, {worst} least ({errors[worst]:.1e}, {dtype})"
            yield Finding("operations", good, what, f"beyond {CLOSE[dtype]:g}: train with NIGHTSHIFT_KERNELS=plain")
        case failure:
            yield Finding("operations", False, f"operations: {failure}")


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
    yield Finding("box", good, what if told else f"box: {box.name} runs no script", remedy)


def _clock() -> Iterator[Finding]:
    watch = Stopwatch()
    time.sleep(0.5)
    elapsed_s, slept_s = watch.elapsed_s, watch.slept_s
    good = 0.5 <= elapsed_s < 5 and slept_s < SLEEP_TOLERANCE_S
    yield Finding("clock", good, f"clock: half a second took {elapsed_s:.2f} s, {slept_s:.2f} s of them asleep")


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
        options = ("--tag", TAG, "--experiments", "1", "--budget-s", f"{budget_s:g}", "--sandbox", "auto")
        for words in (("init", str(folder / "night")), ("run", *options)):
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
    what = f"night: {ends}; {sum(audit.passed for audit in audits)} of {len(audits)} audits passed"
    yield Finding("night", good, what, "attempt 0 should be kept and every audit passed")


def _report(found: list[Finding]) -> dict[str, object]:
    """Return what a stranger may read: no path and no name of a user or a machine."""
    device = ask(DEVICE)
    facts = {key: device[key] for key in ("kind", "name", "memory_bytes", "mlx")} if isinstance(device, dict) else {}
    home = str(Path.home())
    checks = [{"name": one.name, "ok": one.good, "detail": one.what.replace(home, "~")} for one in found]
    system = {"system": platform.system(), "release": platform.release(), "machine": platform.machine()}
    return {"nightshift": version(), "python": platform.python_version(), **system, "device": facts, "checks": checks}
