"""What is known at dawn of the champion's edits, and of the halves of those that turn many dials. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agent.experiment import Attempt, History, Run, halves_of
from agent.judging.belief import SIZE, STEP, TINY, Array, effects, knowledge_gradient, likelihood, worths
from agent.judging.failures import fault
from agent.judging.intervals import Interval
from agent.judging.noise import Knowledge, know, measured
from agent.judging.simplicity import price_of

PRICE = 2.0  # sigma that a person would pay to be rid of a worthless edit: it is read, understood and kept for good
REACH = np.arange(-384, 385)  # steps: 48 sigma to either side, for the effects of halves …
LARGEST = 256  # … of edits that bring up to 32 sigma
UNHEARD_OF = 1e-9  # probability of an effect that no run of a dawn will make likely
Told = tuple[NDArray[np.int64], Array]  # effects in steps, and the likelihood of each


@dataclass(frozen=True, slots=True)
class Edit:
    """Hold the effect on the champion of a kept edit or a half, by the night's runs and by those without it."""

    number: int  # negative: a half (agent/experiment/parts.py)
    effect: Interval
    worthless: float  # the probability that it brings nothing or does harm
    runs: int  # of the champion without it


@dataclass(frozen=True, slots=True)
class Posterior:
    """Hold the posterior of the effect of one edit or half on the champion."""

    edit: Edit
    worth: Array  # (effects,): probability times worth
    blind: float  # sigma: how well the champion itself is known
    testable: bool  # False where the champion does not run without it

    @property
    def keeping(self) -> float:
        """Return the expected effect, in sigma, less the price times the probability that it is no gain."""
        return float(self.worth.sum())

    def telling(self, most: int = 3) -> float:
        """Return the knowledge gradient per run, of up to `most` runs of the champion without the edit."""
        return knowledge_gradient(self.worth, [(1 / n + self.blind**2) ** 0.5 for n in range(1, most + 1)])


def posteriors(history: History, champion: Attempt, dawn: int, divisible: Collection[int]) -> tuple[Posterior, ...]:
    """Return what is known of each of the champion's edits, and of both halves of those that are divisible."""
    known = know(measured(seen(history, dawn)))
    chain = edits_of(champion, history)
    if known is None or any(one.number not in known.place for one in (*chain, champion)):
        return ()  # where seeds move nothing, the night's scores were exact
    here = _Champion(champion, history, dawn, known)
    return tuple(one for kept in chain for one in here.posteriors_of(kept, is_divisible=kept.number in divisible))


@dataclass(frozen=True, slots=True)
class _Champion:
    attempt: Attempt
    history: History
    dawn: int
    known: Knowledge

    def posteriors_of(self, kept: Attempt, *, is_divisible: bool) -> list[Posterior]:
        steps, probability = self._effect(kept)
        price = price_of(kept, self.history, self.known, PRICE)
        found = [self._posterior(kept.number, steps, probability, price)]
        if is_divisible and abs(steps @ probability) <= LARGEST:
            halves = halves_of(kept.number)
            told = [self._told(half) for half in halves]
            both = divided(steps, probability, self.known.belief.own[self.known.place[kept.number]], told)
            found += [
                self._posterior(half, REACH, effect, price=0.0) for half, effect in zip(halves, both, strict=True)
            ]
        return found

    def _effect(self, kept: Attempt) -> Told:
        """Return the posterior of an edit's effect: the night's, times the likelihood of the runs without it.

        The champion's merit and the effect count as independent given the night's runs, which they are not quite.
        """
        steps, probability = self.known.belief.effect(self.known.place[kept.number])
        told = self._told(kept.number) if kept is not self.attempt else None  # without its last edit, it is its parent
        if told is None:
            return steps, probability
        probability = probability * (np.interp(steps, *told, left=0, right=0) + TINY)
        return steps, probability / probability.sum()

    def _told(self, number: int) -> Told | None:
        """Return what the runs without an edit or a half tell of its effect; None without any run."""
        without = taken_out(self.history, self.attempt, (number,))
        scores = self.known.merits(as_seen(without, self.dawn)) if without is not None else ()
        if not scores:
            return None
        belief, top = self.known.belief, self.known.place[self.attempt.number]
        centre = round(float(np.median(scores)))
        likely = np.convolve(belief.merit(top), likelihood(scores, centre)[::-1])  # of every champion - without
        return belief.nodes[top].centre - centre + np.arange(1 - SIZE, SIZE), likely

    def _posterior(self, number: int, steps: NDArray[np.int64], probability: Array, price: float) -> Posterior:
        merit = self.known.belief.merit(self.known.place[self.attempt.number])
        points = np.arange(SIZE) * STEP
        blind = float(np.sqrt(merit @ points**2 - (merit @ points) ** 2))
        without = taken_out(self.history, self.attempt, (number,))
        edit = Edit(
            number,
            _quantiles(steps * STEP * self.known.sigma_bpb, probability),
            float(probability[steps <= 0].sum()),
            self._runs_of(without),
        )
        return Posterior(edit, probability * worths(steps, price), blind, without is None or fault(without) is None)

    def _runs_of(self, without: Attempt | None) -> int:
        if without is None:
            return 0
        if without.number == self.attempt.parent:
            return len(fresh(without, self.dawn))
        return len(self.known.merits(as_seen(without, self.dawn)))


