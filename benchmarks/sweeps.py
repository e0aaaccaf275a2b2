"""Ways to spread kills over nights: every point of the loop, every point of its git commands, moments at random."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import measure
from kills import Outcome, Strike, Tally, Victim

from agent.experiment import Ending

COMMANDS = ("hash-object", "mktree", "commit-tree", "update-ref")  # those that write
BUDGET_S, LONGER_S = 0.05, 0.4
FOUND = 10  # points that an opening after a kill lacks at most, as its folders are there
CHAIN = 10  # kills of one night at random moments
STRETCH = 40  # points that one night walks through: an audit alone has two hundred, and its kills cost seconds each
WAIT_S = 3.0  # at most, before a random moment: an undisturbed night takes about six

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


@dataclass(frozen=True)
class Reference:
    """Hold an undisturbed night."""

    outcome: Outcome
    points: tuple[tuple[str, str], ...]
    start_up: int  # points of a resumed loop before the work that the journal asks for

    @classmethod
    def of(cls, folder: Path, budget_s: float) -> Reference:
        victim = Victim(folder, budget_s)
        end = victim.go_on(Strike())
        outcome = victim.outcome()
        again = victim.go_on(Strike())
        if again.code != 0 or not victim.tally.clean or victim.outcome() != outcome or not outcome.whole:
            raise measure.Failed(f"a night left alone ended so: {victim.tally.notes} {end.said} {again.said}")
        return cls(outcome, end.points, again.forgot_stop + end.greeting)

    @property
    def opening(self) -> int:
        """Return how many points come before the making of the journal in a night whose opening was killed."""
        return next(at for at, (_, path) in enumerate(self.points) if ".sqlite.new" in path) - FOUND

    def stretches(self) -> Iterator[tuple[int, int, int | None]]:
        """Where each walk from one new fact to the next begins: the boundary, what it skips, and its most points."""
        starts = [*self.boundaries(), len(self.points)]
        for first, following in pairwise(starts):
            for skip in range(0, following - first, STRETCH):
                yield first, skip, STRETCH if skip + STRETCH < following - first else None

    def boundaries(self) -> Iterator[int]:
        """The numbers of the points that come next when the journal has a new fact on disk; 1 is the opening."""
        yield 1
        for number, (call, path) in enumerate(self.points, start=1):
            if call in ("fsync", "fdatasync") and path.endswith("journal.sqlite-wal"):
                yield number + 1


@dataclass(frozen=True)
class Task:
    """One night and how it is killed."""

    kind: str  # sweep, git or moments
    first: int = 1  # sweep: the point of the first kill
    stride: int = 1
    torn: int = 0  # sweep: are the even (0) or the odd (1) points torn?
    facts: int | None = 1  # sweep: how many new facts to walk through; None: all
    skip: int = 0  # sweep: points of the walk that other nights are killed at
    most: int | None = None  # sweep: kills of the walk; None: until it knows more
    command: str = ""  # git: which
    loop: bool = False  # git: does the loop die with it?
    kills: int = CHAIN  # moments: at most
    seed: int = 0
    budget_s: float = BUDGET_S

    def run(self, folder: Path, reference: Reference) -> Tally:
        victim = Victim(folder, self.budget_s)
        match self.kind:
            case "sweep":
                self.walk(victim, reference.start_up)
            case "git":
                self.tear_git(victim)
            case "moments":
                self.surprise(victim)
        tally = victim.finish(reference.outcome)
        if tally.clean:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            tally.notes = [f"{note}  [{self}; see {folder}]" for note in tally.notes]
        return tally

    def walk(self, victim: Victim, start_up: int) -> None:
        """Kill at a point, resume, kill at the next: until the journal knows more, and go on from there."""
        end = victim.go_on(Strike(self.first))
        if begun_a_run(victim) and self.facts is not None:
            return  # between two facts: the walk from the one before passes here
        before, left, number = state(victim), self.facts, self.first if self.first == 1 else start_up - self.stride
        number, until = number + self.skip, victim.tally.kills + (self.most or 10**9)
        while end.killed and victim.tally.kills < until:
            number += self.stride
            end = victim.go_on(Strike(number, torn=number % 2 == self.torn))
            if state(victim) != before:
                before, number = state(victim), start_up - self.stride
                left = None if left is None else left - 1
            if left == 0:
                return

    def tear_git(self, victim: Victim) -> None:
        mark, shim = victim.said.with_name("mark"), victim.said.with_name("bin")
        shim.mkdir()
        (shim / "git").write_text(SHIM)
        (shim / "git").chmod(0o755)
        number, missed = 1, 0
        while missed < 2:  # a call that finds its work done writes less than one that does it
            shutil.rmtree(mark, ignore_errors=True)
            end = victim.go_on(
                PATH=f"{shim}{os.pathsep}{os.environ['PATH']}", VICTIM_GIT=shutil.which("git") or "git",
                VICTIM_COMMAND=self.command, VICTIM_MARK=str(mark), VICTIM_AT=str(number),
                VICTIM_TORN=str(number % 2), VICTIM_LOOP="yes" if self.loop else "",
            )  # fmt: skip
            hit = (mark / "killed").exists()
            victim.tally.kills += hit and not end.killed
            number, missed = (number + 1, missed) if hit else (number, missed + 1)
            if end.code == 0:
                return

    def surprise(self, victim: Victim) -> None:
        dice = random.Random(self.seed)
        for _ in range(self.kills):
            end = victim.kill_after(dice.uniform(0.2, WAIT_S), whole=dice.random() < 0.5)
            if not end.killed:
                return
            time.sleep(dice.choice((0.0, 0.0, 0.3)))


def state(victim: Victim) -> tuple[bool, int]:
    return (victim.folder / "journal.sqlite").exists(), len(victim.facts())


def begun_a_run(victim: Victim) -> bool:
    _, history = victim.journal()
    return bool(history) and bool(history[-1].runs) and history[-1].runs[-1].ending is Ending.LOST


def plan(kills: int, reference: Reference, seed: int) -> list[Task]:
    """About so many kills: every point of the loop, twice where that is not too much, and of its git commands."""
    if kills < len(reference.points) // 2:  # too few for a separate night from every boundary
        stride = max(1, 3 * len(reference.points) // (2 * kills))
        sweep, moments = Task("sweep", stride=stride, facts=None), Task("moments", kills=max(1, kills // 5), seed=seed)
        opening = Task("sweep", stride=3, skip=reference.opening)  # which the sweep passes in a step or two
        return [sweep, opening, Task("git", command=COMMANDS[-1], loop=True), moments]
    passes = range(2 if kills >= 3 * len(reference.points) else 1)
    stride = max(1, round(3 * len(reference.points) / (2 * kills)))
    sweep = [
        Task("sweep", first, stride, torn, skip=skip, most=None if points is None else -(-points // stride))
        for torn in passes
        for first, skip, points in reference.stretches()
    ]
    git = [Task("git", command=command, loop=loop) for command in COMMANDS for loop in (False, True)]
    tasks = [*sweep, *git]
    random.Random(seed).shuffle(tasks)  # so that a run cut short has seen something of everything
    return tasks


def more(missing: int, seed: int) -> list[Task]:
    """Nights at random moments for the kills that are still missing; some end before they have taken theirs."""
    return [Task("moments", seed=seed + at, budget_s=LONGER_S) for at in range(-(-missing // CHAIN))]
