"""Sum up a night: its state, and the gains and costs of each proposer. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.experiment import NOT_BELIEVED, NOT_COUNTED, Ask, Attempt, History, Night, Noise, Status, proposer_name
from agent.findings import Findings, Interval
from agent.records.record import Record, public
from agent.text import SCORE_DECIMALS, shown_difference

Number = TypeVar("Number", int, float)


# ---- gains -----------------------------------------------------------------------------------------------------------


def lower_bpb(attempt: Attempt, parent: Attempt | None, decimals: int | None = SCORE_DECIMALS) -> float | None:
    """Return by how much the score of an attempt is better than its parent's, both as they are shown.

    None where one of them has no score, and where that of the attempt is not believed.
    """
    if attempt.kind in NOT_BELIEVED or parent is None or parent.val_bpb is None or attempt.val_bpb is None:
        return None
    return shown_difference(parent.val_bpb, attempt.val_bpb, None if attempt.is_reported else decimals)


def gain_bpb(attempt: Attempt, parent: Attempt | None) -> float | None:
    """Return the gain of an attempt over its parent, by the judge's estimate or else by the two scores as shown.

    None where one of them has no score, and where that of the attempt is not believed.
    """
    if attempt.kind in NOT_BELIEVED:
        return None
    return attempt.gain_bpb if attempt.gain_bpb is not None else lower_bpb(attempt, parent)


def speed_of(attempt: Attempt, parent: Attempt | None) -> float | None:
    """Return how fast an attempt trained, in tokens a second, as a share of its parent's; None where one is unknown."""
    if parent is None or not parent.tokens_s or attempt.tokens_s is None:
        return None
    return attempt.tokens_s / parent.tokens_s


def confirmed_gain(record: Record, attempt: Attempt) -> Interval | None:
    """Return what the latest confirmation has measured an edit to bring; None where it has not measured this edit.

    With one edit, the best script's gain over the baseline is that edit's. With several, those count that were taken
    out.
    """
    found = record.findings
    if found is None or found.honest is None:
        return None
    edit = next((edit for edit in found.edits if edit.number == attempt.number), None)
    if edit is None:
        return None
    return found.honest if len(found.edits) == 1 else edit.effect if edit.runs else None


def lower_than_best(record: Record) -> Attempt | None:
    """Return the idea with the lowest score of those below the best script's; None where the best has the lowest.

    Attempts without a decision, and scores that are not believed, do not count.
    """
    best = record.best
    if best is None or best.val_bpb is None:
        return None
    scored = [
        (attempt.val_bpb, attempt.number)
        for attempt in record.ideas
        if attempt.decision is not None and attempt.kind not in NOT_BELIEVED and attempt.val_bpb is not None
    ]
    lowest = min(scored, default=None)
    return None if lowest is None or lowest[0] >= best.val_bpb else record.attempts[lowest[1]]


def kept_gains_bpb(history: History) -> dict[int, float]:
    """Return the gain, at least 0, of each edit that is kept now; the confirmation's questions are no edits."""
    return {
        attempt.number: max(0.0, gain_bpb(attempt, history[attempt.parent or 0]) or 0.0)
        for attempt in history
        if attempt.is_edit and attempt.status is Status.KEEP
    }


# ---- proposers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Share:
    """Sum up one proposer's part of a night: its gains and costs."""

    proposer: str
    attempts: int  # number of attempts that it proposed
    kept: int  # number of these attempts that are kept
    gain_bpb: float  # summed over its keeps, by the judge's shrunken estimates
    hours: float  # hours of training, scoring and asking
    calls: int  # number of calls to a model or an agent
    failures: int  # number of calls that failed
    tokens_in: int | None  # tokens that were read; None: not told
    tokens_out: int | None  # tokens that were written
    usd: float | None
    tokens_cached: int | None = None  # part of tokens_in that the server had in its cache
    last_failure: str | None = None  # why the latest call failed; None: it did not


def earned(history: History, asks: Sequence[Ask]) -> tuple[Share, ...]:
    """Return what every proposer that has proposed or was asked has brought, the one that gained most first."""
    edits, gains = [attempt for attempt in history if attempt.is_edit], kept_gains_bpb(history)
    names = {proposer_name(attempt.proposer) for attempt in edits} | {proposer_name(ask.proposer) for ask in asks}
    shares = []
    for name in names:
        own = [attempt for attempt in edits if proposer_name(attempt.proposer) == name]
        calls = [ask for ask in asks if proposer_name(ask.proposer) == name]
        kept_bpb = [gains[attempt.number] for attempt in own if attempt.number in gains]
        shares.append(
            Share(
                proposer=name,
                attempts=len(own),
                kept=len(kept_bpb),
                gain_bpb=sum(kept_bpb),
                hours=(sum(attempt.spent_s for attempt in own) + sum(ask.wall_s for ask in calls)) / 3600,
                calls=len(calls),
                failures=sum(ask.failure is not None for ask in calls),
                tokens_in=_sum(ask.tokens_in for ask in calls),
                tokens_out=_sum(ask.tokens_out for ask in calls),
                usd=_sum(ask.usd for ask in calls),
                tokens_cached=_sum(ask.tokens_cached for ask in calls),
                last_failure=calls[-1].failure if calls else None,
            )
        )
    return tuple(sorted(shares, key=lambda share: (-share.gain_bpb, share.proposer)))


