"""What a judge is worth: simulated nights in which the truth is known, judged by the very code that real nights use.

    python benchmarks/judge_power.py [--nights 300] [--other-nights 80] [--parallel-nights 32] [--processes N]
                                     [--quick] [--json FILE]

A night has 96 runs, those that calibrate included. Its edits do harm, nothing or good, by amounts in units of sigma,
the noise of one run; sigma itself differs from night to night and no judge is told. Scenarios, all but the usual one
only where --other-nights says how often:

  usual     70 % harmful, 3 sigma on average; 18 % without effect; 12 % gains of 1.5 sigma on average; all exponential
  heavy     the same with heavy-tailed noise: Student's t with 3 degrees of freedom, scaled to the same deviation
  rarer     the share of gains falls from 24 % to nothing in the course of the night, in favour of harm
  peaked    60 % harmful, 4 sigma on average; 28 % without effect; 12 % gains of 1.5 sigma; seldom small: gamma, shape 3
  half      the usual edits; half of the noise's variance is the seed's: the same for all scripts
  shared    nine tenths of it are
  bad       the same, and the seeds' own effects have heavy tails: some seeds are bad
  small     as shared, and all effects have 0.3 times their size; small_apart has the same edits, but each script has
            seeds of its own, so that nothing can be paired

Effects add up, so that a script without an edit is worth its own merit less that edit's effect. Policies:

  greedy    one run, lower than the incumbent
  strict, balanced                    nightshift's
  confirmed balanced, and up to 30 confirmation runs more (agent/judging/ablation.py), without the edits that have no
  effect

JSON, for each policy P, means over the nights: P_true_gain, P_bias (believed less true gain), both in sigma, P_keeps,
P_worthless (share of the keeps whose true effect is not above zero), P_runs_per_attempt, P_false_keeps_per_100 (edits
without effect that are kept, of 100 tried); P_true_gain_error is a standard error. These are of the usual scenario;
others begin with its name: heavy_, rarer_ and so on.

Nights of balanced in the usual scenario with W = 1, 4 and 16 workers, where attempts end in any order: async_cost_W is
the share of one worker's true gain that is lost, async_cost_W_error its standard error.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nights are simulated side by side

import measure
import numpy as np
from measure import CORES, Count
from simulator import Night

from agent.experiment import Attempt, Decision, Ending, History, Kind, Proposal, Run, Score, Status, best_of
from agent.judging.ablation import Ablation
from agent.judging.judges import JUDGES, Balanced, Judge, choose_judge
from agent.night.merging import first_of

RUNS, CONFIRMATION_RUNS = 96, 30
WORKERS = (1, 4, 16)
FIRST_SEED = 10_000  # choices were made on seeds below 1,000


# ---- what is true ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixture:
    """The shares of harm, nothing and gain when the night begins and ends; mean sizes in sigma."""

    begin: tuple[float, float, float]
    end: tuple[float, float, float]
    harm: float
    gain: float
    shape: float = 1.0  # of the gamma distribution of sizes: 1 is exponential
    heavy: bool = False  # are the tails of the noise?
    share: float = 0.0  # of the noise's variance: what a seed does to all scripts
    bad: bool = False  # are some seeds, for all scripts?
    size: float = 1.0  # of all effects, beside the usual ones
    apart: bool = False  # has each script seeds of its own?


USUAL = (0.70, 0.18, 0.12)
PEAKED = (0.60, 0.28, 0.12)
MIXTURES = {
    "usual": Mixture(USUAL, USUAL, 3.0, 1.5),
    "heavy": Mixture(USUAL, USUAL, 3.0, 1.5, heavy=True),
    "rarer": Mixture((0.58, 0.18, 0.24), (0.82, 0.18, 0.0), 3.0, 1.5),
    "peaked": Mixture(PEAKED, PEAKED, 4.0, 1.5, shape=3.0),
    "half": Mixture(USUAL, USUAL, 3.0, 1.5, share=0.5),
    "shared": Mixture(USUAL, USUAL, 3.0, 1.5, share=0.9),
    "bad": Mixture(USUAL, USUAL, 3.0, 1.5, share=0.9, bad=True),
    "small": Mixture(USUAL, USUAL, 3.0, 1.5, share=0.9, size=0.3),
    "small_apart": Mixture(USUAL, USUAL, 3.0, 1.5, share=0.9, size=0.3, apart=True),
}


class Edits:
    """A world of edits that add up: the same for every policy, edit by edit and run by run."""

    def __init__(self, seed: int, mixture: str = "usual", edits: int = RUNS) -> None:
        rng, mixed = np.random.default_rng(seed), MIXTURES[mixture]
        self.sigma_bpb = float(np.exp(rng.uniform(math.log(0.001), math.log(0.03))))
        self.level_bpb = float(rng.uniform(0.5, 2.0))
        luck = rng.random(edits)
        sizes = rng.gamma(mixed.shape, 1 / mixed.shape, size=edits)
        shares = np.linspace(mixed.begin, mixed.end, edits).cumsum(axis=1)
        kinds = [-mixed.harm * mixed.size * sizes, np.zeros(edits), mixed.gain * mixed.size * sizes]
        # sigma, by attempt
        self.effects = np.select([luck < shares[:, 0], luck < shares[:, 1]], kinds[:2], kinds[2])
        self.seed, self.mixture = seed, mixed

    def propose(self, history: History, parent: Attempt | None) -> Proposal:
        return Proposal("", "", "")

    def merge(self, overtaken: Attempt, onto: Attempt, history: History) -> Proposal:
        return overtaken.proposal

    def merit(self, attempt: Attempt, history: History) -> float:
        """Return what a script is worth, in sigma above attempt 0."""
        if attempt.parent is None:
            return 0.0
        parent = self.merit(history[attempt.parent], history)
        if attempt.proposal.without:
            return parent - sum(map(self.worth, attempt.proposal.without))
        return parent + self.worth(first_of(attempt, history).number)

    def worth(self, number: int) -> float:
        """Return what an edit brings, in sigma."""
        return float(self.effects[number])

    def run(self, attempt: Attempt, history: History, *, confirmation: int = 0) -> Attempt:
        mixed, seed = self.mixture, 1000 * confirmation + sum(run.confirmation == confirmation for run in attempt.runs)
        own = draw(np.random.default_rng((self.seed, attempt.number, seed)), mixed.heavy)
        seed += 10_000 * attempt.number * mixed.apart
        of_seed = draw(np.random.default_rng((self.seed, len(self.effects), seed)), mixed.bad)
        error = math.sqrt(mixed.share) * of_seed + math.sqrt(1 - mixed.share) * own
        val_bpb = self.level_bpb - self.sigma_bpb * (self.merit(attempt, history) + error)
        run = Run(seed, Ending.FINISHED, 0, 300.0, None, "", Score(val_bpb, 1.0), confirmation=confirmation)
        return replace(attempt, runs=(*attempt.runs, run))


def draw(rng: np.random.Generator, heavy: bool) -> float:
    """Return a number of mean 0 and deviation 1, with heavy tails or as a normal one."""
    return float(rng.standard_t(3) / math.sqrt(3) if heavy else rng.normal())


# ---- policies --------------------------------------------------------------------------------------------------------


def a_night(judge: Judge, world: Edits) -> list[Attempt]:
    """Return the attempts of a night of one worker; what is undecided at its end is discarded."""
    over = Decision(Kind.WORSE, "the night is over")
    history = Night(world, judge, RUNS).simulate().history
    return [attempt if attempt.decision else replace(attempt, decisions=(over,), settled=True) for attempt in history]


def a_confirmation(world: Edits, history: list[Attempt]) -> Ablation | None:
    """Measure what agent/judging/ablation.py asks for, and return it; None if attempt 0 is the best."""
    runs, confirmation = 0, ablation(history)
    while confirmation is not None and (trial := confirmation.next_run(CONFIRMATION_RUNS - runs)) is not None:
        match trial:
            case tuple() as edits:
                proposal, parent = Proposal("", "", "confirmation", without=edits), confirmation.best.number
                decided = Decision(Kind.QUESTION, "a question of the confirmation")
                history.append(Attempt(len(history), parent, proposal, "", "c", decisions=(decided,), settled=True))
            case int() as number:
                history[number], runs = world.run(history[number], history, confirmation=1), runs + 1
        confirmation = ablation(history)
    return confirmation


def ablation(history: Sequence[Attempt]) -> Ablation | None:
    best = best_of(history)
    return Ablation(history, best) if best is not None and best.number else None


def outcome(world: Edits, history: History, kept: list[int], believed_bpb: float) -> dict[str, float]:
    """Return how a night ended that kept these edits; gains in sigma."""
    ideas = [attempt.number for attempt in history[1:] if attempt.is_idea]
    gain = sum(map(world.worth, kept))
    return {
        "true_gain": gain,
        "bias": believed_bpb / world.sigma_bpb - gain,
        "keeps": len(kept),
        "worthless": sum(world.effects[k] <= 0 for k in kept),
        "runs": sum(len(attempt.runs) for attempt in history),
        "attempts": len(ideas) + 1,
        "false_keeps": sum(world.effects[k] == 0 for k in kept),
        "without_effect": sum(world.effects[k] == 0 for k in ideas),
    }


def outcomes(seed: int, mixture: str) -> dict[str, dict[str, float]]:
    """Return how each policy fares with the same edits and the same luck."""
    world, ends = Edits(seed, mixture), {}
    # which comes last, since the confirmation goes on with its night
    for name in sorted(JUDGES, key="balanced".__eq__):
        history = a_night(choose_judge(name), world)
        kept = [attempt.number for attempt in history[1:] if attempt.status is Status.KEEP]
        night, believed_bpb = ablation(history), 0.0
        if night is not None:
            findings = night.findings()
            believed_bpb = (findings.believed_bpb if name == "balanced" else findings.recorded_bpb) or 0.0
        ends[name] = outcome(world, history, kept, believed_bpb)
    confirmation = a_confirmation(world, history)
    confirmed = confirmation.findings() if confirmation is not None else None
    # the best script's gain less that of its edits without effect
    if confirmed is not None and confirmed.honest is not None:
        dropped = [edit.effect.mean_bpb for edit in confirmed.edits if edit.number in confirmed.without_effect]
        kept = [number for number in kept if number not in confirmed.without_effect]
        believed_bpb = confirmed.honest.mean_bpb - sum(dropped)
    ends["confirmed"] = outcome(world, history, kept, believed_bpb)
    return ends


# ---- many nights -----------------------------------------------------------------------------------------------------


def gain_of_workers(seed: int, workers: int) -> float:
    """Return the true gain in sigma of a night of several workers."""
    world = Edits(seed)
    history = Night(world, Balanced(), RUNS, workers).simulate().history
    best = best_of(history)
    return 0.0 if best is None else world.merit(best, history)


@measure.program(nights=4, parallel_nights=2)
def main(
    *, nights: Count = 300, other_nights: Count | None = None, parallel_nights: Count = 32, processes: Count = CORES
) -> measure.Flat:
    """Play nights of every scenario, and of several workers.

    Args:
        nights: of the usual scenario
        other_nights: of each other scenario (default: none)
        parallel_nights: of each number of workers
        processes: nights at the same time
    """
    flat: measure.Flat = {}
    others = dict.fromkeys(MIXTURES, other_nights) if other_nights else {}
    for mixture, count in (others | {"usual": nights}).items():
        prefix = "" if mixture == "usual" else f"{mixture}_"
        measure.say(f"{count} nights: {mixture}")
        ends = measure.in_parallel(processes, outcomes, [(FIRST_SEED + number, mixture) for number in range(count)])
        for policy in ends[0]:
            figures = summed_up([end[policy] for end in ends])
            flat |= {f"{prefix}{policy}_{key}": figure for key, figure in figures.items()}
        for above, below in (("balanced", "greedy"), ("confirmed", "balanced")):
            quotient = measure.ratio(flat[f"{prefix}{above}_true_gain"], flat[f"{prefix}{below}_true_gain"])
            flat[f"{prefix}{above}_over_{below}"] = quotient
    measure.say(f"{parallel_nights} nights of each number of workers")
    jobs = [(FIRST_SEED + number, workers) for workers in WORKERS for number in range(parallel_nights)]
    gains = np.reshape(measure.in_parallel(processes, gain_of_workers, jobs), (len(WORKERS), parallel_nights))
    for workers, each in zip(WORKERS, gains, strict=True):
        lost = (gains[0] - each) / gains[0].mean()
        flat[f"async_cost_{workers}"] = float(lost.mean())
        flat[f"async_cost_{workers}_error"] = float(lost.std()) / math.sqrt(parallel_nights)
    return flat


def summed_up(nights: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the figures of one policy, by the outcomes of its nights."""
    mean = {name: float(np.mean([night[name] for night in nights])) for name in nights[0]}
    return {
        **{name: mean[name] for name in ("true_gain", "bias", "keeps")},
        "true_gain_error": float(np.std([night["true_gain"] for night in nights])) / math.sqrt(len(nights)),
        "worthless": mean["worthless"] / max(mean["keeps"], 1e-9),
        "runs_per_attempt": mean["runs"] / mean["attempts"],
        "false_keeps_per_100": 100 * mean["false_keeps"] / max(mean["without_effect"], 1e-9),
    }


if __name__ == "__main__":
    raise SystemExit(main())
