"""Tell the screen of a night what its record says of each moment: the night is drawn as it was, in seconds."""

import math
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate, pairwise, takewhile

import numpy as np

from agent.errors import NightError
from agent.experiment import Attempt, Run
from agent.records.record import Record
from agent.work import Doing, Progress, Work

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Replay:
    """Tell what a record says, by a clock that is set; a rest longer than the longest run counts as long as that."""

    def __init__(self, record: Record) -> None:
        """Set the clock to the night's beginning; raise NightError where a time of the record is none."""
        try:
            self._times_s = sorted(map(_seconds, _times(record)))
        except (ValueError, TypeError) as error:
            raise NightError(f"the record of night {record.tag} has a time that is none: {error}") from error
        longest_s = max((run.spent_s for attempt in record.attempts for run in attempt.runs), default=0.0)
        gaps_s = (min(after_s - before_s, longest_s) for before_s, after_s in pairwise(self._times_s))
        self._shown_s = [*accumulate(gaps_s, initial=0.0)]
        self._record, self._now_s, self._at_work = record, self._times_s[0], dict[Work, Run]()

    def set(self, share: float) -> None:
        """Set the clock to where this share of the night is over."""
        self._now_s = float(np.interp(share * self._shown_s[-1], self._shown_s, self._times_s))

    @property
    def clock(self) -> str:
        return datetime.fromtimestamp(self._now_s, UTC).strftime("%H:%M")

    def version(self) -> int:
        return bisect(self._times_s, self._now_s)

    def read(self) -> tuple[Sequence[Work], Record]:
        self._at_work = {}
        begun = takewhile(lambda attempt: _seconds(attempt.started) <= self._now_s, self._record.attempts)
        attempts = tuple(map(self._as_it_was, begun))
        confirmations = tuple(
            confirmation
            for confirmation in self._record.confirmations
            if _seconds(confirmation.ended or confirmation.began) <= self._now_s
        )
        return tuple(self._at_work), replace(self._record, attempts=attempts, confirmations=confirmations)

    def progress(self) -> Iterator[tuple[Progress, str]]:
        """Yield how far each run under way was, and its worker."""
        for work, run in self._at_work.items():
            spent_s = self._now_s - _seconds(work.began)
            yield Progress(spent_s / max(spent_s, run.wall_s, 1.0), tokens_s=run.tokens_s), run.worker

    def close(self) -> None: ...

    def _as_it_was(self, attempt: Attempt) -> Attempt:
        """Return what was known of an attempt by now, and note its runs that are under way."""
        decisions = tuple(each for each in attempt.decisions if _seconds(each.at or attempt.started) <= self._now_s)
        decided_s = _seconds(decisions[-1].at or attempt.started) if decisions else -math.inf
        done = list[Run]()
        for run in attempt.runs:
            began = run.began or attempt.started
            began_s = _seconds(began)
            if began_s + run.wall_s <= self._now_s or began_s < decided_s:
                done.append(run)
            elif began_s <= self._now_s:
                self._at_work[Work(run.worker, Doing.TRAINING, attempt.number, began, run.seed, run.confirmation)] = run
        return replace(attempt, runs=tuple(done), decisions=decisions)


def _seconds(written: str) -> float:
    return (datetime.fromisoformat(written) - EPOCH).total_seconds()


def _times(record: Record) -> Iterator[str]:
    """Yield the times at which something happened."""
    yield record.night.started
    for confirmation in record.confirmations:
        yield confirmation.ended or confirmation.began
    for attempt in record.attempts:
        yield attempt.started
        for decision in attempt.decisions:
            yield decision.at or attempt.started
        for run in attempt.runs:
            yield run.began or attempt.started
            yield run.ended or run.began or attempt.started
