"""Lay out a night's fixed files for each run, ask them for device, data and budget, and verify them before a score.

Their checksums, and those of the corpus, are taken when the night opens.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.errors import MachineError, NightError
from agent.experiment import Night, is_first_look
from agent.files import throwaway_folder, write_plain
from agent.invocation import PACKAGE, typed
from agent.lab.hardware import cache_root
from agent.runs.probe import NO_DATA
from agent.sandbox.environment import settings_in, slot_env
from agent.sandbox.process import end
from agent.work import WHOLE, DeviceSlot

LAB, OF_LAB = PACKAGE / "lab", (".py", ".c", ".cu")
SELF_REPORTED = "self-reported"  # the end of a protocol whose scores nothing has checked
REPORTED_BUDGET_S = 300.0
PROBE = Path(__file__).with_name("probe.py")


def device_kind(folder: Path) -> str:
    """Ask the fixed files for the kind of device alone, before there is a device slot for it."""
    return str(probe(folder, dataset=NO_DATA)["device_kind"])


def probe(
    folder: Path,
    data: str | None = None,
    dataset: str | None = None,
    slot: DeviceSlot = WHOLE,
    used_in: Path | None = None,
    reported: str | None = None,
) -> dict[str, Any]:
    """Ask the fixed files in a folder for device, data and default budget; they prepare missing or named data first.

    The device is the one that a worker with this device slot has. used_in: the folder whose choice of a corpus counts
    where neither data nor dataset name one. reported: the score that a script reports itself, which needs no data.
    """
    environment = dict(os.environ) | slot_env(slot) | ({"NIGHTSHIFT_DATA": data} if data else {})
    # unbuffered (-u), as words that a full or closed stderr refused would be tried again at its end, and fail it
    wanted = NO_DATA if reported is not None else dataset or ""
    command = [sys.executable, "-P", "-u", str(PROBE), str(folder), wanted, *map(str, slot.cores)]
    process = subprocess.Popen(
        command, cwd=used_in or folder, env=environment, stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches the harness alone, and not each process that prepares data
    )  # fmt: skip
    try:
        answer, _ = process.communicate()
    finally:  # a signal may have ended the waiting
        end(process)
    if process.returncode != 0 or not answer:  # prepare.py may end the process by itself
        raise MachineError(
            f"device and data could not be read (exit code {process.returncode}); run: {typed('doctor')}"
        )
    facts: dict[str, Any] = json.loads(answer)
    if "error" in facts:
        raise (NightError if facts.get("is_misuse") else MachineError)(facts["error"])
    settings = settings_in(environment, facts["device_kind"])
    if reported is not None:
        settings = "+".join(filter(None, [settings, SELF_REPORTED]))
        facts |= {"fingerprint": reported, "budget_s": REPORTED_BUDGET_S}
    return facts | {"settings": settings}


@contextmanager
def laid_out(beside: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield a folder with the fixed part of a run alone: what else lies beside the script may hide packages."""
    with throwaway_folder() as folder:
        lay_out_fixed(beside, names, folder)
        yield folder


def lay_out_fixed(beside: Path, names: Iterable[str], to: Path) -> None:
    """Copy the fixed part of every run to a folder: these files beside the script, and agent/lab below an empty agent.

    So a script imports agent.lab as it does outside, and finds nothing else of the harness.
    """
    files = {name: beside / name for name in names}
    files |= {path.relative_to(PACKAGE.parent).as_posix(): path for path in LAB.rglob("*") if path.suffix in OF_LAB}
    for name, path in files.items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to / name)
    (to / PACKAGE.name / "__init__.py").touch()


def lay_out_warm(folder: Path) -> None:
    """Copy the machine code that earlier nights and the user's runs have compiled here into the folder of a night."""
    for name in ("kernels", "blas"):
        if (cache_root() / name).is_dir():
            to = folder / "warm" / "cache" / name
            shutil.copytree(cache_root() / name, to, copy_function=_copy, dirs_exist_ok=True)


def _copy(source: str, to: str) -> None:
    """Copy a file so that a kill leaves the old one, the new one or none."""
    write_plain(Path(to), Path(source).read_bytes())


def protocol(facts: Mapping[str, Any], budget_s: float) -> str:
    """Fingerprint the conditions under which scores compare: data, evaluation rows, budget, kind of device.

    Settings that are not as usual follow in words: `0123456789ab+MLX_ENABLE_TF32=0`.
    """
    look = " look" if is_first_look(budget_s) else ""
    text = f"{facts['fingerprint']} {budget_s:g} {facts['device_kind']}{look}"
    return "+".join(filter(None, [hashlib.sha256(text.encode()).hexdigest()[:12], facts["settings"]]))


def check_same_machine(night: Night, facts: Mapping[str, Any]) -> None:
    """Refuse another protocol, and another device, even of the same kind: scores within a night have to compare."""
    now = protocol(facts, night.budget_s)
    if facts["device"] != night.device:
        raise NightError(
            f"night {night.tag} runs on {night.device}, and this is {facts['device']}, so scores would not compare; go "
            f"on where the device is the same, with --workers and --cores-each as they were, or use another --tag"
        )
    if now != night.protocol:
        raise NightError(
            f"night {night.tag} has protocol {night.protocol}, and here it is {now}, so scores would not compare; "
            f"leave the settings that stand after a plus, the preset, data and nightshift as they were, or use another "
            f"--tag"
        )


# ---- checksums -------------------------------------------------------------------------------------------------------

# Files of the corpus that a score depends on. Training itself checks the training split against the manifest.
SCORED = ("manifest.json", "token_bytes.npy", "tokenizer.*", "validation.*", "holdout.*")


def pins_of(fixed: Path, data: Path) -> dict[str, dict[str, str]]:
    """Return the checksums of a night, kind → file → sha256.

    They are told apart by kind, so that a file of one kind cannot replace one of the other.
    """
    corpus = [path for pattern in SCORED for path in data.glob(pattern)]
    return {
        "fixed": {name: digest(fixed / name) for name in names_in(fixed)},
        "corpus": {path.name: digest(path) for path in corpus},
    }


def verify_pins(night: Night, fixed: Path) -> None:
    """Raise MachineError with the first file that has changed since the night opened."""
    data = Path(night.data)
    now = pins_of(fixed, data)
    for kind, folder in (("fixed", fixed), ("corpus", data)):
        wanted = night.pins.get(kind, {})
        for name in sorted({*now[kind], *wanted}):
            if now[kind].get(name) != wanted.get(name):
                raise MachineError(
                    f"{folder / name} is not as it was when night {night.tag} opened, so scores would not compare; "
                    f"undo that and resume the night, or begin a new one"
                )


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def names_in(fixed: Path) -> list[str]:
    """Return the files in a folder of fixed files, as paths below it."""
    paths = (path for path in fixed.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return [str(path.relative_to(fixed)) for path in paths]
