"""The judges: each decides, from the scores so far, which edits a night keeps. Pure.

Balanced is the judge of a night that names no other. JUDGES at the end is the table of all judges.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from agent.experiment import Attempt, Decision, History, Judge, Kind, Review, Status, incumbent, kept
from agent.judging.failures import failure
from agent.judging.noise import (
    SAME,
    Knowledge,
    distinct_scores,
    doubt_of,
    is_believed,
    know,
    measured,
    pooled_deviation,
)
from agent.judging.simplicity import price_of
from agent.text import percent_sure, shown_difference

CONFIRMED = 0.9  # the probability of a gain from which a keep is no longer provisional


# ---- what all judges share -------------------------------------------------------------------------------------------


class Rivals(NamedTuple):
    """Name the attempt's parent, with which it is compared, and the incumbent; often they are the same attempt."""

    parent: Attempt
    incumbent: Attempt

    @property
    def is_overtaken(self) -> bool:
        """Return whether another edit was kept while the attempt ran, so that its parent is the incumbent no longer."""
        return self.parent.number != self.incumbent.number


def rivals_of(attempt: Attempt, history: History, calibration: int) -> Rivals | Decision:
    """Return what an attempt is compared with, or the decision on it where no comparison is needed.

    Attempts may end in any order, so the parent may no longer be the incumbent. It may even be revoked: the gain over
    it is measured all the same, and is the gain of this edit alone, whatever the parent's own edit was worth.
    """
    why = failure(attempt)
    if why is not None or attempt.val_bpb is None:
        return Decision(Kind.CRASHED, why or "no score")
    best = incumbent(history)
    if best is None or best.val_bpb is None:
        runs = len(attempt.done_runs)
        if runs < calibration:
            return Decision(Kind.UNDECIDED, f"calibration: run {runs + 1} of {calibration} tells the noise")
        return Decision(Kind.BASELINE, "baseline")
    if len(distinct_scores(attempt)) < len(attempt.scores_bpb):
        return Decision(Kind.IGNORES_SEED, "it ignores its seed: two seeds gave the very same score")
    parent = best if attempt.parent in (None, best.number) else history[attempt.parent]
    if parent.val_bpb is None or parent.decision is None or not is_believed(parent.decision):
        return orphaned(attempt)
    return Rivals(parent, best)


def compare(attempt: Attempt, rivals: Rivals) -> Decision:
    """Compare the means of all scores; a tie is a discard."""
    whom = "its parent" if rivals.is_overtaken else "the incumbent"
    val_bpb, parent_bpb = mean_bpb(attempt), mean_bpb(rivals.parent)
    if math.isclose(val_bpb, parent_bpb, rel_tol=SAME):
        return Decision(Kind.TIE, f"a tie with {whom}")
    if val_bpb < parent_bpb:
        return Decision(Kind.KEPT, f"{shown_difference(parent_bpb, val_bpb):.6f} below {whom}")
    return Decision(Kind.WORSE, f"{shown_difference(val_bpb, parent_bpb):.6f} above {whom}")


def orphaned(attempt: Attempt) -> Decision:
    """Discard an attempt whose parent's scores do not count."""
    return Decision(Kind.ORPHANED, f"made from #{attempt.parent}, whose scores do not count any more")


def overtaken(verdict: Decision, best: Attempt) -> Decision:
    """Decide about an edit that looks better than its parent, while another one has become the incumbent.

    The sum of their gains was not measured, so the edit has to win again on the incumbent. It gets no other seed: the
    merged attempt's first run tells as much about the edit, and that attempt can be kept.
    """
    return replace(verdict, kind=Kind.OVERTAKEN, reason=f"{verdict.reason}; to be merged onto #{best.number}")


def mean_bpb(attempt: Attempt) -> float:
    """Return the mean of an attempt's scores; the incumbent is valued by it, never by its minimum."""
    return statistics.fmean(attempt.scores_bpb)


