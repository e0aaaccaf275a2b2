"""A night filled with attempts whose truth is known: what long_night.py measures in.

A bowl over the dials of the project's script says what every setting of them is worth.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import measure

from agent.clock import utc_now
from agent.experiment import (
    Attempt,
    Audit,
    Decision,
    Ending,
    Kind,
    Night,
    Proposal,
    Run,
    Score,
    Status,
    Summary,
    Terms,
    Weights,
    attempt_ref,
    incumbent,
)
from agent.proposers.search.space import Axis
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import write_ledger
from agent.script.dials import Value, searched, set_dials, values_of

TAG, KIND, BUDGET_S = "long", "cpu", 300.0
SIGMA_BPB, START_BPB, TO_BE_HAD_BPB = 0.004, 1.2, 0.08
CRASHES = 0.04  # of the attempts
CALIBRATION = 3  # runs of attempt 0
BATCH = 500  # attempts that are committed together
LOG = "\n".join(f"step {at:5d}   99.{at % 10}%  loss 3.{at:04d}  4,012 tokens/s" for at in range(20))
WHY = "ValueError: [matmul] 256 by 320"
PASSED = Audit(256, 0, 1e-6, 1e-7, 2.7)
WHO = ("-c", "user.name=nightshift", "-c", "user.email=nightshift@localhost")
QUICKLY = ("-c", "core.fsync=none", "-c", "fastimport.unpackLimit=1000000")  # loose objects, as a night leaves them


# ---- the night's beginning ------------------------------------------------------------------------------------------


def make_night(root: Path) -> Place:
    """A repository with the project's script, and a night that has just begun in it."""
    root.mkdir()
    (root / measure.SCRIPT.name).write_bytes(measure.SCRIPT.read_bytes())
    for command in (("init", "-q", "-b", "main"), ("add", "."), (*WHO, "commit", "-q", "-m", "start")):
        subprocess.run(["git", *command], cwd=root, check=True)
    place = Place.of(root / measure.SCRIPT.name)
    night = Night(
        tag=TAG, branch=f"refs/heads/experiments/5min-{TAG}", script=place.script, base=place.repo.find("HEAD") or "",
        budget_s=BUDGET_S, seed=0, device_kind=KIND, device="a bowl", protocol="0" * 12, data=str(root / "data"),
        started=utc_now(), terms=Terms(),
    )  # fmt: skip
    with Journal.create(place.journal(TAG), night):
        return place


def grow(place: Place, size: int) -> float:
    """Fill the night up to a size, in this process; the seconds that it took."""
    began = time.monotonic()
    with Journal.resume(place.journal(TAG)) as journal:
        filler = Filler(place, journal)
        filler.fill(size)
    return time.monotonic() - began


# ---- the bowl --------------------------------------------------------------------------------------------------------


@dataclass
class Bowl:
    """What scripts are worth: the sum over the dials of how far each is from its best place."""

    axes: tuple[Axis, ...]
    best: Mapping[str, float] = field(init=False)
    weight: Mapping[str, float] = field(init=False)
    lines: dict[tuple[str, Value], str] = field(default_factory=dict)  # of the script, with a dial set

    def __post_init__(self) -> None:
        rng = random.Random("bowl")
        starts = {axis.dial.name: float(axis.place(axis.dial.value) or 0.0) for axis in self.axes}
        self.best = {name: start + rng.uniform(-0.4, 0.4) for name, start in starts.items()}
        away = sum((start - self.best[name]) ** 2 for name, start in starts.items())
        self.weight = dict.fromkeys(starts, TO_BE_HAD_BPB / away)

    @classmethod
    def of(cls, script: str) -> Bowl:
        return cls(tuple(Axis.of(dial) for dial in searched(script, KIND)))

    def bpb(self, values: Mapping[str, Value]) -> float:
        """Without noise."""
        names = [axis.dial.name for axis in self.axes]
        places = {name: axis.place(values[name]) for name, axis in zip(names, self.axes, strict=True)}
        lost = (self.weight[name] * ((places[name] or 0.0) - self.best[name]) ** 2 for name in names)
        return START_BPB - TO_BE_HAD_BPB + sum(lost)

    def turned(self, values: Mapping[str, Value], rng: random.Random) -> dict[str, Value]:
        """One to three dials, within the search's reach."""
        chosen = rng.sample(self.axes, rng.choice((1, 2, 2, 3)))
        to = {axis.dial.name: axis.value(axis.turn(axis.place(values[axis.dial.name]) or 0.0, rng)) for axis in chosen}
        return {name: value for name, value in to.items() if value != values[name]}

    def written(self, script: str, changed: Mapping[str, Value]) -> str:
        """As set_dials does; what a line becomes is remembered, since parsing the script takes longer than all else."""
        lines = script.splitlines(keepends=True)
        for axis in self.axes:
            name, at = axis.dial.name, axis.dial.line - 1
            if name in changed:
                key = (name, changed[name])
                if key not in self.lines:
                    self.lines[key] = set_dials(script, KIND, {name: changed[name]}).splitlines(keepends=True)[at]
                lines[at] = self.lines[key]
        return "".join(lines)


