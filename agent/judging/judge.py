"""Is this better? Pure functions of the scores so far."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from agent.experiment import Attempt, Decision, History, Judge, Kind, Review, Status, incumbent, kept
from agent.judging.failures import failure
from agent.judging.noise import SAME, Knowledge, doubt_of, is_believed, know, measured
from agent.judging.simplicity import price_of, simpler
from agent.text import percent_sure, shown_difference

# Honest edits move the score by a few percent. Halving it in one step is a sign that something else is measured.
PLAUSIBLE_GAIN = 0.2  # of the incumbent's bits per byte


@dataclass(frozen=True, slots=True)
class Greedy:
    """Keep what is strictly lower than the incumbent's mean; a tie is a discard.

    With confirm, what would be kept is measured with that many more seeds first, and judged by the mean.
    """

    confirm: int = 0
    calibration: int = 1

    def judge(self, attempt: Attempt, history: History) -> Decision:
        why = failure(attempt)
        if why is not None or attempt.val_bpb is None:
            return Decision(Kind.CRASHED, why or "no score")
        best = incumbent(history)
        if best is None or best.val_bpb is None:
            return Decision(Kind.BASELINE, "baseline")
        rival = rival_of(attempt, best, history)
        if rival is None:
            return _orphaned(attempt)
        verdict = _compare(attempt, rival, best)
        if rival is not best:
            return _overtaken(verdict, best) if verdict.status is Status.KEEP else verdict
        if verdict.status is Status.KEEP and len(attempt.done_runs) <= self.confirm:
            return Decision(Kind.UNDECIDED, "another seed has to confirm it")
        if verdict.status is Status.KEEP and any(math.isclose(*pair, rel_tol=SAME) for pair in pairs(attempt)):
            return Decision(Kind.IGNORES_SEED, "it ignores its seed: two seeds gave the very same score")
        return verdict

    def review(self, history: History) -> Review:
        """Return no second thoughts: decisions are final."""
        return Review()


@dataclass(frozen=True, slots=True)
class Strict:
    """Keep what a sequential t-test calls better: at most 0.5 false keeps among 100 edits without effect.

    Every look after the third run may err with the same small probability; sigma is pooled over the night's repeats.
    """

    calibration: int = 4
    most: int = 6  # runs of one attempt
    hopeful: float = 0.8  # standard errors below the incumbent that a further run is worth
    error: float = 0.008  # of each look; most edits are given up long before the last

    def judge(self, attempt: Attempt, history: History) -> Decision:
        settled = _settled_at_once(attempt, history, self.calibration)
        if settled is not None:
            return settled
        best = _incumbent(history)
        rival = rival_of(attempt, best, history)
        if rival is None:
            return _orphaned(attempt)
        found = self._test(attempt, rival, best, history)
        is_hopeful = found.status is Status.KEEP or found.kind is Kind.UNDECIDED
        return _overtaken(found, best) if rival is not best and is_hopeful else found

    def _test(self, attempt: Attempt, rival: Attempt, best: Attempt, history: History) -> Decision:
        gain_bpb, t, luck = _t_test(attempt, rival, history)
        runs, verdict = len(attempt.scores_bpb), _compare(attempt, rival, best)
        if math.isinf(t) or (runs >= 3 and luck <= self.error):
            return Decision(verdict.kind, verdict.reason, gain_bpb, 1 - luck)
        maybe = verdict.reason if gain_bpb <= 0 else f"{verdict.reason}, which may be luck"
        if math.isnan(t) or (t >= self.hopeful and runs < self.most):
            return Decision(Kind.UNDECIDED, maybe, gain_bpb, 1 - luck)
        kind = Kind.LUCK if verdict.kind is Kind.KEPT else verdict.kind
        return Decision(kind, maybe, gain_bpb, 1 - luck)

    def review(self, history: History) -> Review:
        """Return no second thoughts: decisions are final."""
        return Review()


def _t_test(attempt: Attempt, rival: Attempt, history: History) -> tuple[float, float, float]:
    """Return the gain, its Student's t, and the probability of as much by luck; t is nan if no run was repeated."""
    from scipy.special import stdtr  # takes a third of a second to import, and most commands do without

    repeats = [one.scores_bpb for one in (*measured(history), attempt) if len(one.scores_bpb) > 1]
    freedom = sum(len(values) - 1 for values in repeats)
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in repeats)
    gain_bpb = _mean(rival) - _mean(attempt)
    if freedom == 0:
        return gain_bpb, math.nan, 0.5
    wider = 1 if doubt_of(history[0], math.sqrt(squares / freedom)) is None else 2
    error_bpb = wider * math.sqrt(squares / freedom * (1 / len(attempt.scores_bpb) + 1 / len(rival.scores_bpb)))
    t = gain_bpb / error_bpb if error_bpb > 0 else math.copysign(math.inf, gain_bpb)
    return gain_bpb, t, float(stdtr(freedom, -t))


