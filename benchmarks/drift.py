"""How often a run is called slow by chance, and how often a slow machine is noticed.

    python benchmarks/drift.py [--nights 500] [--seed 0] [--json FILE]
    python benchmarks/drift.py --quick
    python benchmarks/drift.py --measure 9 [--budget-s 20] [--set DIAL=VALUE]... [--json FILE]

Nights of 60 runs are simulated: attempt 0 three times, then edits. An edit's own speed differs from its parent's (a
normal distribution of 6 %; a tenth of the edits lose another 10 to 40 %). Six tenths of the edits have one run, the
others up to four; every tenth run is one of the incumbent. The noise of a run's speed is drawn from that of real runs:
`h200`, of 40 s on one NVIDIA H200, and `cpu`, of 20 s on a Linux CPU that other nights shared. Halves of a run, and the
moment for which a reference is trained, have their own noise on top, twice as wide as a run's.

A spell begins at a random run after the tenth. `sudden10`, `sudden20`, `sudden40`: the machine loses so much of its
speed for the next 12 runs. `throttle`: it loses 1.5 % with each of 24 runs, 36 % in the end. `burst`: it loses 40 % for
a fifth of a run, in 12 runs. `kept20`: 20 %, to the end of the night. The rules are those of agent/drift/speeds.py and
agent/drift/paces.py. A void run is done again at once, in the same spell; benchmarks have no pause.

Flat keys of --json, WORLD_SPELL_ before each: runs, false_alarms (runs called slow, as a share of those that the
machine had slowed by less than half of the threshold), repeats (runs of scripts that were run before the spell, while
the machine was slow and its pace was not yet the usual one) and repeats_noticed (share that was called slow), edits and
edits_noticed (the same of edits whose first run was in the spell), noticed (share of the spells in which any run was
noticed), runs_until (median of the runs until then), references (moments spent on a reference, as a share of all runs),
paces (changes of pace in a night), threshold (median).
With --measure: repeats, stray_median and stray_most (distance from their median speed), threshold.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import measure
import numpy as np

from agent.drift.paces import changes
from agent.drift.speeds import IN_A_ROW, MOST_VOIDS, Usual, least_tokens_s, slowness, speeds, threshold
from agent.experiment import Attempt, Ending, Proposal, Run, Summary

RUNS = 60
BUDGET_S, STEPS = 300.0, 3000
# Share by which each run of a script differed from the median of its runs in the same night, in percent, cold first
# runs left out: attempts 0 to 3 of nov22-h200-mix-0, -mix-1, -search-0, -search-1 …
H200 = (
    *(0.0, -0.59, 0.2, 0.98, 0.2, -1.96, 0.2, 0.0, -0.2, -0.6, 2.58, 0.2, -0.2, 0.79, 0.79, -0.2, -1.38),
    *(0.0, 0.0, -0.2, -0.8, 2.2, 0.14, -0.25, -0.19, -0.58, 0.0, 0.58, 0.0, 2.14, 0.21, -0.21, 0.55, -2.37),
)
# … and 0 to 7 of nov22-cpu-mix-0 to -3 and nov22-cpu-search-0 to -3.
CPU = (
    *(-0.5, 1.52, 0.0, -1.65, 2.61, 3.12, -4.18, 2.71, 17.9, 0.0, -4.66, -11.17, -7.17, 0.0, 17.97, 3.64, 2.61),
    *(4.42, -4.42, -4.19, 9.13, 9.13, 0.0, -1.98, 1.51, -10.8, 5.11, 9.63, 0.0, -0.57, -5.59, 5.59, 7.77, -7.77),
    *(-2.06, 2.06, 1.0, 8.2, -0.49, 0.0, -7.73, 1.01, -2.25, 0.0, 14.61, 3.23, -2.25, -0.53, -13.41, 0.53, 2.06),
    *(-11.21, 15.19, 0.0, 6.14, 6.67, 12.77, -6.67, -0.99, 7.73, -7.73, 3.2, 2.17, -2.17, 10.33, -4.96, -4.35),
    *(-1.76, 0.0, 0.0, 11.9, 4.79, -0.5, 1.16, 7.85, -7.27, 3.97, -5.4, -1.16, 6.98, -1.28, 0.0, 9.14, 3.05, -0.78),
    *(4.25, -4.25, 7.41, -2.07, 2.07, 11.98, -4.01, -4.89, -5.12, -3.03, 1.52, 12.68, 2.52, 0.0, -2.36, 2.36),
    *(-1.23, -2.47, 1.23, 13.58, 4.94, -7.41),
)
WORLDS = {"h200": H200, "cpu": CPU}
SHOWN = "threshold", "false_alarms", "repeats_noticed", "edits_noticed", "noticed", "runs_until", "references"
STRAYS = "stray_median", "stray_most"  # distances from the median speed
SPELLS = ("none", "sudden10", "sudden20", "sudden40", "throttle", "burst", "kept20")


def slowed_by(spell: str, after: int) -> tuple[float, float]:
    """The shares of its speed that the machine loses in the halves of a run, so many runs after the spell began."""
    if spell == "none" or after < 0:
        return 0.0, 0.0
    if spell == "throttle":
        return (after * 0.015, (after + 1) * 0.015) if after < 24 else (0.0, 0.0)
    if spell == "burst":
        return (0.0, 0.16) if after < 12 else (0.0, 0.0)  # a fifth of the run is two fifths of a half
    share = int(spell.removeprefix("sudden").removeprefix("kept")) / 100
    return (share, share) if spell.startswith("kept") or after < 12 else (0.0, 0.0)


@dataclass
class Counts:
    """What a world's nights with one kind of spell have brought."""

    runs: int = 0
    innocent: int = 0  # runs that the machine had slowed by less than half of the threshold
    false_alarms: int = 0
    seen: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))  # repeats and edits
    noticed: list[bool] = field(default_factory=list)
    until: list[int] = field(default_factory=list)
    references: int = 0
    paces: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)


