"""Find the best script of a night among its facts, and how much better it is."""

from dataclasses import dataclass

from agent.errors import NothingYet
from agent.experiment import Attempt, attempt_ref, short
from agent.invocation import typed
from agent.judging.findings import Findings
from agent.judging.intervals import Interval
from agent.records.record import Record
from agent.records.summary import Scored, gain_of
from agent.text import counted
from agent.view.words import confirmed_branch


@dataclass(frozen=True, slots=True)
class BestScript:
    """Hold the best script of a night: the one that dawn confirmed, else the one that was kept last."""

    facts: Record
    attempt: Attempt
    dawn: Findings | None  # the last one, where it is about this script

    @classmethod
    def of(cls, facts: Record) -> "BestScript":
        """Choose it; raise NothingYet before anything is kept."""
        kept, dawn = facts.attempt(facts.incumbent), facts.findings
        if kept is None:
            raise NothingYet(
                f"night {facts.tag} has kept no script yet, not even attempt 0; wait for it, or where it does not run, "
                f"go on with: {typed('run', '--tag', facts.tag)}"
            )
        if dawn is None or kept.number not in (dawn.champion, dawn.script):
            return cls(facts, kept, None)
        return cls(facts, facts.attempt(dawn.script) or kept, dawn)

    @property
    def branch(self) -> str | None:
        """Return the branch whose tip is the script, as people name it; None where that is not known."""
        if not self.facts.branch:
            return None
        branch = short(self.facts.branch)
        return branch if self.attempt.number == self.facts.incumbent else confirmed_branch(branch)

    @property
    def ref(self) -> str:
        return attempt_ref(self.facts.tag, self.attempt.number)

    @property
    def score(self) -> Scored | None:
        """Return the mean of the night's scores; None without one, as for a script that only dawn has measured."""
        return Scored.of(self.facts, self.attempt)

    @property
    def gain(self) -> Interval | None:
        """Return the gain over attempt 0 by the night's own scores; None for attempt 0 itself."""
        return gain_of(Scored.of(self.facts, self.facts.attempt(0)), self.score, self.facts.sigma_bpb)


def score_words(scored: Scored) -> str:
    """Return the mean of an attempt's scores, its 95 % interval if the noise is known, and how many there are."""
    around = Interval(scored.val_bpb, scored.low_bpb, scored.high_bpb)
    return f"{interval_words(around)}, mean of {counted(scored.seeds, 'seed')}"


def interval_words(interval: Interval) -> str:
    """Return the mean, and the ends in brackets where the noise is known."""
    mean = f"{interval.mean_bpb:.6f}"
    return f"{mean} [{interval.low_bpb:.6f}, {interval.high_bpb:.6f}]" if interval.has_width else mean
