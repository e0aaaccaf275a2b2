"""No text of a proposer ends a night, or hides from the person who reads it."""

import dataclasses
import unicodedata

import pytest
from nights import Scripted, scripted_context, unigram

from agent.experiment import Proposal
from agent.night.loop import run_night
from agent.proposers.briefing import Briefing
from agent.text import (
    INVISIBLE,
    budget,
    counted,
    diff_lines,
    duration,
    harmless,
    harmless_lines,
    one_line,
    paragraphs,
    percent_sure,
    shorten,
)
from agent.view.screen import Column, shown, table_lines
from agent.view.terminal import fact_lines

WIPES = "\x1b[1A\x1b[2K"  # the line above, and this one
NASTY = f"nul \x00, half \ud800, {WIPES}, {chr(0x202E)}backwards\r\nsecond\u2028third"


def test_what_is_seen_stays_as_it_is():
    text = "tschüß 中文 אב Δ\t→ 🙂"
    assert harmless(text) == text


def test_every_other_character_is_a_code():
    for code in range(0x110000):
        shown = harmless(chr(code))
        assert shown.isprintable() or code == 9
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp") and code != 9:
            assert shown.isascii(), hex(code)
    assert [harmless(one) for one in "\x1b\r\u202e\u200b\u00a0"] == [r"\x1b", r"\r", r"\u202e", r"\u200b", r"\xa0"]
    assert all(harmless(one).startswith("\\") for one in INVISIBLE)


def test_an_estimate_is_never_called_certain():
    shares = (0.0, 0.004, 0.01, 0.5, 0.984, 0.99, 0.994, 0.9999, 1.0)
    assert [percent_sure(one) for one in shares] == ["<1%", "<1%", "1%", "50%", "98%", "99%", ">99%", ">99%", ">99%"]


def test_lines_stay_lines():
    assert harmless_lines("one\r\n\ttwo\n\x1b\n") == "one\\r\n\ttwo\n\\x1b\n"
    assert one_line(" one\r\n\ttwo\x85three\x1cfour ", 99) == "one two three four"
    assert paragraphs("\n one \r\n\n\ttwo\x0cthree\n ", 99) == "one\n\n\ttwo\nthree"


def test_a_text_that_is_cut_says_so():
    assert one_line("x" * 200, 200) == "x" * 200
    assert one_line("x" * 201, 200) == "x" * 199 + "…"
    assert len(paragraphs("\x00" * 9999, 4000)) == 4000


def test_a_text_is_cut_between_words():
    text = "warm up longer, since early steps diverge"
    for most in range(1, len(text) + 3):
        short = shorten(text, most)
        assert len(short) <= most
        assert one_line(text, most) == paragraphs(text, most) == short
        if 12 <= most < len(text):
            assert short.endswith("…")
            assert text[len(short) - 1] in " ,"  # what follows in the text: a word was not cut
    assert short == text


def test_a_word_that_takes_half_of_the_room_is_cut():
    assert shorten("a " + "b" * 30, 20) == "a " + "b" * 17 + "…"


def test_a_diff_has_the_changed_lines_alone_and_one_of_many_lines_that_are_alike_is_not_searched_for_equal_ones():
    before, after = ["a", "b", "c", "d", "e", "f"], ["a", "b", "c", "d", "E", "f"]
    found = diff_lines(before, after, "one", "two", context=1)
    assert found == ["--- one", "+++ two", "@@ -4,3 +4,3 @@", " d", "-e", "+E", " f"]
    alike, other = ([f"x = {at * step % 130}" for at in range(30_000)] for step in (1, 7))  # else this takes minutes
    found = diff_lines(["top", *alike, "end"], ["top", *other, "end"])
    assert found[:3] == ["--- ", "+++ ", "@@ -3,29999 +3,29999 @@"]
    assert found[3:] == [*(f"-{line}" for line in alike[1:]), *(f"+{line}" for line in other[1:])]


