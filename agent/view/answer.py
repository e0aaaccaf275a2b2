"""Define the objects that `--json` prints: records of the night, and for each command one that holds them.

`python docs/write_json_page.py` writes docs/json.md from these records and from the comments beside their fields.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Self

from agent.experiment import Attempt, Kind, Status, memory_gb
from agent.findings import Findings, Interval
from agent.pools.device_slots import slowdown_of
from agent.proposers.proposer import Left
from agent.records.record import Record, Turned
from agent.records.summary import NightSummary, Scored, gain_bpb, lower_bpb, speed_of
from agent.script.dials import Value
from agent.work import Work

# JSON leaves these out: they are too long, or in a file.
LEFT_OUT = {"Proposal": {"packed"}, "Attempt": {"outline"}, "Run": {"last_lines"}, "KnownIdea": {"patch"}}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: records as objects, tuples as lists, and None for what is no finite number."""
    match value:
        case None | bool() | int():
            return value
        case str() | Path():
            return _encodable(str(value))  # also a member of an enumeration
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(name): plain(inside) for name, inside in value.items()}
        case tuple() | list():
            return [plain(inside) for inside in value]
    return {name: plain(getattr(value, name)) for name in _names(value.__class__)}


def _encodable(text: str) -> str:
    """Replace halves of surrogate pairs, which UTF-8 does not have, by codes."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name not in LEFT_OUT.get(kind.__name__, ()))


@dataclass(frozen=True, slots=True)
class Measured:
    """What follows from an attempt's runs and decisions, and from its night."""

    status: Status | None  # keep, discard or crash; null: not decided yet
    kind: Kind | None  # why it has its status, in a word for programs
    val_bpb: float | None  # mean over its runs of the night that count, as a script prints it
    is_reported: bool  # whether that is the script's own number, which nothing has checked
    seeds: int  # these runs
    lower_bpb: float | None  # how much better val_bpb is than the parent's, by the two scores alone
    gain_bpb: float | None  # the judge's estimate of that difference, smaller after few runs; else the same
    sure: float | None  # the probability that the edit itself brings a gain, 0 to 1; the rest is luck
    memory_gb: float | None  # peak memory
    params: int | None  # parameters
    steps: int | None  # steps of training in a run, the middle of its runs
    tokens_s: float | None  # tokens per second of training, by the script
    speed: float | None  # tokens_s as a share of the parent's
    plain: tuple[str, ...]  # operations that an edit has taken from their kernels, which costs speed
    spent_s: float  # training, scoring and audits of these runs
    usd: float | None  # cost of the proposal, in dollars
    dials: Turned  # dials that it turned: the parent's value and its own
    merged_as: int | None  # the attempt that carries its edit on, since it was better than its parent, and overtaken

    @classmethod
    def of(cls, record: Record, attempt: Attempt, /, **more: Any) -> Self:
        """Return what is measured of an attempt; more: further keys of a larger answer."""
        return cls(
            status=attempt.status,
            kind=attempt.kind,
            val_bpb=attempt.shown_bpb,
            is_reported=attempt.is_reported,
            seeds=attempt.seeds,
            lower_bpb=lower_bpb(attempt, record.parent(attempt)),
            gain_bpb=gain_bpb(attempt, record.parent(attempt)),
            sure=attempt.sure,
            memory_gb=memory_gb(record.night, attempt),
            params=attempt.params,
            steps=attempt.steps,
            tokens_s=attempt.tokens_s,
            speed=speed_of(attempt, record.parent(attempt)),
            plain=attempt.outline.plain,
            spent_s=attempt.spent_s,
            usd=record.usd(attempt),
            dials=record.turned.get(attempt.number, {}),
            merged_as=record.merged_as.get(attempt.number),
            **more,
        )


# ---- what every command answers --------------------------------------------------------------------------------------

