"""Tries in one repository take turns."""

from contextlib import ExitStack

import pytest

from agent.tries.turn import is_taken, turn
from agent.tries.worker import say_that_it_waits


def test_a_second_try_waits_for_the_first_and_says_so(tmp_path, capsys: pytest.CaptureFixture[str]):
    heard: list[str] = []
    with ExitStack() as first:
        first.enter_context(turn(tmp_path, lambda: heard.append("the first had to wait")))

        def wait_began() -> None:
            say_that_it_waits()
            heard.append("the second waits")
            first.close()

        with turn(tmp_path, wait_began):
            assert heard == ["the second waits"]
            assert is_taken(tmp_path)
    assert not is_taken(tmp_path)
    assert "this one waits for its turn" in capsys.readouterr().err
