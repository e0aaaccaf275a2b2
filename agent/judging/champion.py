"""Dawn: which run would tell most about the night's result, and what the runs have told. Pure.

The champion, the last attempt kept, meets attempt 0 on seeds and text that no choice of the night has seen. Then its
edits are taken out again, one at a time (an ablation), the doubtful ones first: what the champion does not miss is a
passenger. Half of the dials of an edit that turns many can be one as well.
"""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

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
from agent.judging.belief import (
    STEP,
    TINY,
    Array,
    Distribution,
    effects,
    knowledge_gradient,
)
from agent.judging.failures import fault, trusted
from agent.judging.findings import Edit, Findings, Parts
from agent.judging.intervals import Interval, Spread, difference
from agent.judging.judges import price_of
from agent.judging.noise import Knowledge, distinct_scores, know, line_of, measured

FRESH = 4  # runs of attempt 0 and of the champion each, before any edit is doubted
LAST = 2  # runs of the script without all passengers
MOST = 8  # runs without one edit
TELLING = 0.002  # sigma: a run that is expected to bring less is not worth its minutes
QUESTION = "a question of dawn"  # no idea: the reason of its discard

PRICE = 2.0  # sigma that a person would pay to be rid of a worthless edit: it is read, understood and kept for good
REACH = np.arange(-384, 385)  # steps: 48 sigma to either side, for the effects of halves …
LARGEST = 32.0  # … of edits that bring up to so many sigma


@dataclass(frozen=True, slots=True)
class Again:
    """Ask for one more run, with a fresh seed, of an attempt as it is."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Without:
    """Ask for one run of the champion's script without these edits: a new attempt whose proposal says so."""

    edits: Parts


DawnRun = Again | Without


# ---- the champion without some of its edits --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Posterior:
    """Hold what is known of one edit or half of the champion."""

    edit: Edit
    keeping: float  # sigma: the expected effect, less the price times the probability that it is no gain
    telling: float  # sigma: the knowledge gradient per run of the champion without the edit
    testable: bool  # False where the champion cannot be had or does not run without it


def edits_of(champion: Attempt, history: History) -> tuple[Attempt, ...]:
    """Return the kept edits that a script is made of, without those that an earlier dawn has taken out."""
    line = line_of(champion, history)
    out = {part for attempt in line for part in attempt.proposal.without}
    return tuple(attempt for attempt in reversed(line) if attempt.is_edit and attempt.number not in out)


