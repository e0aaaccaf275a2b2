"""What earlier nights measured, as evidence for a later one: from the journals here and from experiments/shipped/.

Only what a source of ideas needs is read, and of a long night only the latest attempts.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

import msgspec
from msgspec import Meta

from agent.errors import NightError, ScriptError
from agent.experiment import Attempt, Ending, Kind, Night, Part, Status
from agent.files import check_plain
from agent.judging.noise import noise
from agent.records.journal import Journal
from agent.records.place import Place
from agent.script.dials import Value, remembered, skeleton_of, values_of

LATEST, MOST = 500, 2000  # attempts that are read: of one night, and of all journals
OTHER_PROTOCOL, OTHER_DEVICE = 0.5, 0.5  # how much a night on another text, or another device of the kind, tells
# as JSON may be
DAMAGED = (
    *(NightError, OSError, msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    RecursionError,
)
FACTS, ATTEMPTS = "night.json", "attempts.jsonl"  # in a shipped night's folder
MOST_BYTES = 64 << 20  # of such a file: an attempt takes some 2 KB
NUMBERS = -1e15, 1e15
# Beyond its bounds, a number of a record is damage: it would make no number of all that is computed from it.
Number = Annotated[float, Meta(ge=NUMBERS[0], le=NUMBERS[1])]
Budget = Annotated[float, Meta(ge=1e-3, le=1e9)]
Sigma = Annotated[float, Meta(ge=1e-12, le=1e6)] | Literal[0]
ScoreBpb = Annotated[float, Meta(ge=1e-6, le=1e6)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """Hold what an attempt of an earlier night tells: its dials, its score, and the latest decision on it."""

    number: Count
    parent: Count | None
    title: str
    source: str
    dials: Mapping[str, Value]  # of its script, on the night's kind of device; empty if that cannot be read
    skeleton: str  # skeleton_of its script, by the Python of the night; "" if that cannot be read
    val_bpb: ScoreBpb | None  # mean of the night's runs that count
    runs: Count  # of the night that count
    crashed: bool
    gain_bpb: Number | None
    sure: Number | None
    kind: str | None  # None: not decided
    peak_gb: Number | None  # of memory, by the harness's watch: it does not see that of a CUDA device
    tokens_s: Number | None
    without: tuple[Part, ...]

    @classmethod
    def of(cls, attempt: Attempt, device_kind: str) -> "PastAttempt":
        proposal, decision = attempt.proposal, attempt.decision
        return cls(
            number=attempt.number,
            parent=attempt.parent,
            title=proposal.title,
            source=proposal.source,
            dials=dials_in(proposal.script, device_kind),
            skeleton=skeleton_in(proposal.script, device_kind),
            val_bpb=attempt.val_bpb,
            runs=attempt.seeds,
            crashed=attempt.status is Status.CRASH,
            gain_bpb=decision.gain_bpb if decision else None,
            sure=decision.sure if decision else None,
            kind=str(decision.kind) if decision else None,
            peak_gb=attempt.peak_bytes / 1e9 if attempt.peak_bytes is not None else None,
            tokens_s=attempt.tokens_s,
            without=proposal.without,
        )


@dataclass(frozen=True, slots=True)
class ShippedRun:
    """Hold a run as a shipped record has it."""

    seed: int
    dawn: Count
    ending: Ending
    val_bpb: Number | None
    holdout_bpb: Number | None
    wall_s: Number
    tokens_s: Number | None
    began: str | None
    worker: str = "local"


@dataclass(frozen=True, slots=True)
class ShippedAttempt(PastAttempt):
    """Hold a line of a shipped record; its dials are those that differ from attempt 0's."""

    dials: Mapping[str, Any]
    dials_gone: tuple[str, ...]
    hypothesis: str
    started: str
    commit: str | None
    status: Status | None
    reason: str | None
    at_dawn: str | None
    memory_gb: Number | None
    params: Number | None
    spent_s: Number
    asked_s: Number
    scores: tuple[ShippedRun, ...]
    decisions: tuple[tuple[str | None, Kind], ...]  # when each was made
    repairs: int | None = None
    merges: int | None = None


@dataclass(frozen=True, slots=True)
class ShippedNight:
    """Hold the facts of a shipped night."""

    tag: str
    device: str
    device_kind: str
    protocol: str
    budget_s: Budget
    sigma_bpb: Sigma | None
    started: str
    ended: str | None
    incumbent: Count | None
    calls: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PastNight:
    """Hold an earlier night and its latest attempts, in the order of their numbers; attempt 0 is always there."""

    tag: str
    device: str
    device_kind: str
    protocol: str
    budget_s: float
    sigma_bpb: float | None  # standard deviation of one run; None where it is not known
    attempts: tuple[PastAttempt, ...]


def past_nights(place: Place, except_tag: str) -> tuple[PastNight, ...]:
    """Return all other nights with a journal or a shipped record here, the oldest first; skip damaged ones.

    A night that has both is read from its journal.
    """
    nights: dict[tuple[str, str], PastNight] = {}  # by start and tag
    read = 0
    for path in sorted(place.nights.glob("*/journal.sqlite"), key=_modified_at, reverse=True):
        if read < MOST and path.parent.name != except_tag:
            with suppress(NightError, OSError), Journal.read(path) as journal:
                nights[journal.night().started, path.parent.name] = past = of_journal(journal)
                read += len(past.attempts)
    for folder in place.shipped.glob("[!.]*/"):  # not what a `ship` that was killed left half-made
        with suppress(*DAMAGED):
            started, past = of_record(folder)
            if past.tag != except_tag:
                nights.setdefault((started, past.tag), past)
    return tuple(nights[key] for key in sorted(nights))


