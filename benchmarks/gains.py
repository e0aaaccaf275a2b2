"""What nights have gained by runs with fresh seeds: means and 95 % intervals, of a night, an arm, a difference."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import measure
from scipy import stats

FRESH = {"baseline": 10_000, "champion": 20_000}  # first seeds at dawn; far from those that a night chooses by


@dataclass(frozen=True)
class Fresh:
    """A run at dawn; None where it brought no score."""

    who: str
    seed: int
    validation_bpb: float | None
    holdout_bpb: float | None


@dataclass(frozen=True)
class Mean:
    value: float
    variance: float  # of the mean
    freedom: float

    @property
    def interval(self) -> tuple[float, float]:
        half = float(stats.t.ppf(0.975, self.freedom)) * self.variance**0.5 if self.freedom > 0 else float("nan")
        return self.value - half, self.value + half


def gain(dawn: Sequence[Fresh], split: str) -> Mean | None:
    """Baseline minus champion, by Welch; None before each has a score."""
    scores = {
        who: [bpb for run in dawn if run.who == who and (bpb := getattr(run, split)) is not None] for who in FRESH
    }
    if not all(scores.values()):
        return None
    value = statistics.fmean(scores["baseline"]) - statistics.fmean(scores["champion"])
    return with_spread(value, [one for one in scores.values() if len(one) > 1])


def with_spread(value: float, samples: Sequence[Sequence[float]]) -> Mean:
    """A difference of the means of samples, with Welch's and Satterthwaite's degrees of freedom."""
    parts = [(statistics.variance(sample) / len(sample), len(sample) - 1) for sample in samples]
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / n for part, n in parts) if total else float(sum(n for _, n in parts))
    return Mean(value, total, freedom)


def pooled(means: Sequence[Mean]) -> Mean | None:
    """The mean of several nights' gains, by what is known of each."""
    if not means:
        return None
    parts = [(mean.variance / len(means) ** 2, mean.freedom) for mean in means if mean.freedom > 0]
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / n for part, n in parts) if total else sum(n for _, n in parts)
    return Mean(statistics.fmean(mean.value for mean in means), total, freedom)


def over(ours: Sequence[Mean], theirs: Sequence[Mean]) -> Mean | None:
    """The difference of two arms, nights being the sample."""
    values = [[mean.value for mean in means] for means in (ours, theirs)]
    if not all(values):
        return None
    return with_spread(
        statistics.fmean(values[0]) - statistics.fmean(values[1]), [one for one in values if len(one) > 1]
    )


def put(flat: measure.Flat, key: str, mean: Mean | None) -> None:
    low, high = mean.interval if mean else (None, None)
    flat[key] = mean.value if mean else None
    flat[f"{key}_low"], flat[f"{key}_high"] = (
        None if bound is None or bound != bound else bound for bound in (low, high)
    )


def show(mean: Mean | None) -> str:
    flat: measure.Flat = {}
    put(flat, "gain", mean)
    return between(flat, "gain")


def between(flat: measure.Flat, key: str) -> str:
    low, high = flat[f"{key}_low"], flat[f"{key}_high"]
    return measure.show(flat[key], ".4f") + ("" if low is None else f" [{low:.4f}, {high:.4f}]")
