"""Say what a packed night holds: its first member, so that a night can be listed without unpacking it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from agent.git import COMMIT

FORMAT = 1
MOST_DEPTH = 64  # of folders in a night's folder


@dataclass(frozen=True, slots=True)
class PackedFile:
    """Hold the facts of one file, by which it is verified and restored."""

    bytes: int
    sha256: str
    mtime_ns: int
    mode: int


@dataclass(frozen=True, slots=True)
class Contents:
    """Say what a packed night holds."""

    tag: str
    started: str
    packed: str  # ISO 8601, UTC
    summary: Mapping[str, Any]  # where the night stands, as `nights` shows it
    files: Mapping[str, PackedFile]  # by path inside the night's folder
    folders: tuple[str, ...]  # those without any file
    refs: Mapping[str, str] = field(default_factory=dict)  # ref → commit
    format: int = FORMAT

    @property
    def all_bytes(self) -> int:
        return sum(one.bytes for one in self.files.values())

    @classmethod
    def of_json(cls, text: bytes) -> "Contents":
        """Read what a file says of itself; raise one of DAMAGED for what no night's folder holds."""
        said = json.loads(text)
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}; this nightshift reads {FORMAT}")
        files = {path: PackedFile(**facts) for path, facts in said["files"].items()}
        for path in (*files, *said["folders"]):
            _check_path(path, files)
        for one in files.values():
            if not all(type(number) is int and 0 <= number < 2**63 for number in (one.bytes, one.mtime_ns, one.mode)):
                raise ValueError("a file of it has a size, time or mode that no file has")
        if not all(COMMIT.fullmatch(sha) for sha in said["refs"].values()):
            raise ValueError("a ref of it leads to no commit")
        times_and_tag = (said[name] for name in ("tag", "started", "packed"))
        if "journal.sqlite" not in files or not all(isinstance(one, str) for one in times_and_tag):
            raise ValueError("it holds no journal, or its tag or a time of it is no text")
        return cls(**said | {"files": files, "folders": tuple(said["folders"])})


def _check_path(path: str, files: Mapping[str, PackedFile]) -> None:
    """Raise ValueError for a path that leads out of the night's folder, or through another file."""
    parts = PurePosixPath(path).parts
    plain = str(PurePosixPath(path)) == path and not path.startswith("/") and "\0" not in path
    if not plain or not 0 < len(parts) <= MOST_DEPTH or ".." in parts or path == ".":
        raise ValueError(f"{path!r} is no path inside a night's folder")
    if any(str(above) in files for above in PurePosixPath(path).parents):
        raise ValueError(f"{path!r} lies inside a file")
