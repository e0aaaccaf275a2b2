"""How sure an estimated gain is: two scripts' runs differ by luck with their seeds (Welch 1947). Pure."""

import math
import statistics
from collections.abc import Collection
from dataclasses import dataclass

SURE = 1.96  # standard errors to either side of a mean: 95 % of a normal distribution


@dataclass(frozen=True, slots=True)
class Interval:
    """Hold an estimate and the 95 % interval around it, in bits per byte; positive is better."""

    mean_bpb: float
    low_bpb: float
    high_bpb: float

    @classmethod
    def of_runs(cls, mean_bpb: float, sigma_bpb: float | None, *runs: int) -> "Interval":
        """Return the interval of a mean of so many runs, or of the difference of two such means.

        sigma_bpb: the standard deviation of one run; None where it is not known, and then the interval has no width.
        """
        error_bpb = (sigma_bpb or 0.0) * math.sqrt(sum(1 / max(1, count) for count in runs))
        return cls.around(mean_bpb, SURE * error_bpb)

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


def difference(before: Collection[float], after: Collection[float]) -> Interval | None:
    """Return the mean improvement with its interval, or None without two scores of each.

    The interval is that of `scipy.stats.ttest_ind(before, after, equal_var=False)`.
    """
    if min(len(before), len(after)) < 2:
        return None
    variances = [statistics.variance(scores) / len(scores) for scores in (before, after)]
    shares = [variance**2 / (len(scores) - 1) for variance, scores in zip(variances, (before, after), strict=True)]
    freedom = sum(variances) ** 2 / sum(shares) if any(shares) else math.inf
    gain_bpb = statistics.fmean(before) - statistics.fmean(after)
    return Interval.by_student(gain_bpb, math.sqrt(sum(variances)), freedom)
