"""What else can go wrong on a machine: disks, power, clocks, corpora, a second loop, a loop that is stopped."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import measure
from kills import LIMIT_S, Ended, Strike, Tally, Victim, known
from nights import command, git
from sweeps import Reference

from agent.errors import NightError
from agent.records.journal import Journal

DAY_S = 86_400


@dataclass(frozen=True)
class Fault:
    name: str
    body: Callable[..., None]
    arguments: tuple[object, ...] = ()

    def run(self, folder: Path, reference: Reference) -> Tally:
        tally = Tally()
        self.body(folder, reference, tally, *self.arguments)
        if tally.clean:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            tally.notes = [f"{note}  [{self.name} {self.arguments}; see {folder}]" for note in tally.notes]
        return tally


def every_fault(quick: bool) -> list[Fault]:
    if quick:
        return [
            Fault("a full disk", failing_disk, (errno.ENOSPC, 40, 400)),
            Fault("a damaged corpus", damaged_corpus, (quick,)),
            Fault("a second loop", second_loop),
            Fault("torn files", torn_files, (quick,)),
            Fault("a clock that jumps", jumping_clock, (1,)),
        ]
    disks, firsts, stride = [(errno.ENOSPC, "a full disk"), (errno.EIO, "a broken disk")], (4, 16, 28), 36
    failing = [Fault(name, failing_disk, (code, first, stride)) for code, name in disks for first in firsts]
    rest = [
        Fault("a damaged corpus", damaged_corpus, (quick,)),
        Fault("a second loop", second_loop),
        Fault("torn files", torn_files, (quick,)),
        Fault("a stopped loop", stopped_loop),
    ]
    clocks = [Fault("a clock that jumps", jumping_clock, (days,)) for days in (1, 400, 4000)]
    return [*failing, *rest, *clocks]


def refused(end: Ended, sentence: str | tuple[str, ...], tally: Tally) -> None:
    """Exit code 2, one line that says so, in these words or those."""
    words = (sentence,) if isinstance(sentence, str) else sentence
    tally.times += 1
    told = [line for line in end.said.splitlines() if line.startswith("nightshift: ")]
    if end.code != 2 or len(told) != 1 or not any(word in told[0] for word in words):
        tally.blame("tracebacks", f"exit code {end.code} where {sentence!r} was due: {end.said.strip()[-400:]}")


# ---- disks -----------------------------------------------------------------------------------------------------------


def failing_disk(folder: Path, reference: Reference, tally: Tally, code: int, first: int, stride: int) -> None:
    """From some point on nothing can be written: the night says so in a sentence. Then at one point alone."""
    victim = Victim(folder / "lasting")
    for at in range(first, len(reference.points), stride):
        victim.go_on(Strike(at if at < reference.start_up + stride else reference.start_up + at % 40, 10**9, code))
        tally.times += 1
    tally.add(victim.finish(reference.outcome))
    victim = Victim(folder / "passing")
    for at in range(first, len(reference.points), stride):
        if victim.go_on(Strike(at, failure=code)).code == 0:
            break
        tally.times += 1
    tally.add(victim.finish(reference.outcome))


def torn_files(folder: Path, reference: Reference, tally: Tally, quick: bool) -> None:
    """A power cut tears what was not yet on disk: the ledger anywhere, the journal's log past its last whole step."""
    victim = Victim(folder / "night")
    boundaries = list(reference.boundaries())
    victim.go_on(Strike(boundaries[2 * len(boundaries) // 3]))
    _, history = victim.journal()
    before = frozenset(known(history))
    copy = folder / "copy"
    log = victim.folder / "journal.sqlite-wal"
    whole = log.read_bytes()
    seen = []
    for size in range(len(whole), 0, -(len(whole) // (20 if quick else 300) or 1)):
        for tail in (b"", b"\0" * (len(whole) - size), b"\xff" * min(4096, len(whole) - size)):
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            shutil.copyfile(victim.folder / "journal.sqlite", copy / "journal.sqlite")
            (copy / "journal.sqlite-wal").write_bytes(whole[:size] + tail)
            seen.append(facts_in(copy / "journal.sqlite", tally))
            tally.times += 1
    for facts in seen:  # a torn log is an earlier moment of the same night, and never anything else
        tally.blame("damaged", f"{sorted(map(str, facts - before))[:2]}", len(facts - before))
    for ending in (b"", b"\0" * 100, b"0000000\tkeep\t"):
        text = (victim.root / "results.tsv").read_bytes()
        (victim.root / "results.tsv").write_bytes(text[: len(text) * 2 // 3] if not ending else text + ending)
        tally.times += 1
    (victim.root / "results.tsv").write_bytes(text.split(b"\n")[0] + b"\n" + text.split(b"\n")[1] + b"\n")
    tally.add(victim.finish(reference.outcome))


def facts_in(path: Path, tally: Tally) -> frozenset[tuple[object, ...]]:
    try:
        with Journal.resume(path) as journal:
            return frozenset(known(journal.attempts()))
    except NightError as error:
        tally.blame("damaged", str(error))
        return frozenset()


# ---- corpora ---------------------------------------------------------------------------------------------------------


def damaged_corpus(folder: Path, reference: Reference, tally: Tally, quick: bool) -> None:
    """Every file of the corpus cut short, one bit flipped, or gone: refused, for a new night and a resumed one."""
    data = folder / "data"
    shutil.copytree(os.environ["NIGHTSHIFT_DATA"], data)
    victim = Victim(folder / "night")
    end = victim.go_on(Strike(len(reference.points) // 2), NIGHTSHIFT_DATA=str(data))
    if not end.killed:
        raise measure.Failed(f"a night by itself ended with exit code {end.code}: {end.said[-300:]}")
    unbegun = Victim(folder / "unbegun")
    arrays = sorted(path for path in data.iterdir() if path.suffix == ".npy" or path.name.startswith("tokenizer"))
    for path in arrays[:: 9 if quick else 1]:
        content = path.read_bytes()
        for damage in (cut, flipped):
            path.write_bytes(damage(content))
            refused(
                victim.go_on(NIGHTSHIFT_DATA=str(data)), ("was changed after night t had opened", "is damaged"), tally
            )
            refused(unbegun.go_on(NIGHTSHIFT_DATA=str(data)), "is damaged", tally)
        path.write_bytes(content)
    tally.add(unbegun.tally)
    tally.add(victim.finish(reference.outcome))


def cut(content: bytes) -> bytes:
    return content[:-1]


def flipped(content: bytes) -> bytes:
    """One bit, in the middle."""
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


# ---- loops and clocks ------------------------------------------------------------------------------------------------


def second_loop(folder: Path, reference: Reference, tally: Tally) -> None:
    """Refused, here and in a linked working tree, and told who is there; stop and status find the night from both."""
    victim = Victim(folder / "night", 0.4, experiments=50)
    linked = folder / "linked"
    git(victim.root, "worktree", "add", "-q", "--detach", str(linked))
    victim.before = victim.users_own()
    loop = victim.start()
    wait_for(victim.folder / "runs" / "0000" / "seed0" / "out" / "metrics.jsonl")
    for root in (victim.root, linked):
        refused(ask(root, "run", "--tag", "u"), f"night t (pid {loop.pid}", tally)
        found = ask(root, "status")
        tally.times += 1
        if f"night t: running (pid {loop.pid})" not in found.said:
            tally.blame("tracebacks", f"status in {root.name} says: {found.said}")
    stopped = ask(linked, "stop")
    tally.times += 1
    if stopped.code != 0:
        tally.blame("tracebacks", f"stop in a linked working tree: {stopped.said}")
        loop.terminate()
    end = victim.ended(loop)
    if end.code != 0:
        tally.blame("tracebacks", f"exit code {end.code}: {end.said[-300:]}")
    tally.add(victim.tally)


def stopped_loop(folder: Path, reference: Reference, tally: Tally) -> None:
    """SIGSTOP in the middle of a run, SIGCONT three seconds later: as if nothing had been."""
    victim = Victim(folder / "night")
    loop = victim.start()
    wait_for(victim.folder / "runs" / "0001" / "seed0" / "out")
    loop.send_signal(signal.SIGSTOP)
    time.sleep(3)
    loop.send_signal(signal.SIGCONT)
    victim.ended(loop)
    tally.times += 1
    tally.add(victim.finish(reference.outcome))


def jumping_clock(folder: Path, reference: Reference, tally: Tally, days: int) -> None:
    """Half of a night by the clock of the day, half while it jumps to and fro: only the hours in the rows differ."""
    # the reference confirms nothing, and an eighth of --hours would be kept for that
    victim = Victim(folder / "night", options=("--hours", "1", "--dawn", "0"))
    victim.go_on(Strike(len(reference.points) // 2))
    start = time.monotonic()
    end = victim.go_on(Strike(clock_s=days * DAY_S))
    tally.times += 1
    if end.code != 0 or time.monotonic() - start > LIMIT_S / 2:
        tally.blame("tracebacks", f"exit code {end.code}: {end.said[-300:]}")
    _, history = victim.journal()
    late = [attempt.number for attempt in history if not 0 < attempt.spent_s < LIMIT_S / 2]
    tally.blame("damaged", f"attempts {late} took no time or never ended", len(late))
    tally.add(victim.finish(reference.outcome))


def ask(root: Path, *words: str) -> Ended:
    done = subprocess.run(
        command(*words), cwd=root, env=measure.with_path(), capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    return Ended(done.returncode, done.stdout + done.stderr)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise measure.Failed(f"{path} did not come within {LIMIT_S:.0f} s")
        time.sleep(0.02)