def noise(number: int, seed: int) -> float:
    return random.Random(f"{number} {seed}").gauss(0, SIGMA_BPB)


def crashes(number: int) -> bool:
    return number > 0 and random.Random(f"crash {number}").random() < CRASHES


def a_run(number: int, seed: int) -> Run:
    wall_s = BUDGET_S + random.Random(f"wall {number} {seed}").uniform(8, 14)
    if crashes(number):
        return Run(seed, Ending.CRASHED, 1, 12.0, None, f"{LOG}\n{WHY}", peak_bytes=1 << 30)
    summary = Summary(BUDGET_S, wall_s, 812.4, 11.2, 1.2, 540, 7.9, 4)
    weights = Weights(7_900_000, 31_600_000)
    return Run(
        seed, Ending.FINISHED, 0, wall_s, summary, LOG,
        weights_bytes=31_600_512, weights=weights, peak_bytes=1 << 30,
    )  # fmt: skip


def a_score(number: int, run: Run, bpb: float, audit: Audit | None) -> Score | None:
    """None where the run crashed."""
    return Score(bpb + noise(number, run.seed), 4.6, audit=audit) if run.ending is Ending.FINISHED else None


# ---- filling ---------------------------------------------------------------------------------------------------------


class Filler:
    """Adds attempts to a night as it stands."""

    def __init__(self, place: Place, journal: Journal) -> None:
        self.place, self.journal, self.night = place, journal, journal.night()
        self.bowl = Bowl.of(place.script_path.read_text())
        history = journal.attempts()
        self.count = len(history)
        self.commits = {one.number: one.commit or "" for one in history}
        self.seen = {one.proposal.script for one in history}
        best = incumbent(history)
        if best is not None:
            self.follow(best)

    def follow(self, best: Attempt) -> None:
        self.best = best
        self.values = values_of(best.proposal.script, KIND)
        self.best_bpb = self.bowl.bpb(self.values)

    def fill(self, size: int) -> None:
        while self.count < size:
            batch = [self.next() for _ in range(min(BATCH, size - self.count))]
            self.commits |= imported(self.place, self.night, batch, self.commits)
            for attempt in batch:
                self.enter(attempt)
        night, history = self.night, self.journal.attempts()
        write_ledger(self.place, (night, history))
        now = self.place.repo.find(night.branch)
        self.place.repo.move_ref(night.branch, self.commits[self.best.number], now, "filled")

    def next(self) -> Attempt:
        """The next attempt, with runs and decision."""
        number, self.count = self.count, self.count + 1
        made = self.tried(number) if number else self.baseline()
        if made.status is Status.KEEP:
            self.follow(made)
        return made

    def baseline(self) -> Attempt:
        script = self.place.script_path.read_text()
        self.seen.add(script)
        proposal = Proposal(script, "baseline", "The script that the night began with.", "you")
        first = Attempt(0, None, proposal, utc_now())
        return ended(first, Decision(Kind.BASELINE, "baseline"), CALIBRATION, START_BPB)

    def tried(self, number: int) -> Attempt:
        """An edit of the incumbent; the truth decides, as it would after many more runs."""
        rng, script = random.Random(f"attempt {number}"), self.best.proposal.script
        changed: Mapping[str, Value] = {}
        while script in self.seen:
            changed = self.bowl.turned(self.values, rng)
            script = self.bowl.written(self.best.proposal.script, changed)
        self.seen.add(script)
        bpb = self.bowl.bpb({**self.values, **changed})
        gain_bpb = self.best_bpb - bpb
        title = ", ".join(f"{name} {self.values[name]!r} → {value!r}" for name, value in changed.items())
        why = f"{title}: by what {number} attempts say about {len(self.bowl.axes)} dials, it falls by {gain_bpb:.4f}."
        attempt = Attempt(number, self.best.number, Proposal(script, title, why, "search"), utc_now())
        told = f"an estimated {abs(gain_bpb):.6f} {'below' if gain_bpb >= 0 else 'above'} its parent"
        looks_good = gain_bpb - noise(number, 0) > SIGMA_BPB / 2
        if crashes(number):
            return ended(attempt, Decision(Kind.CRASHED, f"exit code 1: {WHY}"), 1, bpb)
        if looks_good and gain_bpb > SIGMA_BPB / 8:
            return ended(attempt, Decision(Kind.KEPT, told, gain_bpb, 0.97), 2, bpb)
        return ended(attempt, Decision(Kind.WORSE, told, gain_bpb, 0.03), 2 if looks_good else 1, bpb)

    def enter(self, attempt: Attempt) -> None:
        """As the driver does, step by step."""
        number, journal = attempt.number, self.journal
        journal.add_attempt(number, attempt.parent, attempt.proposal, attempt.started)
        journal.record_commit(number, self.commits[number])
        for run in attempt.runs:
            journal.end_run(journal.start_run(number, run.seed), run)
        assert attempt.decision is not None
        journal.record_decision(number, attempt.decision)
        journal.settle(number)


