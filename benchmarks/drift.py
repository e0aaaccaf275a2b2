"""How often a run is called slow by chance, and how often a slow machine is noticed.

    python benchmarks/drift.py [--nights 100] [--processes N] [--quick] [--json FILE]

Nights of 60 runs are simulated: attempt 0 three times, then edits; six tenths of them have one run, the others up to
four; every tenth run is one of the best script. The noise of a run's speed is drawn from that of real runs: `h200`, of
40 s on one NVIDIA H200, and `cpu`, of 20 s on a Linux CPU that other nights shared. The rule is that of
agent/runs/train.py and Attempt.may_be_repeated().

A spell begins at a random run after the tenth: the machine loses 10, 20, 30 or 40 % of its speed for the next 12 runs.

Flat keys of --json, WORLD_SPELL_ before each: false_alarms (invalid runs, as a share of those that the machine had not
slowed) and repeats_noticed (invalid ones, as a share of the runs in a spell of scripts whose other runs were all before
it, for the first time with their seed).
"""

from dataclasses import replace

import measure
import numpy as np
from measure import CORES, Count

from agent.experiment import Attempt, Ending, Proposal, Run, Summary
from agent.runs.train import slow, usual_steps_s

RUNS, BUDGET_S, STEPS = 60, 300.0, 3000
# Share by which each run of a script differed from the median of its runs in the same night, in percent, cold first
# runs left out: attempts 0 to 3 of nov22-h200-mix-0, -mix-1, -search-0, -search-1 …
H200 = """
    0 -0.59 0.2 0.98 0.2 -1.96 0.2 0 -0.2 -0.6 2.58 0.2 -0.2 0.79 0.79 -0.2 -1.38 0 0 -0.2 -0.8 2.2 0.14 -0.25 -0.19
    -0.58 0 0.58 0 2.14 0.21 -0.21 0.55 -2.37
"""
# … and 0 to 7 of nov22-cpu-mix-0 to -3 and nov22-cpu-search-0 to -3.
CPU = """
    -0.5 1.52 0 -1.65 2.61 3.12 -4.18 2.71 17.9 0 -4.66 -11.17 -7.17 0 17.97 3.64 2.61 4.42 -4.42 -4.19 9.13 9.13 0
    -1.98 1.51 -10.8 5.11 9.63 0 -0.57 -5.59 5.59 7.77 -7.77 -2.06 2.06 1 8.2 -0.49 0 -7.73 1.01 -2.25 0 14.61 3.23
    -2.25 -0.53 -13.41 0.53 2.06 -11.21 15.19 0 6.14 6.67 12.77 -6.67 -0.99 7.73 -7.73 3.2 2.17 -2.17 10.33 -4.96
    -4.35 -1.76 0 0 11.9 4.79 -0.5 1.16 7.85 -7.27 3.97 -5.4 -1.16 6.98 -1.28 0 9.14 3.05 -0.78 4.25 -4.25 7.41
    -2.07 2.07 11.98 -4.01 -4.89 -5.12 -3.03 1.52 12.68 2.52 0 -2.36 2.36 -1.23 -2.47 1.23 13.58 4.94 -7.41
"""
WORLDS = {"h200": np.array(H200.split(), float), "cpu": np.array(CPU.split(), float)}
SPELLS = {"none": 0.0, "lost10": 0.1, "lost20": 0.2, "lost30": 0.3, "lost40": 0.4}  # share of the speed
SPELL_RUNS = 12


class Night:
    """Simulate one night; each of its runs is judged as a worker would."""

    def __init__(self, noise: np.ndarray, lost: float, rng: np.random.Generator) -> None:
        self.noise, self.lost, self.rng = noise, lost, rng
        self.begins = int(rng.integers(10, 35))  # the spell
        self.made = 0  # runs, invalid ones among them
        self.in_spell: set[int] = set()  # attempts with a run in the spell
        self.attempts: list[Attempt] = []
        self.alarms: list[bool] = []  # one for each run that the machine had not slowed
        self.repeats: list[bool] = []  # one for each run in a slow spell whose script has been run before it

    def run(self) -> "Night":
        best = self.enter()
        for seed in range(3):
            self.measure(best, seed)
        while self.made < RUNS:
            if self.made % 10 == 9:
                self.measure(best, len(self.attempts[best].done_runs))
                continue
            number = self.enter()
            for seed in range(int(self.rng.integers(2, 5)) if self.rng.random() < 0.4 else 1):
                self.measure(number, seed)
            best = number if self.rng.random() < 0.15 else best
        return self

    def enter(self) -> int:
        self.attempts.append(Attempt(len(self.attempts), 0 if self.attempts else None, Proposal("", "", ""), ""))
        return len(self.attempts) - 1

    def measure(self, number: int, seed: int) -> None:
        """Make a run of an attempt, and make it again if it is invalid."""
        attempt = self.attempts[number]
        usual, is_slowed = usual_steps_s(attempt), self.begins <= self.made < self.begins + SPELL_RUNS
        self.made += 1
        speed = (1 + float(self.rng.choice(self.noise)) / 100) * (1 - self.lost * is_slowed)
        summary = Summary(training_seconds=BUDGET_S, num_steps=round(STEPS * speed))
        run = Run(seed, Ending.FINISHED, 0, BUDGET_S, summary, "")
        is_invalid = slow(run, usual) is not None and attempt.may_be_repeated(seed)
        if not (is_slowed and self.lost):
            self.alarms.append(is_invalid)
        elif usual is not None and number not in self.in_spell:
            self.repeats.append(is_invalid)
        if is_slowed:
            self.in_spell.add(number)
        run = replace(run, ending=Ending.INVALID if is_invalid else Ending.FINISHED)
        self.attempts[number] = replace(attempt, runs=(*attempt.runs, run))
        if is_invalid:
            self.measure(number, seed)


def simulate(world: str, spell: str, nights: int) -> measure.Flat:
    rng = np.random.default_rng([0, list(WORLDS).index(world), list(SPELLS).index(spell)])
    ends = [Night(WORLDS[world], SPELLS[spell], rng).run() for _ in range(nights)]
    alarms = [is_invalid for night in ends for is_invalid in night.alarms]
    repeats = [is_invalid for night in ends for is_invalid in night.repeats]
    return {
        f"{world}_{spell}_false_alarms": measure.ratio(sum(alarms), len(alarms)),
        f"{world}_{spell}_repeats_noticed": measure.ratio(sum(repeats), len(repeats)),
    }


@measure.program(nights=10)
def main(*, nights: Count = 100, processes: Count = CORES) -> measure.Flat:
    """Play nights of every kind of machine and spell.

    Args:
        nights: of each kind of spell
        processes: kinds at the same time
    """
    jobs = [(world, spell, nights) for world in WORLDS for spell in SPELLS]
    flats = measure.in_parallel(processes, simulate, jobs)
    return {key: figure for flat in flats for key, figure in flat.items()}


if __name__ == "__main__":
    raise SystemExit(main())
