"""A night in which the truth is known: what edits are worth, and what their runs score."""

import math
from dataclasses import dataclass, replace

import numpy as np

from agent.experiment import Attempt, Ending, History, Run, Score, edit_of, part_of
from agent.night.merging import first_of

RUNS = 96  # of a night


@dataclass(frozen=True)
class Mixture:
    """Shares of harm, nothing and gain when the night begins and ends; mean sizes in sigma."""

    begin: tuple[float, float, float]
    end: tuple[float, float, float]
    harm: float
    gain: float
    shape: float = 1.0  # of the gamma distribution of sizes: 1 is exponential
    dials: int = 1  # that an edit turns; of many, two help and two harm, and the shares do not count


USUAL = (0.70, 0.18, 0.12)
PEAKED = (0.60, 0.28, 0.12)
GOOD, POOR = (0.40, 0.35, 0.25), (0.85, 0.12, 0.03)
MIXTURES = {  # one of each source
    "usual": (Mixture(USUAL, USUAL, 3.0, 1.5),),
    "rarer": (Mixture((0.58, 0.18, 0.24), (0.82, 0.18, 0.0), 3.0, 1.5),),
    "peaked": (Mixture(PEAKED, PEAKED, 4.0, 1.5, shape=3.0),),
    "sources": (Mixture(GOOD, GOOD, 3.0, 1.5), Mixture(POOR, POOR, 3.0, 1.5)),
    "dials": (Mixture(USUAL, USUAL, 3.0, 1.0, dials=8),),
}


class World:
    """What is true in one night: the same for every policy, edit by edit and run by run."""

    def __init__(self, seed: int, mixtures: tuple[Mixture, ...], heavy: bool, edits: int = RUNS) -> None:
        rng = np.random.default_rng(seed)
        self.sigma_bpb = float(np.exp(rng.uniform(math.log(0.001), math.log(0.03))))
        self.level_bpb = float(rng.uniform(0.5, 2.0))
        luck = rng.random(edits)
        first = mixtures[0]  # all have the same sizes
        sizes = rng.gamma(first.shape, 1 / first.shape, size=edits)
        self.sources = rng.integers(len(mixtures), size=edits)  # of every attempt
        every = np.stack([np.linspace(one.begin, one.end, edits).cumsum(axis=1) for one in mixtures])
        shares = every[self.sources, np.arange(edits)]
        kinds = [-first.harm * sizes, np.zeros(edits), first.gain * sizes]
        self.dials = np.select([luck < shares[:, 0], luck < shares[:, 1]], kinds[:2], kinds[2])[:, None]  # sigma
        if first.dials > 1:
            signs = np.array([first.gain] * 2 + [-first.harm] * 2 + [0.0] * (first.dials - 4))
            self.dials = rng.permuted(signs * rng.exponential(size=(edits, first.dials)), axis=1)
        self.effects = self.dials.sum(axis=1)  # by attempt
        self.seed, self._heavy = seed, heavy

    def merit(self, attempt: Attempt, history: History) -> float:
        """In sigma above attempt 0."""
        if attempt.parent is None:
            return 0.0
        parent = self.merit(history[attempt.parent], history)
        if attempt.proposal.without:
            return parent - sum(map(self.worth, attempt.proposal.without))
        return parent + self.worth(first_of(attempt, history).number)

    def worth(self, number: int) -> float:
        """What an edit or a half brings, in sigma."""
        return float(sum(part_of(number, self.dials[edit_of(number)].tolist())))

    def run(self, attempt: Attempt, history: History, *, dawn: int = 0) -> Attempt:
        """The attempt, measured once more."""
        seed = 1000 * dawn + sum(run.dawn == dawn for run in attempt.runs)
        rng = np.random.default_rng((self.seed, attempt.number, seed))
        error = rng.standard_t(3) / math.sqrt(3) if self._heavy else rng.normal()
        val_bpb = self.level_bpb - self.sigma_bpb * (self.merit(attempt, history) + float(error))
        run = Run(seed, Ending.FINISHED, 0, 300.0, None, "", Score(val_bpb, 1.0), dawn=dawn)
        return replace(attempt, runs=(*attempt.runs, run))