@dataclass(frozen=True, slots=True)
class Balanced:
    """Keep what is expected to be worth it, and measure again where a run teaches more than a new idea would bring.

    Both are valued in the same unit: sigma of gain, less a price for every worthless edit that is kept.
    """

    calibration: int = 3
    price: float = 0.35  # sigma
    patience: float = 0.5  # a further run has to be worth this many fresh ideas, which bring less than their promise
    most: int = 6  # runs of one attempt
    lead: float = 0.5  # sigma, over the incumbent, from which an edit of another script is kept in its place

    def judge(self, attempt: Attempt, history: History) -> Decision:
        settled = _settled_at_once(attempt, history, self.calibration)
        if settled is not None:
            return settled
        best = _incumbent(history)
        rival = rival_of(attempt, best, history)
        known = know(measured(history, attempt)) if rival is not None else None
        if rival is None or (known is not None and attempt.number not in known.place):
            return _orphaned(attempt)
        if known is None:
            verdict = _without_noise(attempt, rival, best)
            return _overtaken(verdict, best) if rival is not best and verdict.status is Status.KEEP else verdict
        doubt = self._doubt(known, attempt, history)
        if rival is not best:
            return self._elsewhere(known, doubt, best)
        if self._wants_run(known, doubt):
            return doubt.told(
                Kind.UNDECIDED, f"{percent_sure(doubt.sure)} sure: another seed tells more than another idea"
            )
        if doubt.worth <= 0:
            return doubt.told(doubt.kind_against, doubt.against)
        if len(attempt.scores_bpb) < 2 and doubt.simpler is not None:
            return doubt.told(Kind.UNDECIDED, "simpler: another seed has to show what that costs")
        if len(attempt.scores_bpb) < 2 and known.doubt is not None:
            return doubt.told(Kind.UNDECIDED, "the noise is hardly known: another seed has to confirm it")
        return doubt.told(doubt.kind_in_favour, doubt.in_favour)

    def _elsewhere(self, known: Knowledge, doubt: "Doubt", best: Attempt) -> Decision:
        """Decide about an edit of a script that is not the incumbent any more.

        Of two edits of one script, the second to end has to be merged onto the first, or the first onto the second: the
        one that brings less is measured again. That holds for an edit of a revoked script, too, since both together
        were measured. A merge costs a run, so it has to promise more than a fresh idea.
        """
        leads = known.drift(doubt.attempt.number, best.number) >= self.lead
        if doubt.sure >= CONFIRMED and leads:
            return doubt.told(doubt.kind_in_favour, f"{doubt.in_favour}, and better than #{best.number}")
        promises = doubt.worth + doubt.value_of_run > known.belief.value_of_idea(self.price)
        if doubt.worth > 0 and (promises or doubt.simpler is not None):
            return _overtaken(doubt.told(Kind.OVERTAKEN, doubt.so_far), best)
        return doubt.told(doubt.kind_against, doubt.against)

    def review(self, history: History) -> Review:
        """Revoke the last keeps where later scores contradict them, confirm others, or ask for another run."""
        beside = self._beside_the_incumbent(history)
        if beside:
            return Review(decisions=beside)
        known = know(measured(history))
        chain = [one for one in kept(history) if one.number and one.is_idea]
        if known is None or not chain or any(one.number not in known.place for one in chain):
            return Review()
        doubts = [self._doubt(known, one, history) for one in chain]
        revoked = {
            doubt.attempt.number: doubt.told(Kind.REVOKED, f"revoked: {doubt.against}")
            for doubt in doubts[_worthless_from(doubts) :]
        }
        if revoked:
            return Review(decisions=revoked)
        confirmed = {
            doubt.attempt.number: doubt.told(Kind.CONFIRMED if doubt.simpler is None else Kind.SIMPLER, doubt.in_favour)
            for doubt in doubts
            if doubt.is_over
        }
        again = chain[-1].number if self._wants_run(known, doubts[-1]) else None
        return Review(again, confirmed)

    def _beside_the_incumbent(self, history: History) -> dict[int, Decision]:
        """Return decisions on keeps that the incumbent was not made from: they are overtaken."""
        keeps = kept(history)
        if not keeps:
            return {}
        one = best = keeps[-1]
        line = {best.number}
        while one.parent is not None:
            one = history[one.parent]
            line.add(one.number)
        beside = (one for one in keeps if one.number not in line)
        return {one.number: _overtaken(one.decision, best) for one in beside if one.decision is not None}

    def _doubt(self, known: Knowledge, attempt: Attempt, history: History) -> "Doubt":
        return Doubt.of(known, attempt, history, self.price)

    def _wants_run(self, known: Knowledge, doubt: "Doubt") -> bool:
        idea = known.belief.value_of_idea(self.price)
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
    def of(cls, known: Knowledge, attempt: Attempt, history: History, price: float) -> "Doubt":
        belief, i = known.belief, known.place[attempt.number]
        assert attempt.parent is not None
        asked = price_of(attempt, history, known, price)
        only_simpler = simpler(attempt, history[attempt.parent]) if belief.value_of_keeping(i, price) <= 0 else None
        return cls(
            attempt=attempt,
            gain_bpb=known.gain_bpb(attempt.number),
            sure=known.sure(attempt.number),
            worth=belief.value_of_keeping(i, asked),
            value_of_run=belief.value_of_runs(i, asked),
            simpler=only_simpler,
        )

    @property
    def in_favour(self) -> str:
        if self.simpler is not None:
            return f"simpler: {self.simpler}, and an estimated {abs(self.gain_bpb):.6f} {self._side} its parent"
        provisional = "" if self.sure >= CONFIRMED else "provisional: "
        return f"{provisional}an estimated {self.gain_bpb:.6f} below its parent, {percent_sure(self.sure)} sure"

    @property
    def so_far(self) -> str:
        return self.against if self.simpler is None else self.in_favour

    @property
    def kind_in_favour(self) -> Kind:
        if self.simpler is not None:
            return Kind.SIMPLER
        return Kind.KEPT if self.sure >= CONFIRMED else Kind.PROVISIONAL

    @property
    def kind_against(self) -> Kind:
        return Kind.LUCK if self.gain_bpb > 0 else Kind.WORSE

    @property
    def against(self) -> str:
        return (
            f"an estimated {abs(self.gain_bpb):.6f} {self._side} its parent, {percent_sure(self.sure)} sure of a gain"
        )

    @property
    def is_over(self) -> bool:
        """Kept on approval, and approved by now."""
        decision = self.attempt.decision
        return decision is not None and decision.kind is Kind.PROVISIONAL and self.sure >= CONFIRMED

    @property
    def _side(self) -> str:
        return "below" if self.gain_bpb >= 0 else "above"

    def told(self, kind: Kind, reason: str) -> Decision:
        return Decision(kind, reason, self.gain_bpb, self.sure)


