"""The audit: losses that a scorer committed to, against the logits that a fresh process gives without the targets.

For each of K positions that process is shown the true text up to there and a decoy after it, and answers with the whole
distribution over the next token. An honest model gives the true token the very loss that was committed. One that
looked ahead, mixed rows, kept state, did not normalise or simply wrote small numbers does not: the answer it would
need depends on a token that it was not shown. Pure functions of arrays.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.experiment import Audit

POSITIONS = 256
# Honest models agree to rounding, the same shapes running through the same kernels: 0 on CPU and H200 (measured in
# benchmarks/README.md). The mean is held to less, as a small lie about every token would be worth the most.
TOLERANCE_NATS, MEAN_TOLERANCE_NATS = 0.01, 0.001

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What to ask, and what the answers have to agree with."""

    rows: npt.NDArray[np.uint16]  # (K, T): true up to positions[k], a decoy after it
    positions: npt.NDArray[np.int32]  # (K,)
    targets: npt.NDArray[np.int64]  # (K,) the true next tokens, which nobody is shown
    committed: npt.NDArray[np.float32]  # (K,) nats
    places: npt.NDArray[np.int64]  # (K,) flat indices into the evaluation rows


def unigram_losses(train: Array, targets: Array, vocab_size: int) -> npt.NDArray[np.float32]:
    """Losses of targets (R, T) under the token frequencies of the training text: the parent of a first attempt."""
    counts = np.bincount(train, minlength=vocab_size) + 1.0
    nats = -np.log(counts / counts.sum())  # (V,)
    return np.asarray(nats[targets], np.float32)


def draw(
    committed: npt.NDArray[np.float32],  # (R, T)
    reference: npt.NDArray[np.float32],  # (R, T) losses of the incumbent
    counted: npt.NDArray[np.bool_],  # (R, T)
    rng: np.random.Generator,
    count: int = POSITIONS,
) -> npt.NDArray[np.int64]:
    """Flat indices of distinct positions: half of them uniform, a quarter each by the gain and by its square.

    What is faked often is found by the uniform ones; what is faked seldom has to pay where it is, and the square finds
    a few large gains among the many small ones by which any two models differ.
    """
    gain = np.where(counted, np.maximum(reference - committed, 0), 0).ravel().astype(np.float64)
    chosen: list[int] = []
    for weights, until in ((gain**2, count // 4), (gain, count // 2), (counted.ravel() * 1.0, count)):
        weights = weights.copy()
        weights[chosen] = 0
        wanted = min(until - len(chosen), int(np.count_nonzero(weights)))
        if wanted > 0:
            chosen += rng.choice(len(weights), wanted, replace=False, p=weights / weights.sum()).tolist()
    return np.array(chosen, np.int64)


def plan(
    inputs: npt.NDArray[np.uint16],  # (R, T)
    targets: npt.NDArray[np.uint16],  # (R, T)
    committed: npt.NDArray[np.float32],  # (R, T)
    places: npt.NDArray[np.int64],  # (K,)
    train: Array,  # (N,) tokens of the training text, where decoys come from
    rng: np.random.Generator,
) -> Plan:
    """Rows for these places, in random order; the decoy's first token is never the true one."""
    places = rng.permutation(places)
    row, position = np.unravel_index(places, inputs.shape)
    length = inputs.shape[1]
    rows = inputs[row]  # a copy (K, T)
    true = targets[row, position].astype(np.int64)
    for k, p in enumerate(position):
        start = int(rng.integers(max(1, len(train) - length)))
        decoy = np.resize(train[start : start + length], length - p - 1)
        rows[k, p + 1 :] = decoy
        if len(decoy) and decoy[0] == true[k]:
            rows[k, p + 1] = train[(np.flatnonzero(train != true[k]))[0]]
    return Plan(rows, position.astype(np.int32), true, committed.ravel()[places], places)


def audited_losses(logits: npt.NDArray[np.float32], targets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Cross-entropy (K,) in nats of logits (K, V), normalised here and in float64."""
    wide = logits.astype(np.float64)
    top = wide.max(axis=1, keepdims=True)
    losses: npt.NDArray[np.float64] = np.log(np.exp(wide - top).sum(axis=1)) + top[:, 0]
    return losses - wide[np.arange(len(wide)), targets]


def compare(asked: Plan, logits: npt.NDArray[np.float32], wall_s: float) -> Audit:
    """Whether the committed losses are those of the answers; logits (K, V)."""
    with np.errstate(invalid="ignore", over="ignore"):
        off = audited_losses(logits, asked.targets) - asked.committed  # (K,) above zero: the commitment flatters
    off = np.where(np.isfinite(off), off, np.inf)
    wrong = int((np.abs(off) > TOLERANCE_NATS).sum())
    mean, worst = float(off.mean()), float(np.abs(off).max())
    failure = None
    if wrong:
        failure = f"{wrong} of {len(off)} committed losses are not the model's, the worst off by {worst:.3g} nats"
    elif mean > MEAN_TOLERANCE_NATS:
        failure = f"committed losses are {mean:.2g} nats below the model's own on average"
    return Audit(len(off), wrong, min(worst, 1e9), min(mean, 1e9), wall_s, failure)
