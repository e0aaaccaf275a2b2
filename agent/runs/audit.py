"""Audit committed losses: compare them with logits of fresh processes that never see the targets.

For each of K positions such a process gets the true text up to the position and a decoy after it. It returns the whole
distribution over the next token. An honest model gives the true token exactly the committed loss. A model that looked
ahead, mixed rows, kept state, did not normalise or wrote small numbers cannot: the answer it needs depends on a token
that it has not seen. One process gets at most one position of a row, because the text before a later position holds
the answer to an earlier one; with few rows, several processes are asked in turn. Pure functions of arrays.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.experiment import Audit

POSITIONS = 256
# Honest models agree to rounding, as the same shapes run through the same kernels: 1e-6 on an H200, 3e-6 on a CPU
# (benchmarks/README.md). The mean has a smaller tolerance, since a small lie about every token is worth the most.
TOLERANCE_NATS, MEAN_TOLERANCE_NATS = 0.005, 0.0005
# A reference model that is much worse than a uniform guess at a few positions would draw all samples there. So its
# losses are cut at those of a uniform guess plus this.
ABOVE_GUESSING_NATS = 2.0
MOST_PROCESSES = 4  # enough for POSITIONS with 128 rows or more
CHUNK_TOKENS = 1 << 20
SPARE_CANDIDATES = 16  # draws for each position wanted, since most of the weight may lie in few rows

Array = npt.NDArray[np.generic]
Losses = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Name the targets that one process is asked about, in random order."""

    places: npt.NDArray[np.int64]  # (K,) flat indices into the evaluation rows
    uniform: npt.NDArray[np.bool_]  # (K,) drawn uniformly: their mean estimates the mean over the whole text


def unigram_losses(train: Array, targets: Array, vocab_size: int) -> Losses:
    """Return the losses of targets (R, T) under the token frequencies of the training text, in nats (R, T).

    They are the reference for attempt 0, which has no parent.
    """
    counts = np.ones(vocab_size)
    for at in range(0, len(train), CHUNK_TOKENS):  # NumPy needs 8 bytes a token to count: gigabytes for a whole text
        counts += np.bincount(train[at : at + CHUNK_TOKENS], minlength=vocab_size)
    nats = -np.log(counts / counts.sum())  # (V,)
    return np.asarray(nats[targets], np.float32)


def draw(
    committed: Losses,  # (R, T)
    reference: Losses,  # (R, T) losses of the incumbent
    counted: npt.NDArray[np.bool_],  # (R, T)
    vocab_size: int,
    rng: np.random.Generator,
    processes: int = MOST_PROCESSES,
) -> list[Sample]:
    """Draw the targets to ask about, a sample for each process; fewer than POSITIONS where the processes end first.

    Half are uniform; a quarter is drawn in proportion to the gain over the reference, a quarter to its square. Uniform
    ones find frequent fakes. A rare fake needs large gains to pay, and the square finds those among the many small
    differences of any two models. Uniform ones are drawn first, so that gains cannot take their rows.
    """
    rows = len(committed)
    worst = np.float32(np.log(vocab_size) + ABOVE_GUESSING_NATS)
    gain = np.where(counted, np.maximum(np.minimum(reference, worst) - committed, 0), 0)
    share = min(POSITIONS, max(1, rows // 2))  # every other row at most, so that there is a choice
    kinds = [np.cumsum(weights, dtype=np.float64) for weights in (counted, gain, gain**2)]
    taken: set[int] = set()
    return [
        _sample(kinds, committed.shape[1], taken, share, rng) for _ in range(min(processes, -(-POSITIONS // share)))
    ]


def _sample(
    kinds: list[npt.NDArray[np.float64]], length: int, taken: set[int], share: int, rng: np.random.Generator
) -> Sample:
    """Draw targets for one process from rows that do not reveal each other, without targets already taken.

    kinds: for each kind of weights their sums up to each target.
    """
    blocked: set[int] = set()  # row numbers
    chosen: list[int] = []
    counts = []  # number of targets after each kind
    for sums, until in zip(kinds, (share - share // 2, share - share // 4, share), strict=True):
        drawn = np.searchsorted(sums, rng.random(SPARE_CANDIDATES * share) * sums[-1], side="right")
        for place in drawn.tolist() if sums[-1] > 0 else ():
            row, position = divmod(place, length)
            # a row's last target is the first token of the next row
            needed = {row, row + 1} if position == length - 1 else {row}
            if len(chosen) < until and place not in taken and not needed & blocked:
                blocked |= needed
                taken.add(place)
                chosen.append(place)
        counts.append(len(chosen))
    order = rng.permutation(len(chosen))
    return Sample(np.array(chosen, np.int64)[order], order < counts[0])


def questions(
    sample: Sample, inputs: Array, targets: Array, train: Array, rng: np.random.Generator
) -> tuple[Array, npt.NDArray[np.int32]]:
    """Return rows (K, T) that are true up to a position and hold a decoy after it, and these positions (K,).

    inputs and targets are the evaluation rows (R, T). Decoys come from the training text, train (N,), and their first
    token is never the true one.
    """
    row, positions = np.unravel_index(sample.places, inputs.shape)
    length, rows = inputs.shape[1], inputs[row]  # rows: a copy
    for asked, position, true in zip(rows, positions, targets[row, positions], strict=True):
        start = int(rng.integers(max(1, len(train) - length)))
        text = train[start : start + length]
        decoy = np.resize(text, length - position - 1)
        if len(decoy) and decoy[0] == true:
            decoy[0] = next((token for token in text if token != true), 0 if true else 1)
        asked[position + 1 :] = decoy
    return rows, positions.astype(np.int32)


def compare(samples: list[Sample], logits: list[Losses], committed: Losses, targets: Array, wall_s: float) -> Audit:
    """Compare committed losses of the targets, both (R, T), with the logits (K, V) of each sample's process."""
    from scipy.special import logsumexp  # takes a third of a second to import, and most processes audit nothing

    places = np.concatenate([sample.places for sample in samples])
    uniform = np.concatenate([sample.uniform for sample in samples])
    wide = np.concatenate(logits).astype(np.float64)
    with np.errstate(all="ignore"):  # off > 0: the committed loss is too low
        audited = logsumexp(wide, axis=1) - wide[np.arange(len(wide)), targets.ravel()[places]]
        off = audited - committed.ravel()[places]
    off = np.where(np.isfinite(off), off, np.inf)
    wrong = int((np.abs(off) > TOLERANCE_NATS).sum())
    mean, worst = float(off[uniform].mean()), float(np.abs(off).max())
    failure = None
    if wrong:
        failure = (
            f"{wrong} of {len(off)} committed losses are not the model's, the worst off by {worst:.3g} nats: they may "
            f"depend on the tokens before them in their row alone, not on chance or the row's place in its batch"
        )
    elif mean > MEAN_TOLERANCE_NATS:
        failure = f"committed losses are {mean:.2g} nats below the model's own on average"
    return Audit(len(off), min(worst, 1e9), wall_s, failure)
