"""Packed nights that somebody has changed, and calls that are killed on the way to one."""

import io
import json
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nights import Grounds, exit_code

KILLED = 9

Change = Callable[[dict[str, Any], list[tuple[tarfile.TarInfo, bytes]]], None]


def tampered(file: Path, change: Change) -> None:
    """Write the file again after a change of what it says and of what it holds."""
    with tarfile.open(file) as tar:
        members = [(one, tar.extractfile(one).read()) for one in tar]
    said = json.loads(members.pop(0)[1])
    change(said, members)
    text = json.dumps(said).encode()
    first = tarfile.TarInfo("contents.json")
    first.size = len(text)
    with tarfile.open(file, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for member, content in [(first, text), *members]:
            tar.addfile(member, io.BytesIO(content))


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
