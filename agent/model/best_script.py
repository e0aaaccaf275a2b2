"""Find the best script of a night among its facts, and how much better it is."""

from dataclasses import dataclass

from agent.errors import NightError
from agent.experiment import attempt_ref, short
from agent.invocation import typed
from agent.view.facts.nouns import AttemptFacts, DawnFacts, NightFacts

SURE = 1.96  # standard errors to either side: 95 %


@dataclass(frozen=True, slots=True)
class BpbEstimate:
    """A mean of scores, or a difference of two, and how far chance with the seed may have moved it."""

    mean_bpb: float
    width_bpb: float | None  # of the 95 % interval, to either side; None where the night's noise is not known


@dataclass(frozen=True, slots=True)
class BestScript:
    """The best script of a night: the one that dawn confirmed, else the one that was kept last."""

    facts: NightFacts
    attempt: AttemptFacts
    dawn: DawnFacts | None  # the last one, where it is about this script

    @classmethod
    def of(cls, facts: NightFacts) -> "BestScript":
        """Choose it; raise NightError before anything is kept."""
        known = {one.number: one for one in facts.attempts}
        kept = None if facts.incumbent is None else known.get(facts.incumbent)
        if kept is None:
            raise NightError(
                f"night {facts.tag} has kept no script yet; go on with: {typed('run', '--tag', facts.tag)}"
            )
        dawn = facts.dawn
        if dawn is None or kept.number not in (dawn.champion, dawn.script):
            return cls(facts, kept, None)
        return cls(facts, kept if dawn.script is None else known.get(dawn.script, kept), dawn)

    @property
    def branch(self) -> str | None:
        """Return the branch whose tip is the script, as people name it; None where that is not known."""
        if not self.facts.branch:
            return None
        branch = short(self.facts.branch)
        return branch if self.attempt.number == self.facts.incumbent else f"{branch}-confirmed"

    @property
    def ref(self) -> str:
        return attempt_ref(self.facts.tag, self.attempt.number)

    @property
    def score(self) -> BpbEstimate | None:
        """Return the mean of the night's scores; None without one, as for a script that only dawn has measured."""
        return self._estimate(self.attempt.val_bpb, self.attempt)

    @property
    def gain(self) -> BpbEstimate | None:
        """Return the gain over attempt 0 by the night's own scores; None for attempt 0 itself."""
        first = next((one for one in self.facts.attempts if one.number == 0), None)
        if first is None or self.attempt.number == 0 or first.val_bpb is None or self.attempt.val_bpb is None:
            return None
        return self._estimate(first.val_bpb - self.attempt.val_bpb, first, self.attempt)

    def _estimate(self, mean_bpb: float | None, *measured: AttemptFacts) -> BpbEstimate | None:
        """Return a number that rests on the mean scores of these attempts."""
        if mean_bpb is None:
            return None
        variance = sum(1 / max(1, one.seeds) for one in measured)  # in squares of sigma
        sigma_bpb = self.facts.sigma_bpb
        return BpbEstimate(mean_bpb, None if sigma_bpb is None else SURE * sigma_bpb * variance**0.5)