class Night:
    """Draw one night, and judge each of its runs as a worker would."""

    def __init__(self, noise: Sequence[float], spell: str, rng: np.random.Generator, counts: Counts) -> None:
        self.noise, self.spell, self.rng, self.counts = noise, spell, rng, counts
        self.begins = int(rng.integers(10, 35))
        self.made = 0  # runs, void ones among them
        self.known: set[int] = set()  # attempts that were run before the spell
        self.true: dict[int, float] = {}  # steps a second on a machine that is not slow, by attempt
        self.attempts: list[Attempt] = []
        self.noticed_at: int | None = None

    def run(self) -> None:
        self.enter(1.0)
        for seed in range(3):
            self.measure(0, seed)
        best = 0
        while self.made < RUNS:
            if not speeds(self.attempts[0], self.since()):
                self.measure(0, len(self.attempts[0].done_runs))
                continue
            if self.made % 10 == 9:
                self.measure(best, len(self.attempts[best].done_runs))
                continue
            lost = self.rng.uniform(0.1, 0.4) if self.rng.random() < 0.1 else 0.0
            number = self.enter(self.true[best] * (1 - lost) * float(np.exp(self.rng.normal(0, 0.06))), best)
            for seed in range(int(self.rng.integers(2, 5)) if self.rng.random() < 0.4 else 1):
                self.measure(number, seed)
            best = number if self.rng.random() < 0.15 else best
        self.counts.paces.append(len(self.changes()))
        if self.spell != "none":
            self.counts.noticed.append(self.noticed_at is not None)
            if self.noticed_at is not None:
                self.counts.until.append(self.noticed_at - self.begins + 1)

    def since(self) -> str:
        paces = self.changes()
        return paces[-1] if paces else ""

    def changes(self) -> tuple[str, ...]:
        slowed = [one for one in self.attempts if any(run.ending is Ending.SLOWED for run in one.runs)]
        return changes(slowed, self.attempts[:1])

    def enter(self, steps: float, parent: int | None = None) -> int:
        number = len(self.attempts)
        self.true[number] = steps
        self.attempts.append(Attempt(number, parent, Proposal("", "", "", ""), ""))
        return number

    def measure(self, number: int, seed: int) -> None:
        """Make a run of an attempt, and make it again while it is void."""
        voids = 0
        while True:
            run, halves, slowed = self.draw(number, seed)
            usual = self.usual(number)
            lost = usual.lost(run)
            if number and (lost is not None or (voids and not usual.same) or usual.is_suspect(run, halves)):
                lost = self.reference()
            is_slow = lost is not None and lost > usual.threshold
            void = is_slow and voids < MOST_VOIDS
            self.note(is_slow, slowed, usual.threshold, number)
            run = replace(run, ending=Ending.SLOWED if void else Ending.FINISHED)
            one = self.attempts[number]
            self.attempts[number] = replace(one, runs=(*one.runs, run))
            if not void:
                return
            voids += 1

    def reference(self) -> float | None:
        """Train attempt 0 for a moment; return which share of its speed at the present pace is lost."""
        self.counts.references += 1
        now = slowed_by(self.spell, self.made - 1 - self.begins)[1]
        own = STEPS / BUDGET_S * self.true[0] * (1 - now) * (1 + 2 * self.error())
        return slowness(own, speeds(self.attempts[0], self.since()))

    def note(self, is_slow: bool, slowed: float, most: float, number: int) -> None:
        """Count a run; one that is slow since the machine's pace has changed is as fast as usual."""
        counts, kind = self.counts, "repeats" if number in self.known else "edits"
        counts.runs += 1
        counts.thresholds.append(most)
        if slowed < most / 2:
            counts.innocent += 1
            counts.false_alarms += is_slow
        if slowed > 0 and not self.changes():
            counts.seen[kind].append(is_slow)
            if is_slow and self.noticed_at is None:
                self.noticed_at = self.made - 1

    def error(self) -> float:
        return float(self.rng.choice(self.noise)) / 100

    def draw(self, number: int, seed: int) -> tuple[Run, list[tuple[float, float]], float]:
        """One run, the steps of its halves, and the share of the speed that the machine really had lost."""
        both = slowed_by(self.spell, self.made - self.begins)
        if self.made < self.begins:
            self.known.add(number)
        self.made += 1
        speed = self.true[number] * (1 + self.error())
        first, second = (speed * (1 - lost) for lost in both)
        whole = (first + second) / 2
        trained_s = BUDGET_S
        said = Summary(training_seconds=trained_s, num_steps=round(STEPS * whole), total_tokens_M=whole)
        began = f"2026-11-22T00:{self.made // 60:02d}:{self.made % 60:02d}"
        run = Run(seed, Ending.FINISHED, 0, trained_s, said, "", began=began)
        middle = STEPS * first / 2
        end = middle + STEPS * second / 2 * (1 + 2 * self.error())
        return run, [(0.0, 0.0), (0.1, middle / 5), (0.5, middle), (1.0, end)], statistics.fmean(both)

    def usual(self, number: int) -> Usual:
        """As agent/night/planning/usual_speed.py has it."""
        since = self.since()
        most = threshold([speeds(one, since) for one in self.attempts])
        attempt = self.attempts[number]
        same = speeds(attempt, since)
        parent = None if attempt.parent is None else self.attempts[attempt.parent]
        if same or parent is None or parent.tokens_s is None:
            return Usual(most, same)
        shares = list(self.shares(number, since))
        return Usual(most, least_tokens_s=least_tokens_s(shares, parent.tokens_s, most))

    def shares(self, number: int, since: str) -> Iterator[float]:
        for one in self.attempts[max(1, number - 4 * IN_A_ROW) : number]:
            parent = None if one.parent is None else self.attempts[one.parent].tokens_s
            if parent and one.tokens_s and speeds(one, since):
                yield one.tokens_s / parent


