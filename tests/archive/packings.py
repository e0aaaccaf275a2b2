"""Packed nights that somebody has changed."""

import io
import json
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

Members = dict[str, tuple[tarfile.TarInfo, bytes]]
Change = Callable[[dict[str, Any], Members], None]


def tampered(file: Path, change: Change) -> None:
    """Write the file again after a change of what it says and of the members that it holds."""
    with tarfile.open(file) as tar:
        members = {one.name: (one, tar.extractfile(one).read() if one.isreg() else b"") for one in tar}
    first, text = members.pop("contents.json")
    said = json.loads(text)
    change(said, members)
    with tarfile.open(file, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for member, content in [(first, json.dumps(said).encode()), *members.values()]:
            if member.isreg():
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def with_journal(statement: str) -> Change:
    """Change the journal in the file."""

    def change(said: dict[str, Any], members: Members) -> None:
        member, content = members["night/journal.sqlite"]
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.deserialize(content.replace(b"\x02\x02", b"\x01\x01", 1))  # a WAL cannot be in memory
            database.execute(statement)
            members["night/journal.sqlite"] = member, database.serialize()

    return change
