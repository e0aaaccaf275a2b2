"""What a night knows about its attempts: exact belief propagation on the tree of edits. Pure mathematics.

Every attempt has a merit v, in units of the noise's standard deviation, higher is better, and is measured by runs
v + noise. An edit moves the merit of its parent by an effect d, drawn from a mixture of harms, nothing and gains whose
weights the night itself teaches (empirical Bayes: Robbins 1956, Efron & Morris 1973; by EM, Dempster et al. 1977). Each
source of edits has its own weights, and the edits of other sources count less for them (a power prior: Ibrahim & Chen
2000). Since attempts form a tree, the posterior of every merit follows from messages along its edges (Pearl 1988). So
each discarded child of an attempt tells something about that attempt, and costs nothing.

Merits live on a lattice of STEP; each attempt looks at the SIZE points around its own scores. The noise has a wider
component, so that an outlier does not pass for a discovery (Box & Tiao 1968).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

STEP = 0.125  # sigma
SIZE = 128  # points: 8 sigma to either side
DIFFERENCES = np.arange(1 - SIZE, SIZE)  # between two points of one window
FAR = 8000  # steps: effects beyond a thousand sigma need not be told apart
OUTLIERS, WIDER = 0.03, 3.5  # their share, and how much wider they spread
NOISE = ((1 - OUTLIERS, 1.0), (OUTLIERS, WIDER))  # share and width of each component of the noise
DEVIATION = (1 - OUTLIERS + OUTLIERS * WIDER**2) ** 0.5  # of one run, outliers included, in sigma
SCALES = (0.5, 1.5, 4.5, 13.5, 40.5)  # sigma: mean sizes of effects, from hardly visible to unheard of
PEAKED = (3.0, 9.0)  # sigma: mean sizes of harms that are never small, as where all edits cost a compilation
GAINS = slice(1 + len(SCALES) + len(PEAKED), None)  # of the components: nothing, harms, gains
# What edits bring before any was seen, worth as much as this many of them: most do harm, in this and every such night.
PRIOR_EDITS = 5.0
PRIOR = np.array([0.2, 0.15, 0.15, 0.12, 0.04, 0.01, 0.08, 0.05, 0.08, 0.08, 0.03, 0.008, 0.002])
OTHERS = 5.0  # edits of a source's own: what all edits of the other sources count as at most
ALONE = 0.25  # the probability that an edit's effect on one script says nothing about its effect on another
ROUNDS, EM_STEPS = 3, 30
TINY = 1e-200
ABOVE_CEILING = 48  # points of the window of an attempt without scores: 6 sigma


def effects(differences: NDArray[np.int64]) -> Array:  # (K, differences)
    """Return the probability of each effect, in lattice steps, under each component, which has one sign.

    Sizes are geometric; those of the peaked components are negative binomial, the sum of three geometric ones.
    """
    away, up = np.abs(differences), differences > 0
    beyond = np.maximum(away - 1, 0)
    stay = 1 - STEP / np.array(SCALES)[:, None]
    sizes = np.where(away > 0, (1 - stay) * stay**beyond, 0.0)
    stay = 1 - 3 * STEP / (np.array(PEAKED)[:, None] + 2 * STEP)
    peaked = np.where(away > 0, (beyond + 1) * (beyond + 2) / 2 * (1 - stay) ** 3 * stay**beyond, 0.0)
    return np.vstack([differences == 0, sizes * ~up, peaked * ~up, sizes * up])


def noise_density(errors: Array) -> Array:
    """Return the density of one run's noise at these errors, in units of sigma."""
    scaled = ((share / (width * np.sqrt(2 * np.pi)), errors / width) for share, width in NOISE)
    density: Array = sum(height * np.exp(-0.5 * error**2) for height, error in scaled)
    return density


def noise_below(errors: Array) -> Array:
    """Return the probability that the noise of one run lies below each of these errors, in units of sigma."""
    from scipy.special import ndtr  # takes a third of a second to import, and few nights stop runs early

    below: Array = sum(share * ndtr(errors / width) for share, width in NOISE)
    return below


