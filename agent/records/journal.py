"""The record of a night, in order and durable: SQLite, one write a step, each on disk before the next begins.

Any number of readers may look at a journal while its night goes on.
"""

import dataclasses
import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from agent.clock import utc_now
from agent.errors import NightError
from agent.experiment import (
    Ask,
    Attempt,
    Audit,
    Dawn,
    Decision,
    DryRun,
    Ending,
    Entry,
    Kind,
    Night,
    NightCall,
    Proposal,
    Run,
    Score,
)
from agent.files import disk_is_broken, disk_is_full, flush
from agent.invocation import typed
from agent.records.rows import attempt_of, entry_of, run_of
from agent.records.schema import SCHEMA, VERSION, connect

RESERVE_BYTES = 4 << 20  # several times what an attempt leaves in journal, ledger and repository
DURABLE = "PRAGMA synchronous = FULL; PRAGMA fullfsync = 1"  # macOS: a plain fsync leaves it in the drive's cache
Sql = tuple[str, Sequence[object]]
Part = TypeVar("Part", Run, Entry)


class Journal:
    """Open with Journal.create, Journal.resume (to write) or Journal.read; a context manager."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path = path
        self._db = database
        self._db.row_factory = sqlite3.Row
        self._inode = path.stat().st_ino
        self._scripts: dict[str, str] = {}  # by hash: each text is held once, and read once
        self._reserve: Path | None = None  # of one that is open for writing

    @classmethod
    def create(cls, path: Path, night: Night) -> "Journal":
        """Make a journal; it gets its name only when it is whole, so a night either exists or does not."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(path.name + ".new")
        for left in path.parent.glob(f"{aside.name}*"):  # by one that was killed here
            left.unlink()
        facts = [(field.name, getattr(night, field.name)) for field in dataclasses.fields(night)]
        with closing(sqlite3.connect(aside, isolation_level=None)) as database:
            database.executescript(f"{DURABLE}; BEGIN; {SCHEMA} PRAGMA user_version = {VERSION};")
            database.executemany("INSERT INTO night VALUES (?, ?)", facts)
            database.execute("COMMIT")
            # under its final name, a kill in here would leave a rollback journal, which no reader can apply
            database.execute("PRAGMA journal_mode = WAL")
        for suffix in ("-wal", "-shm"):  # of a deleted journal: its log would be read as part of this one
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        aside.replace(path)
        flush(path.parent)
        return cls.resume(path)

    @classmethod
    def resume(cls, path: Path) -> "Journal":
        """Open a journal for writing; raises NightError where it is none, or has another format."""
        journal = cls(path, connect(path, writing=True))
        journal._db.executescript(f"PRAGMA journal_mode = WAL; {DURABLE}")  # as create() chose, or a copy has lost it
        reserve = path.with_name("reserve")
        try:
            reserve.write_bytes(os.urandom(RESERVE_BYTES))  # which no file system makes smaller
        except OSError:
            journal._db.close()
            reserve.unlink(missing_ok=True)
            raise
        journal._reserve = reserve
        return journal

    @classmethod
    def read(cls, path: Path) -> "Journal":
        """Open a journal for reading; the file stays as it is."""
        return cls(path, connect(path, writing=False))

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_reserve()
        self._db.close()

    @property
    def folder(self) -> Path:
        return self._path.parent

    def night(self) -> Night:
        """Return the facts of the night; raises NightError where the journal is damaged, as all questions do."""
        with self._legible():
            return Night(**{row["fact"]: row["value"] for row in self._db.execute("SELECT * FROM night")})

    def record_facts(self, **facts: str) -> None:
        """Record other terms of the night, another place of its corpus with checksums, or another id."""
        self._write(*(("REPLACE INTO night VALUES (?, ?)", fact) for fact in facts.items()))

    def record_call(self, workers: int) -> None:
        """Record that a call of the night begins, in whole seconds, as attempts and asks have their times."""
        added = "INSERT INTO calls (began, workers) VALUES (?, ?)", (utc_now(), workers)
        self._write(("DELETE FROM examinations", ()), added)

    def calls(self) -> tuple[NightCall, ...]:
        """Return the calls of the night, in their order."""
        with self._legible():
            return tuple(NightCall(*row) for row in self._db.execute("SELECT began, workers FROM calls ORDER BY id"))

    def attempts(self) -> tuple[Attempt, ...]:
        """Return all attempts in the order of their numbers, each with its runs and decisions."""
        return self._attempts("", ())

    def outlines(self) -> tuple[Attempt, ...]:
        """Return all attempts with "" in place of their scripts, which are most of a journal."""
        return self._attempts("", (), with_scripts=False)

    def attempt(self, number: int) -> Attempt:
        """Return one attempt without reading the others; raises IndexError where there is none of this number."""
        return self._attempts("WHERE attempt = ?", (number,))[0]

    def attempts_among(self, numbers: Iterable[int]) -> tuple[Attempt, ...]:
        """Return the attempts with these numbers, in the order of their numbers."""
        return self._attempts("WHERE attempt IN (SELECT value FROM json_each(?))", (json.dumps(sorted(numbers)),))

    def query(self, sql: str) -> list[sqlite3.Row]:
        """Return the rows of a SQL query that only reads, for callers that need less than whole attempts."""
        with self._legible():
            return self._db.execute(sql).fetchall()

    def _attempts(self, which: str, values: Sequence[object], *, with_scripts: bool = True) -> tuple[Attempt, ...]:
        attempts = f"(SELECT *, number AS attempt FROM attempts) {which} ORDER BY number"
        with self._legible(), self._one_moment():
            runs = self._by_attempt("runs", which, values, run_of)
            decisions = self._by_attempt("decisions", which, values, entry_of)
            return tuple(
                attempt_of(
                    row,
                    self._script(row["script"]) if with_scripts else "",
                    runs.get(row["number"], ()),
                    decisions.get(row["number"], ()),
                )
                for row in self._db.execute(f"SELECT * FROM {attempts}", values).fetchall()
            )

    def _script(self, sha256: str) -> str:
        if sha256 not in self._scripts:
            (packed,) = self._db.execute("SELECT packed FROM scripts WHERE sha256 = ?", (sha256,)).fetchone()
            self._scripts[sha256] = zlib.decompress(packed).decode(errors="surrogatepass")
        return self._scripts[sha256]

    @contextmanager
    def _one_moment(self) -> Iterator[None]:
        """Read several tables as of one moment, though a night may be writing."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _by_attempt(
        self, table: str, which: str, values: Sequence[object], record: Callable[[sqlite3.Row], Part]
    ) -> dict[int, tuple[Part, ...]]:
        rows = self._db.execute(f"SELECT * FROM {table} {which} ORDER BY attempt, id", values)
        groups = groupby(rows, key=lambda row: int(row["attempt"]))
        return {number: tuple(map(record, group)) for number, group in groups}

    def last_at_work(self) -> str:
        """Return when the latest attempt began (ISO 8601, UTC); without attempts, when the night did."""
        latest = "SELECT coalesce((SELECT started FROM attempts ORDER BY number DESC LIMIT 1),"
        latest += " (SELECT value FROM night WHERE fact = 'started'))"
        with self._legible():
            return str(self._db.execute(latest).fetchone()[0])

    def at_work(self) -> int | None:
        """Return the attempt whose run has begun and not ended: it is running, or its night was killed."""
        with self._legible():
            row = self._db.execute("SELECT attempt FROM runs WHERE ending IS NULL ORDER BY id DESC LIMIT 1").fetchone()
        return int(row[0]) if row else None

    def add_attempt(self, number: int, parent: int | None, proposal: Proposal, started: str) -> None:
        content = proposal.script.encode(errors="surrogatepass")
        sha256 = hashlib.sha256(content).hexdigest()
        self._scripts[sha256] = proposal.script
        words = proposal.title, proposal.hypothesis, proposal.source
        others = proposal.repairs, json.dumps(proposal.without), proposal.merges
        self._write(
            (
                "INSERT OR IGNORE INTO scripts (sha256, packed) VALUES (?, ?)",
                (sha256, zlib.compress(content)),
            ),
            (
                "INSERT INTO attempts (number, parent, script, title, hypothesis, source, repairs, without, merges,"
                " started) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (number, parent, sha256, *words, *others, started),
            ),
        )

    def record_commit(self, number: int, sha: str) -> None:
        self._write(("UPDATE attempts SET commit_sha = ? WHERE number = ?", (sha, number)))

    def record_dry_run(self, number: int, dry_run: DryRun) -> None:
        facts = json.dumps(dataclasses.asdict(dry_run))
        self._write(("UPDATE attempts SET dry_run = ? WHERE number = ?", (facts, number)))

    def record_ask(self, ask: Ask) -> None:
        """Record a call as soon as it is over: its cost is known, whatever follows."""
        facts = dataclasses.asdict(ask)
        marks = ", ".join("?" for _ in facts)
        self._write((f"INSERT INTO asks ({', '.join(facts)}) VALUES ({marks})", tuple(facts.values())))

    def asks(self) -> tuple[Ask, ...]:
        """Return all calls to sources, in the order in which they ended."""
        names = ", ".join(field.name for field in dataclasses.fields(Ask))
        with self._legible():
            return tuple(Ask(*row) for row in self._db.execute(f"SELECT {names} FROM asks ORDER BY id"))

    def dawns(self) -> tuple[Dawn, ...]:
        """Return all dawns in the order of their numbers."""
        with self._legible():
            rows = [dict(row) for row in self._db.execute("SELECT * FROM dawns ORDER BY number")]
            return tuple(Dawn(**row | {"findings": json.loads(row["findings"] or "null")}) for row in rows)

    def put_dawn(self, dawn: Dawn) -> None:
        """Record a dawn as it begins, goes on or ends."""
        facts = dataclasses.asdict(dawn) | {"findings": json.dumps(dawn.findings) if dawn.findings else None}
        self._write((f"REPLACE INTO dawns ({', '.join(facts)}) VALUES (?, ?, ?, ?, ?, ?)", tuple(facts.values())))

    def start_run(self, attempt: int, seed: int, boot: str = "", *, dawn: int = 0, worker: str = "local") -> int:
        """Record a run before its process starts, as it may take the machine down with it; return its id."""
        columns = "attempt, seed, boot, dawn, worker, began"
        facts = attempt, seed, boot, dawn, worker, utc_now("milliseconds")
        cursor = self._write((f"INSERT INTO runs ({columns}) VALUES (?, ?, ?, ?, ?, ?)", facts))
        return int(cursor.lastrowid or 0)

    def end_run(self, run_id: int, run: Run) -> None:
        facts = {
            "ending": run.ending,
            "exit_code": run.exit_code,
            "wall_s": run.wall_s,
            "summary": json.dumps(dataclasses.asdict(run.summary)) if run.summary else None,
            "last_lines": run.last_lines,
            "peak_bytes": run.peak_bytes,
            "weights_bytes": run.weights_bytes,
            "weights": json.dumps(dataclasses.asdict(run.weights)) if run.weights else None,
            "ended": utc_now("milliseconds"),
        }
        columns = ", ".join(f"{name} = ?" for name in facts)
        self._write((f"UPDATE runs SET {columns} WHERE id = ?", (*facts.values(), run_id)))

    def start_examination(self, worker: str, doing: str, attempt: int, seed: int, split: str) -> None:
        """Record that a worker begins to score or to audit the weights of a run."""
        facts = worker, doing, attempt, seed, split, utc_now("milliseconds")
        self._write(("REPLACE INTO examinations VALUES (?, ?, ?, ?, ?, ?)", facts))

    def lose_run(self, attempt: int, seed: int, why: str) -> None:
        """Make a finished run void: what it left is gone."""
        self._set_finished("ending = ?, last_lines = ?", (Ending.LOST, why), attempt, seed)

    def record_score(self, attempt: int, seed: int, score: Score) -> None:
        facts = score.val_bpb, score.wall_s, score.failure, score.overran
        self._set_finished("val_bpb = ?, score_s = ?, failure = ?, overran = ?", facts, attempt, seed)

    def record_audit(self, attempt: int, seed: int, audit: Audit) -> None:
        self._set_finished("audit = ?", (json.dumps(dataclasses.asdict(audit)),), attempt, seed)

    def record_holdout(self, attempt: int, seed: int, score: Score) -> None:
        self._set_finished("holdout = ?", (json.dumps(dataclasses.asdict(score)),), attempt, seed)

    def _set_finished(self, columns: str, facts: Sequence[object], attempt: int, seed: int) -> None:
        which = "attempt = ? AND seed = ? AND ending = ?"
        self._write((f"UPDATE runs SET {columns} WHERE {which}", (*facts, attempt, seed, Ending.FINISHED)))

    def record_decision(self, number: int, decision: Decision) -> Entry:
        """Append a decision about an attempt, which holds from now on; branch, ledger and weights have to follow."""
        at = utc_now("milliseconds")
        cursor = self._write(_decided(number, decision, at))
        return Entry(int(cursor.lastrowid or 0), at, decision)

    def make_void(self, numbers: Iterable[int], why: str) -> None:
        """Withdraw the decisions on attempts that failed while the machine was broken: a resume measures them again.

        All of them in one transaction: half of it would leave a decision without runs, or crashes that were none.
        """
        broken = "UPDATE runs SET ending = ?, last_lines = ? WHERE attempt = ? AND val_bpb IS NULL"
        broken += " AND ending IN (?, ?, ?, ?)"
        failed = (Ending.CRASHED, Ending.OVERRAN, Ending.EXCEEDED, Ending.FINISHED)
        at = utc_now("milliseconds")
        self._write(
            *(
                statement
                for number in numbers
                for statement in (
                    (broken, (Ending.BROKEN, why, number, *failed)),
                    ("UPDATE attempts SET dry_run = NULL WHERE number = ?", (number,)),
                    _decided(number, Decision(Kind.VOID, why), at),
                )
            )
        )

    def give_reserve(self) -> bool:
        """Delete the reserve to make room on a full disk; return False if it is gone already."""
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            reserve.unlink(missing_ok=True)
        return reserve is not None

    def _write(self, *statements: Sql) -> sqlite3.Cursor:
        """Execute all statements or, where one fails, none; return the last one's cursor.

        On a full disk the reserve gives room: a result that took five minutes is not lost.
        """
        try:
            return self._executed(statements)
        except sqlite3.OperationalError as error:
            if not (disk_is_full(error) and self.give_reserve()):
                raise
            return self._executed(statements)

    def _executed(self, statements: Sequence[Sql]) -> sqlite3.Cursor:
        if len(statements) == 1:
            return self._db.execute(*statements[0])
        self._db.execute("BEGIN IMMEDIATE")
        try:
            cursors = [self._db.execute(*statement) for statement in statements]
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has taken it back already
                self._db.execute("ROLLBACK")
            raise
        return cursors[-1]

    def check_in_place(self) -> None:
        """Raise NightError where the file was removed or replaced: later writes would be lost."""
        try:
            there = self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            there = False
        if not there:
            raise NightError(
                f"{self._path} was removed while its night ran; results.tsv and the refs hold what it found, "
                f"begin a new night with: {typed('run')}"
            )

    def settle(self, number: int) -> None:
        """Record that branch, ledger and weights follow the present decision."""
        latest = "SELECT coalesce(max(id), 0) FROM decisions WHERE attempt = number"
        self._write((f"UPDATE attempts SET settled = ({latest}) WHERE number = ?", (number,)))

    def mark_lost_runs(self, boot: str = "") -> int:
        """End the runs that were in progress when the harness or the machine died; return how many there were."""
        again = "EXISTS (SELECT 1 FROM runs e WHERE e.attempt = runs.attempt AND e.seed = runs.seed AND e.ending = ?)"
        ended = f"ending = CASE WHEN boot = ? THEN ? WHEN {again} THEN ? ELSE ? END"
        told = "last_lines = CASE WHEN boot = ? THEN last_lines ELSE 'the machine went down during it' END"
        endings = boot, Ending.LOST, Ending.SPOILT, Ending.CRASHED, Ending.SPOILT, boot
        return self._write((f"UPDATE runs SET {ended}, {told} WHERE ending IS NULL", endings)).rowcount

    @contextmanager
    def _legible(self) -> Iterator[None]:
        """Raise NightError for a damaged journal: SQLite reports an error, or a record cannot be read."""
        try:
            yield
        except (sqlite3.Error, zlib.error, TypeError, ValueError, LookupError) as error:
            if disk_is_full(error) or disk_is_broken(error):
                raise
            raise NightError(f"{self._path} is damaged ({error}); move its folder away to go on without it") from error


def _decided(number: int, decision: Decision, at: str) -> Sql:
    facts = dataclasses.asdict(decision) | {"attempt": number, "at": at, "status": decision.status}
    marks = ", ".join("?" for _ in facts)
    return f"INSERT INTO decisions ({', '.join(facts)}) VALUES ({marks})", tuple(facts.values())
