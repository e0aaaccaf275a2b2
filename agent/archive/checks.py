"""Check the journal of a night that came in a file, before anything in it is believed.

A night's own journal is trusted, as its folder is. One from a file may be somebody else's, and its records become
paths, refs, arguments of git and lines of a terminal.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from agent.errors import NightError
from agent.experiment import Night, short
from agent.git.bundle import COMMIT, is_of_night
from agent.records.journal import Journal
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
NUMBERS = {  # they become names of folders, and SQLite would hold texts in their columns as well
    "attempts": ("number", "parent", "merges", "settled"),
    "runs": ("id", "attempt", "seed", "dawn", "weights_bytes", "peak_bytes"),
    "decisions": ("id", "attempt"),
    "dawns": ("number", "champion", "fresh"),
}


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
    for why in (_wrong_fact(night), _wrong_number(journal), _wrong_commit(journal)):
        if why is not None:
            raise NightError(f"the journal in {file} {why}; {DO_NOT}")
    Terms.from_json(night.terms)


def _wrong_fact(night: Night) -> str | None:
    texts = (night.tag, night.branch, night.script, night.base, night.device_kind, night.device, night.protocol,
             night.data, night.started, night.pins, night.terms)  # fmt: skip
    if not all(isinstance(text, str) for text in texts):
        return "has a fact of the night that is no text"
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


def _wrong_number(journal: Journal) -> str | None:
    for table, columns in NUMBERS.items():
        wrong = " OR ".join(f"typeof({column}) NOT IN ('integer', 'null')" for column in columns)
        if journal.query(f"SELECT 1 FROM {table} WHERE {wrong} LIMIT 1"):
            return f"has {table} whose numbers are none"
    return None


def _wrong_commit(journal: Journal) -> str | None:
    rows = journal.query("SELECT value FROM night WHERE fact = 'base' UNION ALL SELECT commit_sha FROM attempts")
    named = [sha for (sha,) in rows if sha is not None]
    return None if all(COMMIT.fullmatch(str(sha)) for sha in named) else "names a commit that is none"
