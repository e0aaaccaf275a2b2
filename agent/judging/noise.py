"""How far scores move with the seed alone, and what every attempt is worth in the light of that. Pure."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from agent.experiment import NOT_BELIEVED, Attempt, Decision, Ending, History, Noise, Status, proposer_name
from agent.findings import STANDARD_ERRORS
from agent.judging.belief import (
    DEVIATION,
    DIFFERENCES,
    POINTS,
    STEP,
    Belief,
    Distribution,
    Lattice,
    Node,
    learn,
    sigma_of,
)
from agent.judging.speed import NONE, at_one_speed
from agent.text import counted

SAME = 1e-6  # relative; one pair of weights scored twice differs by this, as rows are computed in another order

# Seeds move scores by 0.002 to 0.03 bpb wherever it was measured. Two runs already weigh more than this. A score that a
# script reports has another unit: there it is the same share of the score.
TYPICAL_SIGMA_BPB, TYPICAL_SPREAD = 0.006, 1.2  # centre and width of sigma's prior; width in natural log
RUNG = 1.1  # sigma is learnt to ten per cent: more is not known, and results of one rung can be cached
# A baseline that hardly trains says little about the noise of other scripts. Then sigma is doubled, and one run is not
# enough to keep an edit: the second tells luck from gain, and costs little, since few edits come so far.
FEW_STEPS, LARGE_SIGMA = 50, 0.1  # steps of a run; share of the gain over the uniform model
UNIFORM_BPB = 8.0  # bits per byte of a model that knows nothing
WIDENED = 2.0  # factor for a sigma that is in doubt
SUREST = 0.9  # highest probability that one run can give, where sigma is in doubt
TELLING_APART = STANDARD_ERRORS * math.sqrt(2)
LATEST, BLOCK = 300, 100  # attempts that are learnt from: the latest 300, and up to a block more


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Translate a night's belief to bits per byte, and attempts to places in its tree."""

    belief: Belief
    sigma_bpb: float  # noise that is left where scores are compared seed by seed; the belief's unit
    noise_bpb: float  # the standard deviation of one run
    place: Mapping[int, int]  # attempt's number → its node
    reference_bpb: float  # the score of merit zero
    doubt: str | None = None  # why sigma is not believed, and was widened

    def effect(self, number: int) -> Distribution:
        """Return the posterior of an edit's effect, in sigma."""
        return self.belief.effect(self.place[number])

    @property
    def noise(self) -> float:
        """Return how far a run scatters, in sigma, whatever its seed does."""
        return self.belief.lattice.noise

    def noise_of(self, number: int) -> float:
        """Return how far a run of this attempt scatters, in sigma: less where it shares what its seed does."""
        return float(self.belief.lattice.noises[self.place[number]])

    def merit(self, number: int) -> Distribution:
        """Return the posterior of an attempt's merit, in sigma."""
        return self.belief.merit(self.place[number])

    def lead(self, number: int, over: int) -> float:
        """Return how much better one attempt is believed to be than another, in sigma."""
        return self.merit(number).mean - self.merit(over).mean

    def gap(self, number: int, scores_bpb: Sequence[float]) -> Distribution:
        """Return the likelihood of each lead of an attempt over a script outside the tree, which has these scores."""
        node = Node(0, tuple(self.reference_bpb - value for value in scores_bpb))
        other = Lattice.of([node], self.sigma_bpb, noise=self.noise)
        merit = self.merit(number)
        leads = merit.sizes[0] + (DIFFERENCES - POINTS[0] - other.centres[0]) * STEP
        return Distribution(leads, np.correlate(merit.probability, other.runs[0], "full"))


# ---- which scores count ----------------------------------------------------------------------------------------------