# ---- greedy ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Greedy:
    """Keep what is strictly lower than the incumbent's mean, as most systems do.

    With confirm, what would be kept is measured with that many more seeds first, and judged by the mean.
    """

    confirm: int = 0
    calibration: int = 1

    def judge(self, attempt: Attempt, history: History) -> Decision:
        rivals = rivals_of(attempt, history, self.calibration)
        if isinstance(rivals, Decision):
            return rivals
        verdict = compare(attempt, rivals)
        if verdict.status is not Status.KEEP:
            return verdict
        if rivals.is_overtaken:
            return overtaken(verdict, rivals.incumbent)
        if len(attempt.done_runs) <= self.confirm:
            return Decision(Kind.UNDECIDED, "another seed has to confirm it")
        return verdict

    def review(self, history: History) -> Review:
        """Return an empty review: decisions are final."""
        return Review()


# ---- strict ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Strict:
    """Keep what a sequential t-test calls better: at most 0.5 false keeps among 100 edits without effect.

    Every look after the third run may err with the same small probability (Pocock 1977); sigma is the pooled deviation
    of the night's repeats.
    """

    calibration: int = 4
    most: int = 6  # runs of one attempt
    hopeful: float = 0.8  # standard errors below the incumbent that a further run is worth
    error: float = 0.008  # of each look; most edits are given up long before the last

    def judge(self, attempt: Attempt, history: History) -> Decision:
        rivals = rivals_of(attempt, history, self.calibration)
        if isinstance(rivals, Decision):
            return rivals
        verdict = self._test(attempt, rivals, history)
        is_hopeful = verdict.status is Status.KEEP or verdict.kind is Kind.UNDECIDED
        return overtaken(verdict, rivals.incumbent) if rivals.is_overtaken and is_hopeful else verdict

    def _test(self, attempt: Attempt, rivals: Rivals, history: History) -> Decision:
        gain_bpb, t, luck = t_test(attempt, rivals.parent, history)
        runs, verdict = len(attempt.scores_bpb), compare(attempt, rivals)
        if math.isinf(t) or (runs >= 3 and luck <= self.error):
            return Decision(verdict.kind, verdict.reason, gain_bpb, 1 - luck)
        maybe = verdict.reason if gain_bpb <= 0 else f"{verdict.reason}, which may be luck"
        if math.isnan(t) or (t >= self.hopeful and runs < self.most):
            return Decision(Kind.UNDECIDED, maybe, gain_bpb, 1 - luck)
        kind = Kind.LUCK if verdict.kind is Kind.KEPT else verdict.kind
        return Decision(kind, maybe, gain_bpb, 1 - luck)

    def review(self, history: History) -> Review:
        """Return an empty review: decisions are final."""
        return Review()


def t_test(attempt: Attempt, parent: Attempt, history: History) -> tuple[float, float, float]:
    """Return the gain in bits per byte, its Student's t, and the probability of as much by luck.

    t is nan where no attempt was repeated. Sigma is doubled where attempt 0 says little about the noise.
    """
    from scipy.special import stdtr  # takes a third of a second to import, and most commands do without

    sigma_bpb, freedom = pooled_deviation([measurement.scores_bpb for measurement in (*measured(history), attempt)])
    gain_bpb = mean_bpb(parent) - mean_bpb(attempt)
    if freedom == 0:
        return gain_bpb, math.nan, 0.5
    widened = 1 if doubt_of(history[0], sigma_bpb) is None else 2
    error_bpb = widened * sigma_bpb * math.sqrt(1 / len(attempt.scores_bpb) + 1 / len(parent.scores_bpb))
    t = gain_bpb / error_bpb if error_bpb > 0 else math.copysign(math.inf, gain_bpb)
    return gain_bpb, t, float(stdtr(freedom, -t))


