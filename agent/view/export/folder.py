"""Replace a folder that an earlier export made, and no other: it appears under its name when it is whole."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from agent.errors import NightError
from agent.files import replaced_folder

MARK = "nightshift-export.json"


@contextmanager
def replaced(folder: Path, kind: str, tags: Sequence[str]) -> Iterator[Path]:
    """Yield a folder to fill, which then takes this one's place; raise NightError where that holds anything else."""
    _check(folder, kind)
    with replaced_folder(folder) as aside:
        (aside / MARK).write_text(json.dumps({"export": kind, "nights": list(tags)}) + "\n")
        yield aside


def _check(folder: Path, kind: str) -> None:
    if not folder.parent.is_dir():
        raise NightError(f"{folder.parent} is not a folder; make it first, or name another with --out")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    with suppress(OSError, ValueError, TypeError, LookupError):
        if json.loads((folder / MARK).read_text())["export"] == kind:
            return
    raise NightError(f"{folder} holds something other than an export for {kind}; name another folder with --out")
