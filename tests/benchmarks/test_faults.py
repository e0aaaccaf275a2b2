"""Nothing is lost: the quick part of benchmarks/faults.py, which kills a thousand times.

Two nights are under way at a time; each test looks at what one of them came to.
"""

import errno
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from commands import wait_until
from nights import PROJECT, command, environment, git

sys.path.insert(0, str(PROJECT / "benchmarks"))

import kills
from kills import Ended, Outcome, Strike, Tally, Victim

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a preloaded library strikes, and Linux adopts orphans"),
    pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="needs a C compiler for strike.c"),
    pytest.mark.slow,  # half a minute; tests/proposers/test_queue.py kills nights in the ordinary suite
]
# points of one call of the loop: first of a fresh night, then of resumed ones, whose own start takes about 25
KILLS = (9, 55, 33, 64, 76, 60)
FULL = (Strike(60, 10**9, errno.ENOSPC), Strike(40, failure=errno.EIO))


@pytest.fixture(scope="module")
def ends(tmp_path_factory, tiny_data):
    """What came of every fault, by its name; "undisturbed" is what should have."""
    folder = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch, ProcessPoolExecutor(2, initializer=kills.adopt_orphans) as pool:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        kills.build_strike(folder)
        jobs = {
            "killed": pool.submit(struck, folder / "killed", [Strike(at, torn=at % 2 == 0) for at in KILLS]),
            "undisturbed": pool.submit(struck, folder / "undisturbed", []),
            "full ledger": pool.submit(full_at, folder / "ledger", "/.results.tsv."),
            "full": pool.submit(struck, folder / "full", FULL),
            "second": pool.submit(two_loops, folder / "second"),
            "corpus": pool.submit(spoilt, folder / "corpus", tiny_data),
        }
        yield {name: job.result() for name, job in jobs.items()}
    del os.environ["NIGHTSHIFT_STRIKE"]


def struck(folder: Path, strikes: list[Strike]) -> tuple[Tally, Outcome]:
    victim = Victim(folder, experiments=1)
    for strike in strikes:
        victim.go_on(strike)
    victim.end_well()
    return victim.tally, victim.outcome()


def full_at(folder: Path, path: str) -> tuple[int, str, list[str]]:
    """The disk is full once, at the first call on such a file."""
    victim = Victim(folder, experiments=1)
    end = victim.go_on(Strike(1, failure=errno.ENOSPC, only=path))
    return end.code, end.said, (victim.root / "results.tsv").read_text().splitlines()[2:]


def two_loops(folder: Path) -> Tally:
    """Refused, here and in a linked working tree, and told who is there; stop and status find the night from both."""
    victim, linked = Victim(folder, 0.4, experiments=50), folder / "linked"
    git(victim.root, "worktree", "add", "-q", "--detach", str(linked))
    victim.before, tally = victim.users_own(), victim.tally
    loop = victim.start()
    wait_until((victim.folder / "runs" / "0000" / "seed0" / "out" / "metrics.jsonl").exists, kills.LIMIT_S)
    for root in (victim.root, linked):
        refused(ask(root, "run", "--tag", "t"), f"night t (pid {loop.pid}", tally)
        found = ask(root, "status").said
        tally.blame("tracebacks", f"status says: {found}", f"night t: running (pid {loop.pid})" not in found)
    stopped = ask(linked, "stop")
    tally.blame("tracebacks", f"stop in a linked working tree: {stopped.said}", stopped.code)
    end = victim.ended(loop)
    tally.blame("tracebacks", f"exit code {end.code}: {end.said[-300:]}", end.code)
    return tally


def spoilt(folder: Path, data: Path) -> Tally:
    """One bit of one array, and one byte missing of another: refused, for a new night and for one that goes on."""
    copy, begun = folder / "data", Victim(folder / "begun")
    shutil.copytree(data, copy)
    begun.go_on(Strike(300), NIGHTSHIFT_DATA=str(copy))
    for name, damage in (("train.tokens.npy", flipped), ("validation.offsets.npy", lambda content: content[:-1])):
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(damage(content))
        for victim in (begun, Victim(folder / name)):
            end = victim.go_on(NIGHTSHIFT_DATA=str(copy))
            refused(end, ("is not as it was when night t opened", "is damaged"), begun.tally)
        (copy / name).write_bytes(content)
    return begun.tally