# ---- balanced --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Balanced:
    """Keep what is expected to be worth it, and measure again where a run teaches more than a new idea would bring.

    Both are valued in the same unit: sigma of gain, less a price for every worthless edit that is kept. The estimates
    are those of agent/judging/belief.py.
    """

    calibration: int = 3
    price: float = 0.35  # sigma
    patience: float = 0.5  # a further run has to be worth this many fresh ideas, which bring less than their promise
    most: int = 6  # runs of one attempt
    lead: float = 0.5  # sigma, over the incumbent, from which an edit of another script is kept in its place

    def judge(self, attempt: Attempt, history: History) -> Decision:
        rivals = rivals_of(attempt, history, self.calibration)
        if isinstance(rivals, Decision):
            return rivals
        knowledge = know(measured(history, attempt))
        if knowledge is None:
            return _decide_without_noise(attempt, rivals)
        if attempt.number not in knowledge.place:
            return orphaned(attempt)
        doubt = Doubt.of(knowledge, attempt, history, self.price)
        if rivals.is_overtaken:
            return self._decide_elsewhere(knowledge, doubt, rivals.incumbent)
        if self._wants_run(knowledge, doubt):
            sure = percent_sure(doubt.sure)
            return doubt.decide(Kind.UNDECIDED, f"{sure} sure: another seed tells more than another idea")
        if doubt.worth <= 0:
            return doubt.discard()
        if len(attempt.scores_bpb) < 2 and doubt.simpler is not None:
            return doubt.decide(Kind.UNDECIDED, "simpler: another seed has to show what that costs")
        if len(attempt.scores_bpb) < 2 and knowledge.doubt is not None:
            return doubt.decide(Kind.UNDECIDED, "the noise is hardly known: another seed has to confirm it")
        return doubt.keep()

    def _decide_elsewhere(self, knowledge: Knowledge, doubt: "Doubt", best: Attempt) -> Decision:
        """Decide about an edit of a script that is not the incumbent any more.

        Of two edits of one script, the second to end has to be merged onto the first, or the first onto the second: the
        one that brings less is measured again. That holds for an edit of a revoked script, too, since both together
        were measured. A merge costs a run, so it has to promise more than a fresh idea.
        """
        if doubt.sure >= CONFIRMED and knowledge.lead(doubt.attempt.number, best.number) >= self.lead:
            keep = doubt.keep()
            return replace(keep, reason=f"{keep.reason}, and better than #{best.number}")
        promises = doubt.worth + doubt.value_of_run > knowledge.belief.value_of_idea(self.price)
        if doubt.worth > 0 and (promises or doubt.simpler is not None):
            return overtaken(doubt.keep() if doubt.simpler is not None else doubt.discard(), best)
        return doubt.discard()

    def review(self, history: History) -> Review:
        """Revoke the last keeps where later scores contradict them, confirm others, or ask for another run."""
        beside = _beside_the_incumbent(history)
        if beside:
            return Review(decisions=beside)
        knowledge = know(measured(history))
        chain = [attempt for attempt in kept(history) if attempt.number and attempt.is_idea]
        if knowledge is None or not chain or any(attempt.number not in knowledge.place for attempt in chain):
            return Review()
        doubts = [Doubt.of(knowledge, attempt, history, self.price) for attempt in chain]
        revoked = doubts[_worthless_from(doubts) :]
        if revoked:
            return Review(decisions={doubt.attempt.number: doubt.revoke() for doubt in revoked})
        confirmed = {doubt.attempt.number: doubt.keep(Kind.CONFIRMED) for doubt in doubts if doubt.is_over}
        again = chain[-1].number if self._wants_run(knowledge, doubts[-1]) else None
        return Review(again, confirmed)

    def _wants_run(self, knowledge: Knowledge, doubt: "Doubt") -> bool:
        idea = knowledge.belief.value_of_idea(self.price)
        return len(doubt.attempt.done_runs) < self.most and doubt.value_of_run > self.patience * idea