def measured(history: History, judged: Attempt | None = None) -> tuple[Attempt, ...]:
    """Return the attempts that the judge learns from: settled, not crashed, believed, and the one that is judged.

    Attempts made from a script that does not count are left out as well.

    In a long night, only the latest attempts and their ancestors count. A decision is about an edit and the scripts
    that it was made from. All others only teach what edits bring and how far seeds move scores. That changes during a
    night, and hundreds of edits tell it as well as thousands. Old attempts leave in blocks, so that sigma rarely
    changes.
    """
    everyone = sorted((*history, *([judged] if judged else [])), key=lambda attempt: attempt.number)
    first = (len(everyone) - LATEST) // BLOCK * BLOCK
    chosen: set[int | None] = set()
    for attempt in reversed(everyone):
        if attempt.number >= first or attempt.number in chosen:
            chosen |= {attempt.number, attempt.parent}
    counting: dict[int | None, Attempt] = {}
    for attempt in everyone:
        if attempt.number not in chosen or not (
            attempt is judged or (attempt.settled and is_believed(attempt.decision))
        ):
            continue
        if (attempt.parent is None or attempt.parent in counting) and observed(attempt):
            counting[attempt.number] = attempt
    return tuple(counting.values())


def observed(attempt: Attempt) -> Mapping[int, float]:
    """Return an attempt's scores by seed; without any, those that were forecast of runs that were stopped early.

    Without these, the measured edits would look better than edits usually are.
    """
    hopeless = (run for run in attempt.done_runs if run.ending is Ending.HOPELESS)
    forecasts = {run.seed: run.forecast_bpb for run in hopeless if run.forecast_bpb is not None}
    return distinct_scores(attempt) or forecasts


def is_believed(decision: Decision | None) -> bool:
    """Return whether the scores that led to a decision are measurements."""
    return decision is not None and decision.status is not Status.CRASH and decision.kind not in NOT_BELIEVED


def distinct_scores(attempt: Attempt) -> Mapping[int, float]:
    """Return an attempt's scores by seed; equal ones count once, since the script ignores its seed.

    A number that scripts report may be coarse, as accuracies are: equal ones count, unless attempt 0 has no others.
    """
    distinct: dict[int, float] = {}
    for seed, value in attempt.scores_by_seed.items():
        if not any(math.isclose(value, other, rel_tol=SAME) for other in distinct.values()):
            distinct[seed] = value
    return attempt.scores_by_seed if attempt.is_reported and (attempt.number or len(distinct) > 1) else distinct


# ---- what they tell --------------------------------------------------------------------------------------------------


def know(attempts: Sequence[Attempt]) -> Knowledge | None:
    """Learn noise and belief from these attempts; None without any, or if scores do not vary with the seed."""
    if not attempts or len(attempts[0].scores_bpb) > len(distinct_scores(attempts[0])) == 1:
        return None
    repeats = [set(attempt.scores_bpb) for attempt in attempts if len(attempt.scores_bpb) > 1]
    if attempts[0].is_reported and repeats and max(map(len, repeats)) == 1:
        return None
    place = {attempt.number: i for i, attempt in enumerate(attempts)}
    reference_bpb = attempts[0].scores_bpb[0]
    nodes, corrections = [], at_one_speed(attempts)
    for attempt in attempts:
        parent, merges = 0 if attempt.parent is None else place[attempt.parent], attempt.proposal.merges
        seen = observed(attempt)
        own = [corrections.get((attempt.number, seed), NONE) for seed in seen]
        node = Node(
            parent,
            tuple(
                reference_bpb - value - correction.added for value, correction in zip(seen.values(), own, strict=True)
            ),
            proposer_name(attempt.proposer),
            None if merges is None else place.get(merges),
            seeds=tuple(seen),
            dials_only=attempts[parent].outline.differs_in_dials_only(attempt.outline),
            errors=tuple(correction.error for correction in own),
        )
        nodes.append(node)
    last_repeat = max((i for i, node in enumerate(nodes) if len(node.scores) > 1), default=0)
    # Later attempts add little. What their seeds do is for pairs.py to say, which takes sigma as known.
    usual_bpb = TYPICAL_SIGMA_BPB * (abs(reference_bpb) if attempts[0].is_reported and reference_bpb else 1.0)
    noise_bpb = most_probable_sigma(tuple(replace(node, seeds=()) for node in nodes[: last_repeat + 1]), usual_bpb)
    doubt = doubt_of(attempts[0], noise_bpb)
    noise_bpb *= 1.0 if doubt is None else WIDENED
    sigma_bpb = sigma_of(nodes, noise_bpb)
    return Knowledge(learn(tuple(nodes), noise_bpb), sigma_bpb, noise_bpb, place, reference_bpb, doubt)