def ended(attempt: Attempt, decision: Decision, count: int, bpb: float) -> Attempt:
    """With so many runs and this decision."""
    runs = [a_run(attempt.number, seed) for seed in range(count)]
    audit = PASSED if decision.status is Status.KEEP else None
    scored = [replace(run, score=a_score(attempt.number, run, bpb, audit)) for run in runs]
    return replace(attempt, runs=tuple(scored), decision=decision)


def imported(place: Place, night: Night, batch: Sequence[Attempt], known: Mapping[int, str]) -> dict[int, str]:
    """Attempt → commit: the commits and refs of new attempts, by one call of git."""
    marks = place.folder(night.tag) / "marks"
    told = "".join(_commit_command(night, one, known, batch[0].number) for one in batch)
    command = ["git", *QUICKLY, "fast-import", "--quiet", f"--export-marks={marks}"]
    subprocess.run(command, cwd=place.repo.root, input=told.encode(), check=True)
    pairs = [line.split() for line in marks.read_text().splitlines()]
    return {batch[0].number + int(mark[1:]) - 1: sha for mark, sha in pairs}


def _commit_command(night: Night, attempt: Attempt, known: Mapping[int, str], first: int) -> str:
    parent = (
        night.base if attempt.parent is None else known.get(attempt.parent, f":{(attempt.parent or 0) - first + 1}")
    )
    message, script = f"{attempt.proposal.title}\n\n{attempt.proposal.hypothesis}\n", attempt.proposal.script
    return (
        f"commit {attempt_ref(night.tag, attempt.number)}\nmark :{attempt.number - first + 1}\n"
        f"committer nightshift <nightshift@localhost> {int(time.time())} +0000\n"
        f"data {len(message.encode())}\n{message}\nfrom {parent}\n"
        f"M 100644 inline {night.script}\ndata {len(script.encode())}\n{script}\n"
    )
