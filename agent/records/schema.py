"""The tables of a journal, and how one of an older format becomes one of this.

A format is never changed once a release has written it: what is new goes into the next, with a function in MIGRATIONS
that leads there.
"""

import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from agent.errors import NightError
from agent.experiment import Ending, Kind, Run, Script, Status, Summary
from agent.files import disk_is_broken, disk_is_full

VERSION = 8
# DECISIONS, SCRIPTS and INDICES are also what _from_4 makes: a later format leaves them, and has its own beside them.
LOCKED_S = 600  # another program may look into the journal for long; a night can wait
DECISIONS = """
CREATE TABLE decisions (                 -- appended, never changed: an attempt's last row holds
    id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL REFERENCES attempts,
    at TEXT,                             -- ISO 8601, UTC; NULL: recorded by a release that noted no times
    kind TEXT NOT NULL, status TEXT,     -- the status is NULL where the attempt has none by it, as where it is void
    reason TEXT NOT NULL, gain_bpb REAL, sure REAL,
    at_dawn TEXT                         -- what dawn found about a kept edit
)
"""
SCRIPTS = """
CREATE TABLE scripts (
    sha256 TEXT PRIMARY KEY,             -- of the text
    packed BLOB NOT NULL,                -- the text in UTF-8, compressed by zlib
    fingerprint TEXT, python TEXT        -- of its syntax tree, as this version of Python has it; NULL: not known
)
"""
CALLS = """
CREATE TABLE calls (                     -- of the night: the first, and each that goes on
    id INTEGER PRIMARY KEY,
    began TEXT NOT NULL,                 -- ISO 8601, UTC
    workers INTEGER NOT NULL
)
"""
EXAMINATIONS = """
CREATE TABLE examinations (              -- the latest of each worker in this call, where workers have names
    worker TEXT PRIMARY KEY,             -- it need not be the one that has trained
    doing TEXT NOT NULL,                 -- scoring or auditing
    attempt INTEGER NOT NULL REFERENCES attempts, seed INTEGER NOT NULL, split TEXT NOT NULL,
    began TEXT NOT NULL                  -- ISO 8601, UTC
)
"""
INDICES = "CREATE INDEX decisions_of ON decisions (attempt)", "CREATE INDEX runs_of ON runs (attempt)"
SCHEMA = f"""
CREATE TABLE night (fact TEXT PRIMARY KEY, value) WITHOUT ROWID;
{CALLS};
{EXAMINATIONS};
CREATE TABLE attempts (
    number INTEGER PRIMARY KEY,
    parent INTEGER REFERENCES attempts,
    script TEXT NOT NULL REFERENCES scripts,
    title TEXT NOT NULL, hypothesis TEXT NOT NULL, source TEXT NOT NULL,
    repairs INTEGER, without TEXT NOT NULL,
    merges INTEGER,                      -- the attempt whose edit it carries onto the incumbent; NULL: none
    started TEXT NOT NULL,
    commit_sha TEXT,                     -- NULL until committed
    dry_run TEXT,                        -- NULL until it was made, and where none is
    settled INTEGER NOT NULL DEFAULT 0   -- the decision that branch, ledger and weights follow; 0: none
);
{SCRIPTS};
{DECISIONS};
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL REFERENCES attempts,
    seed INTEGER NOT NULL,
    boot TEXT NOT NULL,                  -- which start of the machine it belongs to
    ending TEXT,                         -- NULL while it runs
    exit_code INTEGER, wall_s REAL, summary TEXT, last_lines TEXT, peak_bytes INTEGER,
    weights_bytes INTEGER,               -- of the file; NULL: it left none of its own
    weights TEXT,                        -- what is in it, counted; NULL where that cannot be told
    val_bpb REAL, score_s REAL, failure TEXT,  -- score_s is NULL until scored
    overran INTEGER NOT NULL DEFAULT 0,        -- the scoring process, by the harness's clock
    audit TEXT,                                -- NULL until audited
    dawn INTEGER NOT NULL DEFAULT 0,           -- 0: the night's own; k: of the k-th dawn
    holdout TEXT,                              -- NULL until scored there
    purpose TEXT NOT NULL DEFAULT 'night',     -- what asked for it
    worker TEXT NOT NULL DEFAULT 'local',      -- who executed it
    began TEXT, ended TEXT,                    -- ISO 8601, UTC; NULL where no time was noted
    tokens_s REAL                              -- by the harness's clock and the script's count; NULL without one
);
CREATE TABLE dawns (
    number INTEGER PRIMARY KEY, champion INTEGER NOT NULL REFERENCES attempts, fresh INTEGER NOT NULL,
    began TEXT NOT NULL,
    ended TEXT, findings TEXT            -- NULL until it has come to its end, and until something is known
);
CREATE TABLE asks (
    id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL, source TEXT NOT NULL, started TEXT NOT NULL, wall_s REAL NOT NULL,
    model TEXT, tokens_in INTEGER, tokens_out INTEGER, usd REAL, failure TEXT, usd_most REAL,
    tokens_cached INTEGER                      -- of tokens_in; NULL: not told
);
{"; ".join(INDICES)};
"""


def connect(path: Path, *, writing: bool) -> sqlite3.Connection:
    """Open a journal in the present format; raises NightError when the file is none that can be had in it.

    For writing, the file itself is brought there, and stays beside it as it was. A reader gets a copy in memory.
    """
    database, version = _opened(path, "rw" if writing else "ro")
    if version == VERSION:
        return database
    try:
        if not writing:
            return _copied(database)
        _keep_aside(database, path.with_name(f"{path.name}.v{version}"))
        migrate(database)
    except (sqlite3.Error, AttributeError, TypeError, ValueError, LookupError) as error:
        database.close()
        if disk_is_full(error) or disk_is_broken(error):
            raise
        raise NightError(f"{path} is damaged ({error}); move its folder away to go on without it") from error
    return database


def migrate(database: sqlite3.Connection, level: int = zlib.Z_DEFAULT_COMPRESSION) -> None:
    """Migrate a journal to the present format, in one transaction; level: of the compression of scripts."""
    database.execute("BEGIN IMMEDIATE")
    try:
        while (version := _version(database)) != VERSION:
            MIGRATIONS[version](database, level)
            database.execute(f"PRAGMA user_version = {version + 1}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:  # a full disk has taken it back already
            database.execute("ROLLBACK")
        raise


def _opened(path: Path, mode: str) -> tuple[sqlite3.Connection, int]:
    try:
        address = f"{path.absolute().as_uri()}?mode={mode}"
        database = sqlite3.connect(address, uri=True, isolation_level=None, timeout=LOCKED_S)
        try:
            version = _version(database)
        except sqlite3.Error:
            database.close()  # a disk with an open file cannot be unmounted
            raise
    except sqlite3.OperationalError as error:
        if disk_is_full(error) or disk_is_broken(error):
            raise
        raise NightError(f"{path} cannot be opened ({error}); make it and its folder readable and writable") from error
    except sqlite3.Error as error:
        raise NightError(f"{path} is not a readable journal ({error}); move its folder away to start again") from error
    if version != VERSION and version not in MIGRATIONS:
        database.close()
        raise NightError(
            f"{path} has format {version}, this nightshift reads {min(MIGRATIONS)} to {VERSION}; use the release that "
            f"wrote it, or begin another night with --tag"
        )
    return database, version


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _copied(database: sqlite3.Connection) -> sqlite3.Connection:
    """Close a journal that may not be written to, and return a copy in memory that was migrated."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with closing(database):
        database.backup(copy)
    migrate(copy, zlib.Z_NO_COMPRESSION)  # every command looks into every journal: a millisecond a script would be felt
    return copy


def _keep_aside(database: sqlite3.Connection, path: Path) -> None:
    """Copy a journal as it is, for the release that wrote it; the copy appears under its name when it is whole."""
    aside = path.with_name(f"{path.name}.new")
    aside.unlink(missing_ok=True)
    with closing(sqlite3.connect(aside, isolation_level=None)) as copy:
        database.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # else a reader would need the -wal file too
    with aside.open("rb") as file:
        os.fsync(file.fileno())
    aside.replace(path)


# ---- from each format to the next ------------------------------------------------------------------------------------


def _from_4(database: sqlite3.Connection, level: int) -> None:
    """Move scripts and decisions into tables of their own; runs get what is noted of them from now on."""
    for statement in (SCRIPTS, DECISIONS, *INDICES):
        database.execute(statement)
    for (number,) in database.execute("SELECT number FROM attempts ORDER BY number").fetchall():
        _move_script(database, number, level)
        _move_decision(database, number)
    for column in ("status", "reason", "gain_bpb", "sure"):
        database.execute(f"ALTER TABLE attempts DROP COLUMN {column}")
    for column in ("purpose TEXT NOT NULL DEFAULT 'night'", "worker TEXT NOT NULL DEFAULT 'local'"):
        database.execute(f"ALTER TABLE runs ADD COLUMN {column}")
    for column in ("began TEXT", "ended TEXT", "tokens_s REAL"):
        database.execute(f"ALTER TABLE runs ADD COLUMN {column}")
    database.execute("UPDATE runs SET purpose = 'dawn' WHERE dawn > 0")
    rows = database.execute("SELECT id, ending, wall_s, summary FROM runs WHERE summary IS NOT NULL").fetchall()
    speeds = [(_tokens_s(*row[1:]), row[0]) for row in rows]
    database.executemany("UPDATE runs SET tokens_s = ? WHERE id = ?", speeds)


def _move_script(database: sqlite3.Connection, number: int, level: int) -> None:
    (text,) = database.execute("SELECT script FROM attempts WHERE number = ?", (number,)).fetchone()
    script = Script.of(text, level)
    facts = script.sha256, script.packed
    database.execute("INSERT OR IGNORE INTO scripts (sha256, packed) VALUES (?, ?)", facts)
    database.execute("UPDATE attempts SET script = ? WHERE number = ?", (script.sha256, number))


def _move_decision(database: sqlite3.Connection, number: int) -> None:
    asked = "SELECT status, reason, gain_bpb, sure FROM attempts WHERE number = ?"
    status, told, *numbers = database.execute(asked, (number,)).fetchone()
    if status is None:
        return
    reason, at_dawn = _without_dawn(told)
    facts = number, kind_in_words(Status(status), reason, numbers[0]), status, reason, at_dawn, *numbers
    columns = "attempt, kind, status, reason, at_dawn, gain_bpb, sure"
    made = database.execute(f"INSERT INTO decisions ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", facts)
    settled = "UPDATE attempts SET settled = ? WHERE number = ? AND settled"
    database.execute(settled, (made.lastrowid, number))


def _tokens_s(ending: str | None, wall_s: float | None, summary: str) -> float | None:
    ended = Ending(ending or Ending.LOST)
    return Run(0, ended, None, float(wall_s or 0.0), Summary(**json.loads(summary)), "").tokens_s


def _without_dawn(reason: str) -> tuple[str, str | None]:
    """Format 4 had dawn's finding at the end of the reason."""
    words, mark, found = reason.partition("; at dawn")
    return words, f"at dawn{found}" if mark else None


KINDS_OF_4: Mapping[Status, tuple[tuple[str, Kind], ...]] = {  # by how the reason began
    Status.KEEP: (
        ("baseline", Kind.BASELINE),
        ("provisional: ", Kind.PROVISIONAL),
        ("simpler: ", Kind.SIMPLER),
        ("confirmed at dawn", Kind.ADOPTED),
        ("", Kind.KEPT),
    ),
    Status.DISCARD: (
        ("audit: ", Kind.FAILED_AUDIT),
        ("quarantine: ", Kind.QUARANTINED),
        ("a question of dawn", Kind.QUESTION),
        ("a passenger", Kind.PASSENGER),
        ("revoked: ", Kind.REVOKED),
        ("it ignores its seed", Kind.IGNORES_SEED),
        ("stopped early", Kind.STOPPED_EARLY),
        ("too slow", Kind.TOO_SLOW),
        ("with another seed: too slow", Kind.TOO_SLOW),
        ("a tie with the incumbent", Kind.TIE),
        ("", Kind.WORSE),
    ),
    Status.CRASH: (("", Kind.CRASHED),),
}
ENDINGS_OF_4 = (  # by how it ended, where the beginning says nothing
    (", which is no longer the best script", Kind.STALE),
    (", which is kept no more", Kind.ORPHANED),
    (", which may be luck", Kind.LUCK),
)


def kind_in_words(status: Status, reason: str, gain_bpb: float | None) -> Kind:
    """Read a decision's kind out of its reason: format 4 had nothing else."""
    kind = next(kind for beginning, kind in KINDS_OF_4[status] if reason.startswith(beginning))
    if kind is not Kind.WORSE:
        return kind
    lower = gain_bpb is not None and gain_bpb > 0
    return next((late for ending, late in ENDINGS_OF_4 if reason.endswith(ending)), Kind.LUCK if lower else kind)


def _from_5(database: sqlite3.Connection, level: int) -> None:
    """Add what servers say of their caches: nothing, for the calls of earlier nights."""
    database.execute("ALTER TABLE asks ADD COLUMN tokens_cached INTEGER")


def _from_6(database: sqlite3.Connection, level: int) -> None:
    """Add what an attempt merges: nothing, in nights whose attempts came one after another."""
    database.execute("ALTER TABLE attempts ADD COLUMN merges INTEGER")


def _from_7(database: sqlite3.Connection, level: int) -> None:
    """Make room for calls and examinations; of earlier calls, the runs tell how many workers they had."""
    database.execute(CALLS)
    database.execute(EXAMINATIONS)


MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection, int], None]] = {  # by the format that each begins with
    4: _from_4,
    5: _from_5,
    6: _from_6,
    7: _from_7,
}
