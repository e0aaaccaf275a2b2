"""The record of a night that is committed to the repository: small files of text, without its scripts.

night.json holds the facts of the night and its confirmations, attempts.jsonl one attempt a line, best.diff what its
best script changed. A record may come from elsewhere: reading one, nothing in it is trusted.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from agent.errors import NightError, NothingYet
from agent.experiment import MEASURED, Ask, Attempt, Night
from agent.files import check_plain, replaced_folder
from agent.git import COMMIT, Repo
from agent.records.journal import check_numbers
from agent.records.record import Record, public
from agent.script.dials import outline_from
from agent.script.merge import patched
from agent.text import harmless

FORMAT = 5
FACTS, ATTEMPTS, BEST = "night.json", "attempts.jsonl", "best.diff"
HASHES = re.compile(r"^index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})", re.MULTILINE)  # script's hashes: before, after
MOST_BYTES = 64 << 20  # bytes of a file; an attempt takes some 2 KB
SCORES, NOISE = ("val_bpb", "forecast_bpb", "budget_s"), ("sigma_bpb", "smallest_bpb", "paired_bpb")
MOST = 1e18  # limit for every other number
DAMAGED = (  # errors that reading a damaged record raises
    *(NightError, OSError, msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    RecursionError,
)


# ---- writing ---------------------------------------------------------------------------------------------------------


def ship(repo: Repo, record: Record, folder: Path) -> tuple[Path, ...]:
    """Write the record of a night with a journal here into a folder; return the files.

    The folder is replaced if it holds this night's earlier record. Raise NightError if it holds anything else, or the
    night has no decision yet.
    """
    if not any(attempt.decision for attempt in record.attempts):
        raise NothingYet(f"night {record.tag} has no result yet; export its record once its first attempt is decided")
    _check_free(folder, record.night)
    first, best = record.attempts[0], record.to_take
    facts = {
        "format": FORMAT,
        "night": public(record.night),
        "asks": [Ask(ask.attempt, ask.proposer, ask.started, ask.wall_s) for ask in record.asks],
        "confirmations": record.confirmations,
        "noise": record.noise,
    }
    lines = (_encoded(_line(attempt)) for attempt in record.attempts)
    contents = {FACTS: _encoded(facts, indent=1), ATTEMPTS: b"".join(lines)}
    if best is not None and best.number and best.commit and first.commit:
        diff = repo.diff(first.commit, best.commit) + "\n"
        contents[BEST] = diff.encode(errors="surrogateescape")
    with replaced_folder(folder) as aside:
        for name, content in contents.items():
            (aside / name).write_bytes(content)
    return tuple(folder / name for name in contents)


def _line(attempt: Attempt) -> dict[str, Any]:
    """Return a line of attempts.jsonl: the attempt without its script and the ends of its logs."""
    runs = tuple(replace(run, last_lines="") for run in attempt.runs)
    facts = msgspec.to_builtins(replace(attempt, runs=runs))
    del facts["outline"], facts["proposal"]["packed"]
    return {"attempt": facts, "dials": attempt.outline.dials, "skeleton": attempt.outline.skeleton}


def _encoded(value: Any, indent: int | None = None) -> bytes:
    """Return readable JSON; halves of surrogate pairs, which UTF-8 lacks, become JSON's escapes."""
    text = json.dumps(msgspec.to_builtins(value), indent=indent, ensure_ascii=indent is not None)
    return f"{text}\n".encode(errors="backslashreplace")


def _check_free(folder: Path, night: Night) -> None:
    """Raise NightError where the folder is neither free nor an earlier record of this night."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        earlier = night_in(folder)
        is_ours = (earlier.tag, earlier.started) == (night.tag, night.started)
    except DAMAGED:
        is_ours = False
    if not is_ours:
        raise NightError(
            f"{folder} holds something other than the record of night {night.tag}; name another with --out"
        )


# ---- reading ---------------------------------------------------------------------------------------------------------


def of_folder(folder: Path, tag: str | None = None) -> Record:
    """Read a shipped night, of this tag if one is named; raise one of DAMAGED where a file is damaged."""
    # Only line feeds divide lines: a title may hold other signs that splitlines() takes for an end.
    lines = [json.loads(line) for line in text_of(folder / ATTEMPTS).removesuffix("\n").split("\n")]
    facts = _facts_in(folder) | {
        "attempts": [line["attempt"] | {"outline": outline_from(line)} for line in lines],
        "is_here": False,
    }
    record = msgspec.convert(facts, Record)
    check_numbers(record.attempts)
    _check(record)
    if tag not in (None, record.tag):
        raise ValueError(f"it is the record of another night, {record.tag!r}")
    return record


def edit_in(folder: Path) -> str:
    """Return how attempt 0's script becomes the best one of a shipped night; "" where it has kept no edit."""
    file = folder / BEST
    return text_of(file, "surrogateescape") if file.is_file() else ""


def scripts_in(repo: Repo, folder: Path, record: Record) -> dict[int, str]:
    """Return the scripts that follow from a shipped night: attempt 0's, if git has it here, and the best one's.

    Its edit names both texts by their hashes, as git does.
    """
    edit, best = edit_in(folder), record.to_take
    named = HASHES.search(edit)
    first = None if named is None else repo.text(named[1])
    if named is None or first is None:
        return {}
    script = patched(edit, first)
    if best is None or script is None or not repo.hash_of(script).startswith(named[2]):
        return {0: first}
    return {0: first, best.number: script}


def night_in(folder: Path) -> Night:
    """Read which night a shipped record is of; raise one of DAMAGED where the file is damaged."""
    return msgspec.convert(_facts_in(folder)["night"], Night)


def _facts_in(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(text_of(folder / FACTS))
    if facts["format"] != FORMAT:
        raise ValueError(f"it has format {facts['format']}, this nightshift reads {FORMAT}")
    return facts


def _check(record: Record) -> None:
    """Raise ValueError for numbers, a path or commits that no night has, and for findings about attempts it lacks."""
    for name, value in leaves(msgspec.to_builtins(record)):
        if isinstance(value, int | float) and not is_measured(name, value, record.night):
            raise ValueError(f"it has {value:g} as {name}, which no night has")
    commits = (attempt.commit for attempt in record.attempts if attempt.commit is not None)
    if harmless(record.night.script) != record.night.script or not all(map(COMMIT.fullmatch, commits)):
        raise ValueError("it has a script or a commit that git cannot have")
    for findings in filter(None, (confirmation.findings for confirmation in record.confirmations)):
        edits = (edit.number for edit in findings.edits)
        about = (findings.best, findings.script or 0, *edits, *findings.without_effect)
        if not all(0 <= number < len(record.attempts) for number in about):
            raise ValueError("its findings are about attempts that it does not have")


def leaves(value: object, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all texts and numbers in records made of JSON's types, each with the name of its field."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from leaves(inside, str(key))
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from leaves(inside, name)
    else:
        yield name, value


def is_measured(name: str, value: float, night: Night) -> bool:
    """Return whether a field of this name may have the number: beyond, no number follows from it."""
    least, most = MEASURED if name in SCORES or (name in NOISE and value != 0) else (-MOST, MOST)
    if name == "val_bpb" and night.options.metric:
        least = -most
    return least <= value <= most


def text_of(file: Path, errors: str = "strict") -> str:
    """Return the text of a record's file; raise NightError for what is no plain file, or larger than any record."""
    check_plain(file)
    with file.open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise NightError(f"{file} has more than {MOST_BYTES:,} bytes, and is no record of a night")
    return content.decode(errors=errors)
