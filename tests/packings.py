"""Packed nights that somebody has changed."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
