"""Packed nights that somebody has changed, and calls that are killed on the way to one."""

import io
import json
import os
import sqlite3
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from nights import Grounds, exit_code

KILLED = 9

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


def killed_at(step: int, is_step: Callable[[str, tuple[Any, ...]], bool], grounds: Grounds, *words: str) -> bool:
    """Run a command in another process that dies before its nth step; return False where it has fewer."""
    child = os.fork()
    if not child:
        left = step

        def before(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            left -= is_step(event, arguments)
            if left == 0:
                os._exit(KILLED)

        os.chdir(grounds.root)
        sys.addaudithook(before)
        os._exit(exit_code(words))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED
