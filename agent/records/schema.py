"""The tables of a journal, and how its file is opened. A journal of another format is refused."""

import sqlite3
from pathlib import Path

from agent.errors import NightError
from agent.files import disk_is_broken, disk_is_full

VERSION = 9
LOCKED_S = 600  # another program may look into the journal for long; a night can wait
SCHEMA = """
CREATE TABLE night (fact TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE calls (                     -- of the night: the first, and each that goes on
    id INTEGER PRIMARY KEY,
    began TEXT NOT NULL,                 -- ISO 8601, UTC
    workers INTEGER NOT NULL
);
CREATE TABLE examinations (              -- the latest of each worker in this call, where workers have names
    worker TEXT PRIMARY KEY,             -- it need not be the one that has trained
    doing TEXT NOT NULL,                 -- scoring or auditing
    attempt INTEGER NOT NULL REFERENCES attempts, seed INTEGER NOT NULL, split TEXT NOT NULL,
    began TEXT NOT NULL                  -- ISO 8601, UTC
);
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
CREATE TABLE scripts (
    sha256 TEXT PRIMARY KEY,             -- of the text
    packed BLOB NOT NULL                 -- the text in UTF-8, compressed by zlib
);
CREATE TABLE decisions (                 -- appended, never changed: an attempt's last row holds
    id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL REFERENCES attempts,
    at TEXT NOT NULL,                    -- ISO 8601, UTC
    kind TEXT NOT NULL, status TEXT,     -- the status is NULL where the attempt has none by it, as where it is void
    reason TEXT NOT NULL, gain_bpb REAL, sure REAL,
    at_dawn TEXT                         -- what dawn found about a kept edit
);
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
    worker TEXT NOT NULL DEFAULT 'local',      -- who executed it
    began TEXT NOT NULL, ended TEXT            -- ISO 8601, UTC; NULL while it runs
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
CREATE INDEX decisions_of ON decisions (attempt);
CREATE INDEX runs_of ON runs (attempt);
"""


def connect(path: Path, *, writing: bool) -> sqlite3.Connection:
    """Open a journal; raises NightError where it cannot be read, or has another format."""
    try:
        address = f"{path.absolute().as_uri()}?mode={'rw' if writing else 'ro'}"
        database = sqlite3.connect(address, uri=True, isolation_level=None, timeout=LOCKED_S)
        try:
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.Error:
            database.close()  # a disk with an open file cannot be unmounted
            raise
    except sqlite3.OperationalError as error:
        if disk_is_full(error) or disk_is_broken(error):
            raise
        raise NightError(f"{path} cannot be opened ({error}); make it and its folder readable and writable") from error
    except sqlite3.Error as error:
        raise NightError(f"{path} is not a readable journal ({error}); move its folder away to start again") from error
    if version != VERSION:
        database.close()
        raise NightError(
            f"{path} has format {version}, this nightshift reads {VERSION}; use the version that wrote it, or begin "
            f"another night with --tag"
        )
    return database
