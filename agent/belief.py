"""What a night knows about its attempts: exact belief propagation on the tree of edits. Pure mathematics.

Every attempt has a merit v, in units of the noise's standard deviation, higher is better, and is measured by runs
v + noise. An edit moves the merit of its parent by an effect d, drawn from a mixture of harms, nothing and gains whose
weights the night itself teaches (empirical Bayes: Robbins 1956, Efron & Morris 1973; by EM, Dempster et al. 1977).
Since attempts form a tree, the posterior of every merit follows from messages along its edges (Pearl 1988). So each
discarded child of an attempt tells something about that attempt, and costs nothing.

Merits live on a lattice of STEP; each attempt looks at the SIZE points around its own scores. The noise has a wider
component, so that an outlier does not pass for a discovery (Box & Tiao 1968).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

STEP = 0.125  # sigma
SIZE = 128  # points: 8 sigma to either side
DIFFERENCES = np.arange(1 - SIZE, SIZE)  # between two points of one window
FAR = 8000  # steps: what is a thousand sigma away is as good, or as bad, as anything beyond
OUTLIERS, WIDER = 0.03, 3.5  # their share, and how much wider they spread
DEVIATION = (1 - OUTLIERS + OUTLIERS * WIDER**2) ** 0.5  # of one run, outliers included, in sigma
SCALES = (0.5, 1.5, 4.5, 13.5, 40.5)  # sigma: mean sizes of effects, from hardly visible to unheard of
PEAKED = (3.0, 9.0)  # sigma: mean sizes of harms that are never small, as where all edits cost a compilation
GAINS = slice(1 + len(SCALES) + len(PEAKED), None)  # of the components: nothing, harms, gains
# What edits bring before any was seen, worth as much as this many of them: most do harm, in this and every such night.
PRIOR_EDITS = 5.0
PRIOR = np.array([0.2, 0.15, 0.15, 0.12, 0.04, 0.01, 0.08, 0.05, 0.08, 0.08, 0.03, 0.008, 0.002])
ROUNDS, EM_STEPS = 3, 30
TINY = 1e-200


def effects(differences: NDArray[np.int64]) -> Array:  # (K, differences)
    """Probability of an effect of so many steps under each component; its sign is never in doubt.

    Sizes are geometric, or, where peaked, negative binomial: the sum of three such.
    """
    away, up = np.abs(differences), differences > 0
    beyond = np.maximum(away - 1, 0)
    stay = 1 - STEP / np.array(SCALES)[:, None]
    sizes = np.where(away > 0, (1 - stay) * stay**beyond, 0.0)
    stay = 1 - 3 * STEP / (np.array(PEAKED)[:, None] + 2 * STEP)
    peaked = np.where(away > 0, (beyond + 1) * (beyond + 2) / 2 * (1 - stay) ** 3 * stay**beyond, 0.0)
    return np.vstack([differences == 0, sizes * ~up, peaked * ~up, sizes * up])


def noise_density(errors: Array) -> Array:
    """Of one run, in units of sigma."""

    def normal(width: float) -> Array:
        density: Array = np.exp(-0.5 * (errors / width) ** 2) / (width * np.sqrt(2 * np.pi))
        return density

    return (1 - OUTLIERS) * normal(1.0) + OUTLIERS * normal(WIDER)


@dataclass(frozen=True, slots=True)
class Node:
    """One attempt in the tree."""

    parent: int  # its place in the tree, before this one; the root is its own
    scores: tuple[float, ...]  # in steps of the lattice, higher is better

    @property
    def centre(self) -> int:
        return round(statistics.median(self.scores))


@lru_cache(maxsize=2048)
def likelihood(scores: tuple[float, ...], centre: int) -> Array:  # (SIZE,)
    points = centre + np.arange(SIZE) - SIZE // 2
    errors = (np.array(scores)[:, None] - points) * STEP
    likely: Array = noise_density(errors).prod(axis=0) + TINY
    return likely


@lru_cache(maxsize=1024)
def kernels(offset: int) -> tuple[Array, NDArray[np.complex128]]:
    """Effects between the windows of a child and its parent, offset steps apart; and their spectrum."""
    table = effects(DIFFERENCES + max(-FAR, min(FAR, offset)))
    return table, np.fft.rfft(table[:, ::-1], 2 * SIZE)


@lru_cache(maxsize=2048)  # a discarded attempt says the same for the rest of the night
def leaf_messages(scores: tuple[float, ...], centre: int, offset: int) -> Array:
    return upward(likelihood(scores, centre), offset)


def upward(belief: Array, offset: int) -> Array:  # (K, SIZE)
    """What a child's belief says about its parent, by component: sum over d of effects(d) belief(v + d)."""
    _, spectrum = kernels(offset)
    full = np.fft.irfft(spectrum * np.fft.rfft(belief, 2 * SIZE), 2 * SIZE)
    return np.maximum(full[:, SIZE - 1 : 2 * SIZE - 1], TINY)


