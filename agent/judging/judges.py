"""The judges: each decides, from the scores so far, which edits a night keeps. Pure.

Balanced is the judge of a night that names no other. JUDGES at the end is the table of all judges.
"""

import math
import statistics
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from agent.experiment import Attempt, Decision, History, Kind, Review, Status, best_of, kept, line_of
from agent.judging.failures import failure
from agent.judging.noise import (
    SAME,
    SUREST,
    WIDENED,
    Knowledge,
    distinct_scores,
    doubt_of,
    is_believed,
    know,
    measured,
    pooled_deviation,
)
from agent.judging.speed import machine_speed
from agent.text import percent_sure, shown_difference, versus

CONFIRMED = 0.9  # the probability of a gain from which a keep is no longer provisional


# ---- what all judges share -------------------------------------------------------------------------------------------


class Judge:
    """Compare an attempt with the script that it was made from: what all judges share.

    Attempts may end in any order, so the parent may no longer be the incumbent. It may even be revoked: the gain over
    it is measured all the same, and is the gain of this edit alone, whatever the parent's own edit was worth.
    """

    words: ClassVar[str]  # how a night introduces the judge
    calibration: int

    def judge(self, attempt: Attempt, history: History) -> Decision:
        """Decide about an attempt, or ask for another seed."""
        why = failure(attempt)
        if why is not None or attempt.val_bpb is None:
            return Decision(Kind.CRASHED, why or "no score")
        best = best_of(history)
        if best is None or best.val_bpb is None:
            runs = len(attempt.done_runs)
            if runs < self.calibration:
                return Decision(Kind.UNDECIDED, f"calibration: run {runs + 1} of {self.calibration} tells the noise")
            return Decision(Kind.BASELINE, "baseline")
        if len(distinct_scores(attempt)) == 1 < len(attempt.scores_bpb):
            return Decision(Kind.IGNORES_SEED, "it ignores its seed: all its seeds gave the very same score")
        parent = best if attempt.parent in (None, best.number) else history[attempt.parent]
        if parent.val_bpb is None or not is_believed(parent.decision):
            return orphaned(attempt)
        return self.compared(attempt, parent, best, history)

    def compared(self, attempt: Attempt, parent: Attempt, best: Attempt, history: History) -> Decision:
        """Decide about a scored edit; best: the incumbent, mostly the parent itself."""
        raise NotImplementedError

    def review(self, history: History) -> Review:
        """Return an empty review: decisions are final."""
        return Review()


def compare(attempt: Attempt, parent: Attempt, best: Attempt) -> Decision:
    """Compare the means of all scores; a tie is a discard."""
    whom = "the incumbent" if parent is best else "its parent"
    val_bpb, parent_bpb = mean_bpb(attempt), mean_bpb(parent)
    if math.isclose(val_bpb, parent_bpb, rel_tol=SAME):
        return Decision(Kind.TIE, f"a tie with {whom}")
    kind = Kind.KEPT if val_bpb < parent_bpb else Kind.WORSE
    digits = attempt.decimals
    return Decision(kind, versus(whom, shown_difference(parent_bpb, val_bpb, digits), decimals=digits))


def mean_bpb(attempt: Attempt) -> float:
    """Return the mean of an attempt's scores; the incumbent is valued by it, never by its minimum."""
    return statistics.fmean(attempt.scores_bpb)


def orphaned(attempt: Attempt) -> Decision:
    """Discard an attempt whose parent's scores do not count."""
    return Decision(Kind.ORPHANED, f"made from #{attempt.parent}, whose scores do not count any more")


def overtaken(verdict: Decision, best: Attempt) -> Decision:
    """Decide about an edit that looks better than its parent, while another one has become the incumbent.

    The sum of their gains was not measured, so the edit has to win again on the incumbent. It gets no other seed: the
    merged attempt's first run tells as much about the edit, and that attempt can be kept.
    """
    return replace(verdict, kind=Kind.OVERTAKEN, reason=f"{verdict.reason}; to be merged onto #{best.number}")


# ---- greedy ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Greedy(Judge):
    """Keep an edit if its mean is lower than the incumbent's, as most systems do.

    With confirm, such an edit first gets that many further seeds, and is judged by the mean.
    """

    words: ClassVar = "one lower run is enough; much of what is kept is luck"
    confirm: int = 0
    calibration: int = 1

    def compared(self, attempt: Attempt, parent: Attempt, best: Attempt, history: History) -> Decision:
        verdict = compare(attempt, parent, best)
        if verdict.status is not Status.KEEP:
            return verdict
        if parent is not best:
            return overtaken(verdict, best)
        if len(attempt.done_runs) <= self.confirm:
            return Decision(Kind.UNDECIDED, "another seed has to confirm it")
        return verdict


