"""A journal of another format is refused in one sentence that names the format and the remedy."""

import sqlite3
from contextlib import closing

import pytest
from samples import NIGHT

from agent.errors import NightError
from agent.records.journal import VERSION, Journal


@pytest.mark.parametrize("other", [VERSION - 1, VERSION + 1])
def test_another_format_is_refused_and_the_file_stays_as_it_is(tmp_path, other):
    path = tmp_path / "journal.sqlite"
    with Journal.create(path, NIGHT):
        pass
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {other}")
    before = path.read_bytes()
    for opened in (Journal.read, Journal.resume):
        with pytest.raises(NightError, match=f"has format {other}, this nightshift reads {VERSION}; .* with --tag"):
            opened(path)
    assert path.read_bytes() == before