@dataclass(frozen=True, slots=True)
class Node:
    """Hold one attempt in the tree, in steps of the lattice; higher is better.

    Of a run that was ended early, nothing is known but that its score would have lain below some value. It is a
    censored observation (Tobin 1958): to leave it out would make the edits that are seen look better than edits are.
    """

    parent: int  # its place in the tree, before this one; the root is its own
    scores: tuple[float, ...]
    ceilings: tuple[float, ...] = ()  # upper limits of the scores of runs that were stopped early
    source: str = ""  # of its edit
    merges: int | None = None  # the place of an attempt whose edit it makes again, on another parent

    @property
    def centre(self) -> int:
        """Return the centre of its window; with ceilings alone, most of the window lies below the lowest of them."""
        if self.scores:
            return round(statistics.median(self.scores))
        return round(min(self.ceilings)) + ABOVE_CEILING - SIZE // 2

    def likelihood(self) -> Array:  # (SIZE,)
        """Return the likelihood of its runs at each merit of its window."""
        points = self.centre + np.arange(SIZE) - SIZE // 2
        likely: Array = noise_density((np.array(self.scores)[:, None] - points) * STEP).prod(axis=0)
        if self.ceilings:
            likely = likely * noise_below((np.array(self.ceilings)[:, None] - points) * STEP).prod(axis=0)
        return likely + TINY


# ---- messages --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def kernels(offset: int) -> tuple[Array, NDArray[np.complex128]]:
    """Return the effects between the windows of a child and its parent, `offset` steps apart, and their spectrum."""
    table = effects(DIFFERENCES + max(-FAR, min(FAR, offset)))
    return table, np.fft.rfft(table[:, ::-1], 2 * SIZE)


@cache
def effects_up_to() -> Array:  # (K, 2 FAR)
    """Return the probability of an effect of at most k steps under each component, for k from -FAR on."""
    return np.cumsum(effects(np.arange(-FAR, FAR)), axis=1)


def beneath(offset: int) -> Array:  # (K, SIZE)
    """Return a censored child's message to its parent from merits below its window, where its likelihood is one."""
    most = offset - 1 - np.arange(SIZE)  # steps, from each point of the parent's window to the last one beneath
    return effects_up_to()[:, np.clip(most + FAR, 0, 2 * FAR - 1)]


def upward(beliefs: Array, offsets: Sequence[int]) -> Array:  # (N, K, SIZE)
    """Return the messages of children's beliefs (N, SIZE) to their parents: sum over d of effects(d) belief(v + d)."""
    spectra = np.stack([kernels(offset)[1] for offset in offsets])
    full = np.fft.irfft(spectra * np.fft.rfft(beliefs, 2 * SIZE)[:, None], 2 * SIZE)
    return np.maximum(full[..., SIZE - 1 : 2 * SIZE - 1], TINY)


def downward(effect: Array, apart: Array) -> Array:  # (SIZE,)
    """Return the message of a parent to its child."""
    return np.convolve(effect, apart, "valid") + TINY


def without(log_message: Array, belief: Array) -> Array:
    """Return a belief without this message."""
    apart = belief * np.exp(log_message.max() - log_message)
    before: Array = apart / apart.sum()
    return before


