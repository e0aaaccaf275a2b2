"""A journal that came in a file from elsewhere: what in it is refused before anything is believed."""

import os
import shutil
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from samples import NIGHT, enter, every_outcome

from agent.archive import check_passive, check_records
from agent.errors import NightError
from agent.experiment import Idea, Proposal
from agent.records.journal import Journal

FILE = Path("night.tgz")
WITHOUT_END = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT x FROM t"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "journal.sqlite"
    with Journal.create(path, NIGHT) as journal:
        for attempt in every_outcome().attempts:
            enter(journal, attempt)
            journal.record_commit(attempt.number, f"{attempt.number}" * 40)
        journal.add_idea(Idea(0, 1, Proposal.of(os.urandom(100_000).hex(), "a long one that waits", "", "llm:model")))
    return path


def changed(written: Path, to: Path, statement: str) -> Path:
    shutil.copyfile(written, to)
    with closing(sqlite3.connect(to, isolation_level=None)) as database:
        database.create_function("pressed", 0, lambda: zlib.compress(bytes(20 << 20)))
        database.execute(statement)
    return to


def test_a_nights_own_journal_passes(written):
    check_passive(written, FILE)
    with Journal.read(written) as journal:
        check_records(journal, FILE)


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE VIEW more AS {WITHOUT_END}",
        "CREATE TRIGGER soon AFTER INSERT ON runs BEGIN UPDATE runs SET wall_s = 0; END",
        "ALTER TABLE night ADD COLUMN big ANY AS (zeroblob(999999999))",
        "CREATE INDEX slow ON runs (hex(zeroblob(attempt)))",
        "CREATE VIRTUAL TABLE words USING fts5(text)",
    ],
)
def test_a_journal_in_which_sqlite_would_compute_is_refused(written, tmp_path, statement):
    with pytest.raises(NightError, match=r"the journal in night.tgz has other tables than a night's; do not use it"):
        check_passive(changed(written, tmp_path / "journal.sqlite", statement), FILE)


def test_a_text_in_a_column_of_numbers_is_refused_though_the_tables_are_a_nights(written, tmp_path):
    path = Path(shutil.copyfile(written, tmp_path / "journal.sqlite"))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        (strict,) = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'runs'").fetchone()
        for sql in (strict.removesuffix(" STRICT"), strict):
            database.execute("PRAGMA writable_schema = ON")
            database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'runs'", (sql,))
            database.execute("PRAGMA writable_schema = RESET")
            if sql != strict:
                database.execute("UPDATE runs SET seed = '0/../../../mine'")
    with pytest.raises(NightError, match=r"the journal in night.tgz has .*runs.seed; do not use it"):
        check_passive(path, FILE)


def test_what_is_no_journal_is_refused(tmp_path):
    (tmp_path / "journal.sqlite").write_bytes(b"no journal" * 100)
    with pytest.raises(NightError, match="no readable journal"):
        check_passive(tmp_path / "journal.sqlite", FILE)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE night SET value = 'refs/heads/main-t' WHERE fact = 'branch'", "has refs/heads/main-t as branch"),
        ("UPDATE night SET value = '../train_mlx.py' WHERE fact = 'script'", "has ../train_mlx.py as script"),
        ("UPDATE night SET value = '.GIT/config' WHERE fact = 'script'", "has .GIT/config as script"),
        ("UPDATE night SET value = '../mine' WHERE fact = 'device_kind'", "is damaged .Invalid enum value"),
        ("UPDATE night SET value = '--output=/tmp/mine' WHERE fact = 'base'", "has --output=/tmp/mine as base"),
        ("UPDATE attempts SET \"commit\" = '--output=/tmp/mine' WHERE number = 1", "as a commit, which is none"),
        ("UPDATE attempts SET parent = number", "made from a later one"),
        ("UPDATE attempts SET merges = number", "made from a later one"),
        ("UPDATE attempts SET number = 99 WHERE number = 3", "lacks an attempt"),
        ("UPDATE ideas SET parent = 1000000", "tells of an attempt that it lacks"),
        ("UPDATE night SET value = '../../../mine' WHERE fact = 'protocol'", "as protocol"),
        ("UPDATE attempts SET title = printf('%200000s', 'x') WHERE number = 1", "has 200,000 characters as title"),
        ("UPDATE attempts SET without = printf('%.*c', 200000, '[')", "is damaged .maximum recursion depth"),
        ("UPDATE runs SET began = 'soon'", "has 'soon' in place of a time"),
        ('UPDATE runs SET summary = \'{"num_steps": "many"}\'', r"is damaged \(Expected `int \| null`"),
        ("UPDATE scripts SET packed = x'ffffffff'", "has a script that cannot be unpacked: Error -3"),
        ("UPDATE scripts SET packed = x''", "has a script that cannot be unpacked: it does not end within 16 MB"),
        ("UPDATE scripts SET packed = pressed()", "has a script that cannot be unpacked: it does not end within 16 MB"),
        ("UPDATE scripts SET packed = substr(packed, 1, length(packed) - 5)", "it does not end within 16 MB"),
        ("UPDATE scripts SET packed = x'789cfbff0f0002fe01fe'", "cannot be unpacked: 'utf-8' codec can't decode"),
        (
            "DELETE FROM scripts WHERE sha256 = (SELECT script FROM attempts)",
            "is damaged .Expected `bytes`, got `null`",
        ),
        ("DELETE FROM scripts WHERE sha256 = (SELECT script FROM ideas)", "is damaged .Expected `bytes`, got `null`"),
        ("UPDATE night SET value = '{\"sandbox\": \"none\"}' WHERE fact = 'options'", "is damaged .Invalid enum value"),
        ("UPDATE night SET value = '{\"judge\": \"lucky\"}' WHERE fact = 'options'", "names lucky as its judge, and"),
    ],
)
def test_records_that_lead_elsewhere_are_refused(written, tmp_path, statement, said):
    with (
        Journal.read(changed(written, tmp_path / "journal.sqlite", statement)) as journal,
        pytest.raises(NightError, match=said),
    ):
        check_records(journal, FILE)
