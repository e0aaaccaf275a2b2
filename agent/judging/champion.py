"""Dawn: which run would tell most about the night's result, and what the runs have told. Pure.

The champion, the last attempt kept, meets attempt 0 on seeds and text that no choice of the night has seen. Then its
edits are taken out again, one at a time (an ablation), the doubtful ones first: what the champion does not miss is a
passenger. Half of the dials of an edit that turns many can be one as well.
"""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent.experiment import (
    Attempt,
    Dawn,
    Decision,
    Ending,
    History,
    Kind,
    Part,
    Run,
    Score,
    Status,
    edit_of,
    halves_of,
    incumbent,
    is_half,
    named,
)
from agent.judging.belief import SIZE, STEP, TINY, Array, Node, effects, knowledge_gradient, worths
from agent.judging.failures import fault, trusted
from agent.judging.intervals import Interval, Spread, difference
from agent.judging.noise import Knowledge, know, measured
from agent.judging.simplicity import price_of

FRESH = 4  # runs of attempt 0 and of the champion each, before any edit is doubted
LAST = 2  # runs of the script without all passengers
MOST = 8  # runs without one edit
TELLING = 0.002  # sigma: a run that is expected to bring less is not worth its minutes
SOURCE = "dawn"
QUESTION = "a question of dawn"  # no idea: the reason of its discard

PRICE = 2.0  # sigma that a person would pay to be rid of a worthless edit: it is read, understood and kept for good
REACH = np.arange(-384, 385)  # steps: 48 sigma to either side, for the effects of halves …
LARGEST = 256  # … of edits that bring up to 32 sigma
UNHEARD_OF = 1e-9  # probability of an effect that no run of a dawn will make likely
Likelihood = tuple[NDArray[np.int64], Array]  # effects in steps, and the likelihood of each


@dataclass(frozen=True, slots=True)
class Edit:
    """Hold the effect on the champion of a kept edit or a half, by the night's runs and by those without it."""

    number: Part
    effect: Interval
    worthless: float  # the probability that it brings nothing or does harm
    runs: int  # of the champion without it


@dataclass(frozen=True, slots=True)
class Again:
    """Ask for one more run, with a fresh seed, of an attempt as it is."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Without:
    """Ask for one run of the champion's script without these edits: a new attempt whose proposal says so."""

    edits: tuple[Part, ...]


DawnRun = Again | Without


@dataclass(frozen=True, slots=True)
class Findings:
    """Hold what a dawn has found; the names of its fields are those of the journal and of `confirm --json`."""

    champion: int
    script: int | None  # the attempt whose script is confirmed; None where no gain is
    fresh_runs: int  # at this dawn, of attempt 0 and the champion together
    recorded_bpb: float | None  # the champion's gain over attempt 0, by the night's own scores
    believed_bpb: float | None  # the same gain, by the shrunken estimates of the judge
    honest: Interval | None  # on fresh seeds; None until attempt 0 and champion have two each
    holdout: Interval | None  # the same runs on text that no run was judged by; over its documents, too, where known
    over: str  # what the holdout's interval covers
    fitted: Interval | None  # the gain on the validation text less that on the holdout, over seeds and both texts
    edits: tuple[Edit, ...]  # in the order in which they were kept; after each, its halves that were asked about
    passengers: tuple[Part, ...]  # to be dropped
    dropping: Interval | None  # measured gain of dropping them over the champion; None if it was not measured
    stays: str | None  # why doubtful edits are not dropped after all

    @property
    def is_fitted(self) -> bool:
        """Return whether the gain on the validation text exceeds that on the holdout by more than chance."""
        return self.fitted is not None and self.fitted.low_bpb > 0

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Findings":
        """Read findings from the facts in a journal."""
        return msgspec.convert(facts, cls)


# ---- the runs that there are -----------------------------------------------------------------------------------------


def edits_of(champion: Attempt, history: History) -> tuple[Attempt, ...]:
    """Return the kept edits that a script is made of, without those that an earlier dawn has taken out."""
    line, out = [champion], set(champion.proposal.without)
    while (parent := line[-1].parent) is not None:
        line.append(history[parent])
        out |= set(history[parent].proposal.without)
    return tuple(attempt for attempt in reversed(line[:-1]) if attempt.is_idea and attempt.number not in out)


