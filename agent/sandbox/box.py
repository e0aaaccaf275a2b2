"""Choose the sandbox of this machine and build the command that runs a training or scoring process in it.

Linux uses bubblewrap, or Landlock where bubblewrap does not work; a Mac uses Seatbelt. A path that is not listed here
is absent (bubblewrap) or refused (the others): home, keys, .git, the harness, other runs, the network. A process in a
box starts without secrets in its environment, because /proc shows that environment to every process beside it.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from agent.errors import MachineError
from agent.files import throwaway_folder
from agent.sandbox import landlock, seatbelt, seccomp
from agent.sandbox.bubblewrap import Bubblewrap
from agent.sandbox.environment import TMP, boxed_env
from agent.sandbox.places import ASKED, MAKES_DISKS, View, gpu_devices, python_around, system_around
from agent.sandbox.seatbelt import Seatbelt

PROBE_S = 120  # enough for a first import of MLX from a slow disk
PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")


class Mode(StrEnum):
    """Name the values of --sandbox."""

    AUTO = "auto"  # the strongest that works here
    REQUIRE = "require"  # bubblewrap or Seatbelt, else refuse
    OFF = "off"


class Box(Protocol):
    """Wrap a command so that it runs in a sandbox."""

    @property
    def name(self) -> str:
        """Return the name that `run` and `doctor` print."""
        ...

    @property
    def uncovered(self) -> tuple[str, ...]:
        """Return, in plain words, the things that a script can still do in this box."""
        ...

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        """Return the command that runs this command in the box."""
        ...


def choose(mode: Mode) -> Box:
    """Return the box for this machine; raise MachineError if `require` cannot be met.

    Each candidate has to run MLX inside, on the GPU if there is one, so the chosen box is known to work.
    """
    if mode is Mode.OFF:
        return Open("switched off by --sandbox off")
    reasons = []
    for candidate in candidates():
        reason = candidate if isinstance(candidate, str) else why_unfit(candidate)
        if reason is None:
            assert not isinstance(candidate, str)
            return candidate
        reasons.append(reason)
        if mode is Mode.REQUIRE:
            raise MachineError(f"--sandbox require: {reason}; repair it, or choose --sandbox auto")
    return Open("; ".join(reasons))


def candidates() -> Iterator["Box | str"]:
    """Yield the boxes of this platform, strongest first; in place of an unusable one yield a sentence that says why."""
    if sys.platform == "darwin":
        yield seatbelt.unusable() or Seatbelt()
    elif sys.platform == "linux":
        program = shutil.which("bwrap")
        yield Bubblewrap.on_this_kernel(program) if program else "bubblewrap is not installed (apt install bubblewrap)"
        abi = landlock.abi()
        yield Landlock(abi) if abi else "this kernel has no Landlock with filters of system calls"
    else:
        yield f"there is no sandbox for {sys.platform}"


def why_unfit(box: Box) -> str | None:
    """Return None if a process in the box can use MLX, else a sentence with its error."""
    with throwaway_folder() as folder:
        (folder / TMP).mkdir()
        code = "import numpy, mlx.core as mx; mx.eval(mx.zeros(1))"
        command, env = box.wrap([sys.executable, "-c", code], View(folder)), boxed_env(folder, data="")
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PROBE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{box.name} does not work here ({error})"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return None if done.returncode == 0 else f"{box.name} does not work here ({lines[-1]})"


@dataclass(frozen=True, slots=True)
class Open:
    """Run a command without a box, with the user's rights. Secrets are still removed from its environment."""

    why: str
    uncovered = ("scripts run with your rights: files, network, processes",)

    @property
    def name(self) -> str:
        return f"no sandbox: {self.why}"

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        return list(command)


@dataclass(frozen=True, slots=True)
class Landlock:
    """Let the kernel refuse every path that is not listed; for machines that forbid user namespaces."""

    abi: int

    @property
    def name(self) -> str:
        return f"Landlock (ABI {self.abi})"

    @property
    def uncovered(self) -> tuple[str, ...]:
        return landlock.uncovered(self.abi)

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        facts = (Path("/proc") / name for name in sorted(ASKED))
        seen = (*system_around((*view.hidden, MAKES_DISKS)), *facts, *python_around(view.hidden), *view.readable)
        devices = (*(Path("/dev") / name for name in PLAIN_DEVICES), *gpu_devices())
        rules = {
            "read": seen,
            "write": (view.folder, "/proc/self"),  # CUDA names its threads there, and fails if it may not
            "devices": devices,
        }
        pinned = [seccomp.PINNED] if view.pinned else []
        # -I and -S: no code of the user's environment may run before the rules hold
        return [sys.executable, "-I", "-S", landlock.__file__, json.dumps(rules, default=str), *pinned, *command]
