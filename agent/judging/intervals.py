"""How sure an estimated gain is: over seeds, over the documents of a text, and over both. Pure.

The runs of two scripts differ by luck with their seeds (Welch 1947). The text is a sample, too: other documents would
have shown another gain. A gain in bits per byte is a ratio of two sums over documents, nats saved and bytes, and its
error is the jackknife's over them (Cochran 1977, Sampling Techniques, 6.17; it errs upward: Efron & Stein 1981).
"""

import math
import statistics
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and commands that only show intervals do without
    import numpy as np
    import numpy.typing as npt

SURE = 1.96  # standard errors to either side of a mean: 95 % of a normal distribution
LEAST_DOCUMENTS = 8  # the spread of fewer says little
Floats: TypeAlias = "npt.NDArray[np.floating]"
Whole: TypeAlias = "npt.NDArray[np.integer]"


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
        half_bpb = SURE * (sigma_bpb or 0.0) * math.sqrt(sum(1 / max(1, count) for count in runs))
        return cls(mean_bpb, mean_bpb - half_bpb, mean_bpb + half_bpb)

    @property
    def has_width(self) -> bool:
        """Return whether the noise was known."""
        return self.low_bpb < self.high_bpb


@dataclass(frozen=True, slots=True)
class Spread:
    """Hold a standard error and its degrees of freedom."""

    error_bpb: float
    freedom: float

    def __add__(self, other: "Spread") -> "Spread":
        """Combine the spreads of two independent sources (Satterthwaite 1946)."""
        error_bpb = math.hypot(self.error_bpb, other.error_bpb)
        if error_bpb == 0:
            return self
        shares = [(spread.error_bpb / error_bpb) ** 4 / spread.freedom for spread in (self, other)]
        return Spread(error_bpb, 1 / sum(shares))

    def around(self, mean_bpb: float) -> Interval:
        """Return the 95 % interval around this estimate, by Student's t."""
        from scipy.special import stdtrit  # takes a third of a second to import, and most commands do without

        half_bpb = float(stdtrit(self.freedom, 0.975)) * self.error_bpb
        return Interval(mean_bpb, mean_bpb - half_bpb, mean_bpb + half_bpb)


# ---- seeds -----------------------------------------------------------------------------------------------------------


def difference(before: Collection[float], after: Collection[float], *texts: Spread) -> Interval | None:
    """Return the mean improvement with its interval (Welch 1947), or None without two scores of each.

    The interval is that of `scipy.stats.ttest_ind(before, after, equal_var=False)`. With the spreads of texts, it also
    covers the choice of their pieces.
    """
    if min(len(before), len(after)) < 2:
        return None
    spread = sum(texts, _of_mean(before) + _of_mean(after))
    return spread.around(statistics.fmean(before) - statistics.fmean(after))


def _of_mean(values: Collection[float]) -> Spread:
    return Spread(statistics.stdev(values) / math.sqrt(len(values)), len(values) - 1)


# ---- documents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pieces:
    """Hold where a text's documents begin, each of which was drawn independently of the others."""

    starts: Whole  # flat indices into the targets
    bytes: Whole  # of each piece

    @classmethod
    def of(cls, targets: Whole, token_bytes: Whole, bos: int) -> "Pieces":
        """Cut evaluation rows (R, T) into documents; each begins at its BOS, which has no bytes.

        A text of few documents, such as one book, is cut into its rows.
        """
        import numpy as np

        tokens, rows = targets.ravel(), np.arange(0, targets.size, targets.shape[1])
        documents = np.concatenate(([0], np.flatnonzero(tokens[1:] == bos) + 1))
        sizes, of_rows = (np.add.reduceat(token_bytes[tokens], at, dtype=np.int64) for at in (documents, rows))
        return cls(documents, sizes) if (sizes > 0).sum() >= LEAST_DOCUMENTS else cls(rows, of_rows)

    def nats(self, losses: Floats, counted: "npt.NDArray[np.bool_]") -> Floats:
        """Return the sum of the losses (R, T) of each piece."""
        import numpy as np

        sums: Floats = np.add.reduceat(np.where(counted, losses, 0).ravel(), self.starts, dtype=np.float64)
        return sums

    def spread(self, gains_nats: Floats) -> Spread | None:
        """Return the spread of sum(gains) / sum(bytes) in bits per byte, by the jackknife.

        None with fewer than two pieces that have bytes.
        """
        has_bytes = self.bytes > 0
        gains, sizes = gains_nats[has_bytes] / math.log(2), self.bytes[has_bytes]
        count = len(sizes)
        if count < 2:
            return None
        left_out = (gains.sum() - gains) / (sizes.sum() - sizes)
        squares = float(((left_out - left_out.mean()) ** 2).sum())
        return Spread(math.sqrt((count - 1) / count * squares), count - 1)