@dataclass(frozen=True)
class Ablation:
    """Take the edits of a champion out again, one at a time, by the runs of one dawn.

    divisible: edits of so many dials that a half of them is worth asking about. impossible: sets of edits that cannot
    be taken out, because later edits need their lines.
    """

    history: History
    champion: Attempt
    dawn: int = 1
    divisible: Collection[int] = ()
    impossible: Collection[Parts] = ()

    def without(self, *edits: Part) -> Attempt | None:
        """Return the attempt that is the champion without these edits; without its last edit, it is its parent."""
        number, parent = self.champion.number, self.champion.parent
        if edits == (number,) and parent is not None:
            return self.history[parent]
        questions = (attempt for attempt in self.history if attempt.parent == number and attempt.proposal.without)
        return next((attempt for attempt in questions if attempt.proposal.without == edits), None)

    def fresh(self, attempt: Attempt, *, holdout: bool = False) -> dict[int, float]:
        """Return seed → bits per byte, of the attempt's runs at this dawn."""
        scores = {run.seed: run.holdout if holdout else run.score for run in attempt.dawn_runs(self.dawn)}
        return {
            seed: score.val_bpb for seed, score in scores.items() if score is not None and score.val_bpb is not None
        }

    def expecting(self, in_flight: Collection[tuple[int, int]]) -> "Ablation":
        """Return the same with a score for each run in flight, by attempt and seed: the one that is expected of it.

        So a run is chosen in the light of those beside it.
        """
        history = list(self.history)
        for number, seed in in_flight:
            score = Score(self._expected_bpb(self.history[number]), 0.0)
            run = Run(seed, Ending.FINISHED, 0, 0.0, None, "", score, self.dawn)
            history[number] = replace(history[number], runs=(*history[number].runs, run))
        return replace(self, history=history, champion=history[self.champion.number])

    def _expected_bpb(self, attempt: Attempt) -> float | None:
        """Return the mean of an attempt's scores at this dawn, or else at night; without any, what is believed."""
        scores = tuple(self.fresh(attempt).values()) or attempt.scores_bpb
        if scores or attempt is self.champion:
            return statistics.fmean(scores) if scores else None
        best_bpb, parts = self._expected_bpb(self.champion), attempt.proposal.without
        lost_bpb = sum(doubt.edit.effect.mean_bpb for doubt in self.posteriors if doubt.edit.number in parts)
        return None if best_bpb is None else best_bpb + lost_bpb

    # ---- what is known of each edit ----------------------------------------------------------------------------------

    @cached_property
    def posteriors(self) -> list[Posterior]:
        """Return what is known of each of the champion's edits, and of both halves of those that are divisible.

        An edit's effect has the night's posterior, times the likelihood of the runs without it. The champion's merit
        and the effect count as independent given the night's runs, which they are not quite.
        """
        ideas = [self._as_seen(attempt) for attempt in self.history if attempt.done_runs]  # no questions of dawn
        knowledge, chain = know(measured(ideas)), edits_of(self.champion, self.history)
        if knowledge is None or not {self.champion.number, *(edit.number for edit in chain)} <= knowledge.place.keys():
            return []  # where seeds move nothing, the night's scores were exact
        posteriors = []
        for edit in chain:
            number, effect = edit.number, knowledge.effect(edit.number)
            # without its last edit, the champion is its parent, whose runs are in the belief already
            if edit is not self.champion:
                effect = effect.given(self._likelihood(number, knowledge))
            posteriors.append(
                self._posterior(number, effect, price_of(edit, self.history, knowledge, PRICE)[0], knowledge)
            )
            if number in self.divisible and abs(effect.mean) <= LARGEST:
                weights, halves = knowledge.belief.weights[knowledge.place[number]], halves_of(number)
                both = divided(effect, weights, [self._likelihood(half, knowledge) for half in halves])
                posteriors += [
                    self._posterior(half, bring, 0.0, knowledge) for half, bring in zip(halves, both, strict=True)
                ]
        return posteriors

    def _as_seen(self, attempt: Attempt) -> Attempt:
        """Return the attempt with this dawn's runs counted as the night's."""
        runs = (replace(run, dawn=0) if run.dawn == self.dawn else run for run in attempt.runs)
        return replace(attempt, runs=tuple(runs))

    def _likelihood(self, part: Part, knowledge: Knowledge) -> Distribution | None:
        """Return the likelihood of each effect by the runs without an edit or a half; None without any run."""
        without = self.without(part)
        scores = distinct_scores(self._as_seen(without)) if without is not None else ()
        return knowledge.gap(self.champion.number, scores) if scores else None

    def _posterior(self, part: Part, effect: Distribution, price: float, knowledge: Knowledge) -> Posterior:
        without, worths = self.without(part), effect.worths(price)
        runs = 0 if without is None else len(self.fresh(without))
        edit = Edit(part, effect.interval(knowledge.sigma_bpb), 1 - effect.sure, runs)
        telling = knowledge_gradient(worths, knowledge.merit(self.champion.number).variance)
        is_possible = (part,) not in self.impossible and (without is None or fault(without) is None)
        return Posterior(edit, float(worths.sum()), telling, is_possible)

    # ---- the next run ------------------------------------------------------------------------------------------------

    def next_run(self, runs_left: int, at_least: int = FRESH) -> DawnRun | None:
        """Return the most useful run; None if no run would change the findings.

        at_least: runs of attempt 0 and of the champion.
        """
        if runs_left < 1:
            return None
        rival = min(self.history[0], self.champion, key=lambda attempt: len(self.fresh(attempt)))
        if len(self.fresh(rival)) < at_least:
            return Again(rival.number)
        wanted = self._last_runs()
        if runs_left > wanted:
            testable = (doubt for doubt in self.posteriors if doubt.testable and doubt.edit.runs < MOST)
            telling = (doubt for doubt in testable if doubt.telling >= TELLING)
            best = max(telling, key=lambda doubt: round(doubt.telling, 9), default=None)  # halves can be alike
            if best is not None:
                return self._run_without(best.edit.number)
        return self._run_without(*self.passengers) if wanted > 0 else None

    @cached_property
    def passengers(self) -> Parts:
        """Return the edits that are not worth keeping; only the worst if not all can be taken out at once.

        Of an edit that is worth keeping, a half is dropped if runs without it, or without the other half, say that it
        does harm; without such runs, each half is expected to bring half of what the edit does.
        """
        worthless = [doubt for doubt in self.posteriors if doubt.testable and doubt.keeping < 0]
        # of each edit itself, or else its worse half
        worthless.sort(key=lambda doubt: (is_half(doubt.edit.number), doubt.keeping), reverse=True)
        chosen = {edit_of(doubt.edit.number): doubt for doubt in worthless}
        worst_first = [doubt.edit.number for doubt in sorted(chosen.values(), key=lambda doubt: doubt.keeping)]
        while worst_first and tuple(sorted(worst_first)) in self.impossible:
            worst_first.pop()
        return tuple(sorted(worst_first))

    def _last_runs(self) -> int:
        """Return how many more runs the script without passengers needs before it may replace the champion."""
        last = self.without(*self.passengers)
        if last is None:
            return LAST if self.passengers else 0
        return max(0, LAST - len(self.fresh(last))) if fault(last) is None else 0

    def _run_without(self, *edits: Part) -> DawnRun:
        there = self.without(*edits)
        return Without(edits) if there is None else Again(there.number)

    # ---- the findings ------------------------------------------------------------------------------------------------

    def findings(self, texts: Mapping[str, Spread] | None = None) -> Findings:
        """Return what dawn has found so far.

        texts: by the names of their splits, how far the champion's gain varies with the choice of the text's pieces.
        """
        first, champion, texts = self.history[0], self.champion, texts or {}
        passengers, last = self.passengers, self.without(*self.passengers)
        dropping = self._gain(champion, last) if last is not None else None
        objection = self._objection(last, dropping) if passengers else None
        verb, whom = ("stays", "it") if len(passengers) == 1 else ("stay", "them")
        stays = f"{names(passengers)} {verb}: the script without {whom} {objection}" if objection else None
        passengers = () if objection else passengers
        honest = self._gain(first, champion)
        recorded_bpb, believed_bpb = self._gain_of_night()
        held = texts.get("holdout")
        confirmed = last if last is not None and passengers else champion
        return Findings(
            champion=champion.number,
            script=confirmed.number if honest is not None and honest.low_bpb > 0 else None,
            fresh_runs=len(self.fresh(first)) + len(self.fresh(champion)),
            recorded_bpb=recorded_bpb,
            believed_bpb=believed_bpb,
            honest=honest,
            holdout=self._gain(first, champion, *([held] if held is not None else ()), holdout=True),
            over="the choice of seeds"
            + (f" and of {held.freedom + 1:,.0f} pieces of text" if held is not None else ""),
            fitted=self._fitted(texts),
            edits=tuple(doubt.edit for doubt in self.posteriors if _is_told(doubt.edit, passengers)),
            passengers=passengers,
            dropping=dropping,
            stays=stays,
        )

    def _gain_of_night(self) -> tuple[float | None, float | None]:
        """Return the champion's gain over attempt 0 by the night's own scores, and the same shrunken by the judge."""
        first_bpb, last_bpb, knowledge = self.history[0].val_bpb, self.champion.val_bpb, know(measured(self.history))
        recorded_bpb = None if first_bpb is None or last_bpb is None else first_bpb - last_bpb
        if knowledge is None or self.champion.number not in knowledge.place:
            return recorded_bpb, recorded_bpb
        return recorded_bpb, knowledge.lead(self.champion.number, 0) * knowledge.sigma_bpb

    def _gain(self, before: Attempt, after: Attempt, *texts: Spread, holdout: bool = False) -> Interval | None:
        """Return how much lower one attempt's fresh scores are than another's."""
        old, new = (self.fresh(attempt, holdout=holdout).values() for attempt in (before, after))
        return difference(old, new, *texts)

    def _fitted(self, texts: Mapping[str, Spread]) -> Interval | None:
        """Return how much larger the gain on the validation text is than on the holdout; None without both spreads.

        A run has the same weights on both texts, so most of its luck cancels in the difference.
        """
        if not {"holdout", "validation"} <= texts.keys():
            return None
        before_bpb, after_bpb = (
            [self.fresh(attempt)[seed] - bpb for seed, bpb in self.fresh(attempt, holdout=True).items()]
            for attempt in (self.history[0], self.champion)
        )
        return difference(before_bpb, after_bpb, texts["validation"], texts["holdout"])

    def _objection(self, last: Attempt | None, dropping: Interval | None) -> str | None:
        """Say why the script without all passengers may not replace the champion: each of its runs has to succeed."""
        if last is None:
            return "was never run"
        why = fault(last)
        if why is not None:
            return f"failed: {why}"
        verdict = trusted(Decision(Kind.KEPT, ""), last, None)
        if verdict.status is not Status.KEEP:
            return f"failed its {verdict.reason}"
        ran = len(self.fresh(last))
        if ran < LAST:
            return f"ran {ran} time{'s' * (ran != 1)} by now, and {LAST} are needed"
        return "is worse" if dropping is not None and dropping.high_bpb < 0 else None


