"""What happened in a night, in order and durable: SQLite, one statement a step, each on disk before the next begins.

Any number of readers may look at a journal while its night goes on.
"""

import dataclasses
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from agent.errors import NightError
from agent.experiment import (
    Ask,
    Attempt,
    Audit,
    Dawn,
    Decision,
    DryRun,
    Ending,
    Kind,
    Night,
    Proposal,
    Run,
    Score,
    Summary,
    Weights,
)
from agent.files import disk_is_broken, disk_is_full
from agent.invocation import typed

VERSION = 5
RESERVE_BYTES = 4 << 20  # several times what an attempt leaves in journal, ledger and repository
LOCKED_S = 600  # another program may look into the journal for long; a night can wait
SCHEMA = """
CREATE TABLE night (fact TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE attempts (
    number INTEGER PRIMARY KEY,
    parent INTEGER REFERENCES attempts,
    script TEXT NOT NULL, title TEXT NOT NULL, hypothesis TEXT NOT NULL, source TEXT NOT NULL,
    repairs INTEGER, without TEXT NOT NULL,
    started TEXT NOT NULL,
    commit_sha TEXT,                     -- NULL until committed
    dry_run TEXT,                        -- NULL until it was made, and where none is
    kind TEXT, status TEXT, reason TEXT, gain_bpb REAL, sure REAL, at_dawn TEXT,  -- NULL until judged
    settled INTEGER NOT NULL DEFAULT 0   -- branch, ledger and weights follow the decision
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
    holdout TEXT                               -- NULL until scored there
);
CREATE INDEX runs_of ON runs (attempt);
CREATE TABLE dawns (
    number INTEGER PRIMARY KEY, champion INTEGER NOT NULL REFERENCES attempts, fresh INTEGER NOT NULL,
    began TEXT NOT NULL,
    ended TEXT, findings TEXT            -- NULL until it has come to its end, and until something is known
);
CREATE TABLE asks (
    id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL, source TEXT NOT NULL, started TEXT NOT NULL, wall_s REAL NOT NULL,
    model TEXT, tokens_in INTEGER, tokens_out INTEGER, usd REAL, failure TEXT, usd_most REAL
);
"""


