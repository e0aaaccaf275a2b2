"""Record a run with the device's own tool: xctrace on a Mac (unverified on a Mac), Nsight Systems on NVIDIA."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from agent.errors import MachineError, NightError

TOOLS = {
    "metal": ("xctrace", "install Xcode from the App Store, then run: sudo xcode-select -s /Applications/Xcode.app"),
    "cuda": ("nsys", "install NVIDIA Nsight Systems: https://developer.nvidia.com/nsight-systems"),
}


def record_command(device_kind: str, file: Path, command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` and records it; raise NightshiftError if that is impossible."""
    if device_kind not in TOOLS:
        raise MachineError("--trace records what a GPU does, and this machine trains on its CPU; leave the option out")
    tool, remedy = TOOLS[device_kind]
    path = shutil.which(tool)
    if path is None:
        raise MachineError(f"--trace needs {tool}, which is not on PATH; {remedy}")
    if recorded(file):
        raise NightError(f"{recorded(file)[0]} exists already; name another file for --trace")
    if not file.absolute().parent.is_dir():
        raise NightError(f"--trace {file}: there is no folder {file.absolute().parent}; make it first")
    file = file.absolute()  # the run works in another folder
    if device_kind == "metal":
        return [path, "record", "--template", "Metal System Trace", "--output", str(file), "--launch", "--", *command]
    return [path, "profile", "-o", str(file), *command]


def recorded(file: Path) -> list[Path]:
    """Return the files that a recorder wrote under this name; nsys adds its own suffix."""
    return [path for path in (file, file.with_name(f"{file.name}.nsys-rep")) if path.exists()]
