"""Estimate what a seed does to all scripts that are alike, to compare their scores seed by seed. Pure mathematics.

A score is what its script is worth, plus what its seed does, plus what is left. Most of the noise is the seed's: two
scripts of which one has a dial turned move alike from seed to seed, and their difference is several times steadier than
their scores. Scripts that differ in more may share nothing, and a seed that is bad for one need not be bad for the
next. So each script either shares what its seeds do, or has noise of its own; how many share it is learnt tonight,
separately for turned dials and for all other edits.

What the seeds do is the random effect of a two-way layout, scripts by seeds (Henderson 1975), estimated from the
scripts that were measured more than once; which of them share it, by EM.

Shapes: S seeds; n scores of one script, which have n - 1 contrasts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

OWN = 0.1  # share of the noise's variance that is left to a script which shares what its seeds do
SHARED = 1 - OWN
# These count scripts that share it and that do not, before any was seen: by whether dials alone were turned.
# In sixteen shipped nights, what was left had 0.22 and 0.58 of the noise's variance. They weigh less than one script:
# two or three scripts that are measured again tell it, and a night loses gains by a stronger expectation that is wrong.
EXPECTED = {True: (0.5, 0.25), False: (0.3, 0.45)}
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """The scores of one script by seed, in any unit; dials_only: it differs from its parent in dials alone."""

    scores: Mapping[int, float]
    dials_only: bool


@dataclass(frozen=True, slots=True)
class Shared:
    """What seeds do to scores. All figures are in units of the noise's standard deviation."""

    effects: Mapping[int, float]  # seed → its effect; the mean over the first script's seeds is zero
    variances: Mapping[int, float]  # seed → variance of its effect's estimate
    share: Mapping[bool, float]  # whether dials alone were turned → probability that a script shares the effects
    level: float  # variance of the first script's mean by its own seeds

    def noise_of(self, dials_only: bool) -> float:
        """Return the deviation of a run of such a script, its seed's effect taken out where the script shares it."""
        return math.sqrt(self.share[dials_only] * OWN + 1 - self.share[dials_only])


@dataclass(frozen=True, slots=True, eq=False)
class Contrasts:
    """What the scores of one script say of the seeds, whatever the script is worth."""

    scores: Array  # (n - 1,)
    rows: Array  # (n - 1, S): which seeds each contrast compares
    dials_only: bool

    @classmethod
    def of(cls, script: Measured, seeds: Sequence[int], sigma: float) -> "Contrasts":
        """Take the mean out of a script's scores. sigma: the noise's deviation, in their unit."""
        scores = np.array(list(script.scores.values())) / sigma
        chosen = np.array(list(script.scores))[:, None] == np.array(seeds)  # (n, S)
        basis = np.linalg.qr(np.column_stack([np.ones(len(scores)), np.eye(len(scores))[:, 1:]]))[0][:, 1:].T
        return cls(basis @ scores, basis @ chosen, script.dials_only)

    @property
    def precision(self) -> Array:  # (S, S)
        """Return what the script tells of the seeds' effects, if it shares them: the inverse of a covariance."""
        return self.rows.T @ self.rows / OWN

    @property
    def told(self) -> Array:  # (S,)
        """Return that precision times the effects that the script alone would suggest."""
        return self.rows.T @ self.scores / OWN

    def odds(self, precision: Array, told: Array, weight: float) -> float:
        """Return the log odds that the script shares the seeds' effects, given the evidence of the others for them.

        precision, told: of all scripts, in which this one counts by its weight.
        """
        covariance = np.linalg.inv(precision - weight * self.precision)
        spread = self.rows @ covariance @ self.rows.T + OWN * np.eye(len(self.scores))
        errors = self.scores - self.rows @ covariance @ (told - weight * self.told)
        paired = errors @ np.linalg.solve(spread, errors) + np.linalg.slogdet(spread)[1]
        return 0.5 * float(self.scores @ self.scores - paired)


def shared_effects(scripts: Sequence[Measured], sigma: float) -> Shared:
    """Estimate what each seed does, from all scripts; the first has the effects by definition.

    sigma: the standard deviation of a score's noise, in the scores' unit.
    """
    seeds = sorted({seed for script in scripts for seed in script.scores})
    first, *others = (
        Contrasts.of(script, seeds, sigma) for i, script in enumerate(scripts) if not i or len(script.scores) > 1
    )
    share = {dials_only: yes / (yes + no) for dials_only, (yes, no) in EXPECTED.items()}
    weights = [share[script.dials_only] for script in others]
    for _ in range(ROUNDS):
        precision, told = np.eye(len(seeds)) / SHARED + first.precision, first.told
        for weight, script in zip(weights, others, strict=True):
            precision, told = precision + weight * script.precision, told + weight * script.told
        weights = [
            _probability(_log_odds(share[script.dials_only]) + script.odds(precision, told, weight))
            for weight, script in zip(weights, others, strict=True)
        ]
        for dials_only, (yes, no) in EXPECTED.items():
            like = [weight for weight, script in zip(weights, others, strict=True) if script.dials_only is dials_only]
            share[dials_only] = (yes + sum(like)) / (yes + no + len(like))
    covariance, own = np.linalg.inv(precision), np.isin(seeds, list(scripts[0].scores))
    against = np.eye(len(seeds)) - own / own.sum()  # this compares each seed with the mean of the first script's
    variances = np.einsum("st,tu,su->s", against, covariance, against)
    effects = against @ covariance @ told
    return Shared(
        dict(zip(seeds, effects.tolist(), strict=True)),
        dict(zip(seeds, variances.tolist(), strict=True)),
        share,
        SHARED / int(own.sum()),
    )


def _log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))


def _probability(log_odds: float) -> float:
    return 0.5 + 0.5 * math.tanh(log_odds / 2)