class Journal:
    """Open with Journal.create, Journal.resume (to write) or Journal.read; a context manager."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path = path
        self._db = database
        self._db.row_factory = sqlite3.Row
        self._inode = path.stat().st_ino
        self._reserve: Path | None = None  # of one that is open for writing

    @classmethod
    def create(cls, path: Path, night: Night) -> "Journal":
        """The journal appears under its name only when it is whole, so a night either exists or does not."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(path.name + ".new")
        for left in (aside, aside.with_name(aside.name + "-journal")):  # by one that was killed here
            left.unlink(missing_ok=True)
        database = sqlite3.connect(aside, isolation_level=None)
        facts = [(field.name, getattr(night, field.name)) for field in dataclasses.fields(night)]
        database.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION};")
        database.executemany("INSERT INTO night VALUES (?, ?)", facts)
        database.execute("COMMIT")
        database.close()
        aside.replace(path)
        return cls.resume(path)

    @classmethod
    def resume(cls, path: Path) -> "Journal":
        """For writing; raises NightError when the file is no journal of this version."""
        journal = cls(path, _connect(path, "rw"))
        journal._db.execute("PRAGMA journal_mode = WAL")
        journal._db.execute("PRAGMA synchronous = FULL")
        journal._db.execute("PRAGMA fullfsync = 1")  # macOS: a plain fsync leaves it in the drive's cache
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
        return cls(path, _connect(path, "ro"))

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_reserve()
        self._db.close()

    def night(self) -> Night:
        """Raises NightError where the journal is damaged, as the other questions do."""
        with self._legible():
            return Night(**{row["fact"]: row["value"] for row in self._db.execute("SELECT * FROM night")})

    def record_terms(self, terms: str) -> None:
        self._write("UPDATE night SET value = ? WHERE fact = 'terms'", (terms,))

    def attempts(self) -> tuple[Attempt, ...]:
        """In the order of their numbers, each with its runs."""
        runs: dict[int, list[Run]] = {}
        with self._legible():
            self._db.execute("BEGIN")  # one moment for both tables, though a night may be writing
            for row in self._db.execute("SELECT * FROM runs ORDER BY id"):
                runs.setdefault(row["attempt"], []).append(_run(row))
            rows = self._db.execute("SELECT * FROM attempts ORDER BY number").fetchall()
            self._db.execute("COMMIT")
            return tuple(_attempt(row, tuple(runs.get(row["number"], ()))) for row in rows)

    def last_at_work(self) -> str:
        """When its latest attempt began (ISO 8601, UTC), or the night itself where there is none."""
        latest = "SELECT coalesce(max(started), (SELECT value FROM night WHERE fact = 'started')) FROM attempts"
        with self._legible():
            return str(self._db.execute(latest).fetchone()[0])

    def at_work(self) -> int | None:
        """The attempt that a run was begun of, and has not ended: it goes on, or its night was killed."""
        with self._legible():
            row = self._db.execute("SELECT attempt FROM runs WHERE ending IS NULL ORDER BY id DESC LIMIT 1").fetchone()
        return int(row[0]) if row else None

    def attempt(self, number: int) -> Attempt:
        """One of them, however many there are; raises IndexError where there is none of this number."""
        with self._legible():
            runs = tuple(map(_run, self._db.execute("SELECT * FROM runs WHERE attempt = ? ORDER BY id", (number,))))
            rows = self._db.execute("SELECT * FROM attempts WHERE number = ?", (number,)).fetchall()
            found = [_attempt(row, runs) for row in rows]
        return found[0]

    def add_attempt(self, number: int, parent: int | None, proposal: Proposal, started: str) -> None:
        self._write(
            "INSERT INTO attempts (number, parent, script, title, hypothesis, source, repairs, without, started)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(number, parent, proposal.script, proposal.title, proposal.hypothesis, proposal.source),
                *(proposal.repairs, json.dumps(proposal.without), started),
            ),
        )

    def record_commit(self, number: int, sha: str) -> None:
        self._write("UPDATE attempts SET commit_sha = ? WHERE number = ?", (sha, number))

    def record_dry_run(self, number: int, dry_run: DryRun) -> None:
        self._write(
            "UPDATE attempts SET dry_run = ? WHERE number = ?", (json.dumps(dataclasses.asdict(dry_run)), number)
        )

    def record_ask(self, ask: Ask) -> None:
        """As soon as it is over: what was paid for is known, whatever comes of it."""
        facts = dataclasses.asdict(ask)
        marks = ", ".join("?" for _ in facts)
        self._write(f"INSERT INTO asks ({', '.join(facts)}) VALUES ({marks})", tuple(facts.values()))

    def asks(self) -> tuple[Ask, ...]:
        """In the order in which they ended."""
        names = ", ".join(field.name for field in dataclasses.fields(Ask))
        with self._legible():
            return tuple(Ask(*row) for row in self._db.execute(f"SELECT {names} FROM asks ORDER BY id"))

    def dawns(self) -> tuple[Dawn, ...]:
        """In their order."""
        with self._legible():
            rows = [dict(row) for row in self._db.execute("SELECT * FROM dawns ORDER BY number")]
            return tuple(Dawn(**row | {"findings": json.loads(row["findings"] or "null")}) for row in rows)

    def put_dawn(self, dawn: Dawn) -> None:
        """As it begins, goes on or ends."""
        facts = dataclasses.asdict(dawn) | {"findings": json.dumps(dawn.findings) if dawn.findings else None}
        self._write(f"REPLACE INTO dawns ({', '.join(facts)}) VALUES (?, ?, ?, ?, ?, ?)", tuple(facts.values()))

    def start_run(self, attempt: int, seed: int, boot: str = "", *, dawn: int = 0) -> int:
        """Before the process starts, so that a run that takes the machine down leaves its trace. Returns its id."""
        facts = (attempt, seed, boot, dawn)
        cursor = self._write("INSERT INTO runs (attempt, seed, boot, dawn) VALUES (?, ?, ?, ?)", facts)
        return int(cursor.lastrowid or 0)

    def end_run(self, run_id: int, run: Run) -> None:
        summary = json.dumps(dataclasses.asdict(run.summary)) if run.summary else None
        weights = json.dumps(dataclasses.asdict(run.weights)) if run.weights else None
        self._write(
            "UPDATE runs SET ending = ?, exit_code = ?, wall_s = ?, summary = ?, last_lines = ?, peak_bytes = ?,"
            " weights_bytes = ?, weights = ? WHERE id = ?",
            (
                *(run.ending, run.exit_code, run.wall_s, summary, run.last_lines, run.peak_bytes),
                *(run.weights_bytes, weights, run_id),
            ),
        )

    def record_score(self, attempt: int, seed: int, score: Score) -> None:
        self._write(
            "UPDATE runs SET val_bpb = ?, score_s = ?, failure = ?, overran = ?"
            " WHERE attempt = ? AND seed = ? AND ending = ?",
            (score.val_bpb, score.wall_s, score.failure, score.overran, attempt, seed, Ending.FINISHED),
        )

    def record_audit(self, attempt: int, seed: int, audit: Audit) -> None:
        self._write(
            "UPDATE runs SET audit = ? WHERE attempt = ? AND seed = ? AND ending = ?",
            (json.dumps(dataclasses.asdict(audit)), attempt, seed, Ending.FINISHED),
        )

    def record_holdout(self, attempt: int, seed: int, score: Score) -> None:
        self._write(
            "UPDATE runs SET holdout = ? WHERE attempt = ? AND seed = ? AND ending = ?",
            (json.dumps(dataclasses.asdict(score)), attempt, seed, Ending.FINISHED),
        )

    def record_decision(self, number: int, decision: Decision) -> None:
        """The first, or a later one in the light of more runs: what follows from it has to be settled then."""
        self._write(
            "UPDATE attempts SET kind = ?, status = ?, reason = ?, gain_bpb = ?, sure = ?, at_dawn = ?, settled = 0"
            " WHERE number = ?",
            (
                *(decision.kind, decision.status, decision.reason, decision.gain_bpb),
                decision.sure,
                decision.at_dawn,
                number,
            ),
        )

    def make_void(self, numbers: Iterable[int], why: str) -> None:
        """Undecide attempts that failed while the machine was broken: they are measured again on resume.

        All at once, for half of it would be a verdict without runs, or crashes that stay as such for good.
        """
        broken = "UPDATE runs SET ending = ?, last_lines = ? WHERE attempt = ? AND val_bpb IS NULL"
        broken += " AND ending IN (?, ?, ?, ?)"
        failed = (Ending.CRASHED, Ending.OVERRAN, Ending.EXCEEDED, Ending.FINISHED)
        undecided = "kind = NULL, status = NULL, reason = NULL, gain_bpb = NULL, sure = NULL, at_dawn = NULL"
        undecided += ", dry_run = NULL, settled = 0"
        with self._db:  # commits, or takes all of it back
            self._write("BEGIN", ())
            for number in numbers:
                self._write(broken, (Ending.BROKEN, why, number, *failed))
                self._write(f"UPDATE attempts SET {undecided} WHERE number = ?", (number,))

    def give_reserve(self) -> bool:
        """Make a little room on a full disk; False where there is none to be made."""
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            reserve.unlink(missing_ok=True)
        return reserve is not None

    def _write(self, statement: str, values: Sequence[object]) -> sqlite3.Cursor:
        """On a full disk with the reserve's room: what took five minutes to find out shall not be found out twice."""
        try:
            return self._db.execute(statement, values)
        except sqlite3.OperationalError as error:
            if not (disk_is_full(error) and self.give_reserve()):
                raise
            return self._db.execute(statement, values)

    def check_in_place(self) -> None:
        """Raises NightError when the file was removed or replaced: what is written from then on nobody will read."""
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
        self._write("UPDATE attempts SET settled = 1 WHERE number = ?", (number,))

    def mark_lost_runs(self, boot: str = "") -> int:
        """Runs that were going on when the harness died, or the machine with it; returns how many there were."""
        ended = "UPDATE runs SET ending = CASE boot WHEN ? THEN ? ELSE ? END WHERE ending IS NULL"
        return self._write(ended, (boot, Ending.LOST, Ending.FELLED)).rowcount

    @contextmanager
    def _legible(self) -> Iterator[None]:
        """Bad pages come out as errors of SQLite, or as records that make no sense."""
        try:
            yield
        except (sqlite3.Error, TypeError, ValueError, IndexError) as error:
            if disk_is_full(error) or disk_is_broken(error):
                raise
            raise NightError(f"{self._path} is damaged ({error}); move its folder away to go on without it") from error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    try:
        address = f"{path.absolute().as_uri()}?mode={mode}"
        database = sqlite3.connect(address, uri=True, isolation_level=None, timeout=LOCKED_S)
        version = database.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.OperationalError as error:
        if disk_is_full(error) or disk_is_broken(error):
            raise
        raise NightError(f"{path} cannot be opened ({error}); make it and its folder readable and writable") from error
    except sqlite3.Error as error:
        raise NightError(f"{path} is not a readable journal ({error}); move its folder away to begin anew") from error
    if version != VERSION:
        database.close()
        raise NightError(
            f"{path} has format {version}, this nightshift reads {VERSION}; use the release that wrote it, or begin "
            f"another night with --tag"
        )
    return database


