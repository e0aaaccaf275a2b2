"""Is this better? Pure functions of the scores so far."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from scipy import stats

from agent.experiment import Attempt, Decision, History, Judge, Review, Status, incumbent
from agent.failures import failure
from agent.noise import SAME, Knowledge, know, measured

# Honest edits move the score by a few percent. Halving it in one step is a sign that something else is measured.
PLAUSIBLE_GAIN = 0.2  # of the incumbent's bits per byte


@dataclass(frozen=True, slots=True)
class Greedy:
    """Keep what is strictly lower than the incumbent's mean; a tie is a discard.

    With confirm, what would be kept is measured with that many more seeds first, and judged by the mean.
    """

    confirm: int = 0

    def judge(self, attempt: Attempt, history: History) -> Decision:
        why = failure(attempt)
        if why is not None or attempt.val_bpb is None:
            return Decision(Status.CRASH, why or "no score")
        best = incumbent(history)
        if best is None or best.val_bpb is None:
            return Decision(Status.KEEP, "baseline")
        verdict = _compare(attempt.val_bpb, best.val_bpb)
        if verdict.status is Status.KEEP and len(attempt.done_runs) <= self.confirm:
            return Decision(None, "another seed has to confirm it")
        if verdict.status is Status.KEEP and any(math.isclose(*pair, rel_tol=SAME) for pair in pairs(attempt)):
            return Decision(Status.DISCARD, "it ignores its seed: two seeds gave the very same score")
        return verdict

    def review(self, history: History) -> Review:
        """What was decided once stays decided."""
        return Review()


@dataclass(frozen=True, slots=True)
class Strict:
    """Keep what a sequential t-test calls better: at most 0.5 false keeps among 100 edits without effect.

    An edit is measured up to `most` times while it still can be kept; sigma is pooled over every repeat of the night.
    """

    calibration: int = 4
    most: int = 6
    hopeful: float = 0.5  # standard errors above the incumbent that a further run is worth
    error: float = 0.0025  # of each of the looks after the first three runs

    def judge(self, attempt: Attempt, history: History) -> Decision:
        settled = _settled_at_once(attempt, history, self.calibration)
        if settled is not None:
            return settled
        best = incumbent(history)
        assert best is not None
        assert best.val_bpb is not None
        assert attempt.val_bpb is not None
        repeats = [one.scores_bpb for one in (*measured(history), attempt) if len(one.scores_bpb) > 1]
        freedom = sum(len(values) - 1 for values in repeats)
        squares = sum(sum((value - math.fsum(values) / len(values)) ** 2 for value in values) for values in repeats)
        runs = len(attempt.scores_bpb)
        error_bpb = math.sqrt(squares / max(freedom, 1) * (1 / runs + 1 / len(best.scores_bpb)))
        gain_bpb = best.val_bpb - attempt.val_bpb
        t = gain_bpb / error_bpb if error_bpb > 0 else math.copysign(math.inf, gain_bpb) if gain_bpb else 0.0
        luck = float(stats.t.sf(t, freedom))
        verdict = _compare(attempt.val_bpb, best.val_bpb)
        if (runs >= 3 and luck <= self.error) or error_bpb == 0:
            return Decision(verdict.status, verdict.reason, gain_bpb, 1 - luck)
        if t < self.hopeful or runs >= self.most:
            reason = verdict.reason if gain_bpb < 0 else f"{verdict.reason}, which may be luck"
            return Decision(Status.DISCARD, reason, gain_bpb, 1 - luck)
        return Decision(None, f"{gain_bpb:.6f} below the incumbent, which may be luck", gain_bpb, 1 - luck)

    def review(self, history: History) -> Review:
        """What was decided once stays decided."""
        return Review()


@dataclass(frozen=True, slots=True)
class Balanced:
    """Keep what is expected to be worth it, and measure again where a run teaches more than a new idea would bring.

    Both sides of that bargain are in the same coin: sigma of gain, less a price for every worthless edit that is kept.
    """

    calibration: int = 3
    price: float = 0.3  # sigma
    patience: float = 0.5  # a run of something known has to be worth so many times one of a new idea
    tip_patience: float = 0.5
    most: int = 6

    def judge(self, attempt: Attempt, history: History) -> Decision:
        settled = _settled_at_once(attempt, history, self.calibration)
        if settled is not None:
            return settled
        knowledge = know(measured(history, attempt))
        if knowledge is None:
            return _without_noise(attempt, history)
        belief, i = knowledge.belief, knowledge.place[attempt.number]
        gain_bpb, sure = knowledge.gain_bpb(attempt.number), belief.sure(i)
        runs = len(attempt.done_runs)
        if runs < self.most and belief.value_of_runs(i, self.price) > self.patience * belief.value_of_idea(self.price):
            return Decision(None, f"{sure:.0%} sure: another seed tells more than another idea", gain_bpb, sure)
        if belief.value_of_keeping(i, self.price) > 0:
            return Decision(Status.KEEP, _kept_because(gain_bpb, sure), gain_bpb, sure)
        return Decision(Status.DISCARD, _dropped_because(gain_bpb, sure), gain_bpb, sure)

    def review(self, history: History) -> Review:
        """Revokes keeps at the end of the chain that later scores speak against, confirms others, doubts the tip."""
        knowledge = know(measured(history))
        chain = [one for one in history if one.status is Status.KEEP and one.number > 0]
        if knowledge is None or not chain:
            return Review()
        revoked = self._revoked(knowledge, chain)
        if revoked:
            return Review(decisions=revoked)
        belief, tip = knowledge.belief, chain[-1]
        i = knowledge.place[tip.number]
        worth_a_run = self.tip_patience * belief.value_of_idea(self.price)
        doubtful = len(tip.done_runs) < self.most and belief.value_of_runs(i, self.price) > worth_a_run
        return Review(tip.number if doubtful else None, self._confirmed(knowledge, chain))

    def _revoked(self, knowledge: Knowledge, chain: list[Attempt]) -> Mapping[int, Decision]:
        """The part of the chain's end whose edits together cost more than they bring."""
        total, worst, cut = 0.0, 0.0, len(chain)
        for k in reversed(range(len(chain))):
            total += knowledge.belief.value_of_keeping(knowledge.place[chain[k].number], self.price)
            if total < worst:
                worst, cut = total, k
        found = {}
        for attempt in chain[cut:]:
            gain_bpb, sure = knowledge.gain_bpb(attempt.number), knowledge.sure(attempt.number)
            reason = f"revoked: {_dropped_because(gain_bpb, sure)} by now"
            found[attempt.number] = Decision(Status.DISCARD, reason, gain_bpb, sure)
        return found

    def _confirmed(self, knowledge: Knowledge, chain: list[Attempt]) -> Mapping[int, Decision]:
        found = {}
        for attempt in chain:
            gain_bpb, sure = knowledge.gain_bpb(attempt.number), knowledge.sure(attempt.number)
            assert attempt.decision is not None
            if attempt.decision.reason.startswith(PROVISIONAL) and sure >= CONFIRMED:
                found[attempt.number] = Decision(Status.KEEP, _kept_because(gain_bpb, sure), gain_bpb, sure)
        return found