def taken_out(history: History, champion: Attempt, edits: tuple[Part, ...]) -> Attempt | None:
    """Return the attempt that is the champion without these edits; without its last edit, it is its parent."""
    if edits == (champion.number,) and champion.parent is not None:
        return history[champion.parent]
    questions = (
        attempt for attempt in history if attempt.parent == champion.number and attempt.proposal.without == edits
    )
    return next(questions, None) if edits else None


def fresh(attempt: Attempt, dawn: int, holdout: bool = False) -> dict[int, float]:
    """Return seed → bits per byte, of the attempt's runs at this dawn."""
    scores = {run.seed: run.holdout if holdout else run.score for run in attempt.dawn_runs(dawn)}
    return {seed: score.val_bpb for seed, score in scores.items() if score is not None and score.val_bpb is not None}


def as_seen(attempt: Attempt, dawn: int) -> Attempt:
    """Return the attempt with this dawn's runs counted as the night's."""
    return replace(attempt, runs=tuple(replace(run, dawn=0) if run.dawn == dawn else run for run in attempt.runs))


def as_expected(history: History, in_flight: Collection[tuple[int, int]], dawn: int = 1) -> History:
    """Return the history with a score for each run of this dawn that has none yet: the one that is expected of it.

    in_flight: attempt and seed of the runs that have begun. So a run is chosen in the light of those beside it.
    """
    expected = list(history)
    for attempt in history:
        seeds = [seed for number, seed in in_flight if number == attempt.number]
        finished = (run for run in attempt.dawn_runs(dawn) if run.ending is Ending.FINISHED)
        seeds += [run.seed for run in finished if run.score is None]
        if seeds:
            score = Score(_expected_bpb(history, attempt, dawn), 0.0)
            scored = [Run(seed, Ending.FINISHED, 0, 0.0, None, "", score, dawn) for seed in seeds]
            others = [run for run in attempt.runs if run.seed not in seeds]
            expected[attempt.number] = replace(attempt, runs=(*others, *scored))
    return tuple(expected)


def _expected_bpb(history: History, attempt: Attempt, dawn: int) -> float | None:
    """Return the mean of the attempt's scores at this dawn; without any, that of the night, or of its posterior."""
    scores = tuple(fresh(attempt, dawn).values()) or attempt.scores_bpb
    champion = incumbent(history)
    if scores or champion is None or champion is attempt:
        return statistics.fmean(scores) if scores else None
    expected_bpb = _expected_bpb(history, champion, dawn)
    effects_bpb = {doubt.edit.number: doubt.edit.effect.mean_bpb for doubt in posteriors(history, champion, dawn)}
    lost_bpb = sum(
        effects_bpb.get(edit_of(number), 0.0) / (2 if is_half(number) else 1) for number in attempt.proposal.without
    )
    return None if expected_bpb is None else expected_bpb + lost_bpb


# ---- what is known of each edit --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Posterior:
    """Hold what is known of the effect of one edit or half on the champion."""

    edit: Edit
    keeping: float  # sigma: the expected effect, less the price times the probability that it is no gain
    telling: float  # sigma: the knowledge gradient per run of the champion without the edit
    testable: bool  # False where the champion cannot be had or does not run without it


def posteriors(
    history: History,
    champion: Attempt,
    dawn: int,
    divisible: Collection[int] = (),
    impossible: Collection[tuple[Part, ...]] = (),
) -> list[Posterior]:
    """Return what is known of each of the champion's edits, and of both halves of those that are divisible."""
    knowledge = know(measured([as_seen(attempt, dawn) for attempt in history if attempt.done_runs]))
    chain = edits_of(champion, history)
    if knowledge is None or any(attempt.number not in knowledge.place for attempt in (*chain, champion)):
        return []  # where seeds move nothing, the night's scores were exact
    here = _Champion(champion, history, dawn, knowledge, impossible)
    return [
        posterior for kept in chain for posterior in here.posteriors_of(kept, is_divisible=kept.number in divisible)
    ]


