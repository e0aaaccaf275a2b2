"""Audit committed losses: compare them with logits of fresh processes that never see the targets.

For each of K positions such a process gets the true text up to the position and a decoy after it. It returns the whole
distribution over the next token. An honest model gives the true token exactly the committed loss. A model that looked
ahead, mixed rows, kept state, did not normalise or wrote small numbers cannot: the answer it needs depends on a token
that it has not seen. One process gets at most one position of a row, because the text before a later position holds
the answer to an earlier one; with few rows, several processes are asked in turn. Pure functions of arrays.
"""

from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Hold the rows for one process, and the committed losses that its answers must match."""

    rows: npt.NDArray[np.uint16]  # (K, T): true up to positions[k], a decoy after it
    positions: npt.NDArray[np.int32]  # (K,)
    targets: npt.NDArray[np.int64]  # (K,) the true next tokens, which no process gets
    committed: npt.NDArray[np.float32]  # (K,) nats
    places: npt.NDArray[np.int64]  # (K,) flat indices into the evaluation rows
    uniform: npt.NDArray[np.bool_]  # (K,) drawn uniformly: their mean estimates the mean over the whole text


@dataclass(frozen=True, slots=True)
class Position:
    """Name a target of the evaluation rows to ask about."""

    index: int  # flat
    uniform: bool


def unigram_losses(train: Array, targets: Array, vocab_size: int) -> npt.NDArray[np.float32]:
    """Return the losses of targets (R, T) under the token frequencies of the training text, in nats (R, T).

    They are the reference for attempt 0, which has no parent.
    """
    counts = np.ones(vocab_size)
    for chunk in _chunks(train):
        counts += np.bincount(chunk, minlength=vocab_size)
    nats = -np.log(counts / counts.sum())  # (V,)
    return np.asarray(nats[targets], np.float32)


def _chunks(train: Array) -> Iterator[Array]:
    """Yield chunks of the text: NumPy needs 8 bytes a token to count, which is gigabytes for a whole text."""
    return (train[at : at + CHUNK_TOKENS] for at in range(0, len(train), CHUNK_TOKENS))


def draw(
    committed: npt.NDArray[np.float32],  # (R, T)
    reference: npt.NDArray[np.float32],  # (R, T) losses of the incumbent
    counted: npt.NDArray[np.bool_],  # (R, T)
    vocab_size: int,
    rng: np.random.Generator,
    count: int = POSITIONS,
    processes: int = MOST_PROCESSES,
) -> list[list[Position]]:
    """Draw the targets to ask about, one list for each process; fewer than `count` where the processes end first.

    Half are uniform; a quarter is drawn in proportion to the gain over the reference, a quarter to its square. Uniform
    ones find frequent fakes. A rare fake needs large gains to pay, and the square finds those among the many small
    differences of any two models. Uniform ones are drawn first, so that gains cannot take their rows.
    """
    rows = len(committed)
    worst = np.float32(np.log(vocab_size) + ABOVE_GUESSING_NATS)
    gain = np.where(counted, np.maximum(np.minimum(reference, worst) - committed, 0), 0).ravel()
    share = min(count, max(1, rows // 2))  # at most every other row at once, so that there is a choice
    taken: set[int] = set()
    return [
        _draw_once((counted.ravel().astype(np.float32), gain, gain**2), counted.shape, taken, rng, share)
        for _ in range(min(processes, -(-count // share)))
    ]


def _draw_once(
    weights: tuple[npt.NDArray[np.float32], ...],
    shape: tuple[int, int],
    taken: set[int],
    rng: np.random.Generator,
    share: int,
) -> list[Position]:
    """Draw targets for one process from rows that do not reveal each other, without targets already taken."""
    length = shape[1]
    blocked: set[int] = set()  # rows
    chosen: list[Position] = []
    for kind, until in enumerate((share - share // 2, share - share // 4, share)):
        for index in _by_chance(weights[kind], rng, SPARE_CANDIDATES * share):
            row, position = divmod(index, length)
            # a row's last target is the first token of the next row
            needed = {row, row + 1} if position == length - 1 else {row}
            if len(chosen) < until and index not in taken and not needed & blocked:
                blocked |= needed
                taken.add(index)
                chosen.append(Position(index, uniform=kind == 0))
    return chosen


def _by_chance(weights: npt.NDArray[np.float32], rng: np.random.Generator, count: int) -> Iterator[int]:
    """Draw indices in proportion to the weights; a caller that skips repeats has drawn without replacement."""
    steps = np.cumsum(weights, dtype=np.float64)
    if steps[-1] > 0:
        yield from np.searchsorted(steps, rng.random(count) * steps[-1], side="right").tolist()


def plan(
    inputs: npt.NDArray[np.uint16],  # (R, T)
    targets: npt.NDArray[np.uint16],  # (R, T)
    committed: npt.NDArray[np.float32],  # (R, T)
    places: list[Position],  # K of them
    train: Array,  # (N,) tokens of the training text, where decoys come from
    rng: np.random.Generator,
) -> Plan:
    """Build the rows for these targets, in random order; a decoy's first token is never the true one."""
    order = rng.permutation(len(places))
    flat = np.array([places[k].index for k in order], np.int64)
    row, position = np.unravel_index(flat, inputs.shape)
    length = inputs.shape[1]
    rows = inputs[row]  # a copy (K, T)
    true = targets[row, position].astype(np.int64)
    for k, p in enumerate(position):
        start = int(rng.integers(max(1, len(train) - length)))
        decoy = np.resize(train[start : start + length], length - p - 1)
        rows[k, p + 1 :] = decoy
        if len(decoy) and decoy[0] == true[k]:
            rows[k, p + 1] = next((part[part != true[k]][0] for part in _chunks(train) if (part != true[k]).any()), 0)
    uniform = np.array([places[k].uniform for k in order], bool)
    return Plan(rows, position.astype(np.int32), true, committed.ravel()[flat], flat, uniform)


def audited_losses(logits: npt.NDArray[np.float32], targets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the cross-entropy (K,) in nats of logits (K, V), normalised here in float64."""
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        top = wide.max(axis=1, keepdims=True)
        losses: npt.NDArray[np.float64] = np.log(np.exp(wide - top).sum(axis=1)) + top[:, 0]
        return losses - wide[np.arange(len(wide)), targets]


def findings(plans: list[Plan], logits: list[npt.NDArray[np.float32]]) -> list[dict[str, float]]:
    """Return place, position, target and both losses of each target that was asked about."""
    return [
        {"place": place, "position": position, "target": target, "committed": committed, "audited": audited}
        for plan, answer in zip(plans, logits, strict=True)
        for place, position, target, committed, audited in zip(
            *(column.tolist() for column in (plan.places, plan.positions, plan.targets, plan.committed)),
            audited_losses(answer, plan.targets).tolist(),
            strict=True,
        )
    ]


def compare(plans: list[Plan], logits: list[npt.NDArray[np.float32]], wall_s: float) -> Audit:
    """Compare committed losses with the answers: one plan and its logits (K, V) for each process."""
    audited = [audited_losses(answer, plan.targets) for plan, answer in zip(plans, logits, strict=True)]
    with np.errstate(invalid="ignore"):  # off > 0: the committed loss is too low
        off = np.concatenate(audited) - np.concatenate([plan.committed for plan in plans])
    off = np.where(np.isfinite(off), off, np.inf)
    uniform = np.concatenate([plan.uniform for plan in plans])
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
    return Audit(len(off), wrong, min(worst, 1e9), min(mean, 1e9), wall_s, failure)
