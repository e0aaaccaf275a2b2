"""What earlier nights measured, as evidence for a later one: from the journals here and from experiments/shipped/.

Only what a source of ideas needs is read, and of a long night only the latest attempts.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from agent.errors import NightError, ScriptError
from agent.experiment import Attempt, Night, Part, Status
from agent.files import check_plain
from agent.judging.noise import noise
from agent.records.journal import Journal
from agent.records.place import Place
from agent.script.dials import Value, remembered, skeleton_of, values_of

LATEST, MOST = 500, 2000  # attempts that are read: of one night, and of all journals
OTHER_PROTOCOL, OTHER_DEVICE = 0.5, 0.5  # how much a night on another text, or another device of the kind, tells
# as JSON may be
DAMAGED = NightError, OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError
FACTS, ATTEMPTS = "night.json", "attempts.jsonl"  # in a shipped night's folder
MOST_BYTES = 64 << 20  # of such a file: an attempt takes some 2 KB
# Beyond these, a record is damaged, and its numbers would make no number of all that is computed from them.
BUDGETS_S, SCORES_BPB, SIGMAS_BPB, RUNS, NUMBERS = (1e-3, 1e9), (1e-6, 1e6), (1e-12, 1e6), (0, 1e6), (-1e15, 1e15)


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """Hold what an attempt of an earlier night tells: its dials, its score, and the latest decision on it."""

    number: int
    parent: int | None
    title: str
    source: str
    dials: Mapping[str, Value]  # of its script, on the night's kind of device; empty if that cannot be read
    skeleton: str  # skeleton_of its script, by the Python of the night; "" if that cannot be read
    val_bpb: float | None  # mean of the night's runs that count
    runs: int  # of the night that count
    crashed: bool
    gain_bpb: float | None
    sure: float | None
    kind: str | None  # None: not decided
    peak_gb: float | None  # of memory, by the harness's watch: it does not see that of a CUDA device
    tokens_s: float | None
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
    found: dict[tuple[str, str], PastNight] = {}  # by start and tag
    read = 0
    for path in sorted(place.nights.glob("*/journal.sqlite"), key=_modified_at, reverse=True):
        if read < MOST and path.parent.name != except_tag:
            with suppress(NightError, OSError), Journal.read(path) as journal:
                found[journal.night().started, path.parent.name] = past = of_journal(journal)
                read += len(past.attempts)
    for folder in place.shipped.glob("[!.]*/"):  # not what a `ship` that was killed left half-made
        with suppress(*DAMAGED):
            started, past = of_record(folder)
            if past.tag != except_tag:
                found.setdefault((started, past.tag), past)
    return tuple(found[key] for key in sorted(found))


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
    known = noise(attempts)
    return PastNight(
        tag=night.tag,
        device=night.device,
        device_kind=night.device_kind,
        protocol=night.protocol,
        budget_s=night.budget_s,
        sigma_bpb=known.sigma_bpb if known else None,
        attempts=tuple(PastAttempt.of(one, night.device_kind) for one in (*attempts[:1], *attempts[1:][-LATEST:])),
    )


def of_record(folder: Path) -> tuple[str, PastNight]:
    """Read a shipped night; return when it began, too. Raise one of several errors where a file is damaged."""
    facts = json.loads(text_of(folder / FACTS))
    # by line feeds alone: a title may hold what else splitlines() takes for the end of a line
    first, *others = text_of(folder / ATTEMPTS).removesuffix("\n").split("\n")
    base = json.loads(first)
    attempts = (attempt_in(json.loads(line), base["dials"]) for line in (first, *others[-LATEST:]))
    return str(facts["started"]), PastNight(
        tag=str(facts["tag"]),
        device=str(facts["device"]),
        device_kind=str(facts["device_kind"]),
        protocol=str(facts["protocol"]),
        budget_s=_within(BUDGETS_S, facts["budget_s"]),
        sigma_bpb=_sigma(facts["sigma_bpb"]),
        attempts=tuple(attempts),
    )


def attempt_in(row: Mapping[str, Any], base: Mapping[str, Any]) -> PastAttempt:
    """Read an attempt from its row, which has only those dials that differ from attempt 0's."""
    dials = {name: value for name, value in base.items() if name not in row["dials_gone"]} | row["dials"]
    return PastAttempt(
        number=int(row["number"]),
        parent=None if row["parent"] is None else int(row["parent"]),
        title=str(row["title"]),
        source=str(row["source"]),
        dials={str(name): _as_tuples(value) for name, value in dials.items()},
        skeleton=str(row["skeleton"]),
        val_bpb=None if row["val_bpb"] is None else _within(SCORES_BPB, row["val_bpb"]),
        runs=int(_within(RUNS, row["runs"])),
        crashed=bool(row["crashed"]),
        gain_bpb=number_in(row["gain_bpb"]),
        sure=number_in(row["sure"]),
        kind=None if row["kind"] is None else str(row["kind"]),
        peak_gb=number_in(row["peak_gb"]),
        tokens_s=number_in(row["tokens_s"]),
        without=tuple(row["without"]),
    )


def text_of(file: Path) -> str:
    """Return the text of a record's file; raise NightError for what is no plain file, or larger than any record."""
    check_plain(file)
    with file.open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise NightError(f"{file} has more than {MOST_BYTES:,} bytes, and is no record of a night")
    return content.decode()


def number_in(value: float | None) -> float | None:
    return None if value is None else _within(NUMBERS, value)


def _sigma(value: float | None) -> float | None:
    return value if value is None or value == 0 else _within(SIGMAS_BPB, value)


def _within(bounds: tuple[float, float], value: float) -> float:
    """Return a number of a record; raise ValueError for one that no night measures, as NaN."""
    if not bounds[0] <= value <= bounds[1]:
        raise ValueError(f"{value} is not from {bounds[0]:g} to {bounds[1]:g}")
    return float(value)


def _as_tuples(value: Any) -> Value:
    """Return a dial's value from JSON, which writes tuples as lists; None for what can be no value of a dial."""
    known = tuple(map(_as_tuples, value)) if isinstance(value, list) else value
    return known if _is_plain(known) else None


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