@dataclass(frozen=True, slots=True)
class _Champion:
    attempt: Attempt
    history: History
    dawn: int
    knowledge: Knowledge
    impossible: Collection[tuple[Part, ...]]

    def posteriors_of(self, kept: Attempt, *, is_divisible: bool) -> list[Posterior]:
        """Return the posterior of an edit, then those of its halves where it is divisible and not too large."""
        steps, probability = self._effect(kept)
        whole = self._posterior(kept.number, steps, probability, price_of(kept, self.history, self.knowledge, PRICE)[0])
        if not is_divisible or abs(steps @ probability) > LARGEST:
            return [whole]
        halves = halves_of(kept.number)
        weights = self.knowledge.belief.weights[self.knowledge.place[kept.number]]
        both = divided(steps, probability, weights, [self._likelihood(half) for half in halves])
        return [
            whole,
            *(self._posterior(half, REACH, effect, 0.0) for half, effect in zip(halves, both, strict=True)),
        ]

    def _effect(self, kept: Attempt) -> Likelihood:
        """Return the posterior of an edit's effect: the night's, times the likelihood of the runs without it.

        The champion's merit and the effect count as independent given the night's runs, which they are not quite.
        """
        steps, probability = self.knowledge.belief.effect(self.knowledge.place[kept.number])
        # without its last edit, the champion is its parent, whose runs are in the belief already
        likelihood = self._likelihood(kept.number) if kept is not self.attempt else None
        if likelihood is not None:
            probability = probability * _at(steps, likelihood)
        return steps, probability / probability.sum()

    def _likelihood(self, number: Part) -> Likelihood | None:
        """Return what the runs without an edit or a half tell of its effect; None without any run."""
        without = taken_out(self.history, self.attempt, (number,))
        scores = self.knowledge.merits(as_seen(without, self.dawn)) if without is not None else ()
        if not scores:
            return None
        belief, top, node = self.knowledge.belief, self.knowledge.place[self.attempt.number], Node(0, scores)
        likely = np.convolve(belief.merit(top), node.likelihood()[::-1])  # of every champion - without
        return belief.nodes[top].centre - node.centre + np.arange(1 - SIZE, SIZE), likely

    def _posterior(self, number: Part, steps: NDArray[np.int64], probability: Array, price: float) -> Posterior:
        without = taken_out(self.history, self.attempt, (number,))
        runs = len(fresh(without, self.dawn)) if without is not None else 0
        effect = _quantiles(steps * STEP * self.knowledge.sigma_bpb, probability)
        worth = probability * worths(steps, price)
        return Posterior(
            Edit(number, effect, float(probability[steps <= 0].sum()), runs),
            keeping=float(worth.sum()),
            telling=knowledge_gradient(worth, [(1 / n + self._variance()) ** 0.5 for n in (1, 2, 3)]),
            testable=(number,) not in self.impossible and (without is None or fault(without) is None),
        )

    def _variance(self) -> float:
        """Return how well the champion itself is known, in sigma squared."""
        merit, points = self.knowledge.belief.merit(self.knowledge.place[self.attempt.number]), np.arange(SIZE) * STEP
        return float(merit @ points**2 - (merit @ points) ** 2)


def divided(
    steps: NDArray[np.int64], probability: Array, weights: Array, likelihoods: Sequence[Likelihood | None]
) -> tuple[Array, Array]:
    """Return the posterior of each half's effect, over REACH, from that of the whole edit's effect.

    Before there are runs without it, a half is expected to bring what any edit of the same source brings, given that
    both halves together bring what the edit does. told: by the runs without the one and the other half.
    """
    possible = probability > UNHEARD_OF
    steps, probability = steps[possible], probability[possible]
    alike = weights @ effects(REACH)
    likely = [np.ones(len(REACH)) if likelihood is None else _at(REACH, likelihood) for likelihood in likelihoods]
    other = steps[:, None] - REACH  # the second half's effect, where the first half has that of the column
    inside = np.abs(other) <= REACH[-1]
    place = np.clip(other + REACH[-1], 0, len(REACH) - 1)
    joint = np.where(inside, alike * alike[place], 0.0) + TINY
    joint *= (probability / joint.sum(axis=1))[:, None] * likely[0] * likely[1][place]
    first = joint.sum(axis=0)
    second = np.bincount(place.ravel(), joint.ravel(), len(REACH))
    return first / first.sum(), second / second.sum()


def _at(steps: NDArray[np.int64], likelihood: Likelihood) -> Array:
    """Return a likelihood at these effects, in steps."""
    likely: Array = np.interp(steps, *likelihood, left=0, right=0) + TINY
    return likely


def _quantiles(values: Array, probability: Array) -> Interval:
    below = np.cumsum(probability)
    low, high = (float(values[np.searchsorted(below, share)]) for share in (0.025, 0.975))
    return Interval(float(values @ probability), low, high)


