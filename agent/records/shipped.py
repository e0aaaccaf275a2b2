"""The record of a night that is committed to the repository: small files of text, without its scripts.

night.json holds the facts of the night, attempts.jsonl one attempt a line, champion.diff what its best script changed,
findings.json what dawn found. A record may come from elsewhere: reading one, nothing in it is trusted.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from agent.errors import NightError, NothingYet
from agent.experiment import MEASURED, Ask, Attempt, Dawn, Night, NightCall, Noise, incumbent
from agent.files import check_plain, replaced_folder
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.record import Home, Record, dials_turned, public
from agent.script.dials import Value, dials_in, plain_value, skeleton_in

FORMAT = 3
FACTS, ATTEMPTS, FINDINGS, CHAMPION = "night.json", "attempts.jsonl", "findings.json", "champion.diff"
MOST_BYTES = 64 << 20  # of such a file: an attempt takes some 2 KB
NUMBERS = -1e15, 1e15  # beyond them, a number makes no number of all that is computed from it
DAMAGED = (  # what reading a record raises where a file is damaged
    *(NightError, OSError, msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Outline:
    """Hold an attempt without its script, and what of the script tells attempts apart."""

    attempt: Attempt  # with "" in place of the script
    dials: Mapping[str, Any]  # of its script, on the night's kind of device; empty if that cannot be read
    skeleton: str  # skeleton_of its script, by the Python of the night; "" if that cannot be read

    @classmethod
    def of(cls, attempt: Attempt, device_kind: str) -> "Outline":
        script, proposal = attempt.proposal.script, replace(attempt.proposal, script="")
        outlined = replace(attempt, proposal=proposal)
        return cls(outlined, dials_in(script, device_kind), skeleton_in(script, device_kind))


@dataclass(frozen=True, slots=True)
class Facts:
    """Hold what night.json says."""

    format: Literal[3]  # FORMAT
    night: Night  # as others may see it
    calls: tuple[NightCall, ...]
    asks: tuple[Ask, ...]  # without models and costs
    noise: Noise | None


# ---- writing ---------------------------------------------------------------------------------------------------------


def ship(place: Place, tag: str, folder: Path) -> tuple[Path, ...]:
    """Write the record of a night into a folder, which is replaced if it holds this night's earlier record.

    Return the files. Raise NightError if the folder holds anything else, or the night has no decision yet.
    """
    with Journal.read(place.journal(tag)) as journal:
        night, history = journal.night(), journal.attempts()
        calls, asks, noise = journal.calls(), journal.asks(), journal.noise()
        dawn = next((dawn for dawn in reversed(journal.dawns()) if dawn.findings), None)
    if not any(attempt.decision for attempt in history):
        raise NothingYet(f"night {tag} has no result yet; export its record once its first attempt is decided")
    best = incumbent(history)
    confirmed = _confirmed(best, dawn)
    asked = [Ask(ask.attempt, ask.source, ask.started, ask.wall_s) for ask in asks]
    facts = {
        "format": FORMAT,
        "night": public(night),
        "calls": calls,
        "asks": asked,
        "noise": noise,
        "incumbent": best.number if best is not None else None,
        "confirmed": confirmed,
    }
    outlines = [Outline.of(attempt, night.device_kind) for attempt in history]
    lines = (json.dumps(_line(outline), ensure_ascii=False) for outline in outlines)
    contents = {FACTS: _encoded(json.dumps(msgspec.to_builtins(facts), indent=1)), ATTEMPTS: _encoded("\n".join(lines))}
    champion = best if confirmed is None else history[confirmed]
    if champion is not None and champion.number and champion.commit and history[0].commit:
        diff = place.repo.diff(history[0].commit, champion.commit) + "\n"
        contents[CHAMPION] = diff.encode(errors="surrogateescape")
    if dawn is not None:
        contents[FINDINGS] = _encoded(json.dumps(asdict(dawn), indent=1))
    _check_free(folder, night)
    with replaced_folder(folder) as aside:
        for name, content in contents.items():
            (aside / name).write_bytes(content)
    return tuple(folder / name for name in contents)


def _confirmed(best: Attempt | None, dawn: Dawn | None) -> int | None:
    """Return the attempt whose script dawn has confirmed in place of the incumbent's; None if there is none."""
    if best is None or dawn is None or dawn.findings is None or dawn.champion != best.number:
        return None
    return dawn.findings.script


