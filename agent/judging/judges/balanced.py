"""Keep an edit by its expected worth, with further runs where these are worth more than another idea."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.experiment import Attempt, Decision, History, Kind, Review, Status, kept
from agent.judging.judges.comparison import compare, incumbent_of, mean, orphaned, overtaken, rival_of, settled_at_once
from agent.judging.noise import Knowledge, know, measured
from agent.judging.simplicity import price_of, simpler
from agent.text import percent_sure

CONFIRMED = 0.9  # the probability of a gain from which a keep is not provisional any more


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
        settled = settled_at_once(attempt, history, self.calibration)
        if settled is not None:
            return settled
        best = incumbent_of(history)
        rival = rival_of(attempt, best, history)
        known = know(measured(history, attempt)) if rival is not None else None
        if rival is None or (known is not None and attempt.number not in known.place):
            return orphaned(attempt)
        if known is None:
            verdict = _without_noise(attempt, rival, best)
            return overtaken(verdict, best) if rival is not best and verdict.status is Status.KEEP else verdict
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
            return overtaken(doubt.told(Kind.OVERTAKEN, doubt.so_far), best)
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
        return {one.number: overtaken(one.decision, best) for one in beside if one.decision is not None}

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
        """Return whether the doubt is over: the edit was kept provisionally, and is sure by now."""
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


def _without_noise(attempt: Attempt, rival: Attempt, best: Attempt) -> Decision:
    """Decide by one run, for scripts whose scores do not vary with the seed."""
    verdict = compare(attempt, rival, best)
    sure = 1.0 if verdict.status is Status.KEEP else 0.0
    return Decision(verdict.kind, verdict.reason, mean(rival) - mean(attempt), sure)
