"""Dawn: which run would tell most about the night's result, and what the runs have told. Pure.

The champion, the last attempt kept, meets attempt 0 on seeds and text that no choice of the night has seen. Then its
edits are taken out again, one at a time, the doubtful ones first: what the champion does not miss is a passenger.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from agent.belief import SIZE, STEP, TINY, Array, knowledge_gradient, likelihood, worths
from agent.experiment import Attempt, History, Run, Status, incumbent
from agent.noise import SAME, Knowledge, know, measured, seed_effects
from agent.simplicity import price_of

FRESH = 4  # runs of attempt 0 and of the champion each, before any edit is doubted
LAST = 2  # runs of the script without all passengers
MOST = 8  # runs without one edit
PRICE = 2.0  # sigma that a person would pay to be rid of a worthless edit: it is read, understood and kept for ever
TELLING = 0.002  # sigma: a run that is expected to bring less is not worth its minutes


@dataclass(frozen=True, slots=True)
class Again:
    """One more run, with a fresh seed, of an attempt as it is."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Without:
    """One run of the champion's script without these edits: a new attempt whose proposal says so."""

    edits: tuple[int, ...]


Trial = Again | Without


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the 95 % interval around it, in bits per byte; positive is better."""

    mean_bpb: float
    low_bpb: float
    high_bpb: float


@dataclass(frozen=True, slots=True)
class Edit:
    """What a kept edit brings to the champion, by the night and by the runs without it."""

    number: int
    effect: Interval
    worthless: float  # the probability that it brings nothing or does harm
    runs: int  # of the champion without it


@dataclass(frozen=True, slots=True)
class Findings:
    champion: int
    recorded_bpb: float  # what the night's own scores say the champion gained over attempt 0
    believed_bpb: float  # the same, shrunk by what the night taught
    honest: Interval | None  # on fresh seeds; None until attempt 0 and champion have two each
    holdout: Interval | None  # the same runs on text that no run was judged by
    edits: tuple[Edit, ...]  # in the order in which they were kept
    passengers: tuple[int, ...]  # to be dropped
    confirmed: Interval | None  # what dropping them brings over the champion, measured; None where it was not


def next_trial(
    history: History, runs_left: int, impossible: Collection[tuple[int, ...]] = (), fresh: int = FRESH
) -> Trial | None:
    """The run that decides most; None when there is nothing to confirm, or no run left that would tell.

    impossible: sets of edits that cannot be taken out, because what was built on them needs their lines.
    """
    champion = incumbent(history)
    if runs_left < 1 or champion is None or champion.number == 0:
        return None
    baseline = history[0]
    rivals = sorted((baseline, champion), key=lambda one: len(_fresh(one)))
    if len(_fresh(rivals[0])) < fresh:
        return Again(rivals[0].number)
    doubts = _doubts(history, champion)
    passengers = _passengers(doubts, impossible)
    wanted = _last_runs(history, champion, passengers)
    if runs_left > wanted:
        trial = _most_telling(history, champion, doubts, impossible)
        if trial is not None:
            return trial
    return _trial(history, champion, passengers) if wanted > 0 else None


def findings(history: History, impossible: Collection[tuple[int, ...]] = ()) -> Findings | None:
    """What is known by now; None where nothing was kept but attempt 0."""
    champion = incumbent(history)
    if champion is None or champion.number == 0:
        return None
    night = [replace(one, runs=tuple(run for run in one.runs if not run.dawn)) for one in history]
    recorded = _mean(night[0].scores_bpb) - _mean(night[champion.number].scores_bpb)
    known = know(measured([one for one in night if not one.proposal.without]))
    believed = recorded if known is None or champion.number not in known.place else _gain_bpb(known, champion.number)
    doubts = _doubts(history, champion)
    passengers = _passengers(doubts, impossible)
    last = _taken_out(history, champion, passengers)
    if last is None or not last.scores_bpb:
        passengers = ()  # a script that was never seen to run is not handed to anybody
    paired = bool(seed_effects(measured(history)))
    confirmed = _difference(_fresh(champion), _fresh(last), paired) if last else None
    if confirmed is not None and confirmed.high_bpb < 0:
        passengers = ()  # together they carry something
    return Findings(
        champion=champion.number,
        recorded_bpb=recorded,
        believed_bpb=believed,
        honest=_difference(_fresh(history[0]), _fresh(champion), paired),
        holdout=_difference(_fresh(history[0], holdout=True), _fresh(champion, holdout=True), paired),
        edits=tuple(doubt.edit for doubt in doubts),
        passengers=passengers,
        confirmed=confirmed,
    )


@dataclass(frozen=True, slots=True)
class Doubt:
    """The posterior of one edit's effect on the champion."""

    edit: Edit
    worth: Array  # (effects,) probability times worth
    blind: float  # sigma: how well the champion itself is known
    testable: bool  # False where the champion does not run without it

    @property
    def keeping(self) -> float:
        return float(self.worth.sum())

    def telling(self, most: int = 3) -> float:
        """Knowledge gradient per run, of up to so many runs of the champion without the edit."""
        return knowledge_gradient(self.worth, [(1 / n + self.blind**2) ** 0.5 for n in range(1, most + 1)])


def _doubts(history: History, champion: Attempt) -> tuple[Doubt, ...]:
    known = know(measured(history))
    chain = [one for one in history if one.status is Status.KEEP and one.number > 0]
    if known is None or any(one.number not in known.place for one in chain):
        return ()  # where seeds move nothing, the night's scores were exact
    return tuple(_doubt(known, history, champion, one) for one in chain)


