"""Is anything ever lost? Nights that are killed a thousand times, and what else can go wrong on a machine.

    python benchmarks/faults.py [--kills 1000] [--processes N] [--quick] [--json FILE]

kills    SIGKILL at calls with which the loop changes a file or makes a change durable, half of the writes torn: at a
         point of a fresh night, then at random points of each call that goes on; at every such call of the git commands
         that it starts, with the loop and without; at random moments, to the loop alone and to all of its processes.
         After every kill the same command resumes; journal, results, repository and the user's own files are checked
         each time, and the night's end is compared with that of an undisturbed one. One night of eight is a study.
commands a kill and a second call for pack, unpack, init, export, try, run --drain and prepare (killed_commands.py).
others   a full and a broken disk, torn files after a power cut, clocks that jump, a loop that is stopped for a while.

Flat keys of --json: kills, command_kills, other_faults, and how many of each kind; points_of_a_night; lost, doubled,
damaged, orphans, wrong_rows, tracebacks. Exit code 1 when anything was lost, counted twice, damaged, left running or
left unexplained. Linux, with a C compiler. worker_kills.py kills nights of several workers.
"""

import errno
import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import killed_commands
import measure
from commands import wait_until
from kills import (
    LIMIT_S,
    Fault,
    Laboratory,
    Reference,
    Strike,
    StudyVictim,
    Tally,
    Victim,
    anything_lost,
    facts_of,
    prepare_machine,
)
from measure import CORES, Count, Folder, Quick

from agent.errors import NightError
from agent.records.journal import Journal

GIT_COMMANDS = (
    "hash-object",
    "read-tree",
    "update-index",
    "write-tree",
    "commit-tree",
    "update-ref",
)  # those that write
KILLS_A_NIGHT, RESUMED_POINTS = 15, 120  # RESUMED_POINTS: a call that goes on is killed within so many
WAIT_S = 2.0  # longest wait for a random moment: an undisturbed night takes about 3 s after its imports
GOLDEN = 0.618034  # multiples of it, less their whole parts, spread evenly however many there are

SHIM = """\
#!/bin/sh
# comes before git on PATH: the first call of one command dies at one of its points, and the loop with it or not
for word in "$@"; do
    if [ "$word" = "$VICTIM_COMMAND" ] && mkdir "$VICTIM_MARK" 2>/dev/null; then
        LD_PRELOAD=$NIGHTSHIFT_STRIKE STRIKE_AT=$VICTIM_AT STRIKE_TORN=$VICTIM_TORN "$VICTIM_GIT" "$@"
        code=$?
        [ $code = 137 ] || exit $code
        touch "$VICTIM_MARK/killed"
        [ -z "$VICTIM_LOOP" ] || kill -KILL $PPID
        kill -KILL $$
    fi
done
exec "$VICTIM_GIT" "$@"
"""


# ---- kills -----------------------------------------------------------------------------------------------------------


def disturbed(
    folder: Path, tally: Tally, reference: Reference, disturb: Callable[..., None], *arguments: object
) -> None:
    """Disturb a night, let it end by itself, and compare it with an undisturbed one."""
    victim = reference.kind(folder / "night")
    disturb(victim, reference, *arguments)
    tally.add(victim.finish(reference.outcome))


def kills_without_end(reference: Reference, study: Reference) -> Iterator[Fault]:
    """Yield nights to kill: of eight, one in a git command, two at random moments, four in the loop, one a study."""
    git_kills = itertools.cycle(itertools.product(reversed(GIT_COMMANDS), (True, False)))
    for number in itertools.count():
        if number % 8 == 1:
            yield Fault("git", disturbed, (reference, tear_git, *next(git_kills)))
        elif number % 4 == 2:
            yield Fault("moments", disturbed, (reference, surprise, number))
        else:
            name, killed = ("loop", reference) if number % 8 else ("study", study)
            first = 1 + int(len(killed.points) * (number * GOLDEN % 1))
            yield Fault(name, disturbed, (killed, sweep, first, number))


def sweep(victim: Victim, reference: Reference, first: int, seed: int, most: int = KILLS_A_NIGHT) -> None:
    """Kill at a point of a fresh night, then at random points of each call that goes on with it."""
    dice, number = random.Random(seed), first
    while victim.go_on(Strike(number, torn=number % 2)).killed and victim.kills < most:
        number = dice.randint(1, RESUMED_POINTS)


def tear_git(victim: Victim, reference: Reference, command: str, with_loop: bool) -> None:
    """Kill a git command of the night at each of its points, the loop with it or not."""
    mark, shim = victim.said.with_name("mark"), victim.said.with_name("bin") / "git"
    shim.parent.mkdir()
    shim.write_text(SHIM, encoding="utf-8")
    shim.chmod(0o755)
    number, missed, code = 1, 0, -1
    while missed < 2 and code != 0:  # a call that finds its work done writes less than one that does it
        shutil.rmtree(mark, ignore_errors=True)
        end = victim.go_on(
            PATH=f"{shim.parent}{os.pathsep}{os.environ['PATH']}", VICTIM_GIT=shutil.which("git") or "git",
            VICTIM_COMMAND=command, VICTIM_MARK=str(mark), VICTIM_AT=str(number),
            VICTIM_TORN=str(number % 2), VICTIM_LOOP="yes" if with_loop else "",
        )  # fmt: skip
        hit, code = (mark / "killed").exists(), end.code
        victim.tally.counts["kills"] += hit and not end.killed
        number, missed = (number + 1, missed) if hit else (number, missed + 1)


