"""How far scores move with the seed alone, and what every attempt is worth in the light of that. Pure."""

import math
import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agent.experiment import NOT_BELIEVED, Attempt, Decision, Ending, History, Noise, Run, Status, source_name
from agent.judging.belief import DEVIATION, STEP, Belief, Node, learn
from agent.judging.intervals import SURE
from agent.judging.recent import recent

SAME = 1e-6  # relative: the same weights, scored twice, differ by the order in which their rows were computed

# What seeds move is between 0.002 and 0.03 bpb wherever it was measured; two runs already weigh more than this.
TYPICAL_SIGMA_BPB, TYPICAL_SPREAD = 0.006, 1.2  # centre and width, in natural logarithms
RUNG = 1.1  # sigma is learnt to ten per cent: more is not known, and results of one rung can be cached
# A baseline that hardly trains says little about the noise of other scripts. Then sigma is doubled, and one run is not
# enough to keep an edit: the second tells luck from gain, and costs little, since few edits come so far.
FEW_STEPS, LARGE_SIGMA = 50, 0.1  # steps of a run; share of the gain over the uniform model
UNIFORM_BPB = 8.0  # bits per byte of a model that knows nothing
WIDENED = round(math.log(2, RUNG))  # rungs
SUREST = 0.9  # that anything is called by one run
TELLING_APART = SURE * math.sqrt(2)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Translate a night's belief to bits per byte, and attempts to places in its tree."""

    belief: Belief
    sigma_bpb: float
    place: Mapping[int, int]  # attempt's number → its node
    reference_bpb: float  # where the lattice has its zero
    seeds: Mapping[int, float]  # seed → its effect on every score
    doubt: str | None = None  # why sigma is not believed, and was widened

    def gain_bpb(self, number: int) -> float:
        return self.belief.gain(self.place[number]) * self.sigma_bpb

    def sure(self, number: int) -> float:
        """Return the probability of a gain; limit it after a single run if the noise is in doubt."""
        place = self.place[number]
        sure = self.belief.sure(place)
        if self.doubt is None or len(self.belief.nodes[place].scores) > 1:
            return sure
        return min(max(sure, 1 - SUREST), SUREST)

    def drift(self, since: int, number: int) -> float:
        """Return how far an attempt is believed to lie below its ancestor `since`, in sigma."""
        return self.belief.mean(self.place[since]) - self.belief.mean(self.place[number])

    def merits(self, attempt: Attempt) -> tuple[float, ...]:
        """Return an attempt's scores in lattice steps, whether it is in the tree or not."""
        step = self.sigma_bpb * STEP
        return tuple((self.reference_bpb - value) / step for value in readings((attempt,), self.seeds)[0])


def measured(history: History, judged: Attempt | None = None) -> tuple[Attempt, ...]:
    """Return the attempts that the judge learns from: settled, not crashed, believed.

    A run that was stopped early counts as evidence of a bad score. Attempts made from a script that does not count are
    left out as well. Of a long night, only the latest attempts and their ancestors count (see recent).
    """
    return _measured(recent(history), judged)


def _measured(latest: Sequence[Attempt], judged: Attempt | None = None) -> tuple[Attempt, ...]:
    found: dict[int, Attempt] = {}
    if judged is not None:
        later = bisect_right(latest, judged.number, key=lambda one: one.number)
        latest = (*latest[:later], judged, *latest[later:])
    for one in latest:
        counts = one is judged or (one.settled and one.decision is not None and is_believed(one.decision))
        if not counts or not (one.parent is None or one.parent in found):
            continue
        was_compared = one.parent is not None and _ended_early(one) and found[one.parent].scores_bpb
        if one.scores_bpb or was_compared:
            found[one.number] = one
    return tuple(found.values())


def _ended_early(attempt: Attempt) -> tuple[Run, ...]:
    return tuple(run for run in attempt.done_runs if run.ending is Ending.HOPELESS)


def is_believed(decision: Decision) -> bool:
    return decision.status is not Status.CRASH and decision.kind not in NOT_BELIEVED


def readings(attempts: Sequence[Attempt], seeds: Mapping[int, float]) -> tuple[tuple[float, ...], ...]:
    """Return the scores of every attempt, less the known effects of its seeds."""
    return tuple(tuple(value - seeds.get(seed, 0.0) for seed, value in scored(one).items()) for one in attempts)


