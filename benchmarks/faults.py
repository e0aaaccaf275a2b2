"""Is anything ever lost? Nights that are killed a thousand times, and what else can go wrong on a machine.

    python benchmarks/faults.py [--quick] [--json FILE] [--kills N] [--minutes M] [--seed K]
                                [--only kills|commands|others]

kills    SIGKILL at calls with which the loop changes a file or makes a change durable, half of the writes torn: at a
         point of a fresh night, then at random points of each call that goes on; at every such call of the git commands
         that it starts, with the loop and without; at random moments, to the loop alone and to all of its processes.
         After every kill the same command resumes; journal, ledger, repository and the user's own files are looked at
         each time, and the night's end is compared with that of an undisturbed one.
commands a kill and a second call for pack, unpack, init, export, submit, try and prepare (killed_commands.py).
others   a full and a broken disk, torn files after a power cut, clocks that jump, a loop that is stopped for a while.

Flat keys of --json: kills, command_kills, points_of_a_night; lost, doubled, damaged, orphans, wrong_rows, tracebacks;
FAULT_times and FAULT_wrong of each kind of fault. Exit code 1 when anything was lost, counted twice, damaged, left
running or left unexplained. Linux, with a C compiler. crew_kills.py kills nights of several workers.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import kills
import measure
from kills import LOSSES, Fault, Reference, Strike, Tally, Victim, known

from agent.errors import NightError
from agent.records.journal import Journal

GIT_COMMANDS = ("hash-object", "mktree", "commit-tree", "update-ref")  # those that write
KILLS_A_NIGHT, RESUMED_POINTS = 15, 120  # RESUMED_POINTS: a call that goes on is killed within so many
WAIT_S = 3.0  # at most, before a random moment: an undisturbed night takes about six
DAY_S = 86_400
KINDS = {
    "sweep": "the loop's own calls",
    "git": "calls of its git commands",
    "moments": "random moments",
}

SHIM = """\
#!/bin/sh
# stands before git on PATH: the first call of one command dies at one of its points, and the loop with it or not
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


def swept(folder: Path, reference: Reference, tally: Tally, first: int, seed: int) -> None:
    """Kill at a point of a fresh night, then at random points of each call that goes on with it."""
    victim, dice, number = Victim(folder / "night"), random.Random(seed), first
    while victim.go_on(Strike(number, torn=number % 2 == 0)).killed and victim.tally.kills < KILLS_A_NIGHT:
        number = dice.randint(1, RESUMED_POINTS)
    tally.add(victim.finish(reference.outcome))


def git_torn(folder: Path, reference: Reference, tally: Tally, command: str, with_loop: bool) -> None:
    """Kill a git command of the night at each of its points, the loop with it or not."""
    victim = Victim(folder / "night")
    mark, shim = folder / "mark", folder / "bin" / "git"
    shim.parent.mkdir()
    shim.write_text(SHIM)
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
        victim.tally.kills += hit and not end.killed
        number, missed = (number + 1, missed) if hit else (number, missed + 1)
    tally.add(victim.finish(reference.outcome))


def surprised(folder: Path, reference: Reference, tally: Tally, seed: int) -> None:
    """Kill a night at random moments."""
    victim, dice = Victim(folder / "night"), random.Random(seed)
    for _ in range(KILLS_A_NIGHT):
        if not victim.kill_after(dice.uniform(0.2, WAIT_S), whole=dice.random() < 0.5).killed:
            break
        time.sleep(dice.choice((0.0, 0.0, 0.3)))
    tally.add(victim.finish(reference.outcome))


