"""What becomes of an attempt: the status that people read, the kind that programs read, and when it was decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    KEEP = "keep"
    DISCARD = "discard"
    CRASH = "crash"


class Kind(StrEnum):
    """Name why an attempt has its status, for programs: the reason beside it is for people alone."""

    status: Status | None  # None where the attempt has none by it

    def __new__(cls, word: str, status: Status | None = None) -> "Kind":
        kind = str.__new__(cls, word)
        kind._value_, kind.status = word, status
        return kind

    BASELINE = "baseline", Status.KEEP
    KEPT = "kept", Status.KEEP  # for a gain
    PROVISIONAL = "provisional", Status.KEEP  # for a gain that is likely, not certain
    CONFIRMED = "confirmed", Status.KEEP  # provisional before; more runs have made it certain
    SIMPLER = "simpler", Status.KEEP  # for less code or fewer parameters at about the same score
    ADOPTED = "adopted", Status.KEEP  # dawn has confirmed it, and the night goes on from it

    WORSE = "worse", Status.DISCARD
    TIE = "tie", Status.DISCARD
    LUCK = "luck", Status.DISCARD  # lower, but not by more than chance
    REVOKED = "revoked", Status.DISCARD  # kept before; the whole night's scores say otherwise by now
    PASSENGER = "passenger", Status.DISCARD  # kept before; dawn's runs say that the champion does not miss it
    STALE = "stale", Status.DISCARD  # overtaken, and in conflict with what was kept meanwhile
    OVERTAKEN = "overtaken", Status.DISCARD  # better than its parent, which is not the best any more: merged onto that
    ORPHANED = "orphaned", Status.DISCARD  # made from one that is not kept any more
    IGNORES_SEED = "ignores its seed", Status.DISCARD
    STOPPED_EARLY = "stopped early", Status.DISCARD  # its curve said that it would be no better
    TOO_SLOW = "too slow", Status.DISCARD
    FAILED_AUDIT = "failed audit", Status.DISCARD
    QUARANTINED = "quarantined", Status.DISCARD  # its gain is too large to be believed
    QUESTION = "question", Status.DISCARD  # dawn's, and no idea

    CRASHED = "crashed", Status.CRASH

    UNDECIDED = "undecided"  # a run with another seed has to tell
    VOID = "void"  # its failures were the machine's: it is measured again


NOT_BELIEVED = frozenset({Kind.FAILED_AUDIT, Kind.QUARANTINED})  # their scores are no measurements


@dataclass(frozen=True, slots=True)
class Decision:
    kind: Kind
    reason: str
    gain_bpb: float | None = None  # the edit's gain over its parent, by the judge's shrunken estimate
    sure: float | None = None  # the probability that it brings anything, 0 to 1
    at_dawn: str | None = None  # the last dawn's finding about a kept edit, as a clause

    @property
    def status(self) -> Status | None:
        return self.kind.status

    @property
    def words(self) -> str:
        """Return the reason and dawn's finding, for people."""
        return self.reason if self.at_dawn is None else f"{self.reason}; {self.at_dawn}"


@dataclass(frozen=True, slots=True)
class Review:
    """Hold a judge's later decisions on settled attempts, or the attempt to measure again."""

    again: int | None = None  # the attempt to measure with another seed before the next idea
    decisions: Mapping[int, Decision] = field(default_factory=dict)  # those that are no longer as they were recorded


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold a decision as it is in the journal, which appends later ones and overwrites none."""

    id: int  # among all decisions of the night, in the order in which they were recorded
    at: str | None  # ISO 8601, UTC, to milliseconds; None in a night that was begun before times were recorded
    decision: Decision