def doubt_of(first: Attempt, sigma_bpb: float) -> str | None:
    """Return why attempt 0's noise says little about other scripts; None if it can be believed.

    In the first steps, the loss of every script falls fast and alike. Three runs that agree by luck then suggest a
    small sigma, and any effect of an edit on those few steps looks like many sigma. The noise of trained scripts is not
    known before one trains. The number of steps is reported by the user's own script, and can only add caution.
    """
    steps = [run.summary.num_steps for run in first.done_runs if run.summary and run.summary.num_steps is not None]
    if steps and min(steps) < FEW_STEPS:
        return f"one of its runs had {counted(min(steps), 'step')}"
    learnt_bpb = math.inf if first.is_reported else UNIFORM_BPB - statistics.fmean(first.scores_bpb)
    if sigma_bpb > LARGE_SIGMA * learnt_bpb:
        return f"it is {max(learnt_bpb, 0.0):.3f} bpb better than guessing"
    return None


def pooled_deviation(attempts: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the standard deviation of scores within attempts, and its degrees of freedom; zeros without repeats.

    It is the root of the sum of squared deviations from each attempt's mean, over runs less attempts.
    """
    errors = [value - statistics.fmean(scores) for scores in attempts for value in scores]
    freedom = len(errors) - sum(1 for scores in attempts if scores)
    return math.hypot(*errors) / math.sqrt(max(1, freedom)), freedom


@lru_cache(maxsize=16)
def most_probable_sigma(tree: tuple[Node, ...], usual_bpb: float = TYPICAL_SIGMA_BPB) -> float:
    """Return the most probable sigma of a tree, in the unit of its scores and as a power of RUNG; usual_bpb: a guess.

    It maximises the likelihood of all scores, times a log-normal prior. The spread of repeated runs alone would
    mislead, since runs are repeated because of their first score: it is only where the search begins.
    """
    pooled_bpb, freedom = pooled_deviation([node.scores for node in tree])
    runs = sum(len(node.scores) for node in tree)

    def plausibility(rung: int) -> float:
        sigma_bpb = RUNG**rung
        prior = -0.5 * (math.log(sigma_bpb / usual_bpb) / TYPICAL_SPREAD) ** 2
        return learn(tree, sigma_bpb).log_evidence - (runs - 1) * math.log(sigma_bpb) + prior

    rung = round(math.log(pooled_bpb if freedom else usual_bpb, RUNG))
    while (best := max((rung - 1, rung, rung + 1), key=plausibility)) != rung:
        rung = best
    return RUNG**rung


def noise(history: History) -> Noise | None:
    """Return the noise of a night's scores; None until two runs of one attempt were scored."""
    attempts = measured(history)
    repeated = sum(len(attempt.scores_bpb) for attempt in attempts if len(attempt.scores_bpb) > 1)
    if repeated == 0:
        return None
    knowledge = know(attempts)
    if knowledge is None:
        return Noise(0.0, repeated, 0.0)
    sigma_bpb, shared = knowledge.noise_bpb * DEVIATION, knowledge.belief.lattice.shared
    smallest_bpb = TELLING_APART * sigma_bpb
    paired_bpb = None if shared is None else smallest_bpb * shared.noise_of(True)
    return Noise(sigma_bpb, repeated, smallest_bpb, knowledge.doubt, paired_bpb)