def _worthless_from(chain: Sequence[Doubt]) -> int:
    """Return where the part of the chain begins that costs more than it brings; the chain's length if none does."""
    endings = [sum(doubt.worth for doubt in chain[k:]) for k in range(len(chain) + 1)]
    return min(reversed(range(len(endings))), key=endings.__getitem__)


CONFIRMED = 0.9  # the probability of a gain from which a keep is not provisional any more


def _settled_at_once(attempt: Attempt, history: History, calibration: int) -> Decision | None:
    """Decide what needs no estimate: a crash, the baseline, a script that ignores its seed; None for others."""
    why = failure(attempt)
    if why is not None or attempt.val_bpb is None:
        return Decision(Kind.CRASHED, why or "no score")
    best = incumbent(history)
    if best is None or best.val_bpb is None:
        if len(attempt.done_runs) < calibration:
            return Decision(
                Kind.UNDECIDED, f"calibration: run {len(attempt.done_runs) + 1} of {calibration} tells the noise"
            )
        return Decision(Kind.BASELINE, "baseline")
    if any(math.isclose(*pair, rel_tol=SAME) for pair in pairs(attempt)):
        return Decision(Kind.IGNORES_SEED, "it ignores its seed: two seeds gave the very same score")
    return None


def rival_of(attempt: Attempt, best: Attempt, history: History) -> Attempt | None:
    """Return the attempt that this one is compared with: its parent; None if the parent's scores do not count.

    Attempts may end in any order, so the parent may no longer be the incumbent. It may even be revoked: the gain over
    it is measured all the same, and is the gain of this edit alone, whatever the parent's own edit was worth.
    """
    if attempt.parent is None or attempt.parent == best.number:
        return best
    parent = history[attempt.parent]
    is_measured = parent.decision is not None and is_believed(parent.decision) and parent.val_bpb is not None
    return parent if is_measured else None


