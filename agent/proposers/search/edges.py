"""Tell how risky a place is: a crash is blamed on one dial that went too far.

Every dial may have an edge above and one below, beyond which runs crash: a learning rate that diverges, a size that
does not fit. Between the places that ran there is none. A crash lies beyond the edge of some dial, and those that left
what had run before share the blame by their risk without this crash (noisy-or: Pearl 1988; by a few rounds of EM).
"""

import numpy as np

from agent.proposers.search.curves import Array, Flags

ABOVE, BELOW = 0.25, 0.1  # edges to be met in a whole range beyond what ran, before any crash
ROUNDS = 3


def edge_risk(fine: Array, crashed: Array, places: Array, ordered: Flags) -> Array:  # (L, D)
    """Return the risk that each dial crashes a run by itself, at places (L, D), from those that ran and crashed."""
    tried = np.vstack([crashed, places])
    low, high = fine.min(axis=0), fine.max(axis=0)
    seen = np.isclose(tried[:, None], fine[None]).any(axis=1)  # of words
    above, below = np.maximum(tried - high, 0), np.maximum(low - tried, 0)
    above, below = np.where(ordered, above, 1.0 * ~seen), np.where(ordered, below, 0.0)
    unknown = 1 - np.exp(-ABOVE * above - BELOW * below)  # (C + L, D)
    crashes = range(len(crashed))
    reached = [_reached(above, below, tried[k], k, ordered, tried) for k in crashes]  # each (C + L, D)
    blame = [_shared(unknown[k]) for k in crashes]
    for _ in range(ROUNDS):
        blame = [_shared(_risk(unknown, blame, reached, without=k)[k]) for k in crashes]
    return _risk(unknown, blame, reached)[len(crashed) :]


def _reached(above: Array, below: Array, crash: Array, k: int, ordered: Flags, tried: Array) -> Array:
    """Return the probability that a place is beyond the edge that this crash met: uniform from what ran up to it."""
    far, near = above[k] > 0, below[k] > 0
    up = np.where(far, above / np.where(far, above[k], 1.0), 0.0)
    down = np.where(near, below / np.where(near, below[k], 1.0), 0.0)
    numbers = np.clip(up + down, 0.0, 1.0)
    reached: Array = np.where(ordered, numbers, (far & np.isclose(tried, crash)) * 1.0)
    return reached


def _shared(risk: Array) -> Array:
    """Share a crash among the dials (D,), by the odds of their risks."""
    odds = risk / (1 - np.minimum(risk, 0.999))
    shares: Array = odds / max(float(odds.sum()), 1e-9)
    return shares


def _risk(unknown: Array, blame: list[Array], reached: list[Array], without: int | None = None) -> Array:
    safe = 1 - unknown
    for k, (share, beyond) in enumerate(zip(blame, reached, strict=True)):
        if k != without:
            safe = safe * (1 - share * beyond)
    risk: Array = 1 - safe
    return risk