def scored(attempt: Attempt) -> dict[int, float]:
    """Return seed → bits per byte; equal scores count once, since the script ignores its seed."""
    found: dict[int, float] = {}
    values: list[float] = []  # in order: the one that is like a score is beside it
    for run in attempt.done_runs:
        value = run.score.val_bpb if run.score else None
        if value is not None:
            at = bisect_right(values, value)
            if not any(math.isclose(value, other, rel_tol=SAME) for other in values[max(0, at - 1) : at + 1]):
                values.insert(at, value)
                found[run.seed] = value
    return found


def seed_effects(attempts: Sequence[Attempt], level: float = 0.01) -> dict[int, float]:
    """Estimate what each seed adds to every script's score, shrunk; empty unless an analysis of variance is sure of it.

    The model is two-way and additive, attempt + seed, over the attempts that share several seeds, fitted by least
    squares (Scheffé 1959).
    """
    tables = [scored(one) for one in attempts]
    counts: dict[int, int] = defaultdict(int)
    for table in tables:
        if len(table) > 1:
            for seed in table:
                counts[seed] += 1
    shared = sorted(seed for seed, count in counts.items() if count > 1)
    rows = [{seed: table[seed] for seed in shared if seed in table} for table in tables]
    rows = [row for row in rows if len(row) > 1]
    runs = sum(map(len, rows))
    free = runs - len(rows) - (len(shared) - 1)
    if len(shared) < 2 or free < 1:
        return {}
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    column = np.array([shared.index(seed) for row in rows for seed in row])
    values = np.array([value for row in rows for value in row.values()])
    design = np.eye(len(shared))[column]
    inside = design - (np.eye(len(rows))[owner].T @ design / np.bincount(owner)[:, None])[owner]
    spread = values - (np.bincount(owner, values) / np.bincount(owner))[owner]
    effects = np.linalg.lstsq(inside, spread, rcond=None)[0]
    left = float(((spread - inside @ effects) ** 2).sum())
    explained = float((spread**2).sum()) - left
    from scipy.special import fdtrc  # takes a third of a second to import, and most commands do without

    if left <= 0 or fdtrc(len(shared) - 1, free, explained / (len(shared) - 1) / (left / free)) > level:
        return {}
    effects -= effects.mean()
    sigma2 = left / free
    tau2 = max(0.0, float(effects.var(ddof=1)) - sigma2 / float(np.mean([counts[seed] for seed in shared])))
    return {
        seed: float(effect) * tau2 / (tau2 + sigma2 / counts[seed])
        for seed, effect in zip(shared, effects, strict=True)
    }


def know(attempts: Sequence[Attempt]) -> Knowledge | None:
    """Learn noise and belief from these attempts; None without any, or if scores do not vary with the seed."""
    if not attempts or (len(attempts[0].scores_bpb) > 1 and len(scored(attempts[0])) == 1):
        return None
    place = {attempt.number: i for i, attempt in enumerate(attempts)}
    seeds = seed_effects(attempts)
    parents = [0 if one.parent is None else place[one.parent] for one in attempts]
    tree = tuple(
        Reading(
            parent,
            values,
            _beyond(one, attempts[parent], seeds),
            source_name(one.proposal.source),
            None if one.proposal.merges is None else place.get(one.proposal.merges),
        )
        for one, parent, values in zip(attempts, parents, readings(attempts, seeds), strict=True)
    )
    rung = sigma_rung(tree)
    doubt = doubt_of(attempts[0], RUNG**rung)
    rung += WIDENED if doubt is not None else 0
    return Knowledge(believe(tree, rung), RUNG**rung, place, tree[0].scores[0], seeds, doubt)


def doubt_of(first: Attempt, sigma_bpb: float) -> str | None:
    """Return why attempt 0's noise says little about other scripts; None if it can be believed.

    In the first steps, the loss of every script falls fast and alike. Three runs that agree by luck then suggest a
    small sigma, and any effect of an edit on those few steps looks like many sigma. The noise of trained scripts is not
    known before one trains. The number of steps is reported by the user's own script, and can only add caution.
    """
    steps = [run.summary.num_steps for run in first.done_runs if run.summary and run.summary.num_steps is not None]
    if steps and min(steps) < FEW_STEPS:
        return f"its runs have {min(steps)} step{'' if min(steps) == 1 else 's'}"
    learnt_bpb = UNIFORM_BPB - statistics.fmean(first.scores_bpb)
    if sigma_bpb > LARGE_SIGMA * learnt_bpb:
        return f"it is {max(learnt_bpb, 0.0):.3f} bpb better than guessing"
    return None


