"""A journal whose making is killed: the night is there, or it is not, and can be read and go on at once."""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest
from nights import PROJECT, environment
from samples import NIGHT

sys.path.insert(0, str(PROJECT / "benchmarks"))

import kills
from kills import Strike

from agent.experiment import Proposal
from agent.records.journal import Journal

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a preloaded library strikes"),
    pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="needs a C compiler for strike.c"),
]
MAKES = """
import sys
from pathlib import Path
import msgspec
from agent.experiment import Night
from agent.records.journal import Journal

with Journal.create(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Night)):
    pass
"""
OF_READERS = {"journal.sqlite-wal", "journal.sqlite-shm"}  # which leave them behind, empty


@pytest.fixture
def strike(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_STRIKE", "")  # as it was, afterwards
    kills.build_strike(tmp_path)


def made(path: Path, strike: Strike) -> int:
    """Make a journal in a process that is struck; return its exit code."""
    call = [sys.executable, "-c", MAKES, str(path), msgspec.json.encode(NIGHT).decode()]
    trace = path.parents[1] / f"{path.parent.name}.txt"
    return subprocess.run(call, env=environment(**strike.env(trace)), check=False).returncode


def killed_at(folder: Path, number: int) -> tuple[bool, set[str]]:
    """Kill the making at one call, read and resume what is there; return whether a night was, and all other files."""
    path = folder / str(number) / "journal.sqlite"
    assert made(path, Strike(number, torn=number % 2 == 0)) == -signal.SIGKILL
    was_there = path.exists()
    if was_there:
        with Journal.read(path) as journal:
            assert (journal.night(), journal.attempts()) == (NIGHT, ())
    with Journal.resume(path) if was_there else Journal.create(path, NIGHT) as journal:
        journal.add_attempt(0, None, Proposal.of("A = 1", "title", "why", "you"), "now")
    with Journal.read(path) as journal:
        assert (journal.night(), len(journal.attempts())) == (NIGHT, 1)
    return was_there, {left.name for left in path.parent.iterdir()} - {path.name}


def test_a_night_whose_opening_is_killed_at_any_write_can_be_read_and_goes_on(tmp_path, strike):
    assert made(tmp_path / "whole" / "journal.sqlite", Strike()) == 0
    points = [line.split(" ", 1) for line in (tmp_path / "whole.txt").read_text().splitlines()]
    assert {"mkdir", "pwrite64", "fdatasync", "rename"} <= {call for call, _ in points}
    with ThreadPoolExecutor(2) as threads:
        ends = list(threads.map(partial(killed_at, tmp_path), range(1, len(points) + 1)))
    has_name = next(at for at, (call, path) in enumerate(points) if call == "rename")
    assert [was_there for was_there, _ in ends] == [at > has_name for at in range(len(points))]
    assert set().union(*(left for _, left in ends)) <= OF_READERS
