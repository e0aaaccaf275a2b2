"""What a dawn has found, without numpy, which takes a tenth of a second to import."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from agent.judging.intervals import Interval

SOURCE = "dawn"  # of its proposals


@dataclass(frozen=True, slots=True)
class Edit:
    """Hold the effect on the champion of a kept edit, by the night's runs and by those without it."""

    number: int
    effect: Interval
    worthless: float  # the probability that it brings nothing or does harm
    runs: int  # of the champion without it


@dataclass(frozen=True, slots=True)
class Findings:
    """Hold what a dawn has found; the names of its fields are those of the journal and of `confirm --json`."""

    champion: int
    script: int | None  # the attempt whose script is confirmed; None where no gain is
    fresh_runs: int  # at this dawn, of attempt 0 and the champion together
    recorded_bpb: float | None  # the champion's gain over attempt 0, by the night's own scores
    believed_bpb: float | None  # the same gain, by the shrunken estimates of the judge
    honest: Interval | None  # on fresh seeds; None until attempt 0 and champion have two each
    holdout: Interval | None  # the same runs on text that no run was judged by
    edits: tuple[Edit, ...]  # in the order in which they were kept
    passengers: tuple[int, ...]  # to be dropped
    dropping: Interval | None  # measured gain of dropping them over the champion; None if it was not measured
    stays: str | None  # why doubtful edits are not dropped after all

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Findings":
        """Read findings from the facts in a journal."""
        return msgspec.convert(facts, cls)