def kill_plan(count: int, reference: Reference, seed: int) -> list[Fault]:
    """Return about so many kills, the first ones of nights spread over all points of the loop."""
    nights = max(1, count // KILLS_A_NIGHT)
    firsts = [1 + len(reference.points) * number // nights for number in range(nights)]
    git = [Fault("git", git_torn, (command, loop)) for command in reversed(GIT_COMMANDS) for loop in (True, False)]
    plan = [
        *(Fault("sweep", swept, (first, seed + first)) for first in firsts),
        *git[: max(1, nights // 8)],
        *(Fault("moments", surprised, (seed + number,)) for number in range(max(1, nights // 4))),
    ]
    random.Random(seed).shuffle(plan)  # so that a run cut short has seen something of everything
    return plan


# ---- other faults ----------------------------------------------------------------------------------------------------


def other_faults(quick: bool) -> list[Fault]:
    torn = Fault("torn files", torn_files, (20 if quick else 300,))
    if quick:
        return [
            Fault("a full disk", failing_disk, (errno.ENOSPC, 40, 400)),
            torn,
            Fault("a clock that jumps", jumping_clock, (1,)),
        ]
    disks = [(errno.ENOSPC, "a full disk"), (errno.EIO, "a broken disk")]
    failing = [Fault(name, failing_disk, (code, first, 36)) for code, name in disks for first in (4, 16, 28)]
    clocks = [Fault("a clock that jumps", jumping_clock, (days,)) for days in (1, 400, 4000)]
    return [*failing, torn, Fault("a stopped loop", stopped_loop), *clocks]


def failing_disk(folder: Path, reference: Reference, tally: Tally, code: int, first: int, stride: int) -> None:
    """From some point on nothing can be written: the night says so in a sentence. Then at one point alone."""
    lasting, passing = Victim(folder / "lasting"), Victim(folder / "passing")
    for at in range(first, len(reference.points), stride):
        lasting.go_on(Strike(1 + at % RESUMED_POINTS, 10**9, code))
        tally.times += 1
    tally.add(lasting.finish(reference.outcome))
    for at in range(first, len(reference.points), stride):
        if passing.go_on(Strike(at, failure=code)).code == 0:
            break
        tally.times += 1
    tally.add(passing.finish(reference.outcome))


def torn_files(folder: Path, reference: Reference, tally: Tally, sizes: int) -> None:
    """A power cut tears what was not yet on disk: the ledger anywhere, the journal's log past its last whole step."""
    victim = Victim(folder / "night")
    victim.go_on(Strike(2 * len(reference.points) // 3))
    journal, copy = victim.folder / "journal.sqlite", folder / "copy"
    whole = Path(f"{journal}-wal").read_bytes()
    for size in range(len(whole), 0, -(len(whole) // sizes or 1)):
        for tail in (b"", b"\0" * (len(whole) - size), b"\xff" * min(4096, len(whole) - size)):
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            shutil.copyfile(journal, copy / journal.name)
            (copy / f"{journal.name}-wal").write_bytes(whole[:size] + tail)
            tally.times += 1
            try:
                with Journal.resume(copy / journal.name) as torn:
                    invented = {*known(torn.attempts())} - victim.facts  # an earlier moment of the night, nothing else
                tally.blame("damaged", f"{sorted(map(str, invented))[:2]}", len(invented))
            except NightError as error:
                tally.blame("damaged", str(error))
    ledger = victim.root / "results.tsv"
    rows = ledger.read_bytes()
    tears = [
        rows[: len(rows) * 2 // 3],
        rows + b"\0" * 100,
        rows + b"0000000\tkeep\t",
        b"".join(rows.splitlines(True)[:2]),
    ]
    for tear in tears:
        ledger.write_bytes(tear)
        tally.times += 1
    tally.add(victim.finish(reference.outcome))


def stopped_loop(folder: Path, reference: Reference, tally: Tally) -> None:
    """SIGSTOP in the middle of a run, SIGCONT three seconds later: as if nothing had been."""
    victim = Victim(folder / "night")
    loop, out = victim.start(), victim.folder / "runs" / "0001" / "seed0" / "out"
    deadline = time.monotonic() + kills.LIMIT_S
    while not out.exists():
        if time.monotonic() > deadline:
            raise measure.Failed(f"{out} did not come within {kills.LIMIT_S:.0f} s")
        time.sleep(0.02)
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
    if end.code != 0 or time.monotonic() - start > kills.LIMIT_S / 2:
        tally.blame("tracebacks", f"exit code {end.code}: {end.said[-300:]}")
    _, history = victim.journal()
    late = [attempt.number for attempt in history if not 0 < attempt.spent_s < kills.LIMIT_S / 2]
    tally.blame("damaged", f"attempts {late} took no time or never ended", len(late))
    tally.add(victim.finish(reference.outcome))


# ---- all of them -----------------------------------------------------------------------------------------------------


class Laboratory:
    """Where faults are made, two at a time, and what has come of them so far, by kind."""

    def __init__(self, folder: Path, args: argparse.Namespace, pool: ProcessPoolExecutor) -> None:
        self.folder, self.pool = folder, pool
        self.deadline = time.monotonic() + 60 * args.minutes
        self.reference = Reference.of(folder / "undisturbed")
        self.sums: dict[str, Tally] = {}
        self.begun = 0

    def kills(self) -> int:
        return sum(self.sums[kind].kills for kind in KINDS if kind in self.sums)

    def make(self, faults: Sequence[Fault], enough: Callable[[], bool] = lambda: False) -> None:
        """Make them all; when time is up or it is enough, those that have begun end, and no other begins."""
        jobs = []
        for fault in faults:
            self.begun += 1
            folder = self.folder / f"{self.begun}"
            jobs.append(self.pool.submit(fault.run, folder, self.reference))
        for done, job in enumerate(as_completed(jobs), start=1):
            if enough() or time.monotonic() > self.deadline:
                for other in jobs:
                    other.cancel()
            if not job.cancelled():
                name, tally = job.result()
                self.sums.setdefault(name, Tally()).add(tally)
                measure.say(f"{time.strftime('%H:%M:%S')} {done}/{len(jobs)} {name}, {self.kills()} kills")
                for note in tally.notes:
                    measure.say(f"  {note}")

    def kill(self, count: int, seed: int) -> None:
        """Kill by the plan, and by further ones until there are as many as were asked for."""
        while self.kills() < count and time.monotonic() < self.deadline:
            self.make(kill_plan(count - self.kills(), self.reference, seed), lambda: self.kills() >= count)
            seed += 1000


def compare(args: argparse.Namespace, folder: Path) -> measure.Flat:
    import killed_commands  # which makes its faults of this module's

    kills.prepare_machine(folder)
    os.environ["TMPDIR"] = str(folder / "tmp")  # what killed processes leave there goes with the folder
    (folder / "tmp").mkdir()
    with ProcessPoolExecutor(args.processes, initializer=kills.adopt_orphans) as pool:
        laboratory = Laboratory(folder, args, pool)
        if args.only in (None, "kills"):
            laboratory.kill(args.kills, args.seed)
        if args.only in (None, "commands"):
            laboratory.make(killed_commands.every_fault(args.quick))
        if args.only in (None, "others"):
            laboratory.make(other_faults(args.quick))
    sums, total = laboratory.sums, Tally()
    for tally in sums.values():
        total.add(tally)
    flat: measure.Flat = {"kills": laboratory.kills()}
    flat |= {name: getattr(total, name) for name in LOSSES}
    flat["command_kills"] = sum(tally.times for name, tally in sums.items() if name.startswith(killed_commands.KILLED))
    flat["points_of_a_night"] = len(laboratory.reference.points)
    for name, tally in sums.items():
        key = name.replace(" ", "_").replace(",", "")
        flat[f"{key}_times"] = tally.kills if name in KINDS else tally.times
        flat[f"{key}_wrong"] = len(tally.notes)
    return flat


def print_results(args: argparse.Namespace, flat: measure.Flat) -> None:
    rows = {key.removesuffix("times"): key.removesuffix("_times") for key in flat if key.endswith("_times")}
    rows = {prefix: KINDS.get(name, name.replace("_", " ")) for prefix, name in rows.items()}
    measure.print_grid("Faults", flat, rows, {"times": ("times", ",.0f"), "wrong": ("wrong", ",.0f")})
    measure.print_list("What was lost", {name: flat[name] for name in ("kills", "command_kills", *LOSSES)})


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=measure.count, metavar="N", help="about how many (default: 1000; quick: 10)")
    parser.add_argument("--minutes", type=measure.amount, default=600, metavar="M", help="begin no night after that")
    parser.add_argument("--processes", type=measure.count, default=2, metavar="N", help="nights at a time (default: 2)")
    parser.add_argument("--seed", type=int, default=0, metavar="K", help="of the random moments (default: %(default)s)")
    parser.add_argument("--only", choices=["kills", "commands", "others"], help="one of its three parts")


def anything_lost(args: argparse.Namespace, flat: measure.Flat) -> bool:
    return any(flat[name] for name in LOSSES)


PROGRAM = measure.Program(__doc__ or "", compare, print_results, add_options, {"kills": (1000, 10)}, anything_lost)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
