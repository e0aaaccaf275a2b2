"""How far scores move with the seed alone, and what every attempt is worth in the light of that. Pure."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from agent.experiment import NOT_BELIEVED, Attempt, Decision, Ending, History, Noise, Run, Status, source_name
from agent.judging.belief import DEVIATION, STEP, Belief, Node, learn
from agent.judging.intervals import SURE

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
LATEST, BLOCK = 300, 100  # attempts that are learnt from: so many, and less than a block more


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Translate a night's belief to bits per byte, and attempts to places in its tree."""

    belief: Belief
    sigma_bpb: float
    place: Mapping[int, int]  # attempt's number → its node
    reference_bpb: float  # where the lattice has its zero
    doubt: str | None = None  # why sigma is not believed, and was widened

    def gain_bpb(self, number: int) -> float:
        """Return the expected gain of an edit over its parent."""
        return self.belief.gain(self.place[number]) * self.sigma_bpb

    def sure(self, number: int) -> float:
        """Return the probability of a gain; limit it after a single run if the noise is in doubt."""
        place = self.place[number]
        sure = self.belief.sure(place)
        if self.doubt is None or len(self.belief.nodes[place].scores) > 1:
            return sure
        return min(max(sure, 1 - SUREST), SUREST)

    def lead(self, number: int, over: int) -> float:
        """Return how much better one attempt is believed to be than another, in sigma."""
        return self.belief.mean(self.place[number]) - self.belief.mean(self.place[over])

    def merits(self, attempt: Attempt) -> tuple[float, ...]:
        """Return an attempt's scores in lattice steps, whether it is in the tree or not."""
        step = self.sigma_bpb * STEP
        return tuple((self.reference_bpb - value) / step for value in distinct_scores(attempt))


# ---- which scores count ----------------------------------------------------------------------------------------------


def measured(history: History, judged: Attempt | None = None) -> tuple[Attempt, ...]:
    """Return the attempts that the judge learns from: settled, not crashed, believed, and the one that is judged.

    A run that was stopped early counts as evidence of a bad score. Attempts made from a script that does not count are
    left out as well. Of a long night, only the latest attempts and their ancestors count (see recent).
    """
    latest = recent(history)
    if judged is not None:
        latest = sorted((*latest, judged), key=lambda attempt: attempt.number)
    counting: dict[int, Attempt] = {}
    for attempt in latest:
        decision = attempt.decision
        is_settled = attempt.settled and decision is not None and is_believed(decision)
        if not (attempt is judged or is_settled) or not (attempt.parent is None or attempt.parent in counting):
            continue
        was_compared = attempt.parent is not None and _ended_early(attempt) and counting[attempt.parent].scores_bpb
        if attempt.scores_bpb or was_compared:
            counting[attempt.number] = attempt
    return tuple(counting.values())


def recent(history: History) -> History:
    """Return the latest attempts with all their ancestors, in their order; a night of LATEST attempts is whole.

    A decision is about an edit and the line of scripts that it stands on, so that line is always there. All others only
    teach what edits bring and how far seeds move scores, and that changes in the course of a night: early edits find
    large gains, late ones hardly any, and the script that they edit is another one. Hundreds of edits tell it as well
    as thousands. Old attempts leave by the block, so that sigma stays good for many decisions.
    """
    count = history[-1].number + 1 if history else 0
    if count < LATEST + BLOCK:
        return history
    first = (count - LATEST) // BLOCK * BLOCK
    by_number = {attempt.number: attempt for attempt in history}
    chosen: set[int] = set()
    for attempt in history:
        number = attempt.number if attempt.number >= first else None
        while number in by_number and number not in chosen:
            chosen.add(number)
            number = by_number[number].parent
    return [attempt for attempt in history if attempt.number in chosen]


def _ended_early(attempt: Attempt) -> tuple[Run, ...]:
    return tuple(run for run in attempt.done_runs if run.ending is Ending.HOPELESS)


def is_believed(decision: Decision) -> bool:
    return decision.status is not Status.CRASH and decision.kind not in NOT_BELIEVED


def distinct_scores(attempt: Attempt) -> tuple[float, ...]:
    """Return an attempt's scores; equal ones count once, since the script ignores its seed."""
    distinct: list[float] = []
    for value in attempt.scores_bpb:
        if not any(math.isclose(value, other, rel_tol=SAME) for other in distinct):
            distinct.append(value)
    return tuple(distinct)


# ---- what they tell --------------------------------------------------------------------------------------------------


