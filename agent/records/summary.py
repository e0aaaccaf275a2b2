"""Where a night stands, from its attempts, in one pass: for the plan, the mix of sources, every view and JSON alike."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agent.experiment import VOID, Attempt, Ending, History, Noise, Status, incumbent, source_name
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


@dataclass(frozen=True, slots=True)
class Stopped:
    """Say how many runs were stopped early, and what that saved."""

    stopped: int
    runs: int  # all that count
    saved_s: float
    share: float  # of the training that there would have been

    @classmethod
    def of(cls, runs: Sequence[tuple[Ending, float]]) -> "Stopped | None":
        """Compare the runs that were stopped with those that finished; None where there are not both."""
        whole_s = [wall_s for ending, wall_s in runs if ending is Ending.FINISHED]
        stopped_s = [wall_s for ending, wall_s in runs if ending is Ending.HOPELESS]
        if not stopped_s or not whole_s:
            return None
        typical_s = statistics.median(whole_s)
        saved_s = sum(max(0.0, typical_s - wall_s) for wall_s in stopped_s)
        share = saved_s / (saved_s + sum(wall_s for _, wall_s in runs))
        return cls(len(stopped_s), len(runs), saved_s, share)


@dataclass(frozen=True, slots=True)
class Spent:
    """Add up the seconds of a night, dawn's included, apart from those of asking for ideas."""

    training_s: float = 0.0
    scoring_s: float = 0.0
    other_s: float = 0.0  # of dry runs, and of runs that had to be repeated


@dataclass(frozen=True, slots=True)
class Standing:
    """Hold where a night stands."""

    attempts: int
    counts: Mapping[Status, int]  # of ideas: neither the baseline nor dawn's questions
    unfinished: Sequence[tuple[int, str]]  # number and title
    stopped: Stopped | None
    spent: Spent
    ended: str | None  # of the last run
    first: Attempt | None
    best: Attempt | None
    brought: Sequence[Brought]  # by every source that has proposed
    noise: Noise | None = None


def summary(history: History, noise: Noise | None = None) -> Standing:
    """Return where a night stands; noise: of its scores, if that is known, which takes longer than all else."""
    counts: Counter[Status] = Counter()
    brought: dict[str, Brought] = {}
    unfinished, runs, spent, ended = [], [], Spent(), None
    for attempt in history:
        if attempt.decision is None:
            unfinished.append((attempt.number, attempt.proposal.title))
        if attempt.is_edit:
            source = source_name(attempt.proposal.source)
            gain = gain_bpb(attempt, history) if attempt.status is Status.KEEP else None
            brought[source] = brought.get(source, Brought(source)).plus(gain, attempt.spent_s)
            counts.update(filter(None, [attempt.status]))
        runs += [(run.ending, run.wall_s) for run in attempt.done_runs]
        spent = _with(spent, attempt)
        ended = max(filter(None, (ended, *(run.ended for run in attempt.runs))), default=None)
    return Standing(
        attempts=len(history),
        counts=counts,
        unfinished=unfinished,
        stopped=Stopped.of(runs),
        spent=spent,
        ended=ended,
        first=history[0] if history else None,
        best=incumbent(history),
        brought=tuple(brought.values()),
        noise=noise,
    )


def noise_of_night(journal: Journal, history: History) -> Noise | None:
    """Return the noise of a night as it was recorded last; learn it where a decision has come since."""
    recorded = journal.noise()
    if recorded is not None:
        return recorded.noise
    from agent.judging.noise import noise  # with numpy, which takes a tenth of a second to import

    return noise(history)


def _with(spent: Spent, attempt: Attempt) -> Spent:
    """Return the seconds with those of an attempt."""
    void_s = sum(run.wall_s for run in attempt.runs if run.ending in VOID)
    training_s = sum(run.wall_s for run in attempt.runs)
    scoring_s = sum(run.spent_s for run in attempt.runs) - training_s
    dry_run_s = attempt.dry_run.wall_s if attempt.dry_run is not None else 0.0
    return replace(
        spent,
        training_s=spent.training_s + training_s - void_s,
        scoring_s=spent.scoring_s + scoring_s,
        other_s=spent.other_s + void_s + dry_run_s,
    )


def gain_bpb(attempt: Attempt | None, history: History) -> float:
    """Return the gain of a kept attempt, by the judge's estimate or else the two scores; 0 if it is not kept."""
    if attempt is None or attempt.status is not Status.KEEP or attempt.decision is None or attempt.parent is None:
        return 0.0
    if attempt.decision.gain_bpb is not None:
        return max(0.0, attempt.decision.gain_bpb)
    before, after = history[attempt.parent].val_bpb, attempt.val_bpb
    return max(0.0, before - after) if before is not None and after is not None else 0.0
