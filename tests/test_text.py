"""No text of a proposer ends a night, or hides from the person who reads it."""

import unicodedata

from agent.experiment import Proposal
from agent.text import (
    diff_lines,
    duration,
    harmless,
    harmless_lines,
    one_line,
    paragraphs,
    percent_sure,
    shorten,
)
from agent.view.screen import Column, table_lines
from agent.view.terminal import fact_lines


def test_every_other_character_is_a_code():
    for code in (*range(0x3000), *range(0xD7F0, 0xE100), *range(0xFE00, 0x10000), *range(0xE0000, 0xE0200)):
        shown = harmless(chr(code))
        assert shown.isprintable() or code == 9
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp") and code != 9:
            assert shown.isascii(), hex(code)
    assert harmless("tschüß 中文 אב Δ\t→ 🙂") == "tschüß 中文 אב Δ\t→ 🙂"
    invisible = (0x34F, 0x115F, 0x180B, 0x2800, 0x3164, 0xFE0F, 0xFFA0, 0xE0100, 0xE01EF)
    assert all(harmless(chr(code)).startswith("\\") for code in invisible)


def test_lines_stay_lines():
    assert harmless_lines("one\r\n\ttwo\n\x1b\n") == "one\\r\n\ttwo\n\\x1b\n"
    assert one_line(" one\r\n\ttwo\x85three\x1cfour ", 99) == "one two three four"
    assert paragraphs("\n one \r\n\n\ttwo\x0cthree\n ", 99) == "one\n\n\ttwo\nthree"


def test_a_text_is_cut_between_words():
    text = "warm up longer, since early steps diverge"
    for most in range(1, len(text) + 3):
        short = shorten(text, most)
        assert len(short) <= most
        assert one_line(text, most) == paragraphs(text, most) == short
        if 12 <= most < len(text):
            assert short.endswith("…")
            assert text[len(short) - 1] in " ,"  # the cut is at the end of a word
    assert short == text
    assert shorten("a " + "b" * 30, 20) == "a " + "b" * 17 + "…"  # a word that takes half of the room is cut


def test_a_diff_has_the_changed_lines_alone_and_one_of_many_lines_that_are_alike_is_not_searched_for_equal_ones():
    before, after = ["a", "b", "c", "d", "e", "f"], ["a", "b", "c", "d", "E", "f"]
    lines = diff_lines(before, after, "one", "two", context=1)
    assert lines == ["--- one", "+++ two", "@@ -4,3 +4,3 @@", " d", "-e", "+E", " f"]
    alike, other = ([f"x = {at * step % 130}" for at in range(30_000)] for step in (1, 7))  # slow to compare
    lines = diff_lines(["top", *alike, "end"], ["top", *other, "end"])
    assert lines[:3] == ["--- ", "+++ ", "@@ -3,29999 +3,29999 @@"]
    assert lines[3:] == [*(f"-{line}" for line in alike[1:]), *(f"+{line}" for line in other[1:])]


def test_counts_times_and_shares_read_as_a_person_writes_them():
    assert [duration(seconds / 3600) for seconds in (0, 59.6, 3599)] == ["0 s", "1 min", "1 h 00 min"]
    assert [percent_sure(share) for share in (0.0, 0.5, 0.99, 1.0)] == ["<1%", "50%", "99%", ">99%"]  # never certain


def test_hostile_text_is_harmless_on_every_way_to_a_screen():
    hostile = f"a\x1b[2J\x00{chr(0x202E)}{chr(0x200B)}\ud800<b>[red]"  # pages and screens quote markup themselves
    seen = r"a\x1b[2J\x00\u202e\u200b\ud800<b>[red]"
    assert harmless_lines(f"{hostile}\n{hostile}") == f"{seen}\n{seen}"
    assert table_lines([Column("title")], [[hostile]])[1] == seen
    assert fact_lines("title", hostile)[0].plain == f"title         {seen}"
    made = Proposal.of("", hostile, "h" * 10**6, "")
    assert (made.title, len(made.hypothesis), made.proposer) == (seen, 4000, "unknown")
    assert one_line(hostile, 80) == seen
