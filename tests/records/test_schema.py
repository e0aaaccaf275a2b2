"""Journals of an older format: read as they stand, brought to the present one where a night goes on."""

import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from samples import NIGHT

from agent.errors import NightError
from agent.experiment import Attempt, Ending, Kind, Proposal, Status, incumbent
from agent.records.journal import Journal
from agent.records.schema import MIGRATIONS, VERSION, kind_in_words

FORMAT_4 = Path(__file__).with_name("journal_4.sql")  # as the release that had it wrote it


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("format4") / "journal.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA journal_mode = WAL;" + FORMAT_4.read_text())
    return path


@pytest.fixture
def old(tmp_path, written):
    return Path(shutil.copy(written, tmp_path / "journal.sqlite"))


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def read(path: Path) -> tuple[Attempt, ...]:
    with Journal.read(path) as journal:
        return journal.attempts()


def columns(path: Path) -> dict[str, set[tuple[object, ...]]]:
    """Of every table and index: name, type, whether NULL is allowed, default, place in the key."""
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")]
        return {
            name: {row[1:] for row in database.execute(f"PRAGMA table_info({name})")}
            | set(database.execute(f"PRAGMA index_info({name})"))
            for name in names
        }


def test_every_format_since_4_leads_to_the_present_one():
    assert sorted(MIGRATIONS) == list(range(4, VERSION))


def test_an_old_journal_is_read_and_stays_as_it_is(old):
    before = old.read_bytes()
    with Journal.read(old) as journal:
        assert journal.night() == NIGHT
        assert len(journal.attempts()) == 8
        assert (journal.at_work(), journal.last_at_work()) == (7, "2026-01-02T03:07:00Z")
        assert (len(journal.dawns()), journal.asks()[0].tokens_out) == (1, 20)
        assert journal.asks()[0].tokens_cached is None
    assert old.read_bytes() == before
    assert version(old) == 4


def test_a_night_goes_on_in_the_present_format_and_its_old_journal_stays_beside_it(old):
    before = read(old)
    with Journal.resume(old) as journal:
        assert journal.attempts() == before
        assert journal.mark_lost_runs("boot") == 1
    assert (version(old), version(old.with_name("journal.sqlite.v4"))) == (VERSION, 4)
    assert len(read(old.with_name("journal.sqlite.v4"))) == 8
    assert sorted(left.name for left in old.parent.iterdir()) == ["journal.sqlite", "journal.sqlite.v4"]


def test_what_was_known_is_known(old):
    attempts = read(old)
    assert [one.kind for one in attempts] == [
        *(Kind.BASELINE, Kind.PROVISIONAL, Kind.WORSE, Kind.CRASHED, Kind.KEPT, Kind.QUESTION, Kind.QUARANTINED, None)
    ]
    assert [one.settled for one in attempts] == [True] * 6 + [False] * 2
    assert incumbent(attempts) == attempts[4]
    first, kept = attempts[0], attempts[1].decision
    assert (first.proposal.script, first.proposal.packed.fingerprint) == ("WIDTH = 64  # of the model\n", None)
    assert kept is not None
    assert kept.reason == "provisional: an estimated 0.050000 below its parent, 80% sure"
    assert kept.at_dawn == "at dawn +0.010000 by 1 run without it, it stays"
    assert (kept.gain_bpb, kept.sure, attempts[1].decisions[0].at) == (0.05, 0.8, None)
    run = first.runs[0]
    assert (run.worker, run.began, run.tokens_s, run.score is not None) == ("local", None, 50_000.0, True)
    assert attempts[7].runs[0].ending is Ending.LOST


def test_a_journal_of_format_6_gets_room_for_merges_and_keeps_all_else(old):
    with closing(sqlite3.connect(old)) as database:
        for begins in (4, 5):
            MIGRATIONS[begins](database, 6)
        database.execute("PRAGMA user_version = 6")
        database.commit()
    before = read(old)
    assert {one.proposal.merges for one in before} == {None}
    with Journal.resume(old) as journal:
        assert journal.attempts() == before
        journal.add_attempt(8, 4, Proposal("WIDTH = 9", "wider, merged", "", "search", merges=3), "now")
    assert (version(old), version(old.with_name("journal.sqlite.v6"))) == (VERSION, 6)
    assert [one.proposal.merges for one in read(old)] == [None] * 8 + [3]