def _line(outline: Outline) -> Any:
    """Return an attempt as JSON has it, without the ends of its logs."""
    runs = tuple(replace(run, last_lines="") for run in outline.attempt.runs)
    return msgspec.to_builtins(replace(outline, attempt=replace(outline.attempt, runs=runs)))


def _encoded(text: str) -> bytes:
    """Return JSON as people can read it; halves of surrogate pairs, which UTF-8 lacks, as the codes of JSON."""
    return f"{text}\n".encode(errors="backslashreplace")


def _check_free(folder: Path, night: Night) -> None:
    """Raise NightError where the folder is neither free nor an earlier record of this night."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        earlier = facts_of(folder).night
        is_ours = (earlier.tag, earlier.started) == (night.tag, night.started)
    except DAMAGED:
        is_ours = False
    if not is_ours:
        raise NightError(
            f"{folder} holds something other than the record of night {night.tag}; name another with --out"
        )


# ---- reading ---------------------------------------------------------------------------------------------------------


def of_folder(folder: Path) -> Record:
    """Read a shipped night; raise one of DAMAGED where a file is damaged."""
    facts, outlines = facts_of(folder), outlines_of(folder)
    history, dials = tuple(outline.attempt for outline in outlines), [outline.dials for outline in outlines]
    findings = folder / FINDINGS
    dawns = (msgspec.convert(_parsed(text_of(findings)), Dawn),) if findings.exists() else ()
    turned = dials_turned(history, dials)
    record = Record(facts.night, history, facts.asks, dawns, facts.calls, facts.noise, turned, Home.SHIPPED)
    _check(record)
    return record


def facts_of(folder: Path) -> Facts:
    """Read the facts of a shipped night, without its attempts; raise one of DAMAGED where the file is damaged."""
    return msgspec.convert(_parsed(text_of(folder / FACTS)), Facts)


def outlines_of(folder: Path) -> tuple[Outline, ...]:
    """Read the attempts of a shipped night; raise one of DAMAGED where they are no attempts of a night."""
    # by line feeds alone: a title may hold what else splitlines() takes for the end of a line
    lines = text_of(folder / ATTEMPTS).removesuffix("\n").split("\n")
    outlines = [msgspec.convert(_parsed(line), Outline) for line in lines]
    for at, outline in enumerate(outlines):
        attempt = outline.attempt
        if attempt.number != at or (attempt.parent is not None and not 0 <= attempt.parent < at):
            raise ValueError("its attempts are not numbered from 0 on, each after its parent")
    return tuple(replace(outline, dials=_values(outline.dials)) for outline in outlines)


def _check(record: Record) -> None:
    """Raise ValueError for measures that no night has, and for findings about attempts that it does not have."""
    runs = [run for attempt in record.attempts for run in attempt.runs]
    scores = [bpb for run in runs for bpb in (run.val_bpb, run.holdout_bpb) if bpb is not None]
    sigma_bpb = () if record.noise is None else (record.noise.sigma_bpb, record.noise.smallest_bpb)
    if not all(MEASURED[0] <= number <= MEASURED[1] for number in (record.night.budget_s, *sigma_bpb, *scores)):
        raise ValueError("it has scores, noise or a budget that no night has")
    findings = record.findings
    if findings is not None:
        about = (
            findings.champion,
            findings.script or 0,
            *(edit.number for edit in findings.edits),
            *findings.passengers,
        )
        if not all(0 <= number < len(record.attempts) for number in about):
            raise ValueError("its findings are about attempts that it does not have")


def _parsed(text: str) -> Any:
    """Read JSON; raise ValueError for a number that no night measures, such as NaN."""
    return json.loads(
        text,
        parse_constant=number_in,
        parse_float=lambda number: number_in(float(number)),
        parse_int=lambda number: number_in(int(number)),
    )


def number_in(value: float | str | None) -> float | None:
    """Return a number of a record; raise ValueError for one that no night measures, as NaN."""
    if value is None or (not isinstance(value, str) and NUMBERS[0] <= value <= NUMBERS[1]):
        return value
    raise ValueError(f"{value} is not from {NUMBERS[0]:g} to {NUMBERS[1]:g}")


def _values(dials: Mapping[str, Any]) -> dict[str, Value]:
    return {name: _as_tuples(value) for name, value in dials.items()}


def _as_tuples(value: Any) -> Value:
    """Return a dial's value from JSON, which writes tuples as lists; None for what can be no value of a dial."""
    frozen = tuple(map(_as_tuples, value)) if isinstance(value, list) else value
    return frozen if plain_value(frozen) else None