def _attempt(row: sqlite3.Row, runs: tuple[Run, ...]) -> Attempt:
    return Attempt(
        number=row["number"],
        parent=row["parent"],
        proposal=_proposal(row),
        started=row["started"],
        commit=row["commit_sha"],
        dry_run=DryRun(**json.loads(row["dry_run"])) if row["dry_run"] else None,
        runs=runs,
        decision=_decision(row) if row["status"] else None,
        settled=bool(row["settled"]),
    )


def _proposal(row: sqlite3.Row) -> Proposal:
    words = row["script"], row["title"], row["hypothesis"], row["source"]
    return Proposal(*words, repairs=row["repairs"], without=tuple(json.loads(row["without"])))


def _decision(row: sqlite3.Row) -> Decision:
    return Decision(Kind(row["kind"]), row["reason"], row["gain_bpb"], row["sure"], row["at_dawn"])


def _run(row: sqlite3.Row) -> Run:
    """A run without an ending is shown as lost: either it is, or its night is still at it."""
    return Run(
        seed=row["seed"],
        ending=Ending(row["ending"] or Ending.LOST),
        exit_code=row["exit_code"],
        wall_s=float(row["wall_s"] or 0.0),
        summary=Summary(**json.loads(row["summary"])) if row["summary"] else None,
        last_lines=row["last_lines"] or "",
        weights_bytes=row["weights_bytes"],
        peak_bytes=row["peak_bytes"],
        score=_score(row) if row["score_s"] is not None else None,
        dawn=row["dawn"],
        holdout=_holdout(json.loads(row["holdout"])) if row["holdout"] else None,
        weights=Weights(**json.loads(row["weights"])) if row["weights"] else None,
    )


def _holdout(facts: dict[str, Any]) -> Score:
    return Score(**facts | {"audit": Audit(**facts["audit"]) if facts["audit"] else None})


def _score(row: sqlite3.Row) -> Score:
    val_bpb = row["val_bpb"]
    audit = Audit(**json.loads(row["audit"])) if row["audit"] else None
    return Score(
        None if val_bpb is None else float(val_bpb), float(row["score_s"]), row["failure"], audit, bool(row["overran"])
    )