SCHEMA_VERSION = 1  # raised where a key is removed or its meaning changes, not where one is added


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a command; without an error, it succeeded."""

    facts: Any = field(default_factory=dict)  # a record of this file, or its keys and values
    show: Callable[[], object] = lambda: None  # prints the same for people, where the command has not done so yet
    error: str | None = None  # one sentence, with the remedy
    exit_code: int = 0

    def as_facts(self) -> dict[str, object]:
        """Return the object that a program gets: schema version, error and exit code come first."""
        head: dict[str, object] = {"schema_version": SCHEMA_VERSION, "error": self.error, "exit_code": self.exit_code}
        return {**head, **plain(self.facts)}

    def as_json(self) -> str:
        return json.dumps(self.as_facts(), indent=1)


# ---- the answers of the commands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Process:
    """The process that runs a night."""

    pid: int
    since: str  # start of the process
    stopping: bool  # whether it ends after the current run


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker, and what it does now."""

    name: str  # such as gpu 1; local for the one worker of a night that has no others
    work: Work | None  # null: it has nothing to do
    title: str | None  # title of the attempt that it works on


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a night."""

    count: int  # number of workers of the night's latest call
    workers: tuple[Worker, ...]  # every worker that had a run in any call of the night
    slowdown: float | None  # share of its speed that attempt 0 lost beside copies of itself; null: not measured

    @property
    def at_work(self) -> tuple[Worker, ...]:
        return tuple(worker for worker in self.workers if worker.work is not None)

    @classmethod
    def of(cls, record: Record, work: Iterable[Work] = ()) -> "Workers":
        """Return the workers of a night; work: what they do, where it runs."""
        jobs = {job.worker: job for job in work}
        names = {run.worker for attempt in record.attempts for run in attempt.runs} | jobs.keys()
        workers = []
        for name in sorted(names, key=in_order):
            job = jobs.get(name)
            workers.append(Worker(name, job, record.attempts[job.attempt].title if job is not None else None))
        count = record.night.options.workers if record.is_here else max(1, len(names))
        return cls(count, tuple(workers), slowdown_of(record.attempts))


def in_order(name: str) -> tuple[str, ...]:
    """Return a key that sorts names of workers as people do: gpu 2 comes before gpu 10."""
    return tuple(part.rjust(9) if part.isdigit() else part for part in re.split(r"(\d+)", name))


@dataclass(frozen=True, slots=True)
class TryInLine:
    """A try that waits or runs, or one of the latest that are done."""

    id: str  # the try's name, as in t0003
    state: str  # waiting, running, done or refused
    title: str
    tag: str | None  # tag of its night; null: no night has taken it yet
    attempt: int | None  # number of the attempt that it became
    status: Status | None  # the verdict
    submitted: str
    error: str | None  # why there is no verdict


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """The state of a night, and what it does now."""

    tag: str
    running: Process | None  # null: no process runs it
    left: Left | None  # rest of the limits of a night that runs
    summary: NightSummary
    workers: Workers
    tries: tuple[TryInLine, ...]


@dataclass(frozen=True, slots=True)
class AttemptOfNight:
    """An attempt, and what follows from it in its night."""

    tag: str
    attempt: Attempt  # the attempt as the journal has it
    measured: Measured

    @classmethod
    def of(cls, record: Record, attempt: Attempt, /, **more: Any) -> Self:
        """Return what is known of an attempt; more: further keys of a larger answer."""
        return cls(record.tag, attempt, Measured.of(record, attempt), **more)


@dataclass(frozen=True, slots=True)
class ShowAnswer(AttemptOfNight):
    """Everything known of one attempt."""

    running: bool  # whether it trains or is scored right now
    is_best: bool  # whether it is the night's best script
    ref: str  # the git ref of its commit
    branch: str  # the night's branch
    gain: Interval | None  # gain over attempt 0, by the night's own scores; null where they are not believed
    confirmation: Findings | None  # the latest findings, where they are about this script
    folder: str | None  # folder of its runs: seedN/ has the files of the run with seed N; null: it was deleted
    weights: str | None  # the file of its weights with the lowest score; null: none are here
    log: str | None  # the training log of its last run
    traceback: str | None  # the last lines of that log where the training crashed


@dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """The script of an attempt."""

    tag: str
    attempt: int
    script: str


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """The end of a training log."""

    tag: str
    attempt: int
    seed: int  # seed of the run
    log: str  # the whole file
    text: str  # last lines of the file, without control characters


@dataclass(frozen=True, slots=True)
class DiffAnswer:
    """The edit of an attempt."""

    tag: str
    attempt: int
    parent: int | None  # the attempt that is edited, in a shipped record attempt 0; null for attempt 0
    base: str  # the commit that the edit starts from
    commit: str  # the commit that it leads to
    diff: str  # unified
    dials: Mapping[str, tuple[Value, Value]]  # values before and after; null: the script has no such dial


@dataclass(frozen=True, slots=True)
class CompareAnswer:
    """Two attempts, and which is better."""

    a: AttemptOfNight
    b: AttemptOfNight
    dials: Mapping[str, tuple[Value, Value]]  # values of A and B, where they differ; null: no such dial
    gain: Interval | None  # gain of B over A; null where a score is not believed, or the noise is not known
    by: str  # the runs that the interval is estimated from
    winner: str | None  # a or b; null: the difference may be chance, or the two do not compare
    sentence: str  # the same for people, and why


@dataclass(frozen=True, slots=True)
class ScriptsCompared:
    """The edit that makes the second script from the first."""

    a: str  # TAG:N
    b: str  # the other one
    diff: str  # unified


@dataclass(frozen=True, slots=True)
class TryAnswer(Measured):
    """The verdict on one edit. A stale edit is refused with `state`, `based_on`, `missing_edits` and `next`."""

    id: str  # the try's name, as in t0003
    state: str  # done; beside an error: stale, refused or unfinished
    tag: str
    attempt: int  # the number that the edit got
    parent: int | None  # the attempt that it was judged against
    commit: str | None
    title: str  # the first line of --message
    reason: str | None  # the reason of the verdict, for people
    next: str  # the next step, in a sentence
    traceback: str | None  # the last lines of the log where the training crashed
    best: Scored | None  # the best script now
    go_back_with: str | None  # the command that puts the best script into the working tree; null: the edit is the best
    merged_onto: int | None  # the attempt that the edit was merged onto; null: tried as it was
    log: str | None  # the training log that tells most


@dataclass(frozen=True, slots=True)
class TakeAnswer:
    """A script that was put into the working tree."""

    tag: str
    attempt: int
    title: str
    val_bpb: float | None
    is_reported: bool  # whether that is the script's own number, which nothing has checked
    ref: str  # git ref that the script was taken from
    commit: str | None
    script: str  # the file that holds it now
    was_there: bool  # whether the file held it before; then nothing was written
    before_take: str | None  # the file that keeps the edits that were there; null: HEAD or an attempt keeps them


class Stage(StrEnum):
    """Say where a night is: what can still be done with it follows from that."""

    RUNNING = "running"
    OPEN = "can go on"
    ARCHIVED = "archived"
    SHIPPED = "shipped"  # a record is here, without the journal
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class ListedNight:
    """A night in a line; null: not known."""

    tag: str
    state: Stage  # running, can go on, archived, shipped (only its record is here), or damaged
    started: str = ""
    device: str | None = None
    budget_s: float | None = None
    attempts: int | None = None  # attempt 0 included
    kept: int | None = None  # ideas that are kept now
    best_attempt: int | None = None
    val_bpb: float | None = None  # score of the best attempt
    # the name of that score, after a minus where higher is better, if it is the script's own, which nothing has checked
    metric: str | None = None
    honest: Interval | None = None  # gain that the confirmation has measured
    bytes: int | None = None  # bytes on the disk: of its folder, its packed file or its record
    damage: str | None = None  # why it cannot be read

    @classmethod
    def of(cls, now: NightSummary, state: Stage, size: int | None) -> "ListedNight":
        return cls(
            tag=now.night.tag,
            state=state,
            started=now.night.started,
            device=now.night.device or None,
            budget_s=now.night.budget_s or None,
            attempts=now.attempts,
            kept=now.kept,
            best_attempt=now.best.number if now.best is not None else None,
            val_bpb=now.best.val_bpb if now.best is not None else None,
            metric=now.night.options.metric,
            honest=now.confirmation.honest if now.confirmation is not None else None,
            bytes=size,
        )


@dataclass(frozen=True, slots=True)
class NightsAnswer:
    """All nights that are known here, the oldest first."""

    nights: tuple[ListedNight, ...]