# ---- the posterior ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Belief:
    """Hold the posterior of a whole night under given weights of the components. Effects and merits in sigma."""

    nodes: tuple[Node, ...]
    offsets: tuple[int, ...]  # of every window from that of the parent
    weights: Array  # (N, K): of every edit, by its source; the root's are those over all sources
    runs: Array  # (N, SIZE): likelihood of every attempt's own runs
    messages: Array  # (N, K, SIZE): of every edit to its parent, by component
    merged: Array  # (N, SIZE): logarithms of the messages over all components
    below: Array  # (N, SIZE): belief about an attempt's merit from its own runs and its descendants
    above: Mapping[int, Array]  # belief from the rest of the tree, for attempts with children
    log_evidence: float  # of all scores, in lattice steps

    @classmethod
    def of(cls, nodes: tuple[Node, ...], weights: Array, earlier: "Belief | None" = None) -> "Belief":
        """Compute the posterior in two passes along the tree: from the leaves up, then from the root down.

        weights: (N, K), or (K,) for all edits. earlier: about the same tree, since the messages of attempts
        without children do not depend on the weights.
        """
        weights = np.broadcast_to(weights, (len(nodes), len(PRIOR)))
        centres = [node.centre for node in nodes]
        offsets = tuple(centre - centres[node.parent] for node, centre in zip(nodes, centres, strict=True))
        if earlier is not None:
            runs, messages = earlier.runs, earlier.messages.copy()
        else:
            runs = np.stack([node.likelihood() for node in nodes])
            messages = upward(runs, offsets)
            for i, node in enumerate(nodes):
                if not node.scores:
                    messages[i] += beneath(offsets[i])
        inner = sorted({node.parent for node in nodes})
        below, merged, logs, log_evidence = runs.copy(), np.zeros(runs.shape), np.log(runs), 0.0
        for i, node in reversed(list(enumerate(nodes))):
            if i in inner:
                peak = float(logs[i].max())
                log_evidence += peak
                below[i] = np.exp(logs[i] - peak) + TINY
                messages[i] = upward(below[i : i + 1], offsets[i : i + 1])[0]
            merged[i] = np.log(weights[i] @ messages[i])
            logs[node.parent] += merged[i]
        log_evidence += float(np.log(below[0].sum()))
        above: dict[int, Array] = {0: np.ones(SIZE)}
        for i in inner[1:]:
            parent = nodes[i].parent
            above[i] = downward(weights[i] @ kernels(offsets[i])[0], without(merged[i], above[parent] * below[parent]))
        return cls(nodes, offsets, weights, runs, messages, merged, below, above, log_evidence)

    def likelihood_of(self, i: int) -> Array:  # (K,)
        """Return the likelihood of each component for one edit, given all other evidence."""
        likely: Array = self.messages[i] @ self.apart(i)
        return likely

    def sure(self, i: int) -> float:
        """Return the probability that an edit is a gain."""
        steps, probability = self.effect(i)
        return float(probability[steps > 0].sum())

    def gain(self, i: int) -> float:
        """Return an edit's expected effect."""
        steps, probability = self.effect(i)
        return float(probability @ steps) * STEP

    def value_of_keeping(self, i: int, price: float) -> float:
        """Return an edit's expected effect, less the price times the probability that it brings no gain."""
        steps, probability = self.effect(i)
        return float(probability @ worths(steps, price))

    def mean(self, i: int) -> float:
        points = self.nodes[i].centre + np.arange(SIZE) - SIZE // 2
        return float(self.merit(i) @ points) * STEP

    def merit(self, i: int) -> Array:  # (SIZE,)
        """Return the posterior of an attempt's merit over its window."""
        above = self.above[i] if i in self.above else downward(self._expected(i), self.apart(i))
        both = above * self.below[i]
        posterior: Array = both / both.sum()
        return posterior

    def effect(self, i: int) -> tuple[NDArray[np.int64], Array]:
        """Return an edit's possible effects, in lattice steps, and the posterior probability of each."""
        pairs = np.convolve(self.below[i], self.apart(i)[::-1])
        joint = self._expected(i) * pairs
        return DIFFERENCES + self.offsets[i], joint / joint.sum()

    def apart(self, i: int) -> Array:  # (SIZE,)
        """Return the belief about the parent's merit without the evidence of this edit and its descendants."""
        parent = self.nodes[i].parent
        return without(self.merged[i], self.above[parent] * self.below[parent])

    def value_of_runs(self, i: int, price: float, most: int = 3) -> float:
        """Return the expected value, per run, of measuring an edit again before it is kept or discarded.

        It is the knowledge gradient (Frazier, Powell & Dayanik 2008) of one to `most` runs, the best of them: one run
        alone may be too few to change the decision (Frazier & Powell 2010).
        """
        expected, apart = self._expected(i), self.apart(i)
        worth = np.convolve(expected * worths(DIFFERENCES + self.offsets[i], price), apart, "valid")
        joint = worth * self.below[i] / (downward(expected, apart) @ self.below[i])  # (SIZE,): by the attempt's merit
        return knowledge_gradient(joint, [n**-0.5 for n in range(1, most + 1)])

    def value_of_idea(self, price: float) -> float:
        """Return the expected value of one run of a fresh edit."""
        far = np.arange(-8 * SIZE, 8 * SIZE)
        return knowledge_gradient(self.weights[0] @ effects(far) * worths(far, price), [1.0])

    def _expected(self, i: int) -> Array:
        """Return the prior probability of an edit's effects, by its source."""
        expected: Array = self.weights[i] @ kernels(self.offsets[i])[0]
        return expected


