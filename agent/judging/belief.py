"""What a night knows about its attempts: exact belief propagation on the tree of edits. Pure mathematics.

Every attempt has a merit v, in units of the noise's standard deviation, higher is better, and is measured by runs
v + noise. An edit moves the merit of its parent by an effect d, drawn from a mixture of harms, nothing and gains whose
weights the night itself teaches (empirical Bayes: Robbins 1956, Efron & Morris 1973; by EM, Dempster et al. 1977). Each
proposer of edits has its own weights, and the edits of other proposers count less for them (a power prior: Ibrahim &
Chen 2000). Since attempts form a tree, the posterior of every merit follows from messages along its edges (Pearl 1988).
So each discarded child of an attempt tells something about that attempt, and costs nothing.

Where attempts were measured with the same seeds, what each seed does to scripts that are alike is taken out of their
scores (pairs.py). Sigma is then what is left, and a run of a script that does not share it spreads wider.

Merits live on a lattice of STEP; each attempt looks at the SIZE points around its own scores. The noise has a wider
component, so that an outlier does not pass for a discovery (Box & Tiao 1968).

Shapes: N attempts, of which the first is the root of the tree; K components of the mixture.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from agent.findings import Interval
from agent.judging.pairs import OWN, Measured, Shared, shared_effects

Array = NDArray[np.floating]
Steps = NDArray[np.integer]  # places on the lattice, or distances between them

STEP = 0.25  # sigma
SIZE = 128  # points, which are 16 sigma to either side
POINTS = np.arange(SIZE) - SIZE // 2  # steps of each point of a window from its centre
DIFFERENCES = np.arange(1 - SIZE, SIZE)  # steps between two points of one window
BLUR = np.arange(1 - SIZE // 2, SIZE // 2) * STEP  # sigma; errors that a mean of runs may have
FAR = 8000  # steps; effects beyond a thousand sigma need not be told apart
OUTLIERS, WIDER = 0.03, 3.5  # share of outliers, and how much wider they spread
NOISE = ((1 - OUTLIERS, 1.0), (OUTLIERS, WIDER))  # share and width of each component of the noise
DEVIATION = (1 - OUTLIERS + OUTLIERS * WIDER**2) ** 0.5  # sigma of one run, outliers included
# The standard deviation of a whole run, whatever its seed does, is the unit of these mean sizes of effects: they reach
# from the hardly visible to the unheard of. The peaked ones are harms that are never small, as where all edits cost a
# compilation.
SCALES = np.array([0.5, 1.5, 4.5, 13.5, 40.5])
PEAKED = np.array([3.0, 9.0])
# Before any edit was seen, this is expected of them, and counts as much as this many edits: most do harm, in every such
# night. The components are nothing, harms of all these sizes, and gains of the first five.
PRIOR_EDITS = 5.0
PRIOR = np.array([0.2, 0.15, 0.15, 0.12, 0.04, 0.01, 0.08, 0.05, 0.08, 0.08, 0.03, 0.008, 0.002])
OTHERS = 5.0  # all edits of the other proposers count at most as this many of a proposer's own
ALONE = 0.25  # the probability that an edit's effect on one script says nothing about its effect on another
ROUNDS, EM_STEPS = 3, 30
TINY = 1e-200


def effects(differences: Steps, noise: float = 1.0) -> Array:  # (K, differences)
    """Return the probability of each effect, in lattice steps, under each component, which has one sign.

    noise: the standard deviation of a whole run, in sigma; above 1 where scores are compared seed by seed.
    Sizes are geometric, (1 - q) q^(n - 1) for n steps; those of the peaked components are negative binomial, the sum of
    three geometric ones.
    """
    beyond = np.abs(differences) - 1
    stay = 1 - STEP / (noise * SCALES[:, None])
    sizes = (1 - stay) * stay**beyond
    stay = 1 - 3 * STEP / (noise * PEAKED[:, None] + 2 * STEP)
    peaked = (beyond + 1) * (beyond + 2) / 2 * (1 - stay) ** 3 * stay**beyond
    down, up = differences < 0, differences > 0
    return np.vstack([differences == 0, sizes * down, peaked * down, sizes * up])


def noise_density(errors: Array) -> Array:
    """Return the density of one run's noise at these errors, in units of sigma: a mixture of two normal ones."""
    heights = [(share / (width * math.sqrt(2 * math.pi)), width) for share, width in NOISE]
    density: Array = sum(height * np.exp(-0.5 * (errors / width) ** 2) for height, width in heights)
    return density