class Nasty(Scripted):
    def ideas(self, briefing: Briefing) -> list[Proposal]:
        plain = super().ideas(briefing)[0]
        odd = (("", "", ""), (NASTY, f"{NASTY}\nnext", NASTY), ("t" * 10**6, "h" * 10**6, "s" * 10**6))
        title, hypothesis, source = odd[len(briefing.history) - 1]
        return [Proposal.of(plain.script, title, hypothesis, source)]


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_no_title_ends_a_night_and_no_script_hides_from_who_reads_its_diff(grounds):
    hiding = unigram(SHARPNESS=0.3) + f"evil = 1\n# {WIPES}{chr(0x202E)}\tharmless\u200b\n"
    with scripted_context(grounds.root, "t", [unigram(SHARPNESS=0.2), hiding, unigram(SHARPNESS=0.4)]) as context:
        run_night(dataclasses.replace(context, proposer=Nasty(context.proposer.scripts)))
    attempts = grounds.attempts("t")
    assert [one.settled for one in attempts] == [True] * 4
    assert (attempts[1].proposal.title, attempts[1].proposal.source) == ("untitled", "unknown")
    assert attempts[2].proposal.title == (r"nul \x00, half \ud800, \x1b[1A\x1b[2K, \u202ebackwards second third")
    assert [len(part) for part in (attempts[3].proposal.title, attempts[3].proposal.hypothesis)] == [200, 4000]

    edit = grounds.nightshift("show", "2", "--diff").stdout
    assert "+evil = 1\n" in edit
    assert "+# \\x1b[1A\\x1b[2K\\u202e\tharmless\\u200b\n" in edit
    for question in (["show", "2"], ["show", "3"], ["results"], ["status"], ["show", "3", "--diff"]):
        answer = grounds.nightshift(*question)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert all(one.isprintable() or one in "\n\t" for one in answer.stdout)


# ---- counts and times ----


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (89, "1 min"), (3569, "59 min"), (3599, "1 h 00 min")),
        *((3660, "1 h 01 min"), (90_000, "25 h 00 min")),
    ],
)
def test_a_time_has_the_two_units_that_matter(seconds, words):
    assert duration(seconds / 3600) == words


def test_a_budget_is_told_in_minutes_where_it_has_whole_ones():
    assert [budget(seconds) for seconds in (0.5, 40.0, 60.0, 90.0, 300.0)] == [
        "0.5 s",
        "40 s",
        "1 min",
        "90 s",
        "5 min",
    ]


def test_a_noun_agrees_with_its_number():
    numbers = (0, 1, 2, 1_000_000, 0.5)
    assert [counted(number, "hour") for number in numbers] == [
        *("0 hours", "1 hour", "2 hours", "1,000,000 hours", "0.5 hours"),
    ]


@pytest.mark.parametrize(
    ("hostile", "seen"),
    [
        ("a\x1b[2Kb", r"a\x1b[2Kb"),  # wipes the line
        ("a\x9b2Kb", r"a\x9b2Kb"),  # the same in one byte
        ("a\rb", r"a\rb"),
        ("a\x08b", r"a\x08b"),
        ("a\x00b", r"a\x00b"),
        (f"a{chr(0x202E)}b", r"a\u202eb"),  # writes from right to left
        (f"a{chr(0x200B)}b", r"a\u200bb"),  # has no width
        (f"a{chr(0xFE0F)}b", r"a\ufe0fb"),
        ("a\ud800b", r"a\ud800b"),  # no file can hold it
        ("<b>[red]a[/]", "<b>[red]a[/]"),  # markup is no matter of characters: screens and pages quote it
    ],
)
def test_hostile_text_is_harmless_on_every_way_to_a_screen(hostile, seen):
    assert harmless(hostile) == seen
    assert harmless_lines(f"{hostile}\n{hostile}") == f"{seen}\n{seen}"
    assert table_lines([Column("title")], [[hostile]])[1] == seen
    assert fact_lines("title", hostile, 80)[0].plain == f"title       {seen}"
    if "\r" not in hostile:  # which one_line takes for a blank
        assert one_line(hostile, 80) == shown(hostile) == seen
