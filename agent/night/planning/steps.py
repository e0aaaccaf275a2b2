"""The steps of a night as records: the plan returns them, and the driver carries them out."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.experiment import Decision
from agent.runs.jobs import Job


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a job on a worker that is free for it."""

    job: Job
    worker: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit an attempt's script, before it is measured."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Decide:
    """Record the decision on an attempt, and settle it."""

    attempt: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class Settle:
    """Make branch, ledger and weights follow the decision on an attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave an attempt unfinished, for another call: no time is left for its next run."""

    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Reconsider:
    """Record later decisions about settled attempts."""

    decisions: Mapping[int, Decision]
    sentences: tuple[str, ...] = ()  # to be said before


@dataclass(frozen=True, slots=True)
class Merge:
    """Carry an overtaken attempt's edit onto the incumbent, as an attempt of its own."""

    overtaken: int


@dataclass(frozen=True, slots=True)
class EnterIdea:
    """Enter the next idea as an attempt; the first is the user's own script."""

    wanted: int  # as many ideas could be tried now


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a job has ended, a worker has come, or a source has answered: nothing can begin before."""


NextStep = Begin | Commit | Decide | Settle | Leave | Reconsider | Merge | EnterIdea | Wait
Candidate = Job | NextStep  # a job becomes a step, Begin, if a worker is free for it