# ---- the evidence ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """An attempt in the tree. Its scores may have any unit; higher is better."""

    parent: int  # its place in the tree, before this one; the root is its own
    scores: tuple[float, ...]
    proposer: str = ""  # the proposer of its edit
    merges: int | None = None  # the place of an attempt whose edit it makes again, on another parent
    seeds: tuple[int, ...] = ()  # seeds of the scores; without any, each score has noise of its own
    dials_only: bool = False  # whether it differs from its parent in dials alone
    errors: tuple[float, ...] = ()  # standard deviations of what was added to each score; without any, nothing was


@lru_cache(maxsize=1024)
def kernel(offset: int, noise: float) -> Array:  # (K, DIFFERENCES)
    """Return the effects between the windows of a child and its parent, `offset` steps apart, by component."""
    return effects(DIFFERENCES + max(-FAR, min(FAR, offset)), noise)


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """What was measured, on the lattice: nothing here depends on what edits bring."""

    parents: Sequence[int]  # (N,): places of the parents in the tree
    centres: Sequence[int]  # (N,): steps from 0 to the centre of each window
    offsets: Sequence[int]  # (N,): steps from the centre of the parent's window to its own
    runs: Array  # (N, SIZE): likelihood of each attempt's runs at each merit of its window
    noises: Array  # (N,): how far a further run of each attempt would scatter, in sigma
    shared: Shared | None  # what seeds do to all scripts alike
    noise: float  # the standard deviation of a run, whatever its seed does, in sigma

    @classmethod
    def of(cls, nodes: Sequence[Node], sigma: float, shared: Shared | None = None, noise: float = 1.0) -> "Lattice":
        """Place attempts on the lattice. sigma, in the unit of their scores: the standard deviation of their noise, or
        of what is left of it where `shared` says what seeds do; noise: of each run in sigma, where nothing is shared.
        """
        step, parents = sigma * STEP, [node.parent for node in nodes]
        centres = [round(statistics.median(node.scores) / step) for node in nodes]
        offsets = [centre - centres[parent] for centre, parent in zip(centres, parents, strict=True)]
        places = np.repeat(np.arange(len(nodes)), [len(node.scores) for node in nodes])  # the attempt of each run
        scores = np.concatenate([node.scores for node in nodes])[:, None] / step
        errors = (scores - np.array(centres)[places, None] - POINTS) * STEP  # (runs, SIZE)
        of_added = np.concatenate([node.errors or [0.0] * len(node.scores) for node in nodes])
        added = of_added[:, None] / sigma  # (runs, 1)
        firsts = np.searchsorted(places, np.arange(len(nodes)))
        if shared is None:
            width = np.hypot(noise, added)
            runs = np.multiply.reduceat(noise_density(errors / width) / width, firsts)
            return cls(parents, centres, offsets, runs + TINY, np.full(len(nodes), noise), None, noise)
        shift, width, alone = _seed_by_seed(nodes, shared)
        width, apart_width = np.hypot(width, added), np.hypot(alone, added)
        paired = np.multiply.reduceat(noise_density((errors - shift) / width) / width, firsts)
        apart = np.multiply.reduceat(noise_density(errors / apart_width) / apart_width, firsts)
        share = np.array([1.0, *(shared.share[node.dials_only] for node in nodes[1:])])[:, None]
        noises = np.array([shared.noise_of(node.dials_only) for node in nodes]) / math.sqrt(OWN)
        return cls(
            parents, centres, offsets, share * paired + (1 - share) * apart + TINY, noises, shared, 1 / math.sqrt(OWN)
        )


def _seed_by_seed(nodes: Sequence[Node], shared: Shared) -> tuple[Array, Array, float]:  # (runs, 1), (runs, 1), ()
    """Return what each run's seed adds to its score and how far what is left scatters; and how far the runs of scripts
    scatter that share nothing, beside the first script; all in sigma.

    The effects are relative to the first script's runs, so what is not known of them is no noise of that script.
    """
    runs = [(i, seed) for i, node in enumerate(nodes) for seed in node.seeds]
    shift = np.array([shared.effects[seed] for _, seed in runs]) / math.sqrt(OWN)
    width = np.sqrt([1 + (shared.variances[seed] / OWN if i else 0.0) for i, seed in runs])
    return shift[:, None], width[:, None], math.sqrt((1 + shared.level) / OWN)