@dataclass(frozen=True, slots=True)
class Reading:
    """Hold the scores of one attempt, in bits per byte."""

    parent: int  # its place
    scores: tuple[float, ...]
    beyond: tuple[float, ...] = ()  # lower limits of the scores of runs that were stopped early
    source: str = ""  # of its edit
    merges: int | None = None  # the place of the attempt whose edit it makes again


def _beyond(attempt: Attempt, parent: Attempt, seeds: Mapping[int, float]) -> tuple[float, ...]:
    """Return a lower limit for the score of each run that was stopped early: its parent's mean at that time.

    It is not known which of the parent's runs came later, so the lowest mean of any time is taken. All runs of
    attempt 0 come first, so its last mean is right.
    """
    stopped = _ended_early(attempt)
    if not stopped:
        return ()
    scores = parent.scores_bpb
    means = [statistics.fmean(scores[:k]) for k in range(1, len(scores) + 1)]
    return tuple((min(means) if parent.number else means[-1]) - seeds.get(run.seed, 0.0) for run in stopped)


@lru_cache(maxsize=8)  # judge and review ask the same; a belief takes 2 KB an attempt
def believe(tree: tuple[Reading, ...], rung: int) -> Belief:
    reference, step = tree[0].scores[0], RUNG**rung * STEP

    def steps(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple((reference - value) / step for value in values)

    return learn(tuple(Node(one.parent, steps(one.scores), steps(one.beyond), one.source, one.merges) for one in tree))


def sigma_rung(tree: tuple[Reading, ...]) -> int:
    """Return the most probable sigma, as a power of RUNG.

    It maximises the likelihood of all scores. The spread of repeated runs alone would mislead, since runs are repeated
    because of their first score. Attempts after the last repeat add little and are left out.
    """
    last = max((i for i, one in enumerate(tree) if len(one.scores) > 1), default=0) + 1
    return most_probable_rung(tree[:last])


@lru_cache(maxsize=16)
def most_probable_rung(tree: tuple[Reading, ...]) -> int:
    def plausibility(rung: int) -> float:
        sigma_bpb = RUNG**rung
        evidence = believe(tree, rung).log_evidence
        runs = sum(len(one.scores) for one in tree)
        prior = -0.5 * (math.log(sigma_bpb / TYPICAL_SIGMA_BPB) / TYPICAL_SPREAD) ** 2
        return evidence - (runs - 1) * math.log(sigma_bpb) + prior

    repeated = [one.scores for one in tree if len(one.scores) > 1]
    freedom = sum(len(values) - 1 for values in repeated)
    squares = sum(float(np.var(values)) * len(values) for values in repeated)
    least = SAME * abs(tree[0].scores[0])  # where the seeds' effects explain every score, nothing may be left
    start = max(math.sqrt(squares / freedom), least) if freedom else TYPICAL_SIGMA_BPB
    rung = round(math.log(start, RUNG))
    known = {rung: plausibility(rung)}
    while True:
        known |= {near: plausibility(near) for near in (rung - 1, rung + 1) if near not in known}
        best = max((rung - 1, rung, rung + 1), key=known.__getitem__)
        if best == rung:
            return rung
        rung = best


def noise(history: History) -> Noise | None:
    """Return the noise of a night's scores; None until two runs of one attempt were scored."""
    return noise_of(recent(history))


def noise_of(latest: Sequence[Attempt]) -> Noise | None:
    """Return the noise, given the latest attempts (see recent)."""
    attempts = _measured(latest)
    repeated = sum(len(one.scores_bpb) for one in attempts if len(one.scores_bpb) > 1)
    if repeated == 0:
        return None
    knowledge = know(attempts)
    if knowledge is None:
        return Noise(0.0, repeated, 0.0)
    sigma_bpb = knowledge.sigma_bpb * DEVIATION
    return Noise(sigma_bpb, repeated, TELLING_APART * sigma_bpb, knowledge.doubt)