def _is_told(edit: Edit, passengers: Parts) -> bool:
    """Return whether it is a whole edit, or a half of one that stays which was asked about or is dropped."""
    is_news = edit_of(edit.number) not in passengers and (edit.runs > 0 or edit.number in passengers)
    return is_news or not is_half(edit.number)


def divided(whole: Distribution, weights: Array, likelihoods: Sequence[Distribution | None]) -> list[Distribution]:
    """Return the posterior of each half's effect, over REACH, from that of the whole edit's.

    Before there are runs without it, a half is expected to bring what any edit of the same source brings, given that
    both halves together bring what the edit does: p(a, b) ~ alike(a) alike(b) whole(a + b) / sum of alike(x) alike(y)
    over x + y = a + b. likelihoods: by the runs without the one and the other half.
    """
    alike = Distribution(REACH * STEP, weights @ effects(REACH))
    one, other = (alike.given(likelihood).probability for likelihood in likelihoods)
    sums = np.arange(2 * REACH[0], 2 * REACH[-1] + 1) * STEP
    ratio = whole.at(sums) / (np.convolve(alike.probability, alike.probability) + TINY)
    joint = np.lib.stride_tricks.sliding_window_view(ratio, len(REACH)) * np.outer(one, other)
    joint /= joint.sum()
    return [Distribution(alike.sizes, joint.sum(axis=axis)) for axis in (1, 0)]


def names(edits: Collection[Part]) -> str:
    return " and ".join(named(number) for number in sorted(edits, key=edit_of))


# ---- the night goes on -----------------------------------------------------------------------------------------------


def adoption(history: History, dawn: Dawn | None) -> dict[int, Decision]:
    """Return the decisions by which a night goes on from the script that its last dawn has confirmed, if any."""
    champion = incumbent(history)
    if dawn is None or dawn.ended is None or not dawn.findings or champion is None:
        return {}
    confirmed = Findings.of(dawn.findings)
    if confirmed.script is None or champion.number != confirmed.champion:
        return {}
    script = history[confirmed.script]
    if script.number == champion.parent:
        return {champion.number: Decision(Kind.PASSENGER, "a passenger, by dawn's runs")}
    if script.kind is not Kind.QUESTION:
        return {}  # it is the champion itself, or was taken over once and has fallen since
    return {script.number: Decision(Kind.ADOPTED, f"confirmed at dawn: {script.proposal.title}")}
