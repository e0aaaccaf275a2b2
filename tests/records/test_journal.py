"""The journal: durable, readable meanwhile, and the same records out as went in."""

import dataclasses
import os
import sqlite3
from pathlib import Path

import pytest
from nights import mounted
from samples import NIGHT, RUN

from agent.errors import NightError
from agent.experiment import Dawn, Decision, DryRun, Ending, Kind, Proposal, Run, Score, Status
from agent.files import disk_is_broken, disk_is_full
from agent.records.journal import RESERVE_BYTES, VERSION, Journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "night" / "journal.sqlite"


@pytest.fixture
def journal(path):
    with Journal.create(path, NIGHT) as journal:
        yield journal


def propose(journal: Journal, number: int = 0) -> None:
    journal.add_attempt(number, None if number == 0 else 0, Proposal("A = 1", "title", "why", "you"), "now")


def test_a_night_comes_back_as_it_went_in(journal):
    assert journal.night() == NIGHT


def test_an_attempt_grows_step_by_step(journal):
    propose(journal)
    assert journal.attempt(0).commit is None
    journal.record_commit(0, "c" * 40)
    run_id = journal.start_run(0, 7)
    assert journal.attempt(0).runs[0].ending is Ending.LOST  # not ended: lost, should the harness die now
    journal.end_run(run_id, RUN)
    assert journal.attempt(0).runs == (RUN,)
    journal.record_score(0, 7, Score(1.25, 0.5))
    journal.record_decision(0, Decision(Kind.BASELINE, "baseline"))
    journal.settle(0)
    attempt = journal.attempt(0)
    assert (attempt.val_bpb, attempt.status, attempt.settled, attempt.commit) == (1.25, Status.KEEP, True, "c" * 40)


def test_what_overran_is_known_of_scores_and_dry_runs(journal):
    propose(journal)
    journal.end_run(journal.start_run(0, 7), RUN)
    for score in (Score(None, 61.0, "scoring was still running", overran=True), Score(1.25, 0.5)):
        journal.record_score(0, 7, score)
        assert journal.attempt(0).runs[0].score == score
    dry_run = DryRun(30.0, "still running", overran=True)
    journal.record_dry_run(0, dry_run)
    assert journal.attempt(0).dry_run == dry_run


def test_a_void_attempt_is_undecided_and_keeps_what_was_scored(journal):
    propose(journal)
    scored, cut, failed = RUN, Run(8, Ending.LOST, None, 0.0, None, ""), Run(8, Ending.CRASHED, 1, 2.0, None, "no GPU")
    for run in (scored, cut, failed):
        journal.end_run(journal.start_run(0, run.seed), run)
    journal.record_score(0, 7, Score(1.25, 0.5))
    journal.record_dry_run(0, DryRun(1.0, None))
    journal.record_decision(0, Decision(Kind.CRASHED, "no GPU"))
    journal.settle(0)
    journal.make_void([0], "not even attempt 0 trains here")
    attempt = journal.attempt(0)
    assert (attempt.decision, attempt.settled, attempt.dry_run) == (None, False, None)
    assert [run.ending for run in attempt.runs] == [Ending.FINISHED, Ending.LOST, Ending.BROKEN]
    assert [run.seed for run in attempt.done_runs] == [7]
    assert attempt.runs[-1].last_lines == "not even attempt 0 trains here"


def test_several_seeds_give_a_mean_and_a_spread(journal):
    propose(journal)
    for seed, bpb in ((0, 1.0), (1, 1.5)):
        run = Run(seed, Ending.FINISHED, 0, 1.0, None, "")
        journal.end_run(journal.start_run(0, seed), run)
        journal.record_score(0, seed, Score(bpb, 0.1))
    assert journal.attempt(0).val_bpb == 1.25
    assert journal.attempt(0).val_bpb_std == pytest.approx(0.3535534)


def test_an_interrupted_run_is_marked_lost_once(journal):
    propose(journal)
    journal.start_run(0, 0)
    assert journal.at_work() == 0
    assert journal.mark_lost_runs() == 1
    assert journal.at_work() is None
    assert journal.mark_lost_runs() == 0
    assert journal.attempt(0).done_runs == ()


def test_a_score_belongs_to_the_run_that_finished(journal):
    propose(journal)
    journal.start_run(0, 7)
    journal.mark_lost_runs()
    journal.end_run(journal.start_run(0, 7), RUN)
    journal.record_score(0, 7, Score(1.0, 0.1))
    assert [run.score for run in journal.attempt(0).runs] == [None, Score(1.0, 0.1)]


def test_a_number_cannot_be_used_twice(journal):
    propose(journal)
    with pytest.raises(sqlite3.IntegrityError):
        propose(journal)


def test_it_can_be_read_while_a_night_writes(journal, path):
    propose(journal)
    with Journal.read(path) as reader:
        propose(journal, 1)
        assert len(reader.attempts()) == 2
        with pytest.raises(sqlite3.OperationalError):
            propose(reader, 2)