@dataclass(frozen=True)
class Belief:
    """The posterior of a whole night under given weights of the components. Effects and merits in sigma."""

    nodes: tuple[Node, ...]
    offsets: tuple[int, ...]  # of every window from that of the parent
    weights: Array  # (K,)
    messages: Array  # (N, K, SIZE): of every edit to its parent, by component; ones for the root
    merged: Array  # (N, SIZE): their logarithms, over all components
    below: Array  # (N, SIZE): what an attempt's own runs and all that was built on it say of its merit
    above: Mapping[int, Array]  # what the rest of the tree says, for those that something was built on
    log_evidence: float  # of all scores, in lattice steps

    @classmethod
    def of(cls, nodes: tuple[Node, ...], weights: Array) -> "Belief":
        """Two passes along the tree: from the leaves up, then from the root down."""
        centres = [node.centre for node in nodes]
        offsets = tuple(centre - centres[node.parent] for node, centre in zip(nodes, centres, strict=True))
        inner = sorted({node.parent for node in nodes})
        leaves = sorted(set(range(len(nodes))) - set(inner))
        below = np.stack([likelihood(node.scores, centre) for node, centre in zip(nodes, centres, strict=True)])
        messages = np.ones((len(nodes), len(weights), SIZE))
        for i in leaves:
            messages[i] = leaf_messages(nodes[i].scores, centres[i], offsets[i])
        merged = np.log(np.einsum("k,nks->ns", weights, messages))
        logs = {i: np.log(below[i]) for i in inner}
        for i in leaves:
            logs[nodes[i].parent] += merged[i]
        log_evidence = 0.0
        for i in reversed(inner):
            peak = float(logs[i].max())
            log_evidence += peak
            below[i] = np.exp(logs[i] - peak) + TINY
            if i > 0:
                messages[i] = upward(below[i], offsets[i])
                merged[i] = np.log(weights @ messages[i])
                logs[nodes[i].parent] += merged[i]
        log_evidence += float(np.log(below[0].sum()))
        above: dict[int, Array] = {0: np.ones(SIZE)}
        for i in inner[1:]:
            parent = nodes[i].parent
            above[i] = downward(weights @ kernels(offsets[i])[0], without(merged[i], above[parent] * below[parent]))
        return cls(nodes, offsets, weights, messages, merged, below, above, log_evidence)

    @cached_property
    def likelihoods(self) -> Array:  # (N, K)
        """Of each component, for every edit, given all the rest; of no meaning for the root."""
        beliefs = {i: above * self.below[i] for i, above in self.above.items()}
        parents = np.stack([beliefs[node.parent] for node in self.nodes])
        rows: Array = np.einsum("ns,nks->nk", without(self.merged, parents), self.messages)
        return rows

    def sure(self, i: int) -> float:
        """The probability that an edit is a gain."""
        shares = self.weights * self.likelihoods[i]
        return float(shares[GAINS].sum() / shares.sum())

    def gain(self, i: int) -> float:
        return self.mean(i) - self.mean(self.nodes[i].parent)

    def mean(self, i: int) -> float:
        points = self.nodes[i].centre + np.arange(SIZE) - SIZE // 2
        return float(self.merit(i) @ points) * STEP

    def merit(self, i: int) -> Array:  # (SIZE,)
        """Posterior over an attempt's window."""
        above = self.above[i] if i in self.above else downward(self._effects(i), self.apart(i))
        both = above * self.below[i]
        posterior: Array = both / both.sum()
        return posterior

    def effect(self, i: int) -> tuple[NDArray[np.int64], Array]:
        """Posterior of an edit's effect, in lattice steps."""
        pairs = np.convolve(self.below[i], self.apart(i)[::-1])
        joint = self._effects(i) * pairs
        return DIFFERENCES + self.offsets[i], joint / joint.sum()

    def apart(self, i: int) -> Array:  # (SIZE,)
        """What all but this edit and what follows from it says of its parent's merit."""
        parent = self.nodes[i].parent
        return without(self.merged[i], self.above[parent] * self.below[parent])

    def value_of_keeping(self, i: int, price: float) -> float:
        """An edit's expected effect, less the price if it has none."""
        return float(self._worth(i, price).sum())

    def value_of_runs(self, i: int, price: float, most: int = 3) -> float:
        """What measuring an edit again is expected to bring, per run, through better keeping.

        The knowledge gradient (Frazier, Powell & Dayanik 2008), of one to `most` runs: the first alone may change no
        decision (Frazier & Powell 2010).
        """
        worth = self._worth(i, price)
        return knowledge_gradient(worth, [n**-0.5 for n in range(1, most + 1)])

    def value_of_idea(self, price: float) -> float:
        """The same for one run of a fresh edit."""
        far = np.arange(-8 * SIZE, 8 * SIZE)
        return knowledge_gradient(self.weights @ effects(far) * worths(far, price), [1.0])

    def _worth(self, i: int, price: float) -> Array:  # (SIZE,)
        """Posterior of an attempt's merit times the expected worth of its edit there."""
        plain, apart, below = self._effects(i), self.apart(i), self.below[i]
        worth = np.convolve(plain * worths(DIFFERENCES + self.offsets[i], price), apart, "valid")
        joint: Array = worth * below / (downward(plain, apart) @ below)
        return joint

    def _effects(self, i: int) -> Array:
        return self.weights @ kernels(self.offsets[i])[0]


