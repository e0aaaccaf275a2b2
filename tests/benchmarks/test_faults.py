"""Nothing is lost: a small part of benchmarks/faults.py, which kills a thousand times."""

import errno
import os
import shutil
import subprocess
import sys

import pytest
from commands import wait_until
from nights import PROJECT, command, environment, git

sys.path.insert(0, str(PROJECT / "benchmarks"))

import faults
import kills
from kills import Fault, Laboratory, Reference, Strike, Victim

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a preloaded library strikes, and Linux adopts orphans"),
    pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="needs a C compiler for strike.c"),
    pytest.mark.slow,  # half a minute; tests/records/test_journal_kills.py kills in the ordinary suite
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_data):
    """A folder to work in, with the library that strikes."""
    folder = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        patch.setenv("NIGHTSHIFT_STRIKE", "")
        patch.setenv("LD_PRELOAD", "")
        kills.build_strike(folder)
        yield folder


def killed(folder, tally):
    reference = Reference.of(folder / "undisturbed")
    faults.disturbed(folder / "loop", tally, reference, faults.sweep, 9, 0, 6)
    for lasts in (True, False):
        faults.disturbed(folder / f"lasts {lasts}", tally, reference, faults.fail_disk, errno.ENOSPC, 62, 500, lasts)


def test_nights_that_are_killed_and_disks_that_fail_lose_nothing(folder):
    laboratory = Laboratory(folder, 1)
    figures = laboratory.make([Fault("all", killed, ())])
    assert laboratory.tally.notes == []
    assert figures["kills"] > 3
    assert figures["other_faults"] >= 3  # at least 3 of 4: a night may survive the one write that fails


def test_what_is_lost_is_blamed(folder):
    reference, victim = Victim(folder / "whole", experiments=1), Victim(folder / "less", experiments=1)
    reference.go_on()
    victim.go_on(Strike(600))
    victim.compare(reference.outcome())
    assert victim.tally.counts["lost"] > 0
    assert victim.tally.counts["wrong_rows"] > 0


def test_rows_that_a_full_disk_refused_are_written_by_the_next_call(folder):
    victim = Victim(folder / "results", experiments=1)
    end = victim.go_on(Strike(1, errno=errno.ENOSPC, path="/.results.tsv."))
    assert end.code == 1
    sentence = "nightshift: the disk is full, or it fails ("
    assert end.said.splitlines()[-1].startswith(sentence)
    assert victim.go_on().code == 0
    assert len((victim.root / "results.tsv").read_text().splitlines()[2:]) >= 2


def test_a_second_loop_is_refused_and_the_first_is_found_from_every_working_tree(folder):
    victim, linked = Victim(folder / "second", 0.4, experiments=50), folder / "linked"
    git(victim.root, "worktree", "add", "-q", "--detach", str(linked))
    loop = victim.start()
    wait_until((victim.folder / "runs" / "0000" / "seed0" / "out" / "metrics.jsonl").exists, kills.LIMIT_S)

    def ask(root, *words):
        done = subprocess.run(command(*words), cwd=root, env=environment(), capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    for root in (victim.root, linked):
        code, said = ask(root, "run", "--tag", "t")
        assert (code, f"night t (pid {loop.pid}" in said) == (2, True), said
        assert f"night t: running (pid {loop.pid})" in ask(root, "status")[1]
    assert ask(linked, "stop")[0] == 0
    assert loop.wait(kills.LIMIT_S) == 0


ALL_CALLS = "write,pwrite64,writev,sendfile,copy_file_range,fsync,fdatasync,ftruncate,mkdir,rmdir,unlink,unlinkat"
ALL_CALLS += ",rename,renameat,link,symlink"  # strace's names of the calls that strike.c counts
WRITES = """
import shutil, sys
from pathlib import Path
from agent.files import write_plain
from agent.experiment import Night, Proposal
from agent.records.journal import Journal

folder = Path(sys.argv[1])
night = Night(*["t"] * 4, 1.0, 0, "cpu", *["t"] * 4)
with Journal.create(folder / "night" / "journal.sqlite", night) as journal:
    journal.add_attempt(0, None, Proposal.of("A = 1", "title", "why", "you"), "now")
for number in range(2):
    write_plain(folder / "results.tsv", "text\\n")
shutil.copytree(folder / "night", folder / "copy")
shutil.rmtree(folder / "night")
print("done", flush=True)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
def test_the_library_that_strikes_sees_every_call_that_strace_sees(tmp_path, folder):
    (tmp_path / "writes.py").write_text(WRITES)
    (tmp_path / "own").mkdir()
    points, seen = tmp_path / "points.txt", tmp_path / "strace.txt"
    trace = ["strace", "-y", "-e", f"trace={ALL_CALLS}", "-e", "signal=none", "-o", str(seen)]
    options = [word for name, value in Strike().env(points).items() for word in ("-E", f"{name}={value}")]
    write = [sys.executable, str(tmp_path / "writes.py"), str(tmp_path / "own")]
    done = subprocess.run([*trace, *options, *write], env=environment(), capture_output=True, text=True, check=False)
    if "PTRACE" in done.stderr:
        pytest.skip("tracing is not allowed here")
    assert done.returncode == 0, done.stderr
    lines = [line for line in seen.read_text().splitlines() if str(points) not in line and "(" in line]
    calls = [line.partition(" ")[0].removesuffix("64") for line in points.read_text().splitlines()]
    assert calls == [line.partition("(")[0].removesuffix("64") for line in lines]
    assert {"write", "pwrite", "fsync", "fdatasync", "sendfile", "mkdir", "rename", "unlink", "rmdir"} <= set(calls)
