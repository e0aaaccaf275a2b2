"""Predict which dials fit in memory, from the peaks of earlier runs."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.script.dials import Value, is_number

# The logarithm of peak memory is taken to be linear in the logarithms of the dials. Before anything is measured, a dial
# whose name is a size is taken to scale memory in proportion, any other number not to; runs correct both.
SIZES = re.compile(r"BATCH|ROWS|DEPTH|LAYER|WIDTH|DIM|ASPECT|EMBD|HIDDEN|CHANNELS|HEADS|EXPERTS|SEQ_LEN|CONTEXT|MLP")
DOUBT = 0.5  # standard deviation of an exponent before anything is measured
SPREAD = 0.05  # of the logarithm of one measurement, about the linear law
CAUTION = 1.0  # standard deviations of doubt that a setting is charged for


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Predict peak memory: Bayesian linear regression of log GB on the logs of the dials, about the first run."""

    limit_gb: float | None
    names: tuple[str, ...] = ()
    origin: npt.NDArray[np.float64] | None = None  # (D,), logs of the first run's dials
    gb: float = 0.0  # of the first run
    exponents: npt.NDArray[np.float64] | None = None  # (D,)
    covariance: npt.NDArray[np.float64] | None = None  # (D, D)

    @classmethod
    def learnt(cls, runs: Sequence[tuple[Mapping[str, Value], float]], limit_gb: float | None) -> "Memory":
        """Learn from dials and peaks in GB, relative to the first run; without a limit, everything fits."""
        runs = [(dials, gb) for dials, gb in runs if 0 < gb < math.inf]  # else its logarithm would spoil all others
        if limit_gb is None or not runs:
            return cls(limit_gb)
        names = tuple(name for name, value in runs[0][0].items() if _is_size(value))
        places = np.array([_logs(dials, names, runs[0][0]) for dials, _ in runs])
        taken = np.log([gb for _, gb in runs])
        prior = np.array([1.0 if SIZES.search(name) else 0.0 for name in names])
        moved, rise = places[1:] - places[0], taken[1:] - taken[0]
        precision = np.eye(len(names)) / DOUBT**2 + moved.T @ moved / SPREAD**2
        covariance = np.linalg.inv(precision)
        exponents = prior + covariance @ (moved.T @ (rise - moved @ prior)) / SPREAD**2
        return cls(limit_gb, names, places[0], runs[0][1], exponents, covariance)

    def fits(self, dials: Mapping[str, Value]) -> bool:
        return self.limit_gb is None or self.expected_gb(dials) <= self.limit_gb

    def expected_gb(self, dials: Mapping[str, Value]) -> float:
        """Return the expected peak with a margin for uncertainty; 0 if nothing was learnt."""
        if self.origin is None or self.exponents is None or self.covariance is None:
            return 0.0
        first = dict(zip(self.names, np.exp(self.origin).tolist(), strict=True))
        step = np.array(_logs(dials, self.names, first)) - self.origin
        doubt = math.sqrt(float(step @ self.covariance @ step))
        return self.gb * math.exp(min(50.0, float(step @ self.exponents) + CAUTION * doubt))


def _is_size(value: Value) -> bool:
    """Return whether a dial may be a size: a positive whole number, unlike a learning rate."""
    return isinstance(value, int) and is_number(value) and value > 0


def _logs(dials: Mapping[str, Value], names: Sequence[str], otherwise: Mapping[str, Value]) -> list[float]:
    values = [dials.get(name) if _is_size(dials.get(name)) else otherwise[name] for name in names]
    return [math.log(value) for value in values]  # type: ignore[arg-type]