def _orphaned(attempt: Attempt) -> Decision:
    return Decision(Kind.ORPHANED, f"made from #{attempt.parent}, whose scores do not count any more")


def _overtaken(found: Decision, best: Attempt) -> Decision:
    """Decide about an edit that looks better than its parent, while another one has become the incumbent.

    The sum of their gains was not measured, so it has to win again. It gets no other seed: the merged attempt's first
    run tells as much about the edit, and that attempt can be kept.
    """
    return replace(found, kind=Kind.OVERTAKEN, reason=f"{found.reason}; to be merged onto #{best.number}")


def _without_noise(attempt: Attempt, rival: Attempt, best: Attempt) -> Decision:
    """Decide by one run, for scripts whose scores do not vary with the seed."""
    verdict = _compare(attempt, rival, best)
    sure = 1.0 if verdict.status is Status.KEEP else 0.0
    return Decision(verdict.kind, verdict.reason, _mean(rival) - _mean(attempt), sure)


def _incumbent(history: History) -> Attempt:
    """Return the incumbent of a history that has one."""
    best = incumbent(history)
    assert best is not None
    return best


def _mean(attempt: Attempt) -> float:
    """Return the mean of an attempt's scores; the incumbent is valued by it, never by its minimum."""
    return statistics.fmean(attempt.scores_bpb)


def choose_judge(name: str, confirm: int = 0) -> Judge:
    """Return the judge of this name: balanced, greedy or strict; raise KeyError for another."""
    judges: Mapping[str, Judge] = {"balanced": Balanced(), "greedy": Greedy(confirm), "strict": Strict()}
    return judges[name]


def pairs(attempt: Attempt) -> Iterator[tuple[float, float]]:
    """Yield the scores of every two runs of an attempt."""
    return combinations(attempt.scores_bpb, 2)


def trusted(verdict: Decision, attempt: Attempt, best: Attempt | None, plausible: float = PLAUSIBLE_GAIN) -> Decision:
    """Return a keep unchanged unless an audit failed or the gain is implausibly large; then, that decision."""
    scores = [score for run in attempt.counted_runs for score in (run.score, run.holdout) if score is not None]
    audits = [score.audit for score in scores if score.audit is not None]
    failure = next((audit.failure for audit in audits if audit.failure is not None), None)
    if failure is not None:
        return Decision(Kind.FAILED_AUDIT, f"audit: {failure}")
    if best is not None and best.val_bpb and attempt.val_bpb is not None:
        gain = 1 - attempt.val_bpb / best.val_bpb
        if gain > plausible:
            reason = (
                f"quarantine: {gain:.0%} below the incumbent, more than {plausible:.0%} in one step is not believed"
            )
            return Decision(Kind.QUARANTINED, reason)
    return verdict


def _compare(attempt: Attempt, rival: Attempt, best: Attempt) -> Decision:
    whom = "the incumbent" if rival is best else "its parent"
    val_bpb, rival_bpb = _mean(attempt), _mean(rival)
    if math.isclose(val_bpb, rival_bpb, rel_tol=SAME):
        return Decision(Kind.TIE, f"a tie with {whom}")
    if val_bpb < rival_bpb:
        return Decision(Kind.KEPT, f"{shown_difference(rival_bpb, val_bpb):.6f} below {whom}")
    return Decision(Kind.WORSE, f"{shown_difference(val_bpb, rival_bpb):.6f} above {whom}")


JUDGES = {
    "balanced": "balanced: the script first runs three times, to learn the noise; then further seeds where they pay",
    "greedy": "greedy: one lower run is enough, and much of what is kept will be luck",
    "strict": "strict: hardly anything is kept by luck, at the price of many runs",
}
