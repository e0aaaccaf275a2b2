"""Find the corpus of a night on this machine: a night that was moved names a folder of the machine that it left."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import prepare
from agent.archive.moving import MANIFEST
from agent.errors import NightError
from agent.experiment import Night
from agent.invocation import typed
from agent.records.checksums import digest
from agent.runs.fixed import protocol, settings_of
from agent.text import harmless
from corpus import DataError
from hardware import cache_root


def at_home(night: Night) -> Night | None:
    """Return the night with the folder of its corpus on this machine; None where it is not here."""
    if (Path(night.data) / "manifest.json").is_file():
        return night
    for folder in _corpora():
        with suppress(DataError, OSError):
            facts = {"fingerprint": prepare.load_data(folder, verify=False).fingerprint}
            then = {"device_kind": night.device_kind, "settings": settings_of(night.protocol)}
            if protocol(facts | then, night.budget_s) == night.protocol:
                return replace(night, data=str(folder), pins=_pins_here(night, folder))
    return None


def check_corpus(night: Night, folder: Path) -> Night:
    """Return the night, given its folder, with its corpus on this machine; raise NightError if it came without."""
    found = at_home(night)
    if found is None and (folder / MANIFEST).is_file():
        raise NightError(f"{missing(night, folder)}; then give the same command")
    return found or night  # whose corpus was deleted: its checksums say so


def missing(night: Night, folder: Path) -> str:
    """Return how to bring the corpus of a night to this machine."""
    told = _manifest(folder)
    words = ["--dataset", str(told["dataset"]), "--scale", str(told["scale"])] if told else []
    again = f"prepare it from the same text with {typed('prepare', *words)}, or " if told else ""
    left = harmless(night.data)
    return (
        f"the corpus of night {night.tag} is not on this machine: {again}copy {left} from the machine that it "
        f"left into {cache_root() / 'data'}"
    )


def _corpora() -> Iterator[Path]:
    """Yield the folders of all corpora on this machine, the selected one first."""
    selected = prepare.data_dir()
    if selected is not None:
        yield selected
    yield from sorted(path.parent for path in (cache_root() / "data").glob("*/manifest.json"))


def _pins_here(night: Night, folder: Path) -> str:
    """Return the night's checksums; those of the manifest, which also says where its text lay, are taken here."""
    pins = json.loads(night.pins)
    if "manifest.json" in pins.get("corpus", {}):
        pins["corpus"]["manifest.json"] = digest(folder / "manifest.json")
    return json.dumps(pins)


def _manifest(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        told = json.loads((folder / MANIFEST).read_text())
        if isinstance(told, dict) and {"dataset", "scale"} <= told.keys():
            return told
    return {}