def knowledge_gradient(worth: Array, errors: Sequence[float]) -> float:
    """Worth, over what can be measured, known better by 1, 2, … runs, whose mean then errs by so many sigma."""
    now = max(0.0, float(worth.sum()))
    later = [float(np.maximum(np.convolve(worth, blur(error)), 0).sum()) for error in errors]
    return max((value - now) / runs for runs, value in enumerate(later, 1))


def worths(differences: NDArray[np.int64], price: float) -> Array:
    return np.where(differences > 0, differences * STEP, differences * STEP - price)


def blur(error: float) -> Array:
    density = np.exp(-0.5 * (np.arange(1 - SIZE // 2, SIZE // 2) * STEP / error) ** 2)
    weights: Array = density / density.sum()
    return weights


def without(log_message: Array, belief: Array) -> Array:
    """A belief before this message had come."""
    apart = belief * np.exp(log_message.max(axis=-1, keepdims=True) - log_message)
    before: Array = apart / apart.sum(axis=-1, keepdims=True)
    return before


def downward(effect: Array, apart: Array) -> Array:  # (SIZE,)
    """What a parent says about its child."""
    return np.convolve(effect, apart, "valid") + TINY


def learn(nodes: tuple[Node, ...]) -> Belief:
    """The belief under the weights that fit the night and the prior best (MAP by EM)."""
    belief = Belief.of(nodes, PRIOR)
    if len(nodes) == 1:
        return belief
    for _ in range(ROUNDS):
        weights, likelihoods = belief.weights, belief.likelihoods[1:]
        for _ in range(EM_STEPS):
            joint = likelihoods * weights
            counts = (joint / joint.sum(axis=1, keepdims=True)).sum(axis=0)
            weights = (counts + PRIOR_EDITS * PRIOR) / (len(likelihoods) + PRIOR_EDITS)
        belief = Belief.of(nodes, weights)
    return belief