# ---- strict ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Strict(Judge):
    """Keep what a sequential t-test calls better: at most 0.5 false keeps among 100 edits without effect.

    Every test after the third run may err with the same small probability (Pocock 1977); sigma is the pooled deviation
    of the night's repeats.
    """

    words: ClassVar = "hardly anything is kept by luck, at the price of many runs"
    calibration: int = 4
    most: int = 6  # most runs of one attempt
    hopeful: float = 0.8  # gain in standard errors from which another run is worth its time
    error: float = 0.008  # error probability of each look; most edits are given up long before the last one

    def compared(self, attempt: Attempt, parent: Attempt, best: Attempt, history: History) -> Decision:
        verdict, runs = compare(attempt, parent, best), len(attempt.scores_bpb)
        gain_bpb, t, luck = t_test(attempt, parent, history)
        kind, reason = verdict.kind, verdict.reason
        if not math.isinf(t) and (runs < 3 or luck > self.error):
            is_open = math.isnan(t) or (t >= self.hopeful and runs < self.most)
            kind = Kind.UNDECIDED if is_open else Kind.LUCK if kind is Kind.KEPT else kind
            reason += ", which may be luck" if gain_bpb > 0 else ""
        decision = Decision(kind, reason, gain_bpb, 1 - luck)
        is_hopeful = kind in (Kind.KEPT, Kind.UNDECIDED)
        return overtaken(decision, best) if parent is not best and is_hopeful else decision


def t_test(attempt: Attempt, parent: Attempt, history: History) -> tuple[float, float, float]:
    """Return the gain in bits per byte, its Student's t, and the probability of as much by luck.

    t is the gain by sigma sqrt(1/n + 1/m), with n and m runs; nan where no attempt was repeated. Sigma is doubled where
    attempt 0 says little about the noise.
    """
    from scipy.special import stdtr  # takes a third of a second to import, and most commands do without

    sigma_bpb, freedom = pooled_deviation([measurement.scores_bpb for measurement in (*measured(history), attempt)])
    gain_bpb = mean_bpb(parent) - mean_bpb(attempt)
    if freedom == 0:
        return gain_bpb, math.nan, 0.5
    sigma_bpb *= 1.0 if doubt_of(history[0], sigma_bpb) is None else WIDENED
    error_bpb = sigma_bpb * math.sqrt(1 / len(attempt.scores_bpb) + 1 / len(parent.scores_bpb))
    t = gain_bpb / error_bpb if error_bpb > 0 else math.copysign(math.inf, gain_bpb)
    return gain_bpb, t, float(stdtr(freedom, -t))


# ---- simpler scripts -------------------------------------------------------------------------------------------------

# Sizes are what the harness counts: the code by its syntax tree, the parameters by the header of the saved weights.
# What keeps for simplicity may cost is bounded over all of them, against the last attempt kept for a measured gain.
TIE = 0.25  # sigma: the largest expected cost of all simpler scripts together
FEWER = 0.99  # a script has fewer parameters below this share; a smaller difference is rounding


def simpler(attempt: Attempt, parent: Attempt) -> str | None:
    """Say what is simpler: less code or fewer parameters, and not more of the other; None: nothing, or not known."""
    params, params_before = attempt.saved_params, parent.saved_params
    if params is None or params_before is None:
        return None
    code, code_before = attempt.outline.code_size, parent.outline.code_size
    if code > code_before or params > params_before:
        return None
    if code < code_before:
        return f"{code_before - code:,} fewer statements, names and constants"
    if params < FEWER * params_before:
        return f"{params_before - params:,} fewer parameters"
    return None


def price_of(attempt: Attempt, history: History, knowledge: Knowledge, price: float) -> tuple[float, str | None]:
    """Return the cost of keeping a worthless edit, in sigma, and what is simpler in it if that lowers the cost.

    price: in units of the scatter of one run of this edit.
    Where the noise is doubted, a quarter of sigma may be more than any edit brings: no tie is kept then.
    """
    noise, before = knowledge.noise_of(attempt.number), line_of(attempt, history)[1:]
    gain_in_size = simpler(attempt, before[0]) if knowledge.doubt is None else None
    last_gain = next(keep for keep in before if keep.kind is not Kind.SIMPLER)
    if gain_in_size is None or knowledge.lead(last_gain.number, attempt.number) > TIE * knowledge.noise:
        return price * noise, None
    return -TIE * knowledge.noise, gain_in_size


