"""What the ideas of a night have brought, and how its scores vary with the seed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.experiment import Ask, Attempt, History, Noise, Status, source_name
from agent.records.journal import Journal

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Merit:
    """Hold what an edit has brought and taken."""

    source: str
    spent_s: float
    gain_bpb: float | None  # None: it is not kept


@dataclass(frozen=True, slots=True)
class Share:
    """Sum up one source's part of a night: its gains and costs."""

    source: str
    attempts: int
    kept: int
    gain_bpb: float  # summed over its keeps, by the judge's shrunken estimates
    hours: float  # of training, scoring and asking
    calls: int
    failures: int  # of the calls
    tokens_in: int | None  # None: not told
    tokens_out: int | None
    usd: float | None
    tokens_cached: int | None = None  # of tokens_in
    last_failure: str | None = None  # why the latest call failed; None where it did not


def merits(history: History) -> list[Merit]:
    """Return what each edit has brought: neither the baseline nor dawn's questions count."""
    return [
        Merit(
            source_name(one.proposal.source),
            one.spent_s,
            gain_bpb(one, history) if one.status is Status.KEEP else None,
        )
        for one in history
        if one.is_edit
    ]


def earned(edits: Sequence[Merit], asks: Sequence[Ask]) -> tuple[Share, ...]:
    """Return a row for every source that has proposed or was asked, the one that gained most first."""
    names = {edit.source for edit in edits} | {source_name(ask.source) for ask in asks}
    rows = [
        _share(
            name,
            [edit for edit in edits if edit.source == name],
            [ask for ask in asks if source_name(ask.source) == name],
        )
        for name in names
    ]
    return tuple(sorted(rows, key=lambda row: (-row.gain_bpb, row.source)))


def _share(name: str, edits: Sequence[Merit], asks: Sequence[Ask]) -> Share:
    gains = [edit.gain_bpb for edit in edits if edit.gain_bpb is not None]
    return Share(
        source=name,
        attempts=len(edits),
        kept=len(gains),
        gain_bpb=sum(gains),
        hours=(sum(edit.spent_s for edit in edits) + sum(ask.wall_s for ask in asks)) / 3600,
        calls=len(asks),
        failures=sum(ask.failure is not None for ask in asks),
        tokens_in=_sum(ask.tokens_in for ask in asks),
        tokens_out=_sum(ask.tokens_out for ask in asks),
        usd=_sum(ask.usd for ask in asks),
        tokens_cached=_sum(ask.tokens_cached for ask in asks),
        last_failure=asks[-1].failure if asks else None,
    )


def _sum(values: Iterable[Number | None]) -> Number | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None


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
