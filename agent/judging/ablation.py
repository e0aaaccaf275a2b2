"""Confirmation: which run would tell most about the night's result, and what the runs have told. Pure.

The best script, the last attempt kept, meets attempt 0 on seeds and text that no choice of the night has seen. Then its
edits are taken out again, one at a time (an ablation), the doubtful ones first. An edit that the best script does not
need is an edit without effect.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from agent.experiment import Attempt, Decision, History, Kind, Status, line_of
from agent.findings import EditEffect, Findings, Interval
from agent.judging.belief import knowledge_gradient
from agent.judging.failures import failure, trusted
from agent.judging.judges import price_of
from agent.judging.noise import distinct_scores, know, measured
from agent.text import numbered

FRESH = 4  # runs of attempt 0 and of the best script each, before any edit is doubted
LAST = 2  # runs of the script without the edits that have no effect
MOST = 8  # runs without one edit
TELLING = 0.002  # expected knowledge, in units of one run's noise; a run that promises less is not worth its minutes
QUESTION = "a question of the confirmation"  # the reason why such an attempt is discarded

PRICE = 2.0  # sigma that a person would pay to be rid of a worthless edit: it is read, understood and kept for good


Edits = tuple[int, ...]  # attempts' numbers, in ascending order


# ---- the best script without some of its edits -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Posterior:
    """What is known of one edit of the best script."""

    edit: EditEffect
    keeping: float  # sigma: the expected effect, less the price times the probability that it is no gain
    telling: float  # the knowledge gradient per run of the best script without the edit, in units of one run's noise
    testable: bool  # False where the best script cannot be had or does not run without it


def edits_of(best: Attempt, history: History) -> tuple[Attempt, ...]:
    """Return the kept edits that a script is made of, without those that an earlier confirmation has taken out."""
    line = line_of(best, history)
    out = {edit for attempt in line for edit in attempt.proposal.without}
    return tuple(attempt for attempt in reversed(line) if attempt.is_edit and attempt.number not in out)


@dataclass(frozen=True)
class Ablation:
    """Take the edits of a best script out again, one at a time, by the runs of one confirmation.

    impossible: sets of edits that cannot be taken out, because later edits need their lines. in_flight: the attempt of
    each run that is being made.
    """

    history: History
    best: Attempt
    confirmation: int = 1
    impossible: Collection[Edits] = ()
    in_flight: tuple[int, ...] = ()

    def without(self, *edits: int) -> Attempt | None:
        """Return the attempt that is the best script without these edits; without its last edit, it is its parent."""
        number, parent = self.best.number, self.best.parent
        if edits == (number,) and parent is not None:
            return self.history[parent]
        questions = (attempt for attempt in self.history if attempt.parent == number and attempt.proposal.without)
        return next((attempt for attempt in questions if attempt.proposal.without == edits), None)

    def fresh(self, attempt: Attempt, *, holdout: bool = False) -> tuple[float, ...]:
        """Return the bits per byte of the attempt's runs in this confirmation."""
        scores = (run.holdout_bpb if holdout else run.val_bpb for run in attempt.confirmation_runs(self.confirmation))
        return tuple(val_bpb for val_bpb in scores if val_bpb is not None)

    def made(self, attempt: Attempt) -> int:
        """Count the runs of an attempt in this confirmation, with those in flight."""
        return len(self.fresh(attempt)) + self.in_flight.count(attempt.number)

    # ---- what is known of each edit ----------------------------------------------------------------------------------

    @cached_property
    def posteriors(self) -> list[Posterior]:
        """Return what is known of each of the best script's edits.

        An edit's effect has the night's posterior, times the likelihood of the runs without it. The best script's merit
        and the effect count as independent given the night's runs, which they are not quite.
        """
        # no questions of the confirmation
        ideas = [self._as_seen(attempt) for attempt in self.history if attempt.done_runs]
        knowledge, chain = know(measured(ideas)), edits_of(self.best, self.history)
        if knowledge is None or not {self.best.number, *(edit.number for edit in chain)} <= knowledge.place.keys():
            return []  # seeds move nothing here, so the night's scores are exact
        posteriors = []
        for edit in chain:
            number, without, effect = edit.number, self.without(edit.number), knowledge.effect(edit.number)
            # The best script without its last edit is its parent, whose runs are in the belief already.
            scores = {} if without is None or edit is self.best else distinct_scores(self._as_seen(without))
            if scores:
                effect = effect.given(knowledge.gap(self.best.number, tuple(scores.values())))
            worths = effect.worths(price_of(edit, self.history, knowledge, PRICE)[0])
            variance, noise = knowledge.merit(self.best.number).variance, knowledge.noise
            telling = knowledge_gradient(worths, variance, noise=noise) / noise
            if without is not None:
                telling /= 1 + self.in_flight.count(without.number)
            runs = 0 if without is None else len(self.fresh(without))
            is_possible = (number,) not in self.impossible and (without is None or failure(without) is None)
            seen = EditEffect(number, effect.interval(knowledge.sigma_bpb), 1 - effect.sure, runs)
            posteriors.append(Posterior(seen, float(worths.sum()), telling, is_possible))
        return posteriors

    def _as_seen(self, attempt: Attempt) -> Attempt:
        """Return the attempt with this confirmation's runs counted as the night's."""
        runs = (replace(run, confirmation=0) if run.confirmation == self.confirmation else run for run in attempt.runs)
        return replace(attempt, runs=tuple(runs))

    # ---- the next run ------------------------------------------------------------------------------------------------

    def next_run(self, runs_left: int, at_least: int = FRESH) -> int | Edits | None:
        """Return the attempt whose further run is most useful; None if no run would change the findings.

        Where that is the best script without some edits, and no attempt is that script yet, return these edits.
        at_least: runs of attempt 0 and of the best script.
        """
        if runs_left < 1:
            return None
        rival = min(self.history[0], self.best, key=self.made)
        if self.made(rival) < at_least:
            return rival.number
        wanted = self._last_runs()
        if runs_left > wanted:
            testable = (doubt for doubt in self.posteriors if doubt.testable and doubt.edit.runs < MOST)
            telling = (doubt for doubt in testable if doubt.telling >= TELLING)
            best = max(telling, key=lambda doubt: doubt.telling, default=None)
            if best is not None:
                return self._run_without(best.edit.number)
        return self._run_without(*self.without_effect) if wanted > 0 else None

    @cached_property
    def without_effect(self) -> Edits:
        """Return the edits that are not worth keeping; only the worst if not all can be taken out at once."""
        worthless = [doubt for doubt in self.posteriors if doubt.testable and doubt.keeping < 0]
        worst_first = [doubt.edit.number for doubt in sorted(worthless, key=lambda doubt: doubt.keeping)]
        while worst_first and tuple(sorted(worst_first)) in self.impossible:
            worst_first.pop()
        return tuple(sorted(worst_first))

    def _last_runs(self) -> int:
        """Return how many more runs the script without them needs before it may replace the best one."""
        last = self.without(*self.without_effect)
        if last is None:
            return LAST if self.without_effect else 0
        return max(0, LAST - self.made(last)) if failure(last) is None else 0

    def _run_without(self, *edits: int) -> int | Edits:
        question = self.without(*edits)
        return edits if question is None else question.number

    # ---- the findings ------------------------------------------------------------------------------------------------

    def findings(self) -> Findings:
        """Return what the confirmation has found so far."""
        first, best = self.history[0], self.best
        without_effect, last = self.without_effect, self.without(*self.without_effect)
        dropping = self._gain(best, last) if last is not None else None
        stays = None
        if without_effect and not self._may_replace(last, dropping):
            stays = (
                f"not dropped: {numbered(without_effect)}, since no {LAST} runs say that the script is as good without"
            )
            without_effect = ()
        honest = self._gain(first, best)
        recorded_bpb, believed_bpb = self._gain_of_night()
        confirmed = last if last is not None and without_effect else best
        return Findings(
            best=best.number,
            script=confirmed.number if honest is not None and honest.low_bpb > 0 else None,
            recorded_bpb=recorded_bpb,
            believed_bpb=believed_bpb,
            honest=honest,
            holdout=self._gain(first, best, holdout=True),
            edits=tuple(doubt.edit for doubt in self.posteriors),
            without_effect=without_effect,
            dropping=dropping,
            stays=stays,
        )

    def _gain_of_night(self) -> tuple[float | None, float | None]:
        """Return the best script's gain over attempt 0 by the night's scores, and the same shrunken by the judge."""
        first_bpb, last_bpb, knowledge = self.history[0].val_bpb, self.best.val_bpb, know(measured(self.history))
        recorded_bpb = None if first_bpb is None or last_bpb is None else first_bpb - last_bpb
        if knowledge is None or self.best.number not in knowledge.place:
            return recorded_bpb, recorded_bpb
        return recorded_bpb, knowledge.lead(self.best.number, 0) * knowledge.sigma_bpb

    def _gain(self, before: Attempt, after: Attempt, *, holdout: bool = False) -> Interval | None:
        """Return how much lower one attempt's fresh scores are than another's."""
        return Interval.of_scores(self.fresh(before, holdout=holdout), self.fresh(after, holdout=holdout))

    def _may_replace(self, last: Attempt | None, dropping: Interval | None) -> bool:
        """Return whether the script without them may replace the best one: each of its runs has to succeed."""
        if last is None or failure(last) is not None or len(self.fresh(last)) < LAST:
            return False
        is_trusted = trusted(Decision(Kind.KEPT, ""), last, None).status is Status.KEEP
        return is_trusted and (dropping is None or dropping.high_bpb >= 0)
