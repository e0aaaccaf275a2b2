"""Commands that are refused, and nights to wait for."""

import subprocess
import time
from collections.abc import Callable

from nights import Grounds


def wait_until(true: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def training(grounds: Grounds, tag: str, number: int = 0) -> Callable[[], bool]:
    """Is this attempt's training under way?"""
    return (grounds.folder(tag) / "runs" / f"{number:04d}" / "seed0" / "out" / "metrics.jsonl").exists


def nothing_yet(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence about what is not there so far."""
    return refused(done, 3)


def refused(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The one sentence of a refusal: exit code 2, one line, no traceback; below it, the place in a script."""
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    sentence, *excerpt = done.stderr.strip().splitlines()
    assert all(line.startswith("    ") for line in excerpt), done.stderr
    assert sentence.startswith("nightshift: ")
    return sentence.removeprefix("nightshift: ").strip()
