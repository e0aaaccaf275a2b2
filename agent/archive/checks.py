"""Check the journal of a night that came in a file, before anything in it is believed.

A night's own journal is trusted, as its folder is. One from a file may be somebody else's, and its records become
paths, refs, arguments of git and lines of a terminal.
"""

import json
import re
import sqlite3
import zlib
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.errors import NightError
from agent.experiment import Night, short
from agent.git import COMMIT, is_of_night
from agent.records.journal import Journal
from agent.records.schema import SCHEMA
from agent.records.terms import Terms
from agent.text import harmless

DO_NOT = "do not use it"
# what SQLite computes when it is read or written to: views, triggers, virtual tables; columns and indices by formulas
ACTIVE = (
    "SELECT type, name FROM sqlite_schema WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'",
    "SELECT 'column', one.name || '.' || part.name FROM sqlite_schema AS one, pragma_table_xinfo(one.name) AS part "
    "WHERE one.type = 'table' AND part.hidden",
    "SELECT 'index', one.name FROM sqlite_schema AS one, pragma_index_xinfo(one.name) AS part "
    "WHERE one.type = 'index' AND part.cid = -2",
)
KINDS = {"INTEGER": ("integer",), "REAL": ("real", "integer"), "TEXT": ("text",), "BLOB": ("blob",)}  # SQLite's words
TIMES = {"attempts": ("started",), "runs": ("began", "ended"), "decisions": ("at",), "dawns": ("began", "ended"),
         "asks": ("started",), "calls": ("began",), "examinations": ("began",)}  # fmt: skip
FACTS = {"attempts": ("dry_run",), "runs": ("summary", "weights", "audit", "holdout")}  # as JSON: numbers by names
WORDS = frozenset({"failure"})  # among those names
MOST_SCRIPT_BYTES = 16 << 20  # unpacked


def check_passive(journal: Path, file: Path) -> None:
    """Raise NightError for a journal in which SQLite would compute something: it could do so without end."""
    try:
        with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True)) as database:
            found = next((row for one in ACTIVE for row in database.execute(one)), None)
    except sqlite3.Error as error:
        raise NightError(f"{file} holds no readable journal ({error}); put it back from a backup") from error
    if found is not None:
        raise NightError(f"the journal in {file} has the {found[0]} {harmless(str(found[1]))!r}; {DO_NOT}")


def check_facts(journal: Journal, file: Path) -> None:
    """Raise NightError for records that lead to another place than the night's own, or are of another kind."""
    night = journal.night()
    wrong = _wrong_fact(night)
    if wrong is not None:
        raise NightError(f"the journal in {file} {wrong}; {DO_NOT}")
    for find in (_wrong_kind, _wrong_order, _wrong_value, _wrong_script, _wrong_commit):
        why = find(journal)
        if why is not None:
            raise NightError(f"the journal in {file} {why}; {DO_NOT}")
    Terms.from_json(night.terms)


def _wrong_fact(night: Night) -> str | None:
    texts = (night.tag, night.branch, night.script, night.base, night.device_kind, night.device, night.protocol,
             night.data, night.started, night.pins, night.terms, night.id)  # fmt: skip
    if not all(isinstance(text, str) for text in texts):
        return "has a fact of the night that is no text"
    if not re.fullmatch("[0-9a-f]*", night.id):  # it names a folder
        return "has an id that is none"
    if not _is_table(night.pins):
        return "has checksums that are none"
    if type(night.seed) is not int or type(night.budget_s) not in (int, float) or not 0 < night.budget_s < 1e9:
        return "has a seed or budget that is no number"
    if not is_of_night(night.branch, night.tag) or not night.branch.endswith(f"-{night.tag}"):
        return f"would move {harmless(short(night.branch))}, which is not the night's branch"
    if Path(night.script).is_absolute() or ".." in Path(night.script).parts:
        return f"works on {harmless(night.script)}, which is no path in a repository"
    return None


def _is_table(text: str) -> bool:
    """Return whether a text is JSON as of checksums: kind → file → sha256."""
    try:
        kinds = json.loads(text)
        return all(isinstance(one, str) for files in kinds.values() for one in files.values())
    except (ValueError, AttributeError, RecursionError):
        return False


def _wrong_kind(journal: Journal) -> str | None:
    """SQLite would hold a text, such as a path, in a column of numbers as well."""
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(SCHEMA)
        asked = (
            "SELECT one.name, part.name, part.type FROM sqlite_schema AS one, pragma_table_info(one.name) AS part "
            "WHERE one.type = 'table' AND part.type != ''"
        )
        columns = fresh.execute(asked).fetchall()
    for table, column, kind in columns:
        held = ", ".join(f"'{one}'" for one in (*KINDS[kind], "null"))
        if journal.query(f"SELECT 1 FROM {table} WHERE typeof({column}) NOT IN ({held}) LIMIT 1"):
            return f"has {table} whose {column} is no {KINDS[kind][0]}"
    return None


def _wrong_order(journal: Journal) -> str | None:
    """Attempts are found by their numbers, and a chain of parents that leads back would be followed without end."""
    rows = journal.query("SELECT number, parent, merges FROM attempts ORDER BY number")
    if [row["number"] for row in rows] != [*range(len(rows))]:
        return "lacks an attempt"
    above = (one for row in rows for one in (row["parent"], row["merges"]) if one is not None and one >= row["number"])
    return "has an attempt that is made from a later one" if any(True for _ in above) else None


def _wrong_value(journal: Journal) -> str | None:
    try:
        for table, columns in TIMES.items():
            for column in columns:
                for (at,) in journal.query(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL"):
                    datetime.fromisoformat(at)
        for table, columns in FACTS.items():
            for column in columns:
                for (text,) in journal.query(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"):
                    _check_numbers(json.loads(text))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return f"has {table} whose {column} is damaged ({harmless(str(error))})"
    return None


def _wrong_script(journal: Journal) -> str | None:
    """Return what is wrong with a packed script, of which some kilobytes may unpack to gigabytes."""
    for (packed,) in journal.query("SELECT packed FROM scripts"):
        try:
            is_huge = len(zlib.decompressobj().decompress(packed, MOST_SCRIPT_BYTES)) == MOST_SCRIPT_BYTES
        except zlib.error:
            return "has a script that cannot be unpacked"
        if is_huge:
            return f"has a script of more than {MOST_SCRIPT_BYTES >> 20} MB"
    return None


def _check_numbers(facts: dict[str, Any]) -> None:
    """Raise ValueError or AttributeError for facts that are no numbers by names, but for words and what is nested."""
    for name, value in facts.items():
        if isinstance(value, dict):
            _check_numbers(value)
        elif value is not None and not isinstance(value, str if name in WORDS else (int, float)):
            raise ValueError(f"{name} is {type(value).__name__}")


def _wrong_commit(journal: Journal) -> str | None:
    rows = journal.query("SELECT value FROM night WHERE fact = 'base' UNION ALL SELECT commit_sha FROM attempts")
    named = [sha for (sha,) in rows if sha is not None]
    return None if all(COMMIT.fullmatch(str(sha)) for sha in named) else "names a commit that is none"