# ---- the next run ----------------------------------------------------------------------------------------------------


def next_run(
    history: History,
    runs_left: int,
    *,
    impossible: Collection[tuple[Part, ...]] = (),
    divisible: Collection[int] = (),
    at_least: int = FRESH,
    dawn: int = 1,
) -> DawnRun | None:
    """Return the most useful run; None if there is nothing to confirm, or no run would change the findings.

    impossible: sets of edits that cannot be taken out, because later edits need their lines. divisible: edits of so
    many dials that a half of them is worth asking about. at_least: runs of attempt 0 and of the champion.
    """
    champion = incumbent(history)
    if runs_left < 1 or champion is None or champion.number == 0:
        return None
    rival = min(history[0], champion, key=lambda attempt: len(fresh(attempt, dawn)))
    if len(fresh(rival, dawn)) < at_least:
        return Again(rival.number)
    doubts = posteriors(history, champion, dawn, divisible, impossible)
    passengers = _passengers(doubts, impossible)
    wanted = _last_runs(history, champion, passengers, dawn)
    if runs_left > wanted:
        testable = (doubt for doubt in doubts if doubt.testable and doubt.edit.runs < MOST and doubt.telling >= TELLING)
        best = max(testable, key=lambda doubt: doubt.telling, default=None)
        if best is not None:
            return _run_without(history, champion, (best.edit.number,))
    return _run_without(history, champion, passengers) if wanted > 0 else None


def _passengers(doubts: Sequence[Posterior], impossible: Collection[tuple[Part, ...]]) -> tuple[Part, ...]:
    """Return the edits that are not worth keeping; only the worst if not all can be taken out at once.

    Of an edit that is worth keeping, a half is dropped if runs without it, or without the other half, say that it does
    harm; without such runs, each half is expected to bring half of what the edit does.
    """
    worthless = [doubt for doubt in doubts if doubt.testable and doubt.keeping < 0]
    worst: dict[int, Posterior] = {}  # edit → itself or its worse half
    for doubt in sorted(worthless, key=lambda doubt: (is_half(doubt.edit.number), doubt.keeping)):
        worst.setdefault(edit_of(doubt.edit.number), doubt)
    worst_first = [doubt.edit.number for doubt in sorted(worst.values(), key=lambda doubt: doubt.keeping)]
    while worst_first and tuple(sorted(worst_first)) in impossible:
        worst_first.pop()
    return tuple(sorted(worst_first))


def _last_runs(history: History, champion: Attempt, passengers: tuple[Part, ...], dawn: int) -> int:
    """Return how many more runs the script without passengers needs before it may replace the champion."""
    last = taken_out(history, champion, passengers)
    if last is None:
        return LAST if passengers else 0
    return max(0, LAST - len(fresh(last, dawn))) if fault(last) is None else 0


def _run_without(history: History, champion: Attempt, edits: tuple[Part, ...]) -> DawnRun:
    there = taken_out(history, champion, edits)
    return Without(edits) if there is None else Again(there.number)


# ---- the findings ----------------------------------------------------------------------------------------------------


def findings(
    history: History,
    *,
    impossible: Collection[tuple[Part, ...]] = (),
    divisible: Collection[int] = (),
    dawn: int = 1,
    texts: Mapping[str, Spread] | None = None,
) -> Findings | None:
    """Return what dawn has found so far; None if only attempt 0 is kept.

    texts: by the names of their splits, how far the champion's gain varies with the choice of the text's pieces.
    """
    champion, texts = incumbent(history), texts or {}
    if champion is None or champion.number == 0:
        return None
    first = history[0]
    doubts = posteriors(history, champion, dawn, divisible, impossible)
    passengers = _passengers(doubts, impossible)
    last = taken_out(history, champion, passengers)
    dropping = _gain(champion, last, dawn) if last is not None else None
    objection = _objection(last, dawn, dropping) if passengers else None
    verb, whom = ("stays", "it") if len(passengers) == 1 else ("stay", "them")
    stays = f"{names(passengers)} {verb}: the script without {whom} {objection}" if objection else None
    passengers = () if objection else passengers
    honest = _gain(first, champion, dawn)
    recorded_bpb, believed_bpb = _gain_of_night(history, champion)
    held = texts.get("holdout")
    confirmed = last if last is not None and passengers else champion
    return Findings(
        champion=champion.number,
        script=confirmed.number if honest is not None and honest.low_bpb > 0 else None,
        fresh_runs=len(fresh(first, dawn)) + len(fresh(champion, dawn)),
        recorded_bpb=recorded_bpb,
        believed_bpb=believed_bpb,
        honest=honest,
        holdout=_gain(first, champion, dawn, *([held] if held is not None else ()), holdout=True),
        over="the choice of seeds" + (f" and of {held.freedom + 1:,.0f} pieces of text" if held is not None else ""),
        fitted=_fitted(first, champion, dawn, texts),
        edits=tuple(
            doubt.edit for doubt in doubts if not is_half(doubt.edit.number) or _is_told(doubt.edit, passengers)
        ),
        passengers=passengers,
        dropping=dropping,
        stays=stays,
    )


