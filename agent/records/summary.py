"""What the ideas of a night have brought, and how its scores vary with the seed."""

from dataclasses import dataclass

from agent.experiment import Attempt, History, Noise, Status, source_name
from agent.records.journal import Journal


@dataclass(frozen=True, slots=True)
class Brought:
    """Sum up the ideas of one source: attempts, keeps, gain and time."""

    source: str
    attempts: int = 0
    kept: int = 0
    gain_bpb: float = 0.0
    spent_s: float = 0.0

    def plus(self, gain_bpb: float | None, spent_s: float) -> "Brought":
        """Return the sum with another idea; gain_bpb: None if it is not kept."""
        kept = gain_bpb is not None
        return Brought(
            self.source, self.attempts + 1, self.kept + kept, self.gain_bpb + (gain_bpb or 0.0), self.spent_s + spent_s
        )


def brought_by(history: History) -> tuple[Brought, ...]:
    """Return what each source that has proposed has brought: neither the baseline nor dawn's questions count."""
    brought: dict[str, Brought] = {}
    for attempt in history:
        if attempt.is_edit:
            source = source_name(attempt.proposal.source)
            gain = gain_bpb(attempt, history) if attempt.status is Status.KEEP else None
            brought[source] = brought.get(source, Brought(source)).plus(gain, attempt.spent_s)
    return tuple(brought.values())


def noise_of_night(journal: Journal, history: History) -> Noise | None:
    """Return the noise of a night as it was recorded last; learn it where a decision has come since."""
    recorded = journal.noise()
    if recorded is not None:
        return recorded.noise
    from agent.judging.noise import noise  # with numpy, which takes a tenth of a second to import

    return noise(history)


def gain_bpb(attempt: Attempt | None, history: History) -> float:
    """Return the gain of a kept attempt, by the judge's estimate or else the two scores; 0 if it is not kept."""
    if attempt is None or attempt.status is not Status.KEEP or attempt.decision is None or attempt.parent is None:
        return 0.0
    if attempt.decision.gain_bpb is not None:
        return max(0.0, attempt.decision.gain_bpb)
    before, after = history[attempt.parent].val_bpb, attempt.val_bpb
    return max(0.0, before - after) if before is not None and after is not None else 0.0
