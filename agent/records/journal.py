"""The record of a night, in order and durable: SQLite, one write a step, each on disk before the next begins.

Any number of readers may look at a journal while its night goes on. Its tables have the fields of the records in
agent/experiment.py as columns; what is no number or text is JSON there. A journal of another format is refused.
"""

import dataclasses
import hashlib
import os
import shutil
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agent.clock import boot_id, utc_now
from agent.errors import NightError
from agent.experiment import (
    Ask,
    Attempt,
    Audit,
    Decision,
    DryRun,
    Ending,
    Idea,
    Kind,
    Night,
    Noise,
    Proposal,
    Run,
    Split,
)
from agent.files import disk_fails, flush, plain_bytes, throwaway_folder
from agent.findings import Confirmation
from agent.invocation import typed
from agent.script.dials import outline_from, outline_of
from agent.work import Work

VERSION = 17
LOCKED_S = 600  # another program may look into the journal for long; a night can wait
RESERVE_BYTES = 4 << 20  # several times what an attempt leaves in journal, results and repository
DURABLE = "PRAGMA synchronous = FULL; PRAGMA fullfsync = 1"  # macOS: a plain fsync leaves it in the drive's cache
SCHEMA = """
CREATE TABLE night (fact TEXT PRIMARY KEY, value ANY) WITHOUT ROWID, STRICT;
CREATE TABLE work (                      -- what each worker does now: written before a step, removed after it
    worker TEXT PRIMARY KEY,
    doing TEXT NOT NULL,
    attempt INTEGER NOT NULL REFERENCES attempts, seed INTEGER, confirmation INTEGER NOT NULL,
    began TEXT NOT NULL                  -- ISO 8601, UTC, as all times
) STRICT;
CREATE TABLE attempts (
    number INTEGER PRIMARY KEY,
    parent INTEGER REFERENCES attempts,
    script TEXT NOT NULL REFERENCES scripts,
    outline TEXT NOT NULL,               -- JSON, of the script
    title TEXT NOT NULL, hypothesis TEXT NOT NULL, proposer TEXT NOT NULL,
    repairs INTEGER, without TEXT NOT NULL,
    merges INTEGER,                      -- the attempt whose edit it carries onto the best script; NULL: none
    started TEXT NOT NULL,
    "commit" TEXT,                       -- NULL until committed
    dry_run TEXT,                        -- JSON; NULL until it was made, and where none is
    settled INTEGER NOT NULL DEFAULT 0   -- the decision that branch, results and weights follow; 0: none
) STRICT;
CREATE TABLE ideas (                     -- of all proposers; those that are no attempts and not dropped wait
    id INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL REFERENCES attempts,
    script TEXT NOT NULL REFERENCES scripts,
    title TEXT NOT NULL, hypothesis TEXT NOT NULL, proposer TEXT NOT NULL,
    repairs INTEGER,
    attempt INTEGER REFERENCES attempts, -- that it has become
    dropped TEXT                         -- why it never will be one
) STRICT;
CREATE TABLE scripts (
    sha256 TEXT PRIMARY KEY,             -- of packed
    packed BLOB NOT NULL                 -- the text in UTF-8, compressed by zlib
) STRICT;
CREATE TABLE decisions (                 -- appended, never changed: an attempt's last row holds
    id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL REFERENCES attempts,
    at TEXT NOT NULL,
    kind TEXT NOT NULL, reason TEXT NOT NULL, gain_bpb REAL, sure REAL
) STRICT;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL REFERENCES attempts,
    seed INTEGER NOT NULL,
    boot TEXT NOT NULL,                  -- which start of the machine it belongs to
    ending TEXT NOT NULL DEFAULT 'running',
    exit_code INTEGER,
    wall_s REAL NOT NULL DEFAULT 0,
    summary TEXT,                        -- JSON, as the next ones
    score TEXT,                          -- NULL until scored
    holdout TEXT,                        -- NULL until scored there
    params INTEGER,                      -- of its weights; NULL where they cannot be told
    last_lines TEXT NOT NULL DEFAULT '',
    confirmation INTEGER NOT NULL,       -- 0: the night's own; k: of the k-th confirmation
    weights_bytes INTEGER,               -- of the file; NULL: it left none of its own
    peak_bytes INTEGER,
    forecast_bpb REAL,                   -- NULL where it was not stopped early
    others_share REAL,                   -- NULL where it was not measured
    worker TEXT NOT NULL,                -- who executed it
    began TEXT NOT NULL, ended TEXT
) STRICT;
CREATE TABLE confirmations (
    number INTEGER PRIMARY KEY, best INTEGER NOT NULL REFERENCES attempts, fresh INTEGER NOT NULL,
    began TEXT NOT NULL,
    ended TEXT, findings TEXT            -- NULL until it has come to its end, and until something is known
) STRICT;
CREATE TABLE asks (
    id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL, proposer TEXT NOT NULL, started TEXT NOT NULL, wall_s REAL NOT NULL,
    model TEXT, tokens_in INTEGER, tokens_out INTEGER, usd REAL, failure TEXT, usd_most REAL,
    tokens_cached INTEGER                -- of tokens_in; NULL: not told
) STRICT;
CREATE INDEX decisions_of ON decisions (attempt);
CREATE INDEX runs_of ON runs (attempt);
"""
ITS_SCRIPT = "LEFT JOIN scripts ON script = sha256"  # a missing script is NULL: such a row cannot be read
AS_JSON = frozenset(
    {"without", "outline", "dry_run", "summary", "score", "holdout", "findings", "pins", "options", "noise"}
)
Sql = tuple[str, Sequence[object]]
Row = TypeVar("Row")