def likeness(past: PastNight, night: Night) -> float:
    """Return how much an earlier night tells about this one: 1 on the same device by the same protocol, 0 to 1 else."""
    if past.device_kind != night.device_kind or min(past.budget_s, night.budget_s) <= 0:
        return 0.0
    alike = 1.0 if past.device == night.device else OTHER_DEVICE
    if past.protocol != night.protocol:
        budgets = past.budget_s, night.budget_s
        alike *= OTHER_PROTOCOL * min(budgets) / max(budgets)
    return alike


def of_journal(journal: Journal) -> PastNight:
    """Read a night from its journal; raise NightError where that is damaged."""
    night = journal.night()
    attempts = journal.attempts()
    learnt = noise(attempts)
    return PastNight(
        tag=night.tag,
        device=night.device,
        device_kind=night.device_kind,
        protocol=night.protocol,
        budget_s=night.budget_s,
        sigma_bpb=learnt.sigma_bpb if learnt else None,
        attempts=tuple(
            PastAttempt.of(attempt, night.device_kind) for attempt in (*attempts[:1], *attempts[1:][-LATEST:])
        ),
    )


def of_record(folder: Path) -> tuple[str, PastNight]:
    """Read a shipped night; return when it began, too. Raise one of DAMAGED where a file is damaged."""
    night, attempts = read_record(folder)
    latest = (attempts[0], *attempts[1:][-LATEST:])
    names = [field.name for field in fields(PastAttempt)]
    return night.started, PastNight(
        tag=night.tag,
        device=night.device,
        device_kind=night.device_kind,
        protocol=night.protocol,
        budget_s=night.budget_s,
        sigma_bpb=night.sigma_bpb,
        attempts=tuple(PastAttempt(**{name: getattr(attempt, name) for name in names}) for attempt in latest),
    )


def read_record(folder: Path) -> tuple[ShippedNight, list[ShippedAttempt]]:
    """Read a shipped night; raise one of DAMAGED where a file is damaged."""
    night = facts_of(folder)
    # by line feeds alone: a title may hold what else splitlines() takes for the end of a line
    lines = text_of(folder / ATTEMPTS).removesuffix("\n").split("\n")
    attempts = [msgspec.convert(json.loads(line, parse_constant=number_in), ShippedAttempt) for line in lines]
    base = attempts[0].dials
    return night, [replace(attempt, dials=_all_dials(attempt, base)) for attempt in attempts]


def facts_of(folder: Path) -> ShippedNight:
    """Read the facts of a shipped night; raise one of DAMAGED where the file is damaged."""
    return msgspec.convert(json.loads(text_of(folder / FACTS), parse_constant=number_in), ShippedNight)


def _all_dials(attempt: ShippedAttempt, base: Mapping[str, Any]) -> dict[str, Value]:
    """Return all dials of an attempt, whose row has only those that differ from attempt 0's."""
    dials = {name: value for name, value in base.items() if name not in attempt.dials_gone} | {**attempt.dials}
    return {name: _as_tuples(value) for name, value in dials.items()}


def text_of(file: Path) -> str:
    """Return the text of a record's file; raise NightError for what is no plain file, or larger than any record."""
    check_plain(file)
    with file.open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise NightError(f"{file} has more than {MOST_BYTES:,} bytes, and is no record of a night")
    return content.decode()


def number_in(value: float | str | None) -> float | None:
    """Return a number of a record; raise ValueError for one that no night measures, as NaN."""
    if value is None or (not isinstance(value, str) and NUMBERS[0] <= value <= NUMBERS[1]):
        return value
    raise ValueError(f"{value} is not from {NUMBERS[0]:g} to {NUMBERS[1]:g}")


def _as_tuples(value: Any) -> Value:
    """Return a dial's value from JSON, which writes tuples as lists; None for what can be no value of a dial."""
    frozen = tuple(map(_as_tuples, value)) if isinstance(value, list) else value
    return frozen if _is_plain(frozen) else None


def _modified_at(path: Path) -> float:
    """Return when a file was last written; 0 where that cannot be read."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


# ---- what is read out of a script ------------------------------------------------------------------------------------


@remembered
def dials_in(script: str, device_kind: str) -> Mapping[str, Value]:
    """Return dial → value, as far as JSON has such values; empty if the script cannot be read."""
    with suppress(ScriptError, SyntaxError, ValueError):
        return {name: value for name, value in values_of(script, device_kind).items() if _is_plain(value)}
    return {}


@remembered
def skeleton_in(script: str, device_kind: str) -> str:
    with suppress(ScriptError, SyntaxError, ValueError):
        return skeleton_of(script, device_kind)
    return ""


def _is_plain(value: object) -> TypeGuard[Value]:
    match value:
        case None | bool() | str():
            return True
        case int():  # a longer one fits neither a chart nor a table, and may be one of thousands of digits
            return abs(value) <= NUMBERS[1]
        case float():
            return math.isfinite(value)
        case tuple():
            return all(map(_is_plain, value))
    return False