# ---- the posterior ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Possible effects of an edit, or merits of an attempt, in ascending order, and how probable each is."""

    sizes: Array  # sigma
    probability: Array

    @property
    def mean(self) -> float:
        """Return the sum of the sizes times their probabilities, in sigma."""
        return float(self.probability @ self.sizes)

    @property
    def variance(self) -> float:
        """Return the sum of the squared differences from the mean times their probabilities, in sigma squared."""
        return float(self.probability @ (self.sizes - self.mean) ** 2)

    @property
    def sure(self) -> float:
        """Return the probability of a gain."""
        return float(self.probability[self.sizes > 0].sum())

    def given(self, likelihood: "Distribution") -> "Distribution":
        """Return the posterior, given the likelihood of each size by other evidence."""
        joint = self.probability * (np.interp(self.sizes, likelihood.sizes, likelihood.probability, 0, 0) + TINY)
        return Distribution(self.sizes, joint / joint.sum())

    def interval(self, sigma_bpb: float) -> Interval:
        """Return the mean, and the central 95 %, in bits per byte."""
        ends = np.searchsorted(self.probability.cumsum(), (0.025, 0.975))
        return Interval(*(float(size) * sigma_bpb for size in (self.mean, *self.sizes[ends])))

    def worths(self, price: float) -> Array:
        """Return each effect, less the price where it is no gain, times its probability; their sum is what it is worth
        to keep the edit."""
        return self.probability * (self.sizes - price * (self.sizes <= 0))


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """The posterior of a whole night under given weights of the components."""

    lattice: Lattice
    weights: Array  # (N, K): weights of every edit, by its proposer; the root's are those over all proposers
    expected: Array  # (N, DIFFERENCES): the prior probability of every edit's effects, by its proposer
    below: Array  # (N, SIZE): belief about an attempt's merit from its own runs and its descendants
    apart: Array  # (N, SIZE): belief about its parent's merit from all but those; the root's has no meaning
    log_evidence: float  # evidence of all scores, in lattice steps

    @classmethod
    def of(cls, lattice: Lattice, weights: Array) -> "Belief":
        """Compute the posterior in two passes along the tree: from the leaves up, then from the root down.

        weights: (N, K), or (K,) for all edits. Up goes the sum over d of expected(d) below(v + d), down that of
        expected(d) apart(v - d).
        """
        parents = lattice.parents
        weights = np.broadcast_to(weights, (len(parents), len(PRIOR)))
        expected = np.array(
            [row @ kernel(offset, lattice.noise) for row, offset in zip(weights, lattice.offsets, strict=True)]
        )
        logs, log_evidence = np.log(lattice.runs), 0.0
        below, upward, apart = (np.ones_like(logs) for _ in range(3))
        for i in reversed(range(len(parents))):
            peak = float(logs[i].max())
            log_evidence += peak
            below[i] = np.exp(logs[i] - peak)
            if i:
                upward[i] = np.correlate(expected[i], below[i], "valid")[::-1] + TINY
                logs[parents[i]] += np.log(upward[i])
        log_evidence += float(np.log(below[0].sum()))
        belief = cls(lattice, weights, expected, below, apart, log_evidence)
        merit = cache(belief.merit)  # a parent's merit is asked for when its own row of `apart` is known
        for i in range(1, len(parents)):
            before = merit(parents[i]).probability / upward[i]
            apart[i] = before / before.sum()
        return belief

    def likelihoods(self) -> Array:  # (N, K)
        """Return the likelihood of each component for every edit, given all other evidence."""
        noise, offsets = self.lattice.noise, self.lattice.offsets
        return np.array([kernel(offset, noise) @ self.pairs(i) + TINY for i, offset in enumerate(offsets)])

    def pairs(self, i: int) -> Array:  # (DIFFERENCES,)
        """Return the evidence for each effect of an edit: the sum over v of below(v + d) apart(v)."""
        return np.correlate(self.below[i], self.apart[i], "full")

    def merit(self, i: int) -> Distribution:
        """Return the posterior of an attempt's merit over its window."""
        above = np.convolve(self.expected[i], self.apart[i], "valid") + TINY if i else 1.0
        both = above * self.below[i]
        return Distribution((self.lattice.centres[i] + POINTS) * STEP, both / both.sum())

    def effect(self, i: int) -> Distribution:
        """Return the posterior of an edit's effect."""
        joint = self.expected[i] * self.pairs(i)
        return Distribution(self._sizes(i), joint / joint.sum())

    def value_of_runs(self, i: int, price: float) -> float:
        """Return the expected value, per run, of measuring an edit again before it is kept or discarded."""
        worths = Distribution(self._sizes(i), self.expected[i]).worths(price)
        by_merit = np.convolve(worths, self.apart[i], "valid") * self.below[i]
        probability = np.convolve(self.expected[i], self.apart[i], "valid") @ self.below[i]
        return knowledge_gradient(by_merit / probability, noise=float(self.lattice.noises[i]))

    def value_of_idea(self, price: float) -> float:
        """Return the expected value of one run of a fresh edit: its knowledge gradient."""
        far = np.arange(-8 * SIZE, 8 * SIZE)
        worths = Distribution(far * STEP, self.weights[0] @ effects(far, self.lattice.noise)).worths(price)
        return knowledge_gradient(worths, most=1, noise=self.noise)

    @property
    def noise(self) -> float:
        """Return how far a run of an edit scatters, on average over the edits, in sigma."""
        return float(self.lattice.noises[1:].mean()) if len(self.lattice.noises) > 1 else float(self.lattice.noises[0])

    def _sizes(self, i: int) -> Array:
        """Return an edit's possible effects, in sigma."""
        return (DIFFERENCES + self.lattice.offsets[i]) * STEP


