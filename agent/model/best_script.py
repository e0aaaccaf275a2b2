"""Find the best script of a night by its record, and how much better it is."""

from dataclasses import dataclass

from agent.errors import NothingYet
from agent.experiment import Attempt, Findings, Interval, attempt_ref, confirmed_branch, short
from agent.invocation import typed
from agent.records.record import Record
from agent.records.summary import Scored, gain_of


@dataclass(frozen=True, slots=True)
class BestScript:
    """Hold the best script of a night: the one that dawn confirmed, else the one that was kept last."""

    record: Record
    attempt: Attempt
    dawn: Findings | None  # the last one, where it is about this script

    @classmethod
    def of(cls, record: Record) -> "BestScript":
        """Choose it; raise NothingYet before anything is kept."""
        kept, dawn = record.attempt(record.incumbent), record.findings
        if kept is None:
            raise NothingYet(
                f"night {record.tag} has kept no script yet, not even attempt 0; wait for it, or where it does not "
                f"run, go on with: {typed('run', '--tag', record.tag)}"
            )
        if dawn is None or kept.number not in (dawn.champion, dawn.script):
            return cls(record, kept, None)
        return cls(record, record.attempt(dawn.script) or kept, dawn)

    @property
    def branch(self) -> str | None:
        """Return the branch whose tip is the script, as people name it; None where that is not known."""
        if not self.record.branch:
            return None
        branch = short(self.record.branch)
        return branch if self.attempt.number == self.record.incumbent else confirmed_branch(branch)

    @property
    def ref(self) -> str:
        return attempt_ref(self.record.tag, self.attempt.number)

    @property
    def score(self) -> Scored | None:
        """Return the mean of the night's scores; None without one, as for a script that only dawn has measured."""
        return Scored.of(self.record, self.attempt)

    @property
    def gain(self) -> Interval | None:
        """Return the gain over attempt 0 by the night's own scores; None for attempt 0 itself."""
        return gain_of(Scored.of(self.record, self.record.attempt(0)), self.score, self.record.sigma_bpb)