# ---- balanced --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Balanced(Judge):
    """Keep an edit with a positive expected worth; measure again where a run teaches more than a new idea would bring.

    Both are valued in the same unit: sigma of gain, less a price for every worthless edit that is kept. The estimates
    are those of agent/judging/belief.py.
    """

    words: ClassVar = "three runs tell the noise; then more seeds where they pay"
    calibration: int = 3
    price: float = 0.42  # sigma
    patience: float = 0.5  # a further run has to be worth this many fresh ideas, which bring less than their promise
    most: int = 6  # runs of one attempt
    lead: float = 0.5  # sigma, over the incumbent, from which an edit of another script is kept in its place

    def compared(self, attempt: Attempt, parent: Attempt, best: Attempt, history: History) -> Decision:
        knowledge = know(measured(history, attempt))
        if knowledge is None:  # seeds move nothing, so one run tells all
            verdict = Greedy().compared(attempt, parent, best, history)
            gain_bpb, is_better = mean_bpb(parent) - mean_bpb(attempt), verdict.kind in (Kind.KEPT, Kind.OVERTAKEN)
            return replace(verdict, gain_bpb=gain_bpb, sure=float(is_better))
        if attempt.number not in knowledge.place:
            return orphaned(attempt)
        doubt = Doubt.of(knowledge, attempt, history, self.price)
        if parent is not best:
            return self._decide_elsewhere(knowledge, doubt, best)
        if self._wants_run(knowledge, doubt):
            sure = percent_sure(doubt.sure)
            return doubt.decide(Kind.UNDECIDED, f"{sure} sure: another seed tells more than another idea")
        if doubt.worth <= 0:
            return doubt.discard()
        if len(attempt.scores_bpb) < 2 and (doubt.simpler is not None or knowledge.doubt is not None):
            return doubt.decide(Kind.UNDECIDED, "another seed has to confirm it")
        return doubt.keep()

    def _decide_elsewhere(self, knowledge: Knowledge, doubt: "Doubt", best: Attempt) -> Decision:
        """Decide about an edit of a script that is no longer the incumbent.

        Of two edits of one script, the second to end has to be merged onto the first, or the first onto the second: the
        one that brings less is measured again. That holds for an edit of a revoked script, too, since both together
        were measured. A merge costs a run, so it has to promise more than a fresh idea.
        """
        lead = self.lead * knowledge.noise_of(doubt.attempt.number)
        if doubt.sure >= CONFIRMED and knowledge.lead(doubt.attempt.number, best.number) >= lead:
            keep = doubt.keep()
            return replace(keep, reason=f"{keep.reason}, and better than #{best.number}")
        promises = doubt.worth + doubt.value_of_run > self._value_of_idea(knowledge)
        if doubt.worth > 0 and promises:
            return overtaken(doubt.decide(Kind.OVERTAKEN, doubt.estimate), best)
        return doubt.discard()

    def review(self, history: History) -> Review:
        """Revoke the last keeps where later scores contradict them, confirm others, or ask for another run.

        Keeps that the incumbent was not made from are overtaken. Of the others, the end that costs more than it brings
        is revoked.
        """
        keeps = kept(history)
        chain, knowledge = [attempt for attempt in keeps if attempt.is_edit], know(measured(history))
        line = {attempt.number for attempt in line_of(keeps[-1], history)} if keeps else set()
        beside = {
            keep.number: overtaken(keep.decision, keeps[-1])
            for keep in keeps
            if keep.number not in line and keep.decision
        }
        if beside:
            return Review(decisions=beside)
        if knowledge is None or not chain or any(attempt.number not in knowledge.place for attempt in chain):
            return Review()
        doubts = [Doubt.of(knowledge, attempt, history, self.price) for attempt in chain]
        endings = np.cumsum([0.0, *(doubt.worth for doubt in reversed(doubts))])  # the worth of the last 0, 1, … edits
        revoked = doubts[len(doubts) - int(endings.argmin()) :]
        if revoked:
            return Review(decisions={doubt.attempt.number: doubt.revoke() for doubt in revoked})
        sure = (doubt for doubt in doubts if doubt.attempt.kind is Kind.PROVISIONAL and doubt.sure >= CONFIRMED)
        confirmed = {doubt.attempt.number: doubt.keep(Kind.CONFIRMED) for doubt in sure}
        return Review((chain[-1].number,) if self._wants_run(knowledge, doubts[-1]) else (), confirmed)

    def _wants_run(self, knowledge: Knowledge, doubt: "Doubt") -> bool:
        """Return whether another run of an edit is worth more than another idea."""
        is_open = len(doubt.attempt.done_runs) < self.most
        return is_open and doubt.value_of_run > self.patience * self._value_of_idea(knowledge)

    def _value_of_idea(self, knowledge: Knowledge) -> float:
        return knowledge.belief.value_of_idea(self.price * knowledge.belief.noise)