def _sum(values: Iterable[Number | None]) -> Number | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


# ---- the night -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scored:
    """An attempt's score: its mean with the 95 % interval that the noise of seeds leaves."""

    number: int  # number of the attempt
    title: str  # title of its edit
    val_bpb: float  # mean over its seeds, as a script prints it
    low_bpb: float
    high_bpb: float
    seeds: int  # number of seeds with a score

    @property
    def interval(self) -> Interval:
        return Interval(self.val_bpb, self.low_bpb, self.high_bpb)

    @classmethod
    def of(cls, record: Record, attempt: Attempt | None) -> "Scored | None":
        """Return None without a score."""
        if attempt is None or attempt.shown_bpb is None:
            return None
        seeds = len(attempt.scores_bpb)
        around = Interval.of_runs(attempt.shown_bpb, record.sigma_bpb, seeds)
        return cls(attempt.number, attempt.title, around.mean_bpb, around.low_bpb, around.high_bpb, seeds)


@dataclass(frozen=True, slots=True)
class NightSummary:
    """The state of a night. Kept, discarded, crashed count ideas, without attempt 0 and a confirmation's questions."""

    night: Night  # facts of the night, without its owner's private ones
    ended: str | None  # end of the last run
    attempts: int  # attempt 0 included
    ideas: int  # attempts without attempt 0 and the confirmation's questions
    kept: int  # ideas that are kept now
    discarded: int
    crashed: int
    unfinished: tuple[tuple[int, str], ...]  # number and title of undecided attempts; the first one goes on first
    baseline: Scored | None  # score of attempt 0
    best: Scored | None
    gain: Interval | None  # best over baseline by the night's own scores; flattering, since luck chose it
    noise: Noise | None
    hours: Mapping[str, float]  # hours of training, scoring, asking for ideas, and other: dry runs, and repeated runs
    others_share: float | None  # of the processors that its runs wanted, what others took; None: it was not measured
    usd: float | None  # cost of the ideas
    most_usd: float | None  # limit of that cost
    proposers: tuple[Share, ...]  # proposers of the ideas
    confirmation: Findings | None  # the latest findings of the confirmation


def summary_of(record: Record) -> NightSummary:
    """Sum up a night."""
    statuses = Counter(attempt.status for attempt in record.ideas)
    baseline, best = Scored.of(record, record.attempt(0)), Scored.of(record, record.best)
    proposers = earned(record.attempts, record.asks)
    return NightSummary(
        night=public(record.night),
        ended=record.ended,
        attempts=len(record.attempts),
        ideas=len(record.ideas),
        kept=statuses[Status.KEEP],
        discarded=statuses[Status.DISCARD],
        crashed=statuses[Status.CRASH],
        unfinished=tuple((attempt.number, attempt.title) for attempt in record.attempts if attempt.status is None),
        baseline=baseline,
        best=best,
        gain=None if record.best is None else gain_over_baseline(record, record.best),
        noise=record.noise,
        hours=_hours(record),
        others_share=_others_share(record),
        usd=_sum(share.usd for share in proposers),
        most_usd=record.night.options.max_cost,
        proposers=proposers,
        confirmation=record.findings,
    )


def gain_over_baseline(record: Record, attempt: Attempt) -> Interval | None:
    """Return the gain of any attempt by the night's own scores.

    None for attempt 0 itself, where one of the scores is missing, and where that of the attempt is not believed.
    """
    baseline = record.attempt(0)
    if baseline is None or attempt.number == 0 or (lower := lower_bpb(attempt, baseline)) is None:
        return None
    return Interval.of_runs(lower, record.sigma_bpb, len(baseline.scores_bpb), len(attempt.scores_bpb))


def _others_share(record: Record) -> float | None:
    """Return the share of the processors that other programs took from all runs, by the seconds of each."""
    runs = [run for attempt in record.attempts for run in attempt.runs if run.others_share is not None]
    whole_s = sum(run.wall_s for run in runs)
    return sum(run.wall_s - run.given_s for run in runs) / whole_s if whole_s else None


def _hours(record: Record) -> dict[str, float]:
    """Return the hours of training, scoring, asking and other things.

    Ideas are asked for while runs go on, so the sum may exceed the hours by the clock.
    """
    runs = [run for attempt in record.attempts for run in attempt.runs]
    invalid_s = sum(run.wall_s for run in runs if run.ending in NOT_COUNTED)
    seconds = {
        "training": sum(run.wall_s for run in runs) - invalid_s,
        "scoring": sum(run.scoring_s for run in runs),
        "asking": sum(ask.wall_s for ask in record.asks),
        "other": invalid_s + sum(attempt.dry_run.wall_s for attempt in record.attempts if attempt.dry_run),
    }
    return {activity: spent_s / 3600 for activity, spent_s in seconds.items()}
