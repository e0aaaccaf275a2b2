"""Counts and times read as people write them, at the edges as well."""

import pytest

from agent.amounts import budget, counted, duration


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
