"""Tell how risky a place is: a crash is blamed on one dial that went too far.

Every dial may have an edge above and one below, beyond which runs crash: a learning rate that diverges, a size that
does not fit. Between the places that ran there is none. A crash lies beyond the edge of some dial, and those that left
what had run before share the blame by their risk without this crash (noisy-or: Pearl 1988; by a few rounds of EM).
"""

import numpy as np

from agent.proposers.search.curves import Array, Flags

ABOVE, BELOW = 0.25, 0.1  # edges to be met in a whole range beyond what ran, before any crash
ROUNDS, MOST = 3, 100  # of EM, and crashes that are looked at, the latest


def edge_risk(fine: Array, crashed: Array, places: Array, ordered: Flags) -> Array:  # (L, D)
    """Return the risk that each dial crashes a run by itself, at places (L, D), from those that ran and crashed."""
    crashed = crashed[-MOST:]
    count, tried = len(crashed), np.vstack([crashed, places])
    above, below = np.maximum(tried - fine.max(axis=0), 0), np.maximum(fine.min(axis=0) - tried, 0)
    seen = (np.abs(tried[:, None] - fine[None]) < 0.5).any(axis=1)  # of words
    above, below = np.where(ordered, above, 1.0 * ~seen), np.where(ordered, below, 0.0)
    unknown = 1 - np.exp(-ABOVE * above - BELOW * below)  # (C + L, D)
    # where a place is beyond the edge that a crash met, which is uniform from what ran up to the crash: (C, C + L, D)
    up, down = (_share_of(far[None], far[:count, None]) for far in (above, below))
    same = (np.abs(tried[None] - tried[:count, None]) < 0.5) & (above[:count, None] > 0)
    beyond = np.where(ordered, np.minimum(up + down, 1.0), 1.0 * same)
    blame = _shared(unknown[:count])  # (C, D)
    for _ in range(ROUNDS):
        spared = np.log1p(-blame[:, None] * beyond[:, :count])  # (C, C, D)
        others = spared.sum(axis=0) - np.diagonal(spared).T
        blame = _shared(1 - (1 - unknown[:count]) * np.exp(others))
    risk: Array = 1 - (1 - unknown[count:]) * np.exp(np.log1p(-blame[:, None] * beyond[:, count:]).sum(axis=0))
    return risk


def _share_of(far: Array, edge: Array) -> Array:
    """Return how much of the way to a crash a place goes, 0 to 1; 0 where the crash did not leave what ran."""
    return np.where(edge > 0, np.minimum(far / np.where(edge > 0, edge, 1.0), 1.0), 0.0)


def _shared(risk: Array) -> Array:
    """Share every crash (C, D) among the dials, by the odds of their risks."""
    odds = risk / (1 - np.minimum(risk, 0.999))
    shares: Array = np.minimum(odds / np.maximum(odds.sum(axis=-1, keepdims=True), 1e-9), 1 - 1e-9)
    return shares
