"""The command that goes on: whole, and for as long again."""

import argparse

import pytest
from judged import scored_attempt

from agent.options import parser
from agent.repeat import run_on

HISTORY = [scored_attempt(number, 1.0) for number in range(4)]


def options(*words: str) -> argparse.Namespace:
    return parser().parse_args(["run", *words])


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([], ""),
        (["--judge", "greedy", "--budget-s", "30", "--llm", "openai:gpt-5"], ""),  # facts of the night
        (["--experiments", "3"], " --experiments 6"),
        (["--experiments=2"], " --experiments 5"),
        (["--experiments", "9"], " --experiments 9"),  # it was stopped before
        (["--hours", "8", "--dawn", "3"], " --hours 8 --dawn 3"),
        (["--script", "lab/my script.py"], " --script 'lab/my script.py'"),
    ],
)
def test_a_night_goes_on_for_as_long_again(words, wanted):
    assert run_on(options(*words), "t", HISTORY).endswith(f"nightshift run --tag t{wanted}")
