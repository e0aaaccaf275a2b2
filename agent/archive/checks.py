"""Check the journal of a night that came in a file, before anything in it is believed.

A night's own journal is trusted, as its folder is. One from a file may be somebody else's, and its records become
paths, refs, arguments of git and lines of a terminal.
"""

import re
import sqlite3
import zlib
from contextlib import closing
from datetime import datetime
from pathlib import Path

from agent.errors import NightError
from agent.experiment import Night, short
from agent.git import COMMIT, is_of_night
from agent.records.journal import SCHEMA, Journal, check_format
from agent.text import harmless

DO_NOT = "do not use it"
TABLES = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
MOST_SCRIPT_BYTES = 16 << 20  # unpacked


def check_passive(journal: Path, file: Path) -> None:
    """Raise NightError for a journal with other tables than a night's: SQLite could compute in them without end."""
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(SCHEMA)
        ours = fresh.execute(TABLES).fetchall()
    try:
        with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True)) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            check_format(version, file)
            is_ours = database.execute(TABLES).fetchall() == ours
            # the tables are strict, so this finds a text, such as a path, in a column of numbers
            problem = (
                database.execute("PRAGMA quick_check(1)").fetchone()[0] if is_ours else "other tables than a night's"
            )
    except sqlite3.Error as error:
        raise NightError(f"{file} holds no readable journal ({error}); put it back from a backup") from error
    if problem != "ok":
        raise NightError(f"the journal in {file} has {harmless(problem)}; {DO_NOT}")


def check_facts(journal: Journal, file: Path) -> None:
    """Raise NightError for records that lead to another place than the night's own, or are of another kind."""
    night = journal.night()
    wrong = _wrong_fact(night)
    if wrong is not None:
        raise NightError(f"the journal in {file} {wrong}; {DO_NOT}")
    for find in (_wrong_order, _wrong_script, _wrong_time, _wrong_commit):
        why = find(journal)
        if why is not None:
            raise NightError(f"the journal in {file} {why}; {DO_NOT}")


def _wrong_fact(night: Night) -> str | None:
    if not re.fullmatch("[0-9a-f]*", night.id):  # it names a folder
        return "has an id that is none"
    if not 0 < night.budget_s < 1e9:
        return "has a budget that none can have"
    if not is_of_night(night.branch, night.tag) or not night.branch.endswith(f"-{night.tag}"):
        return f"would move {harmless(short(night.branch))}, which is not the night's branch"
    script = Path(night.script)
    if script.is_absolute() or ".." in script.parts or ".git" in night.script.casefold().split("/"):
        return f"works on {harmless(night.script)}, which is no path in a repository"
    if harmless(night.script) != night.script:
        return "has a script whose name commands a terminal"
    return None


def _wrong_order(journal: Journal) -> str | None:
    """Attempts are found by their numbers, and a chain of parents that leads back would be followed without end."""
    rows = journal.query("SELECT number, parent, merges FROM attempts ORDER BY number")
    if [row["number"] for row in rows] != [*range(len(rows))]:
        return "lacks an attempt"
    bases = ((row["number"], base) for row in rows for base in (row["parent"], row["merges"]) if base is not None)
    if not all(0 <= base < number for number, base in bases):
        return "has an attempt that is made from a later one, or from none"
    named = journal.query(
        "SELECT attempt FROM runs UNION SELECT attempt FROM decisions UNION SELECT champion FROM dawns"
    )
    return None if all(0 <= number < len(rows) for (number,) in named) else "tells of an attempt that it lacks"


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


def _wrong_time(journal: Journal) -> str | None:
    """Read all records, each by its type: raise NightError for one that is damaged, and return what is no time."""
    attempts, dawns = journal.attempts(), journal.dawns()
    times: list[str | None] = [*(call.began for call in journal.calls()), *(work.began for work in journal.work())]
    times += [*(attempt.started for attempt in attempts), *(ask.started for ask in journal.asks())]
    times += [at for attempt in attempts for run in attempt.runs for at in (run.began, run.ended)]
    times += [at for dawn in dawns for at in (dawn.began, dawn.ended)]
    times += [entry.at for attempt in attempts for entry in attempt.decisions]
    for at in filter(None, times):
        try:
            datetime.fromisoformat(at)
        except ValueError:
            return f"has {harmless(at)!r} in place of a time"
    return None


def _wrong_commit(journal: Journal) -> str | None:
    named = [journal.night().base, *(one.commit for one in journal.outlines() if one.commit is not None)]
    return None if all(COMMIT.fullmatch(sha) for sha in named) else "names a commit that is none"
