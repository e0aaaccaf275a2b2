"""Say what a confirmation has found, and how sure an estimate is."""

import math
import statistics
from collections.abc import Collection
from dataclasses import dataclass

STANDARD_ERRORS = 1.96  # a mean ± 1.96 standard errors is the 95 % interval of a normal distribution


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the 95 % interval around it, in bits per byte; positive is better."""

    mean_bpb: float
    low_bpb: float
    high_bpb: float

    @classmethod
    def of_runs(cls, mean_bpb: float, sigma_bpb: float | None, *runs: int) -> "Interval":
        """Return the interval of a mean of so many runs, or of the difference of two such means.

        sigma_bpb: the standard deviation of one run; None where it is not known, and then the interval has no width.
        """
        error_bpb = (sigma_bpb or 0.0) * math.sqrt(sum(1 / max(1, count) for count in runs))
        return cls.around(mean_bpb, STANDARD_ERRORS * error_bpb)

    @classmethod
    def of_scores(cls, before: Collection[float], after: Collection[float]) -> "Interval | None":
        """Return by how much later scores are lower on average; None without two scores of each.

        It is the interval of `scipy.stats.ttest_ind(before, after, equal_var=False)` (Welch 1947).
        """
        if min(len(before), len(after)) < 2:
            return None
        variances = [statistics.variance(scores) / len(scores) for scores in (before, after)]
        shares = [variance**2 / (len(scores) - 1) for variance, scores in zip(variances, (before, after), strict=True)]
        freedom = sum(variances) ** 2 / sum(shares) if any(shares) else math.inf
        gain_bpb = statistics.fmean(before) - statistics.fmean(after)
        return cls.by_student(gain_bpb, math.sqrt(sum(variances)), freedom)

    @classmethod
    def by_student(cls, mean_bpb: float, error_bpb: float, freedom: float) -> "Interval":
        """Return the interval of an estimate with this standard error and its degrees of freedom."""
        from scipy.special import stdtrit  # takes a third of a second to import, and most commands do without

        return cls.around(mean_bpb, float(stdtrit(freedom, 0.975)) * error_bpb)

    @classmethod
    def around(cls, mean_bpb: float, half_bpb: float) -> "Interval":
        return cls(mean_bpb, mean_bpb - half_bpb, mean_bpb + half_bpb)

    @property
    def has_width(self) -> bool:
        """Return whether the noise was known."""
        return self.low_bpb < self.high_bpb


@dataclass(frozen=True, slots=True)
class EditEffect:
    """A kept edit's effect on the best script, by the night's runs and by those without it."""

    number: int
    effect: Interval
    worthless: float  # the probability that it brings nothing or does harm
    runs: int  # runs of the best script without the edit


@dataclass(frozen=True, slots=True)
class Findings:
    """What a confirmation has found."""

    best: int
    script: int | None  # the attempt whose script is confirmed; None where no gain is
    recorded_bpb: float | None  # the best script's gain over attempt 0, by the night's own scores
    believed_bpb: float | None  # the same gain, by the shrunken estimates of the judge
    # gain measured with fresh seeds; None until attempt 0 and the best script have two runs each
    honest: Interval | None
    holdout: Interval | None  # the same gain on text that no run was judged by
    edits: tuple[EditEffect, ...]  # kept edits, the earliest first
    without_effect: tuple[int, ...]  # edits that the confirmed script leaves out
    dropping: Interval | None  # measured gain of dropping them over the best script; None if it was not measured
    stays: str | None  # why doubtful edits stay in the script after all


@dataclass(frozen=True, slots=True)
class Confirmation:
    """One confirmation of a night's result: its best script measured with fresh seeds."""

    number: int  # counts from 1
    best: int
    fresh: int  # runs of attempt 0 and of the best script each, before any edit is doubted
    began: str  # ISO 8601, UTC
    ended: str | None = None  # None while it goes on, and where it was interrupted
    findings: Findings | None = None  # None before anything is known