def divided(
    steps: NDArray[np.int64], probability: Array, weights: Array, told: Sequence[Told | None]
) -> tuple[Array, Array]:
    """Return the posterior of each half's effect, over REACH, from that of the whole edit's effect.

    Before there are runs without it, a half is expected to bring what any edit of the same source brings, given that
    both halves together bring what the edit does. told: what the runs without the one and the other half tell.
    """
    possible = probability > UNHEARD_OF
    steps, probability = steps[possible], probability[possible]
    alike = weights @ effects(REACH)
    likely = [np.ones(len(REACH)) if one is None else np.interp(REACH, *one, left=0, right=0) + TINY for one in told]
    other = steps[:, None] - REACH  # the second half's effect, where the first half has that of the column
    inside = np.abs(other) <= REACH[-1]
    place = np.clip(other + REACH[-1], 0, len(REACH) - 1)
    joint = np.where(inside, alike * alike[place], 0.0) + TINY
    joint *= (probability / joint.sum(axis=1))[:, None] * likely[0] * likely[1][place]
    first = joint.sum(axis=0)
    second = np.bincount(place.ravel(), joint.ravel(), len(REACH))
    return first / first.sum(), second / second.sum()


def edits_of(champion: Attempt, history: History) -> tuple[Attempt, ...]:
    """Return the kept edits that a script is made of, without those that an earlier dawn has taken out."""
    line, out = [champion], set(champion.proposal.without)
    while (parent := line[-1].parent) is not None:
        line.append(history[parent])
        out |= set(history[parent].proposal.without)
    return tuple(one for one in reversed(line[:-1]) if one.is_idea and one.number not in out)


def taken_out(history: History, champion: Attempt, edits: tuple[int, ...]) -> Attempt | None:
    """Return the attempt that is the champion without these edits; without its last edit, it is its parent."""
    if edits == (champion.number,) and champion.parent is not None:
        return history[champion.parent]
    found = (one for one in history if one.parent == champion.number and one.proposal.without == edits)
    return next(found, None) if edits else None


def fresh(attempt: Attempt, dawn: int, holdout: bool = False) -> dict[int, float]:
    """Return seed → bits per byte, of the attempt's runs at this dawn."""

    def value(run: Run) -> float | None:
        score = run.holdout if holdout else run.score
        return score.val_bpb if score else None

    return {run.seed: found for run in attempt.dawn_runs(dawn) if (found := value(run)) is not None}


def seen(history: History, dawn: int) -> list[Attempt]:
    """Return the history with this dawn's runs counted as the night's; leave out attempts without runs of the night."""
    return [as_seen(one, dawn) for one in history if one.done_runs]


def as_seen(attempt: Attempt, dawn: int) -> Attempt:
    return replace(attempt, runs=tuple(replace(run, dawn=0) if run.dawn == dawn else run for run in attempt.runs))


def _quantiles(values: Array, probability: Array) -> Interval:
    below = np.cumsum(probability)
    low, high = (float(values[np.searchsorted(below, share)]) for share in (0.025, 0.975))
    return Interval(float(values @ probability), low, high)