def test_every_write_is_flushed_to_the_disk(journal):
    pragma = journal._db.execute
    assert pragma("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert pragma("PRAGMA synchronous").fetchone()[0] == 2  # FULL


def test_a_file_that_is_no_journal_is_named(path):
    path.parent.mkdir()
    path.write_text("not a database, but long enough to be looked at by SQLite, which wants a hundred bytes of header")
    with pytest.raises(NightError, match=r"journal.sqlite is not a readable journal"):
        Journal.resume(path)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET ending = 'in tears'",
        "UPDATE runs SET summary = '{half'",
        "UPDATE runs SET score_s = 'long', val_bpb = 1",
        "UPDATE attempts SET kind = 'maybe', status = 'maybe'",
        "DELETE FROM night WHERE fact = 'seed'",
        "ALTER TABLE runs DROP COLUMN seed",
    ],
)
def test_records_that_make_no_sense_are_damage(journal, path, damage):
    propose(journal)
    journal.end_run(journal.start_run(0, 7), RUN)
    journal._db.execute(damage)
    with (
        Journal.read(path) as reader,
        pytest.raises(NightError, match=r"journal.sqlite is damaged \(.*move its folder"),
    ):
        (reader.night(), reader.attempts())


def test_bad_pages_are_damage(journal, path):
    journal.__exit__(None, None, None)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with Journal.read(path) as reader:
        for question in (reader.night, reader.attempts, reader.last_at_work):
            with pytest.raises(NightError, match="is damaged"):
                question()


def test_a_journal_knows_when_it_was_last_at_work(journal):
    assert journal.last_at_work() == NIGHT.started
    journal.add_attempt(0, None, Proposal("A = 1", "title", "why", "you"), "2026-01-03T00:00:00Z")
    assert journal.last_at_work() == "2026-01-03T00:00:00Z"


def test_a_dawn_is_written_down_as_it_begins_and_as_it_ends(journal, path):
    begun = Dawn(1, 3, 4, "2026-01-03T00:00:00Z")
    journal.put_dawn(begun)
    assert journal.dawns() == (begun,)
    ended = dataclasses.replace(begun, fresh=8, ended="2026-01-03T01:00:00Z", findings={"champion": 3, "honest": None})
    journal.put_dawn(ended)
    journal.put_dawn(Dawn(2, 4, 4, "2026-01-04T00:00:00Z"))
    with Journal.read(path) as reader:
        assert reader.dawns() == (ended, Dawn(2, 4, 4, "2026-01-04T00:00:00Z"))


def test_a_journal_of_another_version_is_refused(journal, path):
    journal._db.execute("PRAGMA user_version = 99")
    with pytest.raises(NightError, match=f"has format 99, this nightshift reads {VERSION}"):
        Journal.read(path)


def test_what_a_killed_beginning_left_is_swept(path):
    path.parent.mkdir()
    for name in ("journal.sqlite.new", "journal.sqlite.new-journal"):
        (path.parent / name).write_text("half of something")
    with Journal.create(path, NIGHT) as journal:
        assert journal.night() == NIGHT
    assert [left.name for left in path.parent.iterdir()] == ["journal.sqlite"]


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/proc/mounts").exists(), reason="mounts a small disk")
def test_a_full_disk_takes_the_last_facts_in_the_room_of_the_reserve(tmp_path):
    with mounted(tmp_path / "small", f"size={RESERVE_BYTES + (1 << 20)}") as small:
        fill_to_the_last(small)


def add(journal: Journal, numbers: range, proposal: Proposal) -> None:
    for number in numbers:
        journal.add_attempt(number, None, proposal, "now")


def fill_to_the_last(small: Path) -> None:
    with Journal.create(small / "journal.sqlite", NIGHT) as journal:
        written = 0
        while (small / "reserve").exists():
            proposal = Proposal("A" * 100_000, "title", "why", "you")
            journal.add_attempt(written, None, proposal, "now")
            written += 1
        assert len(journal.attempts()) == written
        with pytest.raises(sqlite3.OperationalError, match="full"):  # the reserve does not last for ever
            add(journal, range(written, written + 100), proposal)
        whole = len(journal.attempts())
    with pytest.raises(OSError, match="No space left"):
        Journal.resume(small / "journal.sqlite")
    with Journal.read(small / "journal.sqlite") as journal:
        assert len(journal.attempts()) == whole


def test_full_and_broken_disks_are_told_apart():
    assert disk_is_full(sqlite3.OperationalError("database or disk is full"))
    assert disk_is_full(OSError(28, "No space left on device"))
    assert disk_is_broken(sqlite3.OperationalError("disk I/O error"))
    assert disk_is_broken(OSError(5, "Input/output error"))
    assert not disk_is_full(OSError(5, "Input/output error"))