def knowledge_gradient(worths: Array, variance: float = 0.0, most: int = 3, noise: float = 1.0) -> float:
    """Return the largest gain in value per run, of one to `most` runs: (E max(0, later) - max(0, now)) / n.

    `now` is the sum of the worths, `later` what that will be once n runs have told more (Frazier, Powell & Dayanik
    2008); one run alone may be too few to change a decision (Frazier & Powell 2010). worths: of every effect or merit,
    a STEP apart, times its probability. variance: of what the runs are compared with, in sigma squared; noise: of one
    run, in sigma.
    """
    now, gains = max(0.0, float(worths.sum())), []
    for runs in range(1, most + 1):
        density = np.exp(-0.5 * BLUR**2 / (noise**2 / runs + variance))  # density of the error of these runs' mean
        later = np.maximum(np.convolve(worths, density / density.sum()), 0).sum()
        gains.append((float(later) - now) / runs)
    return max(gains)


# ---- what a night teaches --------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)  # a judge and its review ask the same; a belief takes 30 KB an attempt
def learn(nodes: tuple[Node, ...], sigma: float = 1.0) -> Belief:
    """Return the belief under the weights that fit the night and the prior best (MAP, by EM).

    sigma: the standard deviation of the noise, in the unit of the scores; that of the belief is sigma_of(nodes, sigma).
    """
    shared = None
    if nodes[0].seeds:
        scripts = [Measured(dict(zip(node.seeds, node.scores, strict=True)), node.dials_only) for node in nodes]
        shared = shared_effects(scripts, sigma)
    lattice = Lattice.of(nodes, sigma_of(nodes, sigma), shared)
    belief = Belief.of(lattice, PRIOR)
    if len(nodes) == 1:
        return belief
    _, proposers = np.unique([node.proposer for node in nodes[1:]], return_inverse=True)
    is_fresh = np.array([node.merges is None for node in nodes[1:]])
    for _ in range(ROUNDS):
        likelihoods = belief.likelihoods()
        weights = fitted(likelihoods[1:], proposers, belief.weights[1:], is_fresh)
        belief = Belief.of(lattice, inherited(nodes, likelihoods, weights))
    return belief


def sigma_of(nodes: Sequence[Node], sigma: float) -> float:
    """Return the unit of a belief: what is left of the noise where scores are compared seed by seed, or all of it."""
    return sigma * math.sqrt(OWN) if nodes[0].seeds else sigma


def fitted(
    likelihoods: Array, proposers: NDArray[np.intp], weights: Array, is_fresh: NDArray[np.bool_]
) -> Array:  # (1 + E, K)
    """Return the weights over all edits, then those of every edit, by its proposer (0, 1, …).

    A proposer's weights are learnt from its own edits and, less, from those of the others: n edits of the others count
    as 1 / (1/n + 1/OTHERS) of its own, as if proposers differed by as much as OTHERS edits leave uncertain. So a new
    proposer is expected to be like the others, and with one proposer there is one vector of weights. Each edit's
    component is inferred by its own proposer's weights, also where it counts for another: with several proposers, EM is
    approximate. An edit that is made again, on another parent, is not fresh, and does not count a second time.
    """
    is_own = proposers == np.arange(proposers.max() + 1)[:, None]  # (proposers, E)
    others = is_fresh.sum() - (is_own & is_fresh).sum(axis=1, keepdims=True)
    worth_of_others = np.where(is_own, 1.0, OTHERS / (OTHERS + others))
    # (1 + proposers, E): the first row is over all proposers, the others are by proposer
    counts = np.vstack([np.ones(len(proposers)), worth_of_others]) * is_fresh
    worth = counts.sum(axis=1, keepdims=True) + PRIOR_EDITS
    for _ in range(EM_STEPS):
        joint = likelihoods * weights
        joint /= joint.sum(axis=1, keepdims=True)
        of_proposers = (counts @ joint + PRIOR_EDITS * PRIOR) / worth
        weights = of_proposers[1 + proposers]
    return np.vstack([of_proposers[0], weights])


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