@dataclass(frozen=True, slots=True)
class Doubt:
    """Weigh one edit by everything that the night has measured."""

    attempt: Attempt
    gain_bpb: float
    sure: float
    worth: float  # sigma: of keeping it
    value_of_run: float  # sigma: of measuring it again
    simpler: str | None  # in what, where that is why it is kept

    @classmethod
    def of(cls, knowledge: Knowledge, attempt: Attempt, history: History, price: float) -> "Doubt":
        belief, i = knowledge.belief, knowledge.place[attempt.number]
        own_price, what = price_of(attempt, history, knowledge, price)
        return cls(
            attempt=attempt,
            gain_bpb=knowledge.gain_bpb(attempt.number),
            sure=knowledge.sure(attempt.number),
            worth=belief.value_of_keeping(i, own_price),
            value_of_run=belief.value_of_runs(i, own_price),
            simpler=what if belief.value_of_keeping(i, price) <= 0 else None,
        )

    @property
    def is_over(self) -> bool:
        """Return whether the doubt is over: the edit was kept provisionally, and is sure by now."""
        return self.attempt.kind is Kind.PROVISIONAL and self.sure >= CONFIRMED

    def keep(self, kind: Kind = Kind.KEPT) -> Decision:
        """Keep the edit: as this kind, or as simpler or provisional where that is why or how."""
        if self.simpler is not None:
            return self.decide(Kind.SIMPLER, f"simpler: {self.simpler}, and {self._estimate}")
        if self.sure < CONFIRMED:
            return self.decide(Kind.PROVISIONAL, f"provisional: {self._estimate}, {percent_sure(self.sure)} sure")
        return self.decide(kind, f"{self._estimate}, {percent_sure(self.sure)} sure")

    def discard(self) -> Decision:
        return self.decide(Kind.LUCK if self.gain_bpb > 0 else Kind.WORSE, self._against)

    def revoke(self) -> Decision:
        return self.decide(Kind.REVOKED, f"revoked: {self._against}")

    def decide(self, kind: Kind, reason: str) -> Decision:
        return Decision(kind, reason, self.gain_bpb, self.sure)

    @property
    def _estimate(self) -> str:
        side = "below" if self.gain_bpb >= 0 else "above"
        return f"an estimated {abs(self.gain_bpb):.6f} {side} its parent"

    @property
    def _against(self) -> str:
        return f"{self._estimate}, {percent_sure(self.sure)} sure of a gain"


def _beside_the_incumbent(history: History) -> dict[int, Decision]:
    """Return decisions on keeps that the incumbent was not made from: they are overtaken."""
    keeps = kept(history)
    if not keeps:
        return {}
    best = keeps[-1]
    line, parent = {best.number}, best.parent
    while parent is not None:
        line.add(parent)
        parent = history[parent].parent
    beside = (keep for keep in keeps if keep.number not in line)
    return {keep.number: overtaken(keep.decision, best) for keep in beside if keep.decision is not None}


def _worthless_from(chain: list[Doubt]) -> int:
    """Return where the part of the chain begins that costs more than it brings; the chain's length if none does."""
    endings = [sum(doubt.worth for doubt in chain[k:]) for k in range(len(chain) + 1)]
    return min(reversed(range(len(endings))), key=endings.__getitem__)


def _decide_without_noise(attempt: Attempt, rivals: Rivals) -> Decision:
    """Decide by one run, for scripts whose scores do not vary with the seed."""
    verdict = compare(attempt, rivals)
    is_better = verdict.status is Status.KEEP
    exact = replace(verdict, gain_bpb=mean_bpb(rivals.parent) - mean_bpb(attempt), sure=1.0 if is_better else 0.0)
    return overtaken(exact, rivals.incumbent) if rivals.is_overtaken and is_better else exact


# ---- the table -------------------------------------------------------------------------------------------------------

# To add a judge, write its class above, and name it here: how it is made, where N is the --confirm of a night, and how
# a night introduces it. The command line, the greeting and the night read this table.
JUDGES: Mapping[str, tuple[Callable[[int], Judge], str]] = {
    "balanced": (
        lambda confirm: Balanced(),
        "the script first runs three times, to learn the noise; then further seeds where they pay",
    ),
    "greedy": (Greedy, "one lower run is enough, and much of what is kept will be luck"),
    "strict": (lambda confirm: Strict(), "hardly anything is kept by luck, at the price of many runs"),
}


def choose_judge(name: str, confirm: int = 0) -> Judge:
    """Return the judge of this name; raise KeyError for another. confirm: as `--confirm` gives it to the greedy one."""
    make, _ = JUDGES[name]
    return make(confirm)


def judge_in_words(name: str) -> str:
    """Introduce a judge by its name and a few words."""
    return f"{name}: {JUDGES[name][1]}"