def _doubt(known: Knowledge, history: History, champion: Attempt, kept: Attempt) -> Doubt:
    """The night's posterior of an edit times the likelihood of the runs of the champion without it."""
    assert kept.parent is not None
    belief, top = known.belief, known.place[champion.number]
    merit = belief.merit(top)
    points = np.arange(SIZE) * STEP
    blind = float(np.sqrt(merit @ points**2 - (merit @ points) ** 2))
    differences, probability = belief.effect(known.place[kept.number])
    without = _taken_out(history, champion, (kept.number,))
    scores = known.merits(without) if without is not None and kept is not champion else ()
    if scores:
        centre = round(float(np.median(scores)))
        told = np.convolve(merit, likelihood(scores, centre)[::-1])  # of every difference champion - without
        at = belief.nodes[top].centre - centre + np.arange(1 - SIZE, SIZE)
        probability = probability * (np.interp(differences, at, told, left=0, right=0) + TINY)
        probability = probability / probability.sum()
    runs = len(scores) if kept is not champion else len(_fresh(without)) if without else 0
    edit = Edit(
        kept.number,
        _quantiles(differences * STEP * known.sigma_bpb, probability),
        float(probability[differences <= 0].sum()),
        runs,
    )
    testable = without is None or _runs(without)
    return Doubt(edit, probability * worths(differences, price_of(kept, history, known, PRICE)), blind, testable)


def _passengers(doubts: tuple[Doubt, ...], impossible: Collection[tuple[int, ...]]) -> tuple[int, ...]:
    """The edits that are not worth keeping; the worst of them, where not all can be taken out at once."""
    open_ = [one for one in doubts if one.testable and (one.edit.number,) not in impossible]
    worst_first = [one.edit.number for one in sorted(open_, key=lambda one: one.keeping) if one.keeping < 0]
    while worst_first and tuple(sorted(worst_first)) in impossible:
        worst_first.pop()
    return tuple(sorted(worst_first))


def _last_runs(history: History, champion: Attempt, passengers: tuple[int, ...]) -> int:
    """How many more runs the script without all passengers needs before it may take the champion's place."""
    if not passengers:
        return 0
    last = _taken_out(history, champion, passengers)
    if last is None:
        return LAST
    return max(0, LAST - len(last.scores_bpb)) if _runs(last) else 0


def _runs(attempt: Attempt) -> bool:
    """Whether it has not crashed so far."""
    return len(attempt.scores_bpb) == len(attempt.done_runs)


def _most_telling(
    history: History, champion: Attempt, doubts: tuple[Doubt, ...], impossible: Collection[tuple[int, ...]]
) -> Trial | None:
    open_ = [one for one in doubts if one.testable and one.edit.runs < MOST and (one.edit.number,) not in impossible]
    best = max(open_, key=Doubt.telling, default=None)
    if best is None or best.telling() < TELLING:
        return None
    return _trial(history, champion, (best.edit.number,))


def _trial(history: History, champion: Attempt, edits: tuple[int, ...]) -> Trial:
    known = _taken_out(history, champion, edits)
    return Without(edits) if known is None else Again(known.number)


def _taken_out(history: History, champion: Attempt, edits: tuple[int, ...]) -> Attempt | None:
    """The attempt that is the champion without these edits: without its own edit it is its parent."""
    if edits == (champion.number,) and champion.parent is not None:
        return history[champion.parent]
    found = (one for one in history if one.parent == champion.number and one.proposal.without == edits)
    return next(found, None) if edits else None


def _fresh(attempt: Attempt, holdout: bool = False) -> dict[int, float]:
    """Seed → bits per byte, of the runs at dawn."""

    def value(run: Run) -> float | None:
        score = run.holdout if holdout else run.score
        return score.val_bpb if score else None

    return {run.seed: found for run in attempt.done_runs if run.dawn and (found := value(run)) is not None}


def _difference(before: dict[int, float], after: dict[int, float], paired: bool) -> Interval | None:
    """Mean improvement; Welch's interval, or that of the pairs where seeds move all scripts alike."""
    from scipy import stats  # takes a second to import, and most commands do without

    if min(len(before), len(after)) < 2:
        return None
    shared = sorted(before.keys() & after.keys())
    gains = [before[seed] - after[seed] for seed in shared] if paired and len(shared) > 1 else None
    old, new = list(before.values()), list(after.values())
    mean = _mean(old) - _mean(new) if gains is None else _mean(gains)
    if all(np.ptp(values) <= SAME * _mean(old) for values in ([old, new] if gains is None else [gains])):
        return Interval(mean, mean, mean)  # seeds move nothing
    test = stats.ttest_ind(old, new, equal_var=False) if gains is None else stats.ttest_1samp(gains, 0.0)
    bounds = test.confidence_interval(0.95)
    return Interval(mean, float(bounds.low), float(bounds.high))


def _quantiles(values: Array, probability: Array) -> Interval:
    below = np.cumsum(probability)
    low, high = (float(values[np.searchsorted(below, share)]) for share in (0.025, 0.975))
    return Interval(float(values @ probability), low, high)


def _gain_bpb(known: Knowledge, number: int) -> float:
    return (known.belief.mean(known.place[number]) - known.belief.mean(0)) * known.sigma_bpb


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)