def knowledge_gradient(worth: Array, errors: Sequence[float]) -> float:
    """Return the largest gain in value per run; errors: the error of the mean of 1, 2, … runs, in sigma."""
    now = max(0.0, float(worth.sum()))
    later = [float(np.maximum(np.convolve(worth, blur(error)), 0).sum()) for error in errors]
    return max((value - now) / runs for runs, value in enumerate(later, 1))


def worths(differences: NDArray[np.int64], price: float) -> Array:
    return np.where(differences > 0, differences * STEP, differences * STEP - price)


def blur(error: float) -> Array:
    density = np.exp(-0.5 * (np.arange(1 - SIZE // 2, SIZE // 2) * STEP / error) ** 2)
    weights: Array = density / density.sum()
    return weights


# ---- what a night teaches --------------------------------------------------------------------------------------------


def learn(nodes: tuple[Node, ...]) -> Belief:
    """Return the belief under the weights that fit the night and the prior best (MAP, by EM)."""
    belief = Belief.of(nodes, PRIOR)
    if len(nodes) == 1:
        return belief
    _, sources = np.unique([node.source for node in nodes[1:]], return_inverse=True)
    is_fresh = np.array([node.merges is None for node in nodes[1:]])
    for _ in range(ROUNDS):
        likelihoods = np.stack([belief.likelihood_of(i) for i in range(len(nodes))])  # the root's is not used
        weights = fitted(likelihoods[1:], sources, belief.weights[1:], is_fresh)
        belief = Belief.of(nodes, inherited(nodes, likelihoods, weights), belief)
    return belief


def fitted(
    likelihoods: Array, sources: NDArray[np.intp], weights: Array, is_fresh: NDArray[np.bool_]
) -> Array:  # (1 + E, K)
    """Return the weights over all edits, then those of every edit, by its source (0, 1, …).

    A source's weights are learnt from its own edits and, less, from those of the others: n edits of the others count as
    1 / (1/n + 1/OTHERS) of its own, as if sources differed by as much as OTHERS edits leave uncertain. So a new source
    is expected to be like the others, and with one source there is one vector of weights. Each edit's component is
    inferred by its own source's weights, also where it counts for another: with several sources, EM is approximate.
    An edit that is made again, on another parent, is not fresh, and does not count a second time.
    """
    is_own = sources == np.arange(sources.max() + 1)[:, None]  # (sources, E)
    others = is_fresh.sum() - (is_own & is_fresh).sum(axis=1, keepdims=True)
    worth_of_others = np.where(is_own, 1.0, OTHERS / (OTHERS + others))
    counts = np.vstack([np.ones(len(sources)), worth_of_others]) * is_fresh  # (1 + sources, E): over all, and by source
    worth = counts.sum(axis=1, keepdims=True) + PRIOR_EDITS
    for _ in range(EM_STEPS):
        joint = likelihoods * weights
        joint /= joint.sum(axis=1, keepdims=True)
        of_sources = (counts @ joint + PRIOR_EDITS * PRIOR) / worth
        weights = of_sources[1 + sources]
    return np.vstack([of_sources[0], weights])


def inherited(nodes: tuple[Node, ...], likelihoods: Array, weights: Array) -> Array:  # (N, K)
    """Return the weights of every edit; of one that is made again, those of the first time, given its runs.

    Two edits need not add up, so a share of ALONE is as for any edit. The runs of the second time teach nothing about
    the first: with that, the tree would have a loop.
    """
    weights = weights.copy()
    for i, node in enumerate(nodes):
        if node.merges is not None:
            before = weights[node.merges] * likelihoods[node.merges]
            weights[i] = ALONE * weights[i] + (1 - ALONE) * before / before.sum()
    return weights
