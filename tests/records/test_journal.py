"""The journal: durable, readable meanwhile, and the same records out as went in."""

import dataclasses
import os
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from nights import mounted
from samples import NIGHT, RUN

from agent.clock import utc_now
from agent.errors import NightError
from agent.experiment import Audit, Decision, DryRun, Ending, Kind, Proposal, Run, Score, Status, best_of
from agent.records.journal import RESERVE_BYTES, VERSION, Journal
from agent.work import Doing, Work

BASELINE = Decision(Kind.BASELINE, "baseline")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "night" / "journal.sqlite"


@pytest.fixture
def journal(path):
    with Journal.create(path, NIGHT) as journal:
        yield journal


def propose(journal: Journal, number: int = 0) -> None:
    journal.add_attempt(number, None if number == 0 else 0, Proposal.of("A = 1", "title", "why", "you"), "now")


def test_an_attempt_grows_step_by_step(journal):
    propose(journal)
    journal.record_commit(0, "c" * 40)
    runs = [dataclasses.replace(RUN, seed=seed, score=Score(bpb, 0.5)) for seed, bpb in ((7, 1.0), (8, 1.5))]
    begun = [journal.start_run(0, run.seed) for run in runs]
    assert [run.ending for run in journal.attempt(0).runs] == [Ending.RUNNING] * 2
    for run_id, run in zip(begun, runs, strict=True):
        journal.end_run(run_id, run)
    assert journal.attempt(0).runs == tuple(runs)
    journal.record_decision(0, BASELINE)
    journal.settle(0)
    attempt = journal.attempt(0)
    assert (attempt.val_bpb, attempt.status, attempt.settled, attempt.commit) == (1.25, Status.KEEP, True, "c" * 40)


def test_an_invalid_attempt_is_undecided_and_keeps_what_was_scored(journal):
    propose(journal)
    scored = dataclasses.replace(RUN, score=Score(1.25, 0.5))
    cut, failed = Run(8, Ending.LOST, None, 0.0, None, ""), Run(8, Ending.CRASHED, 1, 2.0, None, "no GPU")
    for run in (scored, cut, failed):
        journal.end_run(journal.start_run(0, run.seed), run)
    journal.record_dry_run(0, DryRun(1.0, None))
    journal.record_decision(0, Decision(Kind.CRASHED, "no GPU"))
    journal.settle(0)
    journal.invalidate([0], "not even attempt 0 trains here")
    attempt = journal.attempt(0)
    assert (attempt.decision, attempt.settled, attempt.dry_run) == (None, False, None)
    assert [run.ending for run in attempt.runs] == [Ending.FINISHED, Ending.LOST, Ending.BROKEN]
    assert [run.seed for run in attempt.done_runs] == [7]
    assert [decision.kind for decision in attempt.decisions] == [Kind.CRASHED, Kind.INVALID]


def test_decisions_are_appended_with_their_times_and_the_last_one_holds(journal, path):
    for number, decision in ((0, BASELINE), (1, Decision(Kind.PROVISIONAL, "lower", 0.1, 0.8))):
        propose(journal, number)
        journal.record_decision(number, decision)
        journal.settle(number)
    before = journal.attempt(1).decisions
    assert best_of(journal.attempts()) == journal.attempt(1)
    revoked = Decision(Kind.REVOKED, "revoked: it was luck", -0.01, 0.2)
    journal.record_decision(1, revoked)
    with Journal.read(path) as reader:
        attempt = reader.attempts()[1]
        assert (attempt.decision, attempt.settled, attempt.decisions[:-1]) == (revoked, False, before)
        assert attempt.decisions[-1] == revoked
        assert best_of(reader.attempts()) == reader.attempt(0)
        with pytest.raises(sqlite3.OperationalError):
            propose(reader, 2)
    journal.settle(1)
    assert journal.attempt(1).settled


def test_a_script_is_stored_once(journal):
    for number, script in enumerate(("A = 1", "A = 1", "\ud800")):  # the last as a proposer's JSON may have it
        journal.add_attempt(number, None, Proposal.of(script, "title", "why", "you"), "now")
    with Journal.read(journal._path) as reader:
        scripts = [attempt.proposal.script for attempt in reader.attempts()]
    assert scripts == ["A = 1", "A = 1", "\ud800"]
    assert journal.query("SELECT count(*) FROM scripts")[0][0] == 2


def test_an_audit_belongs_to_the_run_that_finished(journal):
    propose(journal)
    journal.start_run(0, 7)
    journal.mark_lost_runs()
    score, audit = Score(1.0, 0.1), Audit(4, 0.0, 2.5)
    journal.end_run(journal.start_run(0, 7), dataclasses.replace(RUN, score=score))
    journal.record_audit(0, 7, audit)
    lost, run = journal.attempt(0).runs
    assert (lost.ending, run.score) == (Ending.LOST, dataclasses.replace(score, audit=audit))