def test_a_script_that_two_attempts_share_is_stored_once(old):
    with Journal.resume(old):
        pass
    with closing(sqlite3.connect(old)) as database:
        assert database.execute("SELECT count(*) FROM scripts").fetchone() == (7,)  # #5 is #1's
        purposes = database.execute("SELECT purpose, count(*), max(tokens_s) FROM runs GROUP BY purpose").fetchall()
    assert purposes == [("dawn", 2, 50_000.0), ("night", 8, 50_000.0)]


def test_a_migrated_journal_has_the_tables_of_one_that_is_opened_now(old, tmp_path):
    with Journal.resume(old), Journal.create(tmp_path / "new" / "journal.sqlite", NIGHT):
        pass
    assert columns(old) == columns(tmp_path / "new" / "journal.sqlite")


CALLS = ("connect", "execute", "executemany", "backup", "replace", "close")  # into SQLite, and to the file system


def dies_at(path: Path, call: int) -> bool:
    """Resume a journal in a process that is gone before its so manyth call; False where it came to its end."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = [call]

    def count(_: object, event: str, called: object) -> None:
        if event == "c_call" and getattr(called, "__name__", "") in CALLS:
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)

    try:
        sys.setprofile(count)
        Journal.resume(path).__exit__(None, None, None)
    finally:
        os._exit(0)


def test_a_kill_in_the_middle_leaves_a_journal_that_the_next_start_opens(written, tmp_path):
    whole = read(written)
    formats = set()
    for call in range(1, 1000, 7):
        path = Path(shutil.copy(written, tmp_path / "journal.sqlite"))
        died = dies_at(path, call)
        formats.add(version(path))
        assert read(path) == whole
        with Journal.resume(path) as journal:
            assert journal.attempts() == whole
        assert version(path) == VERSION
        for left in tmp_path.iterdir():
            left.unlink()
        if not died:
            break
    assert (died, formats) == (False, {4, VERSION})
    assert call > 30


def test_a_migration_that_fails_takes_all_of_it_back(old):
    with closing(sqlite3.connect(old)) as database:
        database.execute("UPDATE attempts SET status = 'maybe' WHERE number = 6")
        database.commit()
    with pytest.raises(
        NightError, match=r"journal.sqlite is damaged \('maybe' is not a valid Status\); move its folder"
    ):
        Journal.resume(old)
    with pytest.raises(NightError, match=r"journal.sqlite is damaged"):
        Journal.read(old)
    assert version(old) == 4


@pytest.mark.parametrize("damage", ["reason = NULL", "script = x'ff'"])
def test_a_damaged_journal_of_an_older_format_is_called_so(old, damage):
    with closing(sqlite3.connect(old)) as database:
        database.execute(f"UPDATE attempts SET {damage} WHERE number = 1")
        database.commit()
    for opened in (Journal.read, Journal.resume):
        with pytest.raises(NightError, match=r"journal.sqlite is damaged"):
            opened(old)
    assert version(old) == 4


@pytest.mark.parametrize("other", [3, VERSION + 1])
def test_formats_that_nothing_leads_from_are_refused(old, other):
    with closing(sqlite3.connect(old)) as database:
        database.execute(f"PRAGMA user_version = {other}")
    for opened in (Journal.read, Journal.resume):
        with pytest.raises(
            NightError, match=f"has format {other}, this nightshift reads 4 to {VERSION}; use the release"
        ):
            opened(old)


@pytest.mark.parametrize(
    ("status", "reason", "gain_bpb", "kind"),
    [
        (Status.KEEP, "0.010000 below the incumbent", None, Kind.KEPT),
        (Status.KEEP, "simpler: 9 fewer parameters, and an estimated 0.001 below its parent", 0.001, Kind.SIMPLER),
        (Status.KEEP, "confirmed at dawn: #3 without #2", None, Kind.ADOPTED),
        (Status.DISCARD, "made from #1, which is kept no more", None, Kind.ORPHANED),
        (Status.DISCARD, "made from #0, which is no longer the best script", None, Kind.STALE),
        (Status.DISCARD, "0.001000 below the incumbent, which may be luck", 0.001, Kind.LUCK),
        (Status.DISCARD, "an estimated 0.001000 below its parent, 60% sure of a gain", 0.001, Kind.LUCK),
        (Status.DISCARD, "revoked: an estimated 0.01 above its parent, 9% sure of a gain", -0.01, Kind.REVOKED),
        (Status.DISCARD, "with another seed: too slow to be scored: no end after 61 s", None, Kind.TOO_SLOW),
        (Status.CRASH, "dry run: scoring crashed", None, Kind.CRASHED),
    ],
)
def test_the_reasons_of_format_4_tell_the_kind(status, reason, gain_bpb, kind):
    assert kind_in_words(status, reason, gain_bpb) is kind
    assert kind.status is status
