"""results.tsv as a file: nobody's rows are lost."""

import os

import pytest
from samples import FOREIGN, HISTORY, NIGHT, UPSTREAM, put, render

from agent.errors import NightError
from agent.files import read_plain, write_plain
from agent.records.results import HEADER, lines_of, read_rows


def test_rendering_twice_changes_nothing():
    once = render("", [(NIGHT, HISTORY)])
    assert render(once, [(NIGHT, HISTORY)]) == once


def test_rows_of_other_nights_stay_verbatim_and_in_place():
    odd = "ffffff0\tnot a number\t\tKEEP\tan odd \u2028 row \x1c of twenty cells" + "\t" * 15
    mine = lines_of(NIGHT, HISTORY)
    before = "\n".join([HEADER, UPSTREAM, FOREIGN, *mine[:2], odd])  # no newline at the end
    after = render(before, [(NIGHT, HISTORY)]).split("\n")
    assert after == [HEADER, UPSTREAM, FOREIGN, *mine, odd, ""]


def test_bytes_that_are_no_utf8_survive(tmp_path):
    path = tmp_path / "results.tsv"
    path.write_bytes(UPSTREAM.encode() + b" \xff\r\n")
    put(path, (NIGHT, HISTORY))
    assert UPSTREAM.encode() + b" \xff\r\n" in path.read_bytes()


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "results.tsv")
    for use in (read_plain, read_rows, lambda path: write_plain(path, "text\n")):
        with pytest.raises(NightError, match=r"results\.tsv is no plain file; move it away"):
            use(tmp_path / "results.tsv")


def test_a_header_with_a_byte_order_mark_is_one():
    once = render("", [(NIGHT, HISTORY)])
    assert render(f"\ufeff{once}", [(NIGHT, HISTORY)]) == once
