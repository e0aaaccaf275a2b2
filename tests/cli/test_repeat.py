"""The command that goes on: whole, and for as long again."""

import argparse

import pytest
from judged import scored_attempt

from agent.cli.options import parser
from agent.cli.repeat import run_on

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


@pytest.mark.parametrize(("asked", "wanted"), [("0", "0"), ("4", "9"), ("5", "10"), ("6", "6")])
def test_so_does_its_dawn_whose_runs_are_counted_over_the_night(asked, wanted):
    confirmed = [scored_attempt(0, 1.0, dawn=(1.0, 1.0, 1.0)), scored_attempt(1, 0.9, parent=0, dawn=(0.9, 0.9))]
    assert run_on(options("--dawn", asked), "t", confirmed).endswith(f" --tag t --dawn {wanted}")