def test_a_step_that_fails_leaves_no_half_of_it(journal):
    propose(journal)
    with pytest.raises(sqlite3.IntegrityError):  # the script is in by then, and the number is taken
        journal.add_attempt(0, None, Proposal.of("A = 2", "title", "why", "you"), "now")
    assert journal.query("SELECT count(*) FROM scripts")[0][0] == 1


def test_every_write_is_flushed_to_the_disk(journal):
    pragma = journal._db.execute
    assert pragma("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert pragma("PRAGMA synchronous").fetchone()[0] == 2  # FULL


TEXT = "not a database, but long enough to be looked at by SQLite, which wants a hundred bytes of header"


@pytest.mark.parametrize("leave", [lambda path: path.write_text(TEXT), Path.mkdir, os.mkfifo])
def test_what_is_no_journal_is_named(path, leave):
    path.parent.mkdir()
    leave(path)
    with pytest.raises(NightError, match=r"journal.sqlite is no journal that can be opened"):
        Journal.read(path)


def test_another_format_is_refused_and_the_file_stays_as_it_is(path):
    with Journal.create(path, NIGHT):
        pass
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {VERSION - 1}")
    before = path.read_bytes()
    for opened in (Journal.read, Journal.resume):
        with pytest.raises(NightError, match=f"has format {VERSION - 1}, this nightshift reads {VERSION}; "):
            opened(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET ending = 'in tears'",
        'UPDATE runs SET score = \'{"val_bpb": "low", "wall_s": 1}\'',
        "DELETE FROM night WHERE fact = 'seed'",
        "DELETE FROM scripts",
        "UPDATE attempts SET parent = 77",
        "UPDATE attempts SET parent = -1",
        "PRAGMA foreign_keys = OFF; UPDATE attempts SET number = 99",
        "UPDATE work SET began = 'soon'",
        "UPDATE work SET began = '2026-01-31T23:59:59'",
    ],
)
def test_records_that_make_no_sense_are_damage(journal, path, damage):
    propose(journal)
    journal.end_run(journal.start_run(0, 7), RUN)
    journal.record_decision(0, Decision(Kind.BASELINE, "baseline"))
    journal.begin(Work("local", Doing.SCORING, 0, utc_now()))
    journal._db.executescript(damage)
    with (
        Journal.read(path) as reader,
        pytest.raises(NightError, match=r"journal.sqlite is damaged \(.*move its folder"),
    ):
        (reader.night(), reader.attempts(), reader.work())


@pytest.mark.parametrize(
    "packed", [b"x", zlib.compress(b"\xff"), zlib.compress(b"x")[:-1], zlib.compress(bytes(17 << 20))]
)
def test_a_damaged_script_is_told_where_it_is_read(journal, packed):
    propose(journal)
    journal._db.execute("UPDATE scripts SET packed = ?", (packed,))
    proposal = journal.attempt(0).proposal
    with pytest.raises(NightError, match=r"the script of 'title' is damaged in the journal \("):
        _ = proposal.script


def test_what_a_worker_does_is_told_from_its_beginning_to_its_end(journal):
    propose(journal)
    now = utc_now()
    training, scoring = Work("a", Doing.TRAINING, 0, now, 7), Work("b", Doing.SCORING, 0, now, 8, confirmation=1)
    for work in (Work("a", Doing.DRY_RUN, 0, now), training, scoring):
        journal.begin(work)
    assert journal.work() == (training, scoring)
    journal.rest("a")
    assert journal.work() == (scoring,)
    journal._db.executescript("PRAGMA foreign_keys = OFF; UPDATE work SET attempt = 99")  # a foreign journal may say so
    assert journal.work() == ()
    journal.record_call()  # a killed call left it
    assert journal.work() == ()


def fill(journal: Journal, has_room: Callable[[], bool]) -> None:
    while has_room():
        incompressible = Proposal.of(os.urandom(100_000).hex(), "title", "why", "you")
        journal.add_attempt(len(journal.attempts()), None, incompressible, "now")


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/proc/mounts").exists(), reason="mounts a small disk")
def test_a_full_disk_takes_the_last_facts_in_the_room_of_the_reserve(tmp_path):
    with mounted(tmp_path / "small", f"size={RESERVE_BYTES + (1 << 20)}") as small:
        with Journal.create(small / "journal.sqlite", NIGHT) as journal:
            fill(journal, (small / "reserve").exists)
            with pytest.raises(sqlite3.OperationalError, match="full"):  # the reserve is used up
                fill(journal, lambda: True)
            whole = len(journal.attempts())
        with pytest.raises(OSError, match="No space left"):
            Journal.resume(small / "journal.sqlite")
        with Journal.read(small / "journal.sqlite") as journal:
            assert len(journal.attempts()) == whole