def share(found: Sequence[bool]) -> float | None:
    return sum(found) / len(found) if found else None


def simulate(world: str, spell: str, nights: int, seed: int) -> measure.Flat:
    counts = Counts()
    rng = np.random.default_rng([seed, list(WORLDS).index(world), SPELLS.index(spell)])
    for _ in range(nights):
        Night(WORLDS[world], spell, rng, counts).run()
    found = {
        "runs": counts.runs,
        "false_alarms": counts.false_alarms / counts.innocent,
        "repeats": len(counts.seen["repeats"]),
        "repeats_noticed": share(counts.seen["repeats"]),
        "edits": len(counts.seen["edits"]),
        "edits_noticed": share(counts.seen["edits"]),
        "noticed": share(counts.noticed),
        "runs_until": statistics.median(counts.until) if counts.until else None,
        "references": counts.references / counts.runs,
        "paces": statistics.fmean(counts.paces),
        "threshold": statistics.median(counts.thresholds),
    }
    return {f"{world}_{spell}_{name}": value for name, value in found.items()}


def compare(args: argparse.Namespace) -> measure.Flat:
    flat: measure.Flat = {"nights": args.nights, "seed": args.seed}
    for world in WORLDS:
        for spell in SPELLS:
            flat |= simulate(world, spell, args.nights, args.seed)
    return flat