def _gain_of_night(history: History, champion: Attempt) -> tuple[float | None, float | None]:
    """Return the champion's gain over attempt 0 by the night's own scores, and the same shrunken by the judge."""
    first, last = history[0].scores_bpb, champion.scores_bpb
    recorded_bpb = statistics.fmean(first) - statistics.fmean(last) if last else None
    knowledge = know(measured(history))
    if knowledge is None or champion.number not in knowledge.place:
        return recorded_bpb, recorded_bpb
    return recorded_bpb, knowledge.lead(champion.number, 0) * knowledge.sigma_bpb


def _gain(before: Attempt, after: Attempt, dawn: int, *texts: Spread, holdout: bool = False) -> Interval | None:
    """Return how much lower one attempt's fresh scores are than another's."""
    old, new = (fresh(attempt, dawn, holdout) for attempt in (before, after))
    return difference(old.values(), new.values(), *texts)


def _fitted(first: Attempt, champion: Attempt, dawn: int, texts: Mapping[str, Spread]) -> Interval | None:
    """Return how much larger the gain on the validation text is than on the holdout; None without both spreads.

    A run has the same weights on both texts, so most of its luck cancels in the difference.
    """
    if not {"holdout", "validation"} <= texts.keys():
        return None
    before_bpb, after_bpb = (
        [fresh(attempt, dawn)[seed] - bpb for seed, bpb in fresh(attempt, dawn, holdout=True).items()]
        for attempt in (first, champion)
    )
    return difference(before_bpb, after_bpb, texts["validation"], texts["holdout"])


def _objection(last: Attempt | None, dawn: int, dropping: Interval | None) -> str | None:
    """Say why the script without all passengers may not replace the champion: each of its runs has to succeed."""
    if last is None:
        return "was never run"
    why = fault(last)
    if why is not None:
        return f"failed: {why}"
    verdict = trusted(Decision(Kind.KEPT, ""), last, None)
    if verdict.status is not Status.KEEP:
        return f"failed its {verdict.reason}"
    ran = len(fresh(last, dawn))
    if ran < LAST:
        return f"ran {ran} time{'s' * (ran != 1)} by now, and {LAST} are needed"
    return "is worse" if dropping is not None and dropping.high_bpb < 0 else None


def _is_told(half: Edit, passengers: tuple[Part, ...]) -> bool:
    """Return whether a half was asked about or is dropped, and its edit stays."""
    return edit_of(half.number) not in passengers and (half.runs > 0 or half.number in passengers)


def names(edits: Collection[Part]) -> str:
    return " and ".join(named(number) for number in sorted(edits, key=edit_of))


# ---- the night goes on -----------------------------------------------------------------------------------------------


def adoption(history: History, dawn: Dawn | None) -> dict[int, Decision]:
    """Return the decisions by which a night goes on from the script that its last dawn has confirmed, if any."""
    champion = incumbent(history)
    if dawn is None or dawn.ended is None or not dawn.findings or champion is None:
        return {}
    confirmed = Findings.of(dawn.findings)
    if confirmed.script is None or champion.number != confirmed.champion or confirmed.script == confirmed.champion:
        return {}
    script = history[confirmed.script]
    if script.number == champion.parent:
        return {champion.number: Decision(Kind.PASSENGER, "a passenger, by dawn's runs")}
    if script.kind is not Kind.QUESTION:
        return {}  # it was taken over once, and has fallen since
    return {script.number: Decision(Kind.ADOPTED, f"confirmed at dawn: {script.proposal.title}")}