def know(attempts: Sequence[Attempt]) -> Knowledge | None:
    """Learn noise and belief from these attempts; None without any, or if scores do not vary with the seed."""
    if not attempts or (len(attempts[0].scores_bpb) > 1 and len(distinct_scores(attempts[0])) == 1):
        return None
    place = {attempt.number: i for i, attempt in enumerate(attempts)}
    reference_bpb = attempts[0].scores_bpb[0]
    tree = tuple(_as_node(attempt, attempts, place, reference_bpb) for attempt in attempts)
    last_repeat = max((i for i, node in enumerate(tree) if len(node.scores) > 1), default=0)
    rung = most_probable_rung(tree[: last_repeat + 1])  # later attempts add little
    doubt = doubt_of(attempts[0], RUNG**rung)
    rung += WIDENED if doubt is not None else 0
    return Knowledge(believe(tree, rung), RUNG**rung, place, reference_bpb, doubt)


def _as_node(attempt: Attempt, attempts: Sequence[Attempt], place: Mapping[int, int], reference_bpb: float) -> Node:
    """Return an attempt's place in the tree and its scores, in bits per byte below the reference."""
    merges = attempt.proposal.merges
    parent = 0 if attempt.parent is None else place[attempt.parent]
    return Node(
        parent,
        tuple(reference_bpb - value for value in distinct_scores(attempt)),
        tuple(reference_bpb - value for value in _limits_bpb(attempt, attempts[parent])),
        source_name(attempt.proposal.source),
        None if merges is None else place.get(merges),
    )


def _limits_bpb(attempt: Attempt, parent: Attempt) -> list[float]:
    """Return a lower limit for the score of each run that was stopped early: its parent's mean at that time.

    It is not known which of the parent's runs came later, so the lowest mean of any time is taken. All runs of
    attempt 0 come first, so its last mean is right.
    """
    stopped = _ended_early(attempt)
    if not stopped:
        return []
    scores = parent.scores_bpb
    means_bpb = [statistics.fmean(scores[:k]) for k in range(1, len(scores) + 1)]
    return [min(means_bpb) if parent.number else means_bpb[-1]] * len(stopped)


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


def pooled_deviation(attempts: Iterable[Sequence[float]]) -> tuple[float, int]:
    """Return the standard deviation of scores within attempts, and its degrees of freedom; zeros without repeats."""
    repeated = [scores for scores in attempts if len(scores) > 1]
    freedom = sum(len(scores) - 1 for scores in repeated)
    squares = sum(statistics.variance(scores) * (len(scores) - 1) for scores in repeated)
    return math.sqrt(squares / freedom) if freedom else 0.0, freedom


@lru_cache(maxsize=8)  # judge and review ask the same; a belief takes 2 KB an attempt
def believe(tree: tuple[Node, ...], rung: int) -> Belief:
    """Return what a tree of scores in bits per byte tells where sigma is this power of RUNG."""
    step_bpb = RUNG**rung * STEP

    def steps(values_bpb: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(value / step_bpb for value in values_bpb)

    return learn(tuple(replace(node, scores=steps(node.scores), ceilings=steps(node.ceilings)) for node in tree))


@lru_cache(maxsize=16)
def most_probable_rung(tree: tuple[Node, ...]) -> int:
    """Return the most probable sigma, as a power of RUNG.

    It maximises the likelihood of all scores. The spread of repeated runs alone would mislead, since runs are repeated
    because of their first score: it is only where the search begins.
    """
    pooled, freedom = pooled_deviation([node.scores for node in tree])
    runs = sum(len(node.scores) for node in tree)

    @cache
    def plausibility(rung: int) -> float:
        sigma_bpb = RUNG**rung
        prior = -0.5 * (math.log(sigma_bpb / TYPICAL_SIGMA_BPB) / TYPICAL_SPREAD) ** 2
        return believe(tree, rung).log_evidence - (runs - 1) * math.log(sigma_bpb) + prior

    rung = round(math.log(pooled if freedom else TYPICAL_SIGMA_BPB, RUNG))
    while (best := max((rung - 1, rung, rung + 1), key=plausibility)) != rung:
        rung = best
    return rung


def noise(history: History) -> Noise | None:
    """Return the noise of a night's scores; None until two runs of one attempt were scored."""
    attempts = measured(history)
    repeated = sum(len(attempt.scores_bpb) for attempt in attempts if len(attempt.scores_bpb) > 1)
    if repeated == 0:
        return None
    knowledge = know(attempts)
    if knowledge is None:
        return Noise(0.0, repeated, 0.0)
    sigma_bpb = knowledge.sigma_bpb * DEVIATION
    return Noise(sigma_bpb, repeated, TELLING_APART * sigma_bpb, knowledge.doubt)