def measured(args: argparse.Namespace) -> measure.Flat:
    """Train the script again and again; return how far its speed strays on this machine, without the first run."""
    found = []
    with measure.work_folder(None) as folder:
        script = measure.overwritten(measure.SCRIPT, args.set, folder)
        for seed in range(args.measure):
            out = folder / f"out{seed}"
            out.mkdir()
            command = [sys.executable, script, "--budget-s", str(args.budget_s), "--seed", str(seed), "--no-eval"]
            said = measure.train(command, out, env=measure.with_path()).summary
            found.append(said["num_steps"] / said["training_seconds"])
            measure.say(f"{said['num_steps']} steps in {said['training_seconds']} s")
    strays = [abs(one / statistics.median(found[1:]) - 1) for one in found[1:]]
    return {
        "repeats": len(strays),
        "stray_median": statistics.median(strays),
        "stray_most": max(strays),
        "threshold": threshold([found[1:]]),
    }


def show(args: argparse.Namespace, flat: measure.Flat) -> None:
    if args.measure:
        row = [str(flat["repeats"]), *(measure.show(flat[key], ".1%") for key in (*STRAYS, "threshold"))]
        measure.print_table(
            "the script's speed on this machine", ["repeats", "half within", "most", "threshold"], [row]
        )
        return
    columns = "", "threshold", "false alarms", "repeats noticed", "edits", "spells", "runs until", "references"
    for world in WORLDS:
        rows = []
        for spell in SPELLS:
            said = {name: flat[f"{world}_{spell}_{name}"] for name in SHOWN}
            forms = {"false_alarms": ".2%", "runs_until": ".0f"}
            rows.append([spell, *(measure.show(value, forms.get(name, ".1%")) for name, value in said.items())])
        measure.print_table(f"drift, speeds as on {world} ({args.nights} simulated nights each)", columns, rows)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=500, help="of each kind of spell (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random generator (default: %(default)s)")
    parser.add_argument("--measure", type=int, default=0, metavar="N", help="train the script N times instead")
    parser.add_argument("--budget-s", type=float, default=20.0, help="of each of them (default: %(default)g)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="overwrite a dial of it")
    parser.add_argument("--quick", action="store_true", help="10 nights of each, some seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    args = parser.parse_args(argv)
    args.nights = 10 if args.quick else args.nights
    if args.nights < 1:
        parser.error("--nights needs at least 1")
    if args.measure and args.measure < 3:
        parser.error("--measure needs at least 3 runs")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("drift", lambda: measure.reported(args, measured if args.measure else compare, show))


if __name__ == "__main__":
    sys.exit(main())
