"""Say what a packed night holds: its first member, so that a night can be listed without unpacking it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any

import msgspec

from agent.git import COMMIT

FORMAT = 1
MOST_DEPTH = 64  # of folders in a night's folder
Fact = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # a size, time or mode that a file may have


@dataclass(frozen=True, slots=True)
class PackedFile:
    """Hold the facts of one file, by which it is verified and restored."""

    bytes: Fact
    sha256: str
    mtime_ns: Fact
    mode: Fact


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
        return sum(file.bytes for file in self.files.values())

    @classmethod
    def of_json(cls, text: bytes) -> "Contents":
        """Read what a file says of itself; raise one of DAMAGED for what no night's folder holds."""
        contents = msgspec.json.decode(text, type=cls)
        if contents.format != FORMAT:
            raise ValueError(f"its format is {contents.format}; this nightshift reads {FORMAT}")
        for path in (*contents.files, *contents.folders):
            _check_path(path, contents.files)
        if contents.files.keys() & set(contents.folders):
            raise ValueError("a file of it is named as a folder, too")
        if not all(COMMIT.fullmatch(sha) for sha in contents.refs.values()):
            raise ValueError("a ref of it leads to no commit")
        if "journal.sqlite" not in contents.files:
            raise ValueError("it holds no journal")
        return contents


def _check_path(path: str, files: Mapping[str, PackedFile]) -> None:
    """Raise ValueError for a path that leads out of the night's folder, or through another file."""
    parts = PurePosixPath(path).parts
    plain = str(PurePosixPath(path)) == path and not path.startswith("/") and "\0" not in path
    if not plain or not 0 < len(parts) <= MOST_DEPTH or ".." in parts or path == ".":
        raise ValueError(f"{path!r} is no path inside a night's folder")
    if any(str(above) in files for above in PurePosixPath(path).parents):
        raise ValueError(f"{path!r} lies inside a file")
