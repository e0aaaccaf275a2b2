"""Find the best script of a night, and its gain."""

from dataclasses import dataclass
from pathlib import Path

from agent.errors import NightError
from agent.experiment import Attempt, History, Night, Noise, attempt_ref, incumbent, short
from agent.invocation import typed
from agent.judging.confirmation import Findings
from agent.judging.noise import noise
from agent.records.journal import Journal
from agent.records.place import Place

SURE = 1.96  # standard errors to either side: 95 %


@dataclass(frozen=True, slots=True)
class BpbEstimate:
    """A mean of scores, or a difference of two, and how far chance with the seed may have moved it."""

    mean_bpb: float
    width_bpb: float | None  # of the 95 % interval, to either side; None where the night's noise is not known


@dataclass(frozen=True, slots=True)
class BestScript:
    """The best script of a night: the one that dawn confirmed, else the one that was kept last."""

    night: Night
    history: History
    folder: Path  # of the night
    attempt: Attempt
    findings: Findings | None  # the last dawn's, where they are about this script
    noise: Noise | None

    @classmethod
    def of(cls, place: Place, tag: str) -> "BestScript":
        """Read it from a night's journal; raise NightError before anything is kept."""
        with Journal.read(place.journal(tag)) as journal:
            night, history, dawns = journal.night(), journal.attempts(), journal.dawns()
        best = incumbent(history)
        if best is None:
            raise NightError(f"night {tag} has kept no script yet; go on with: {typed('run', '--tag', tag)}")
        told = next((dawn.findings for dawn in reversed(dawns) if dawn.findings), None)
        found = Findings.of(told) if told is not None else None
        if found is not None and best.number in (found.champion, found.script):
            best = best if found.script is None else history[found.script]
        else:
            found = None
        return cls(night, history, place.folder(tag), best, found, noise(history))

    @property
    def branch(self) -> str | None:
        """Return the branch whose tip is the script, as people name it; None for a dawn's script that has none."""
        confirmed = self.findings is not None and self.findings.script == self.attempt.number
        kept = incumbent(self.history)
        if kept is not None and kept.number == self.attempt.number:
            return short(self.night.branch)
        return f"{short(self.night.branch)}-confirmed" if confirmed else None

    @property
    def ref(self) -> str:
        return attempt_ref(self.night.tag, self.attempt.number)

    @property
    def score(self) -> BpbEstimate | None:
        """Return the mean of the night's scores; None without one, as for a script that only dawn has measured."""
        scores = self.attempt.scores_bpb
        return self._reading(self.attempt.val_bpb, 1 / len(scores)) if scores else None

    @property
    def gain(self) -> BpbEstimate | None:
        """Return the gain over attempt 0 by the night's own scores; None for attempt 0 itself."""
        first, best = self.history[0], self.attempt
        if best.number == 0 or first.val_bpb is None or best.val_bpb is None:
            return None
        return self._reading(first.val_bpb - best.val_bpb, 1 / len(first.scores_bpb) + 1 / len(best.scores_bpb))

    def _reading(self, mean_bpb: float | None, share: float) -> BpbEstimate | None:
        """Return a mean whose variance is this share of a single run's."""
        if mean_bpb is None:
            return None
        return BpbEstimate(mean_bpb, None if self.noise is None else SURE * self.noise.sigma_bpb * share**0.5)