class Journal:
    """Open with Journal.create, Journal.resume (to write) or Journal.read; a context manager, for any thread."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path = path
        self._db = database
        self._db.row_factory = sqlite3.Row
        self._inode = path.stat().st_ino
        self._lock = threading.RLock()  # proposers record their ideas and calls in their own threads
        self._reserve: Path | None = None  # None in a journal that was opened for reading

    @classmethod
    def create(cls, path: Path, night: Night) -> "Journal":
        """Make a journal; it gets its name only when it is whole, so a night either exists or does not."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(path.name + ".new")
        for leftover in path.parent.glob(f"{aside.name}*"):  # a killed call may have left one
            leftover.unlink()
        with closing(sqlite3.connect(aside, isolation_level=None)) as database:
            database.executescript(f"{DURABLE}; BEGIN; {SCHEMA} PRAGMA user_version = {VERSION};")
            database.executemany("INSERT INTO night VALUES (?, ?)", _columns(night).items())
            database.execute("COMMIT")
            # A kill in here leaves a rollback journal, which no reader can apply: so do this before the final name.
            database.execute("PRAGMA journal_mode = WAL")
        for suffix in ("-wal", "-shm"):  # a deleted journal's log would be read as part of this one
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        aside.replace(path)
        flush(path.parent)
        return cls.resume(path)

    @classmethod
    def resume(cls, path: Path) -> "Journal":
        """Open a journal for writing; raise NightError where it is none, or has another format."""
        journal = cls(path, _connect(path, writing=True))
        journal._db.executescript(f"PRAGMA journal_mode = WAL; {DURABLE}")  # a copy may have lost create()'s WAL
        reserve = path.with_name("reserve")
        try:
            reserve.write_bytes(os.urandom(RESERVE_BYTES))  # random bytes, which no file system can compress
        except OSError:
            journal._db.close()
            reserve.unlink(missing_ok=True)
            raise
        journal._reserve = reserve
        return journal

    @classmethod
    def read(cls, path: Path) -> "Journal":
        """Open a journal for reading; the file stays as it is.

        On a full or a read-only disk it is read as it stands: a night that runs there is read as it goes on.
        """
        return cls(path, _connect(path, writing=False))

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.give_reserve()
        with self._lock:
            self._db.close()

    # ---- reading; each raises NightError where the journal is damaged ------------------------------------------------

    def night(self) -> Night:
        with self._legible():
            facts = {row["fact"]: row["value"] for row in self._db.execute("SELECT * FROM night")}
            return msgspec.convert(_decoded(facts), Night)

    def noise(self) -> Noise | None:
        """Return the noise as estimated when results last changed; estimating it again is slow after many attempts."""
        rows = self.query("SELECT value FROM night WHERE fact = 'noise' AND value IS NOT NULL")
        with self._legible():
            return msgspec.json.decode(rows[0][0], type=Noise) if rows else None

    def work(self) -> tuple[Work, ...]:
        """Return what each worker does now, if the night runs; else what it did when the night was killed."""
        # a clone's journal may name an attempt that it lacks
        return self._records(Work, "SELECT work.* FROM work JOIN attempts ON number = attempt ORDER BY worker")

    def asks(self) -> tuple[Ask, ...]:
        """Return all calls to proposers, in the order in which they ended."""
        return self._records(Ask, "SELECT * FROM asks ORDER BY id")

    def confirmations(self) -> tuple[Confirmation, ...]:
        """Return all confirmations in the order of their numbers."""
        return self._records(Confirmation, "SELECT * FROM confirmations ORDER BY number")

    def waiting_ideas(self) -> tuple[Idea, ...]:
        """Return the ideas that are no attempts yet and were not dropped, in the order in which they came."""
        with self._legible():
            waiting = f"SELECT * FROM ideas {ITS_SCRIPT} WHERE attempt IS NULL AND dropped IS NULL ORDER BY id"
            rows = map(dict, self._db.execute(waiting))
            return tuple(msgspec.convert(facts | {"proposal": facts}, Idea) for facts in rows)

    def attempts(self, number: int | None = None) -> tuple[Attempt, ...]:
        """Return all attempts in the order of their numbers, or the one of this number, as of one moment."""
        with self._legible(), self._db:  # a night may be writing
            self._db.execute("BEGIN")
            runs, decisions = self._by_attempt("runs", number), self._by_attempt("decisions", number)
            which = "" if number is None else "WHERE number = :number"
            every = f"SELECT * FROM attempts {ITS_SCRIPT} {which} ORDER BY number"
            rows = self._db.execute(every, {"number": number})
            attempts = tuple(_attempt(row, runs[row["number"]], decisions[row["number"]]) for row in rows)
            if number is None:
                check_numbers(attempts)
            return attempts

    def attempt(self, number: int) -> Attempt:
        """Return one attempt without reading the others; raise IndexError where there is none of this number."""
        return self.attempts(number)[0]

    def data_version(self) -> int:
        """Return a number that differs after each commit of another connection, read without any table."""
        return int(self.query("PRAGMA data_version")[0][0])

    def query(self, sql: str) -> list[sqlite3.Row]:
        """Return the rows of a SQL query that only reads."""
        with self._legible():
            return self._db.execute(sql).fetchall()

    def _records(self, kind: type[Row], sql: str) -> tuple[Row, ...]:
        with self._legible():
            return tuple(msgspec.convert(_decoded(dict(row)), kind) for row in self._db.execute(sql))

    def _by_attempt(self, table: str, number: int | None) -> dict[int, list[sqlite3.Row]]:
        which = "" if number is None else "WHERE attempt = :number"
        rows: dict[int, list[sqlite3.Row]] = defaultdict(list)
        for row in self._db.execute(f"SELECT * FROM {table} {which} ORDER BY id", {"number": number}):
            rows[row["attempt"]].append(row)
        return rows

    @contextmanager
    def _legible(self) -> Iterator[None]:
        """Raise NightError for a damaged journal: SQLite reports an error, or a record cannot be read."""
        try:
            with self._lock:
                yield
        except (sqlite3.Error, msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            if disk_fails(error):
                raise
            raise NightError(f"{self._path} is damaged ({error}); move its folder away to go on without it") from error

    # ---- writing -----------------------------------------------------------------------------------------------------

    def record_facts(self, **facts: object) -> None:
        """Record facts of the night that have changed: its noise, options, corpus, checksums or id."""
        self._write(*(("REPLACE INTO night VALUES (?, ?)", fact) for fact in _encoded(facts).items()))

    def record_call(self) -> None:
        """Record that a call of the night begins, and delete the work of a killed one."""
        called = "REPLACE INTO night VALUES ('called', ?)", (utc_now("milliseconds"),)
        self._write(("DELETE FROM work", ()), called)

    def begin(self, work: Work) -> None:
        """Record what a worker begins to do, before it does."""
        self._write(_insert("work", "REPLACE", **_columns(work)))

    def rest(self, worker: str) -> None:
        """Record that a worker does nothing now: what it did is recorded."""
        self._write(("DELETE FROM work WHERE worker = ?", (worker,)))

    def add_attempt(
        self, number: int, parent: int | None, proposal: Proposal, started: str, idea: int | None = None
    ) -> None:
        """Enter an attempt, and the outline of its script; idea: the id of the idea that it was."""
        script, keep_script = _kept_script(proposal)
        facts = _columns(proposal) | {"number": number, "parent": parent, "script": script, "started": started}
        facts["outline"] = _json(outline_of(proposal.script, self.night().device_kind))
        del facts["packed"]
        has_become = "UPDATE ideas SET attempt = ? WHERE id = ?", (number, idea)
        self._write(keep_script, _insert("attempts", **facts), has_become)

    def add_idea(self, idea: Idea) -> int:
        """Record an idea as soon as it comes, since it may have cost money; return its id."""
        script, keep_script = _kept_script(idea.proposal)
        words = {name: getattr(idea.proposal, name) for name in ("title", "hypothesis", "proposer", "repairs")}
        add = _insert("ideas", **words, script=script, parent=idea.parent)
        return int(self._write(keep_script, add).lastrowid or 0)

    def drop_idea(self, idea: int, why: str) -> None:
        """Record that the idea with this id will never be an attempt."""
        self._write(("UPDATE ideas SET dropped = ? WHERE id = ?", (why, idea)))

    def record_commit(self, number: int, sha: str) -> None:
        self._write(('UPDATE attempts SET "commit" = ? WHERE number = ?', (sha, number)))

    def record_dry_run(self, number: int, dry_run: DryRun) -> None:
        self._write(("UPDATE attempts SET dry_run = ? WHERE number = ?", (_json(dry_run), number)))

    def record_ask(self, ask: Ask) -> None:
        """Record a call as soon as it is over: its cost is known, whatever follows."""
        self._write(_insert("asks", **_columns(ask)))

    def put_confirmation(self, confirmation: Confirmation) -> None:
        """Record a confirmation as it begins, goes on or ends."""
        self._write(_insert("confirmations", "REPLACE", **_columns(confirmation)))

    def start_run(self, attempt: int, seed: int, *, confirmation: int = 0, worker: str = "local") -> int:
        """Record a run before its process starts, as it may take the machine down with it; return its id."""
        began = utc_now("milliseconds")
        run = _insert(
            "runs", attempt=attempt, seed=seed, boot=boot_id(), confirmation=confirmation, worker=worker, began=began
        )
        return int(self._write(run).lastrowid or 0)

    def end_run(self, run_id: int, run: Run) -> None:
        facts = _columns(run) | {"ended": utc_now("milliseconds")}
        for name in ("seed", "confirmation", "worker", "began"):  # these were recorded when it began
            del facts[name]
        columns = ", ".join(f"{name} = ?" for name in facts)
        self._write((f"UPDATE runs SET {columns} WHERE id = ?", (*facts.values(), run_id)))

    def record_audit(self, attempt: int, seed: int, audit: Audit, split: Split = "validation") -> None:
        score = "score" if split == "validation" else split
        update = f"UPDATE runs SET {score} = json_set({score}, '$.audit', json(?))"
        finished = (attempt, seed, Ending.FINISHED)
        self._write((f"{update} WHERE attempt = ? AND seed = ? AND ending = ?", (_json(audit), *finished)))

    def record_decision(self, number: int, decision: Decision) -> None:
        """Append a decision about an attempt, which holds from now on; branch, results and weights have to follow."""
        self._write(_recorded(number, decision))

    def invalidate(self, numbers: Iterable[int], why: str) -> None:
        """Withdraw the decisions on attempts that failed while the machine was broken: a resume measures them again.

        All of them in one transaction: half of it would leave a decision without runs, or crashes that were none.
        """
        broken = "UPDATE runs SET ending = ?, last_lines = ? WHERE attempt = ? AND score ->> '$.val_bpb' IS NULL"
        broken += " AND ending IN (?, ?, ?, ?)"
        failed = (Ending.CRASHED, Ending.OVERRAN, Ending.EXCEEDED, Ending.FINISHED)
        statements: list[Sql] = []
        for number in numbers:
            statements.append((broken, (Ending.BROKEN, why, number, *failed)))
            statements.append(("UPDATE attempts SET dry_run = NULL WHERE number = ?", (number,)))
            statements.append(_recorded(number, Decision(Kind.INVALID, why)))
        self._write(*statements)

    def settle(self, number: int) -> None:
        """Record that branch, results and weights follow the present decision."""
        latest = "SELECT coalesce(max(id), 0) FROM decisions WHERE attempt = number"
        self._write((f"UPDATE attempts SET settled = ({latest}) WHERE number = ?", (number,)))

    def mark_lost_runs(self) -> None:
        """End the runs that were in progress when the harness or the machine died.

        A machine that went down twice during an edit's run may have been taken down by it; attempt 0 is the user's own.
        """
        again = (
            "attempt > 0 AND EXISTS "
            "(SELECT 1 FROM runs e WHERE e.attempt = runs.attempt AND e.seed = runs.seed AND e.ending = ?)"
        )
        ended = f"ending = CASE WHEN boot = ? THEN ? WHEN {again} THEN ? ELSE ? END"
        words = "last_lines = CASE WHEN boot = ? THEN last_lines ELSE 'the machine went down during it' END"
        boot = boot_id()
        endings = boot, Ending.LOST, Ending.INVALID, Ending.CRASHED, Ending.INVALID, boot, Ending.RUNNING
        self._write((f"UPDATE runs SET {ended}, {words} WHERE ending = ?", endings))

    def lose_runs(self) -> None:
        """End the runs that were in progress where a night came from: whether that machine went down is not known."""
        self._write(("UPDATE runs SET ending = ? WHERE ending = ?", (Ending.LOST, Ending.RUNNING)))

    def give_reserve(self) -> bool:
        """Delete the reserve to make room on a full disk; return False if it is gone already."""
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            reserve.unlink(missing_ok=True)
        return reserve is not None

    def check_in_place(self) -> None:
        """Raise NightError where the file was removed or replaced: later writes would be lost."""
        try:
            is_in_place = self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            is_in_place = False
        if not is_in_place:
            raise NightError(
                f"{self._path} was removed while its night ran; results.tsv and the refs hold what it found, "
                f"begin a new night with: {typed('run')}"
            )

    def _write(self, *statements: Sql) -> sqlite3.Cursor:
        """Execute all statements, or none if one fails; return the last one's cursor.

        On a full disk the reserve gives room: a result that took five minutes is not lost.
        """
        try:
            return self._executed(statements)
        except sqlite3.OperationalError as error:
            if not (disk_fails(error) and self.give_reserve()):
                raise
            return self._executed(statements)

    def _executed(self, statements: Sequence[Sql]) -> sqlite3.Cursor:
        with self._lock, self._db:  # commits, or takes all of it back
            self._db.execute("BEGIN IMMEDIATE")
            return [self._db.execute(*statement) for statement in statements][-1]


def _connect(path: Path, *, writing: bool) -> sqlite3.Connection:
    """Open a journal's file; raise NightError where it cannot be read, or has another format."""
    address = f"{path.absolute().as_uri()}?mode={'rw' if writing else 'ro'}"
    try:
        if path.exists() and not path.is_file():  # SQLite waits for a pipe, and calls a folder a disk that fails
            raise sqlite3.DatabaseError("it is no plain file")
        try:
            database = _opened(address)
        except sqlite3.OperationalError:
            if writing or not path.exists():
                raise
            database = _in_memory(path)
        (version,) = database.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        if disk_fails(error):
            raise
        raise NightError(
            f"{path} is no journal that can be opened ({error}); make it and its folder readable and writable, or move "
            f"the folder away to start again"
        ) from error
    check_format(version, path)
    return database


def _opened(address: str) -> sqlite3.Connection:
    """Open a database, and look into it, which tells whether it can be read."""
    database = sqlite3.connect(address, uri=True, isolation_level=None, timeout=LOCKED_S, check_same_thread=False)
    try:
        database.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error:
        database.close()
        raise
    return database


def _in_memory(path: Path) -> sqlite3.Connection:
    """Return a copy of a journal, for a disk where SQLite cannot write the index of its log.

    While a night writes, that index is there, so no night writes now. Without a log the file is whole as it stands;
    with one, both are copied elsewhere and read there.
    """
    log, memory = path.with_name(f"{path.name}-wal"), _opened(":memory:")
    with throwaway_folder() if plain_bytes(log) else nullcontext() as folder:
        address = f"{path.absolute().as_uri()}?immutable=1"
        if folder is not None:
            for file in (path, log):
                shutil.copyfile(file, folder / file.name)
            address = (folder / path.name).as_uri()
        with closing(_opened(address)) as database:
            database.backup(memory)
    return memory


def check_format(version: int, path: Path) -> None:
    """Raise NightError for a journal, or a file that holds one, of another version of nightshift."""
    if version != VERSION:
        raise NightError(
            f"{path} has format {version}, this nightshift reads {VERSION}; use the version that wrote it, or begin "
            f"another night with --tag"
        )


# ---- rows and records ------------------------------------------------------------------------------------------------


def _decoded(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns by name, JSON decoded."""
    return {
        name: msgspec.json.decode(value) if name in AS_JSON and value is not None else value
        for name, value in columns.items()
    }


def _columns(record: Any) -> dict[str, Any]:
    """Return the fields of a record by name, as columns hold them; a frozen record is never changed by that."""
    return _encoded({field.name: getattr(record, field.name) for field in dataclasses.fields(record)})


def _encoded(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _json(value) if name in AS_JSON and value is not None else value for name, value in fields.items()}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _insert(table: str, how: str = "INSERT", **columns: object) -> Sql:
    names, marks = ", ".join(f'"{name}"' for name in columns), ", ".join("?" for _ in columns)
    return f"{how} INTO {table} ({names}) VALUES ({marks})", tuple(columns.values())


def _recorded(attempt: int, decision: Decision) -> Sql:
    return _insert("decisions", attempt=attempt, **_columns(decision) | {"id": None, "at": utc_now("milliseconds")})


def check_numbers(attempts: Sequence[Attempt]) -> None:
    """Raise ValueError unless the attempts are numbered from 0 on, each after its parent, as they are looked up."""
    for at, attempt in enumerate(attempts):
        if attempt.number != at or (attempt.parent is not None and not 0 <= attempt.parent < at):
            raise ValueError("its attempts are not numbered from 0 on, each after its parent")


def _kept_script(proposal: Proposal) -> tuple[str, Sql]:
    """Return the hash of a proposal's script, and the statement that keeps the script once."""
    sha256 = hashlib.sha256(proposal.packed).hexdigest()
    return sha256, _insert("scripts", "INSERT OR IGNORE", sha256=sha256, packed=proposal.packed)


def _attempt(row: sqlite3.Row, runs: Sequence[sqlite3.Row], decisions: Sequence[sqlite3.Row]) -> Attempt:
    fields = _decoded(dict(row))
    facts = fields | {
        "proposal": fields,
        "outline": outline_from(fields["outline"]),
        "runs": [_decoded(dict(run)) for run in runs],
        "decisions": [dict(decision) for decision in decisions],
        "settled": bool(decisions) and fields["settled"] == decisions[-1]["id"],
    }
    return msgspec.convert(facts, Attempt)