def text_of(file: Path) -> str:
    """Return the text of a record's file; raise NightError for what is no plain file, or larger than any record."""
    check_plain(file)
    with file.open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise NightError(f"{file} has more than {MOST_BYTES:,} bytes, and is no record of a night")
    return content.decode()


# ---- what earlier nights measured, as evidence for a later one -------------------------------------------------------

MOST_PAST = 2000  # attempts that are read of all journals: a script takes half a millisecond
OTHER_PROTOCOL, OTHER_DEVICE = 0.5, 0.5  # how much a night on another text, or another device of the kind, tells


@dataclass(frozen=True, slots=True)
class PastNight:
    """Hold an earlier night and its attempts, in the order of their numbers; attempt 0 is always there."""

    night: Night
    noise: Noise | None
    attempts: tuple[Outline, ...]

    @property
    def sigma_bpb(self) -> float | None:
        return self.noise.sigma_bpb if self.noise else None


def past_nights(place: Place, except_tag: str) -> tuple[PastNight, ...]:
    """Return all other nights with a journal or a shipped record here, the oldest first; skip damaged ones.

    A night that has both is read from its journal.
    """
    nights: dict[tuple[str, str], PastNight] = {}  # by start and tag
    read = 0
    for path in sorted(place.nights.glob("*/journal.sqlite"), key=_modified_at, reverse=True):
        if read < MOST_PAST and path.parent.name != except_tag:
            with suppress(NightError, OSError), Journal.read(path) as journal:
                night, history = journal.night(), journal.attempts()
                outlines = tuple(Outline.of(attempt, night.device_kind) for attempt in history)
                nights[night.started, path.parent.name] = PastNight(night, journal.noise(), outlines)
                read += len(history)
    for folder in place.shipped.glob("[!.]*/"):  # not what a writing that was killed left half-made
        with suppress(*DAMAGED):
            record = of_folder(folder)
            if record.tag != except_tag:
                past = PastNight(record.night, record.noise, outlines_of(folder))
                nights.setdefault((record.night.started, record.tag), past)
    return tuple(nights[key] for key in sorted(nights))


def likeness(past: Night, night: Night) -> float:
    """Return how much an earlier night tells about this one: 1 on the same device by the same protocol, 0 to 1 else."""
    if past.device_kind != night.device_kind or min(past.budget_s, night.budget_s) <= 0:
        return 0.0
    alike = 1.0 if past.device == night.device else OTHER_DEVICE
    if past.protocol != night.protocol:
        budgets = past.budget_s, night.budget_s
        alike *= OTHER_PROTOCOL * min(budgets) / max(budgets)
    return alike


def _modified_at(path: Path) -> float:
    """Return when a file was last written; 0 where that cannot be read."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0
