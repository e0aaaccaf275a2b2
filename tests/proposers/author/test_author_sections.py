"""When room is short, the least important part of a question is shortened, and then left out."""

import pytest
from briefings import told

from agent.proposers.author.excerpts import Section, cut, fit
from agent.proposers.llm.prompt import CHANGING, STABLE


def section(title: str, worth: int, least_chars: int = 2) -> Section:
    return Section(title, lambda briefing, most: title * min(most, 10), worth, least_chars, 10)


def test_with_enough_room_all_is_told_in_the_order_of_the_table():
    assert list(fit((section("b", 1), section("a", 2)), told(), 20).items()) == [("b", "b" * 10), ("a", "a" * 10)]


def test_the_least_important_is_shortened_first_each_to_its_least_and_then_left_out_first():
    parts = section("a", 3), section("b", 1), section("c", 2)
    assert fit(parts, told(), 25) == {"a": "a" * 10, "b": "b" * 5, "c": "c" * 10}
    assert fit(parts, told(), 15) == {"a": "a" * 10, "b": "b" * 2, "c": "c" * 3}
    assert fit(parts, told(), 6) == {"a": "a" * 2, "b": "b" * 2, "c": "c" * 2}
    assert fit(parts, told(), 5) == {"a": "a" * 2, "c": "c" * 2}
    assert fit(parts, told(), 1) == {}


@pytest.mark.parametrize(
    ("table", "order"),
    [
        (STABLE, ("What the script may call", "Program", "The night")),
        (
            CHANGING,
            (
                *("Edits", "Known ideas", "Loss curves", "Dials", "Attempts"),
                *("Turned down just now, before it cost a run", "Notes from the owner", "So far"),
            ),
        ),
    ],
)
def test_parts_of_the_prompt_are_dropped_in_this_order(table, order):
    dropped: list[str] = []
    for room in range(12_000, -1, -100):
        left = fit(table, told(), room)
        dropped += [title for title in order if title not in left and title not in dropped]
    assert tuple(dropped) == order


def test_a_cut_text_says_so():
    assert cut("short", 10) == "short"
    assert cut("x" * 99, 50) == "x" * 25 + "\n[… cut at 50 characters]"