PROVISIONAL, CONFIRMED = "provisional: ", 0.9


def _kept_because(gain_bpb: float, sure: float) -> str:
    return f"{'' if sure >= CONFIRMED else PROVISIONAL}{gain_bpb:.6f} below its parent, {sure:.0%} sure"


def _dropped_because(gain_bpb: float, sure: float) -> str:
    if gain_bpb < 0:
        return f"{-gain_bpb:.6f} above its parent, {sure:.0%} sure of a gain"
    return f"{gain_bpb:.6f} below its parent, but only {sure:.0%} sure"


def _settled_at_once(attempt: Attempt, history: History, calibration: int) -> Decision | None:
    """What needs no estimate: a crash, the baseline and its calibration, a script that ignores its seed."""
    why = failure(attempt)
    if why is not None or attempt.val_bpb is None:
        return Decision(Status.CRASH, why or "no score")
    best = incumbent(history)
    if best is None or best.val_bpb is None:
        if len(attempt.done_runs) < calibration:
            return Decision(None, f"calibration: run {len(attempt.done_runs) + 1} of {calibration} tells the noise")
        return Decision(Status.KEEP, "baseline")
    if any(math.isclose(*pair, rel_tol=SAME) for pair in pairs(attempt)):
        return Decision(Status.DISCARD, "it ignores its seed: two seeds gave the very same score")
    return None


def _without_noise(attempt: Attempt, history: History) -> Decision:
    """Where seeds move nothing, one run tells all."""
    best = incumbent(history)
    assert best is not None
    assert best.val_bpb is not None
    assert attempt.val_bpb is not None
    verdict = _compare(attempt.val_bpb, best.val_bpb)
    gain_bpb = best.val_bpb - attempt.val_bpb
    return Decision(verdict.status, verdict.reason, gain_bpb, 1.0 if verdict.status is Status.KEEP else 0.0)


def choose_judge(name: str, confirm: int = 0) -> Judge:
    """By the name that --judge takes: balanced, greedy or strict; KeyError for another."""
    judges: Mapping[str, Judge] = {"balanced": Balanced(), "greedy": Greedy(confirm), "strict": Strict()}
    return judges[name]


def pairs(attempt: Attempt) -> Iterator[tuple[float, float]]:
    """Scores of every two runs of it."""
    return combinations(attempt.scores_bpb, 2)


def trusted(verdict: Decision, attempt: Attempt, best: Attempt | None, plausible: float = PLAUSIBLE_GAIN) -> Decision:
    """What the judge would keep is kept once every run of it has passed its audit, and its gain can be believed."""
    scores = [score for run in attempt.done_runs for score in (run.score, run.holdout) if score is not None]
    audits = [score.audit for score in scores if score.audit is not None]
    failure = next((audit.failure for audit in audits if audit.failure is not None), None)
    if failure is not None:
        return Decision(Status.DISCARD, f"audit: {failure}")
    if best is not None and best.val_bpb and attempt.val_bpb is not None:
        gain = 1 - attempt.val_bpb / best.val_bpb
        if gain > plausible:
            reason = (
                f"quarantine: {gain:.0%} below the incumbent, more than {plausible:.0%} in one step is not believed"
            )
            return Decision(Status.DISCARD, reason)
    return verdict


def _compare(val_bpb: float, best_bpb: float) -> Decision:
    if math.isclose(val_bpb, best_bpb, rel_tol=SAME):
        return Decision(Status.DISCARD, "a tie with the incumbent")
    if val_bpb < best_bpb:
        return Decision(Status.KEEP, f"{best_bpb - val_bpb:.6f} below the incumbent")
    return Decision(Status.DISCARD, f"{val_bpb - best_bpb:.6f} above the incumbent")