def surprise(victim: Victim, reference: Reference, seed: int) -> None:
    """Kill a night at random moments."""
    dice = random.Random(seed)
    while victim.kill_after(dice.uniform(0, WAIT_S), whole=dice.random() < 0.5).killed and victim.kills < KILLS_A_NIGHT:
        time.sleep(dice.choice((0.0, 0.0, 0.3)))


# ---- other faults ----------------------------------------------------------------------------------------------------


def other_faults(reference: Reference, quick: bool) -> Iterator[Fault]:
    yield Fault("torn_files", disturbed, (reference, tear_files, 20 if quick else 300))
    if not quick:
        yield Fault("stopped_loop", disturbed, (reference, stop_and_go))
    disks = {"full_disk": errno.ENOSPC} if quick else {"full_disk": errno.ENOSPC, "broken_disk": errno.EIO}
    points = ((40, 400),) if quick else ((4, 36), (16, 36), (28, 36))
    for (name, code), (first, stride), lasts in itertools.product(disks.items(), points, (True, False)):
        yield Fault(name, disturbed, (reference, fail_disk, code, first, stride, lasts))
    for days in (1,) if quick else (1, 400, 4000):
        yield Fault("jumping_clock", disturbed, (reference, turn_clock, days))


def fail_disk(victim: Victim, reference: Reference, code: int, first: int, stride: int, lasts: bool) -> None:
    """Let nothing be written from some point on, or at one point alone, which the night says in a sentence."""
    for at in range(first, len(reference.points), stride):
        victim.tally.counts["other_faults"] += 1
        strike = Strike(1 + at % RESUMED_POINTS, 10**9, code) if lasts else Strike(at, errno=code)
        if victim.go_on(strike).code == 0:
            break


def tear_files(victim: Victim, reference: Reference, sizes: int) -> None:
    """A power cut tears what was not yet on disk: the results anywhere, the journal's log past its last whole step."""
    victim.go_on(Strike(2 * len(reference.points) // 3))
    journal, copy = victim.folder / "journal.sqlite", victim.said.with_name("copy")
    whole = Path(f"{journal}-wal").read_bytes()
    for size in range(len(whole), 0, -(len(whole) // sizes or 1)):
        for tail in (b"", b"\0" * (len(whole) - size), b"\xff" * min(4096, len(whole) - size)):
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            shutil.copyfile(journal, copy / journal.name)
            (copy / f"{journal.name}-wal").write_bytes(whole[:size] + tail)
            victim.tally.counts["other_faults"] += 1
            try:
                with Journal.resume(copy / journal.name) as torn:
                    # A torn journal may show an earlier moment of the night, and nothing else.
                    invented = {*facts_of(torn.attempts())} - victim.facts
                victim.tally.blame("damaged", f"{sorted(map(str, invented))[:2]}", len(invented))
            except NightError as error:
                victim.tally.blame("damaged", str(error))
    rows = (victim.root / "results.tsv").read_bytes()
    first_two = b"".join(rows.splitlines(keepends=True)[:2])
    for tear in (rows[: len(rows) * 2 // 3], rows + b"\0" * 100, rows + b"0000000\tkeep\t", first_two):
        (victim.root / "results.tsv").write_bytes(tear)
        victim.tally.counts["other_faults"] += 1


def stop_and_go(victim: Victim, reference: Reference) -> None:
    """SIGSTOP in the middle of a run, SIGCONT three seconds later: as if nothing had been."""
    loop, out = victim.start(), victim.folder / "runs" / "0001" / "seed0" / "out"
    wait_until(out.exists, LIMIT_S)
    loop.send_signal(signal.SIGSTOP)
    time.sleep(3)
    loop.send_signal(signal.SIGCONT)
    victim.ended(loop)
    victim.tally.counts["other_faults"] += 1


def turn_clock(victim: Victim, reference: Reference, days: int) -> None:
    """Half of a night by the clock of the day, half while it jumps to and fro: only the hours in the rows differ."""
    # the reference confirms nothing, and an eighth of --hours would be kept for that
    victim.options = ("--hours", "1", "--confirmation-runs", "0")
    victim.go_on(Strike(len(reference.points) // 2))
    start = time.monotonic()
    end = victim.go_on(Strike(clock_s=days * 86_400))
    victim.tally.counts["other_faults"] += 1
    if end.code != 0 or time.monotonic() - start > LIMIT_S / 2:
        victim.tally.blame("tracebacks", f"exit code {end.code}: {end.said[-300:]}")
    _, history = victim.journal()
    late = [attempt.number for attempt in history if not 0 < attempt.spent_s < LIMIT_S / 2]
    victim.tally.blame("damaged", f"attempts {late} took no time or never ended", len(late))


# ---- all of them -----------------------------------------------------------------------------------------------------


@measure.program(anything_lost, kills=60)
def main(*, folder: Folder, quick: Quick, kills: Count = 1000, processes: Count = CORES) -> measure.Flat:
    """Make every fault, and count what it left behind.

    Args:
        kills: of nights, at least so many
        processes: faults at the same time
    """
    prepare_machine(folder)
    laboratory = Laboratory(folder, processes)
    reference = Reference.of(folder / "undisturbed")

    def faults() -> Iterator[Fault]:
        yield from killed_commands.every_fault(reference, quick)
        yield from other_faults(reference, quick)
        endless = kills_without_end(reference, Reference.of(folder / "study", StudyVictim))
        yield from itertools.takewhile(lambda _: laboratory.tally.counts["kills"] < kills, endless)

    return {"points_of_a_night": len(reference.points), **laboratory.make(faults())}


if __name__ == "__main__":
    raise SystemExit(main())
