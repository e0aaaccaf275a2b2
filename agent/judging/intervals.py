"""How sure an estimated gain is: over seeds, over the documents of a text, and over both. Pure.

The runs of two scripts differ by luck with their seeds (Welch 1947). The text is a sample, too: other documents would
have shown another gain. A gain in bits per byte is a ratio of two sums over documents, nats saved and bytes, and its
error is the jackknife's over them (Cochran 1977, Sampling Techniques, 6.17; it errs upward: Efron & Stein 1981).
"""

import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and commands that only show intervals do without
    import numpy as np
    import numpy.typing as npt

SURE = 1.96  # standard errors to either side of a mean: 95 % of a normal distribution
LEAST_DOCUMENTS = 8  # with fewer, rows are counted as if each were one: a spread of so few says little
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
        shares = [(one.error_bpb / error_bpb) ** 4 / one.freedom for one in (self, other)]
        return Spread(error_bpb, 1 / sum(shares) if sum(shares) > 0 else math.inf)

    def around(self, mean_bpb: float) -> Interval:
        from scipy.special import ndtri, stdtrit  # takes a third of a second to import, and most commands do without

        times = ndtri(0.975) if math.isinf(self.freedom) else stdtrit(self.freedom, 0.975)
        width_bpb = float(times) * self.error_bpb
        return Interval(mean_bpb, mean_bpb - width_bpb, mean_bpb + width_bpb)


# ---- seeds -----------------------------------------------------------------------------------------------------------


def difference(before: Mapping[int, float], after: Mapping[int, float], paired: bool) -> tuple[float, Spread] | None:
    """Return the mean improvement and its spread, in pairs by seed if `paired`; None without two scores of each."""
    if min(len(before), len(after)) < 2:
        return None
    shared = sorted(before.keys() & after.keys())
    if paired and len(shared) > 1:
        gains = [before[seed] - after[seed] for seed in shared]
        return mean(gains), _of_mean(gains)
    old, new = list(before.values()), list(after.values())
    return mean(old) - mean(new), _of_mean(old) + _of_mean(new)


def _of_mean(values: Collection[float]) -> Spread:
    return Spread(statistics.stdev(values) / math.sqrt(len(values)), len(values) - 1)


def mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


# ---- documents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pieces:
    """Cut a text into pieces that were drawn independently."""

    unit: str  # documents, or rows where documents are too few
    starts: Whole  # flat indices into the targets
    bytes: Whole  # of each piece

    @classmethod
    def of(cls, targets: Whole, token_bytes: Whole, bos: int) -> "Pieces":
        """Cut evaluation rows (R, T) into documents; each begins at its BOS, which has no bytes."""
        import numpy as np

        line, sizes = targets.ravel(), token_bytes[targets].ravel()
        documents = np.concatenate(([0], np.flatnonzero(line[1:] == bos) + 1))
        by_rows = np.arange(0, len(line), targets.shape[1])
        of_documents, of_rows = (np.add.reduceat(sizes, starts, dtype=np.int64) for starts in (documents, by_rows))
        if (of_documents > 0).sum() >= LEAST_DOCUMENTS:
            return cls("documents", documents, of_documents)
        return cls("rows", by_rows, of_rows)

    def nats(self, losses: Floats, counted: "npt.NDArray[np.bool_]") -> Floats:
        """Return the sum of the losses (R, T) of each piece."""
        import numpy as np

        sums: Floats = np.add.reduceat(np.where(counted, losses, 0).ravel(), self.starts, dtype=np.float64)
        return sums

    @property
    def count(self) -> int:
        return int((self.bytes > 0).sum())


def over_pieces(gains_nats: Floats, sizes: Whole) -> Spread | None:
    """Return the spread of sum(gains) / sum(bytes) in bits per byte; None with fewer than two pieces with bytes."""
    gains, sizes = gains_nats[sizes > 0] / math.log(2), sizes[sizes > 0]
    count = len(sizes)
    if count < 2:
        return None
    left_out = (gains.sum() - gains) / (sizes.sum() - sizes)
    squares = float(((left_out - left_out.mean()) ** 2).sum())
    return Spread(math.sqrt((count - 1) / count * squares), count - 1)
