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
STRIDE = 5  # each fifth call is tested: all together take half a minute
OF_READERS = {"journal.sqlite-wal", "journal.sqlite-shm"}  # empty files that readers leave


@pytest.fixture
def strike(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_STRIKE", "")  # teardown puts the old value back
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


@pytest.mark.parametrize(
    "first", [1, *(pytest.param(number, marks=pytest.mark.slow) for number in range(2, STRIDE + 1))]
)
def test_a_night_whose_opening_is_killed_at_any_write_can_be_read_and_goes_on(first, tmp_path, strike):
    assert made(tmp_path / "whole" / "journal.sqlite", Strike()) == 0
    points = [line.split(" ", 1) for line in (tmp_path / "whole.txt").read_text().splitlines()]
    assert {"mkdir", "pwrite64", "fdatasync", "rename"} <= {call for call, _ in points}
    struck = range(first, len(points) + 1, STRIDE)
    with ThreadPoolExecutor(2) as threads:
        ends = list(threads.map(partial(killed_at, tmp_path), struck))
    has_name = next(number for number, (call, _) in enumerate(points, start=1) if call == "rename")
    assert [was_there for was_there, _ in ends] == [number > has_name for number in struck]
    assert set().union(*(left for _, left in ends)) <= OF_READERS
