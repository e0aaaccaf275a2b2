"""Sum up a night: where it stands, what each source of ideas brought and cost, and what dawn has found."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from agent.experiment import VOID, Attempt, Dawn, Ending, Run, Status
from agent.judging.intervals import Interval
from agent.records.summary import Share
from agent.text import shown_difference
from agent.view.facts.nouns import AttemptFacts, DawnFacts, NightFacts


@dataclass(frozen=True, slots=True)
class Scored:
    """Hold the score of an attempt: its mean with the 95 % interval that the noise of seeds leaves."""

    number: int
    title: str
    val_bpb: float
    low_bpb: float
    high_bpb: float
    seeds: int  # that have a score


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
class Overview:
    """Hold where a night stands: what `status` and the head of a page show."""

    tag: str
    branch: str
    device: str
    device_kind: str
    budget_s: float
    protocol: str
    started: str
    ended: str | None  # of its last run
    attempts: int
    ideas: int  # of them, apart from attempt 0 and dawn's questions
    keep: int  # of the ideas, as the next two
    discard: int
    crash: int
    unfinished: tuple[tuple[int, str], ...]  # number and title
    baseline: Scored | None
    best: Scored | None
    gain: Interval | None  # of the best over the baseline, by the night's own scores; luck chose it, so it flatters
    sigma_bpb: float | None
    smallest_bpb: float | None
    noise_runs: int | None
    doubt: str | None
    stopped: Stopped | None  # early
    hours: Mapping[str, float]  # of training, scoring, asking and other
    usd: float | None
    most_usd: float | None
    sources: tuple[Share, ...]
    dawn: DawnFacts | None


def overview_of(facts: NightFacts) -> Overview:
    """Return the overview of a night whose facts are known."""
    known: dict[int | None, AttemptFacts] = {one.number: one for one in facts.attempts}
    counts = Counter(one.status for one in facts.ideas)
    baseline, best = (scored_of(facts, known.get(number)) for number in (0, facts.incumbent))
    counted = [run for one in facts.attempts for run in _counted(one.runs)]
    return Overview(
        **{name: getattr(facts, name) for name in SHARED},
        attempts=len(facts.attempts),
        ideas=len(facts.ideas),
        keep=counts[Status.KEEP],
        discard=counts[Status.DISCARD],
        crash=counts[Status.CRASH],
        unfinished=tuple((one.number, one.title) for one in facts.attempts if one.status is None),
        baseline=baseline,
        best=best,
        gain=gain_of(baseline, best, facts.sigma_bpb),
        stopped=Stopped.of([(run.ending, run.wall_s) for run in counted]),
        hours=dict(hours(facts)),
        usd=cost_usd(facts.sources),
    )


SHARED = {one.name for one in fields(Overview)} & {one.name for one in fields(NightFacts)} - {"attempts"}


def scored_of(facts: NightFacts, attempt: AttemptFacts | None) -> Scored | None:
    """Return the score of an attempt with its interval, by the noise of the night; None without a score."""
    if attempt is None or attempt.val_bpb is None:
        return None
    scores = sum(run.val_bpb is not None and not run.dawn for run in attempt.runs)
    around = Interval.of_runs(attempt.val_bpb, facts.sigma_bpb, scores or attempt.seeds)
    ends = around.low_bpb, around.high_bpb
    return Scored(attempt.number, attempt.title, attempt.val_bpb, *ends, scores or attempt.seeds)


def gain_of(baseline: Scored | None, best: Scored | None, sigma_bpb: float | None) -> Interval | None:
    """Return the gain by the night's own scores; None where one of them is missing, and for attempt 0 itself."""
    if baseline is None or best is None or baseline.number == best.number:
        return None
    return Interval.of_runs(baseline.val_bpb - best.val_bpb, sigma_bpb, baseline.seeds, best.seeds)


def _counted(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of the night that count, as Attempt.done_runs does."""
    return [run for run in runs if not run.dawn and run.ending not in VOID]


def cost_usd(sources: Iterable[Share]) -> float | None:
    """Return what all sources cost; None where no cost is known."""
    costs = [one.usd for one in sources if one.usd is not None]
    return sum(costs) if costs else None


# ---- dawn ------------------------------------------------------------------------------------------------------------


def dawn_of(dawns: Iterable[Dawn], title_of: Callable[[int], str]) -> DawnFacts | None:
    """Return the findings of the latest dawn that has any."""
    dawn = next((one for one in reversed(tuple(dawns)) if one.findings), None)
    if dawn is None or dawn.findings is None:
        return None
    found = dawn.findings
    return DawnFacts(
        number=dawn.number,
        champion=found["champion"],
        script=found["script"],
        recorded_bpb=found["recorded_bpb"],
        believed_bpb=found["believed_bpb"],
        honest=Interval(**found["honest"]) if found["honest"] else None,
        holdout=Interval(**found["holdout"]) if found["holdout"] else None,
        edits=tuple((one["number"], Interval(**one["effect"]) if one["runs"] else None) for one in found["edits"]),
        passengers=tuple(found["passengers"]),
        title=None if found["script"] is None else title_of(found["script"]),
    )


def gain_bpb(attempt: AttemptFacts, known: Mapping[int, AttemptFacts]) -> float | None:
    """Return the gain over its parent, by the judge's estimate or else by the two scores; None where neither is."""
    if attempt.gain_bpb is not None:
        return attempt.gain_bpb
    parent = known.get(attempt.parent) if attempt.parent is not None else None
    if parent is None or parent.val_bpb is None or attempt.val_bpb is None:
        return None
    return parent.val_bpb - attempt.val_bpb


def estimated_gain_bpb(attempt: Attempt, parent: Attempt | None) -> float | None:
    """Return the gain of an attempt over its parent, by the judge's estimate or else by the two scores as shown."""
    if attempt.decision is not None and attempt.decision.gain_bpb is not None:
        return attempt.decision.gain_bpb
    return measured_gain_bpb(attempt, parent)


def measured_gain_bpb(attempt: Attempt, parent: Attempt | None) -> float | None:
    """Return by how much the score of an attempt, as shown, is below its parent's; None where one of them has none."""
    if parent is None or parent.val_bpb is None or attempt.val_bpb is None:
        return None
    return shown_difference(parent.val_bpb, attempt.val_bpb)


def hours(facts: NightFacts) -> tuple[tuple[str, float], ...]:
    """Return the hours of training, scoring and asking; other: of dry runs, and of runs that had to be repeated.

    Ideas are asked for while runs go on, so the sum may exceed the hours by the clock.
    """
    runs = [run for one in facts.attempts for run in one.runs]
    void_s = sum(run.wall_s for run in runs if run.ending in VOID)
    untold_s = sum(one.spent_s for one in facts.attempts if not one.runs)  # rows have one time for all that was trained
    asked_s = sum(one.asked_s for one in facts.attempts)
    ideas_s = sum(one.spent_s for one in facts.ideas)
    seconds = {
        "training": sum(run.wall_s for run in runs) - void_s + untold_s,
        "scoring": sum(run.scoring_s for run in runs),
        # sources were asked for the next idea, too, which is no attempt yet
        "asking": max(asked_s, sum(3600 * one.hours for one in facts.sources) - ideas_s),
        "other": void_s + sum(one.dry_run_s for one in facts.attempts),
    }
    return tuple((what, spent_s / 3600) for what, spent_s in seconds.items())