def flipped(content: bytes) -> bytes:
    """One bit, in the middle."""
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def ask(root: Path, *words: str) -> Ended:
    done = subprocess.run(
        command(*words), cwd=root, env=environment(), capture_output=True, text=True, check=False, timeout=kills.LIMIT_S
    )
    return Ended(done.returncode, done.stdout + done.stderr)


def refused(end: Ended, sentences: str | tuple[str, ...], tally: Tally) -> None:
    """Exit code 2, one line that says so, in these words or those."""
    words = (sentences,) if isinstance(sentences, str) else sentences
    tally.times += 1
    told = [line for line in end.said.splitlines() if line.startswith("nightshift: ")]
    if end.code != 2 or len(told) != 1 or not any(word in told[0] for word in words):
        tally.blame("tracebacks", f"exit code {end.code} where {words} was due: {end.said.strip()[-400:]}")


def test_a_night_killed_six_times_ends_like_an_undisturbed_one(ends):
    tally, outcome = ends["killed"]
    undisturbed = ends["undisturbed"][1]
    assert undisturbed.whole
    outcome.compare(undisturbed, tally)
    assert tally.notes == []
    assert tally.kills > len(KILLS) // 2  # a night that has ended cannot be killed


def test_full_and_broken_disks_end_a_night_with_a_sentence_and_cost_it_nothing(ends):
    tally, outcome = ends["full"]
    outcome.compare(ends["undisturbed"][1], tally)
    assert tally.notes == []


def test_the_last_row_is_written_in_the_room_of_the_reserve(ends):
    code, said, rows = ends["full ledger"]
    assert code == 2
    assert said.splitlines()[-1].startswith("nightshift: no space left on the disk; free some and resume with:")
    assert len(rows) == 1


def test_a_second_loop_is_refused_and_the_first_is_found_from_every_working_tree(ends):
    assert ends["second"].notes == []
    assert ends["second"].times == 2


def test_a_damaged_corpus_is_refused_before_it_is_used(ends):
    assert ends["corpus"].notes == []
    assert ends["corpus"].times == 4


WRITES = """
import shutil, sys
from pathlib import Path
from agent.files import write_plain
from agent.experiment import Night, Proposal
from agent.records.journal import Journal

folder = Path(sys.argv[1])
night = Night(*["t"] * 4, 1.0, 0, *["t"] * 5)
with Journal.create(folder / "night" / "journal.sqlite", night) as journal:
    journal.add_attempt(0, None, Proposal("A = 1", "title", "why", "you"), "now")
for number in range(2):
    write_plain(folder / "results.tsv", "text\\n")
shutil.copytree(folder / "night", folder / "copy")
shutil.rmtree(folder / "night")
print("done", flush=True)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
def test_the_library_that_strikes_sees_every_call_that_strace_sees(tmp_path, ends):
    (tmp_path / "writes.py").write_text(WRITES)
    (tmp_path / "own").mkdir()
    points, seen = tmp_path / "points.txt", tmp_path / "strace.txt"
    trace = ["strace", "-y", "-e", f"trace={kills.ALL_CALLS}", "-e", "signal=none", "-o", str(seen)]
    told = [word for name, value in Strike().env(points).items() for word in ("-E", f"{name}={value}")]
    write = [sys.executable, str(tmp_path / "writes.py"), str(tmp_path / "own")]
    done = subprocess.run([*trace, *told, *write], env=environment(), capture_output=True, text=True, check=False)
    if "PTRACE" in done.stderr:
        pytest.skip("tracing is not allowed here")
    assert done.returncode == 0, done.stderr
    lines = [line for line in seen.read_text().splitlines() if str(points) not in line and "(" in line]
    calls = [call.removesuffix("64") for call, _ in kills.points_of(points)]
    assert calls == [line.partition("(")[0].removesuffix("64") for line in lines]
    assert {"write", "pwrite", "fsync", "fdatasync", "sendfile", "mkdir", "rename", "unlink", "rmdir"} <= set(calls)