@dataclass(frozen=True, slots=True)
class Doubt:
    """Weigh one edit by everything that the night has measured."""

    attempt: Attempt
    lower_bpb: float  # how far its mean score lies below its parent's
    same_seeds_bpb: float | None  # the same difference, by seeds that both have
    machine: float | None  # the machine's speed beside the parent's runs; None where the edit may have changed it
    gain_bpb: float  # the judge's estimate of its gain
    sure: float  # probability that it brings anything
    worth: float  # value of keeping it, in sigma
    value_of_run: float  # value of another run, in sigma
    simpler: str | None  # why it counts as simpler; None: it is not kept for that

    @classmethod
    def of(cls, knowledge: Knowledge, attempt: Attempt, history: History, price: float) -> "Doubt":
        """Weigh an edit; where the noise is in doubt, nothing is sure after a single run."""
        belief, i = knowledge.belief, knowledge.place[attempt.number]
        effect, (own_price, gain_in_size) = belief.effect(i), price_of(attempt, history, knowledge, price)
        parent = line_of(attempt, history)[1]
        most_sure = SUREST if knowledge.doubt is not None and len(attempt.scores_bpb) == 1 else 1.0
        return cls(
            attempt=attempt,
            lower_bpb=shown_difference(mean_bpb(parent), mean_bpb(attempt), attempt.decimals),
            same_seeds_bpb=attempt.lower_with_same_seeds(parent),
            machine=machine_speed(attempt, parent),
            gain_bpb=effect.mean * knowledge.sigma_bpb,
            sure=min(max(effect.sure, 1 - most_sure), most_sure),
            worth=float(effect.worths(own_price).sum()),
            value_of_run=belief.value_of_runs(i, own_price),
            simpler=gain_in_size if effect.worths(price * knowledge.noise_of(attempt.number)).sum() <= 0 else None,
        )

    def keep(self, kind: Kind = Kind.KEPT) -> Decision:
        """Keep the edit as this kind; or as simpler, or provisional, where that fits better."""
        if self.simpler is not None:
            return self.decide(Kind.SIMPLER, f"simpler: {self.simpler}, and {self.estimate}")
        if self.sure < CONFIRMED:
            return self.decide(Kind.PROVISIONAL, f"provisional: {self.estimate}")
        return self.decide(kind, self.estimate)

    def discard(self) -> Decision:
        """Discard the edit as luck where its score is lower than its parent's, and else as worse."""
        if self.lower_bpb > 0:
            return self.decide(Kind.LUCK, f"{self.estimate}: too little to keep it")
        return self.decide(Kind.WORSE, self.estimate)

    def revoke(self) -> Decision:
        """Discard an edit that was kept."""
        return self.decide(Kind.REVOKED, f"revoked: {self.estimate}")

    def decide(self, kind: Kind, reason: str) -> Decision:
        """Return a decision with these estimates."""
        return Decision(kind, reason, self.gain_bpb, self.sure)

    @property
    def estimate(self) -> str:
        decimals = self.attempt.decimals
        return versus("its parent", self.lower_bpb, self.sure, decimals, self.same_seeds_bpb, self.machine)


# ---- the table -------------------------------------------------------------------------------------------------------

# Write a new judge's class above, and name it here and in the type of `judge` in agent/cli/options.py.
JUDGES: dict[str, type[Judge]] = {"balanced": Balanced, "greedy": Greedy, "strict": Strict}


def choose_judge(name: str, confirm: int = 0) -> Judge:
    """Return the judge of this name in JUDGES; confirm: as `--confirm` gives it to the greedy one."""
    return Greedy(confirm) if name == "greedy" else JUDGES[name]()


def judge_in_words(name: str) -> str:
    """Introduce a judge by its name and a few words."""
    return f"{name}: {JUDGES[name].words}"
