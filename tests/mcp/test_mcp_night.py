"""The tools that read and steer, on a real night."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_clients import Agent, agent_in
from nights import Grounds, make_repository, unigram

from agent.proposers.notes import read_notes

pytestmark = pytest.mark.slow
TAG = "t"
BEST = unigram(SHARPNESS=0.9)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Grounds]:
    """A repository in which a night has kept one edit and discarded another."""
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("mcp") / "user", unigram()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        crashes = unigram().replace("data = prepare", "assert False, 'no data'\n    data = prepare")
        grounds.try_scripts(TAG, [BEST, unigram(SHARPNESS=0.2), crashes])
        yield grounds


@pytest.fixture(scope="module")
def agent(night: Grounds) -> Iterator[Agent]:
    with agent_in(night.root) as one:
        yield one


def test_the_history_is_a_short_list(agent):
    found = agent.facts("history")
    rows = [(row["attempt"], row["status"]) for row in found["history"]]
    assert rows == [(0, "keep"), (1, "keep"), (2, "discard"), (3, "crash")]
    assert [row["parent"] == found["history"][1]["commit"] for row in found["history"]] == [False, False, True, True]
    assert found["history"][1]["description"] == "script 1"
    assert "reason" not in found["history"][3]  # which may quote a scoring process
    assert "script 2" in agent.facts("facts")["facts"]
    latest = agent.facts("history", limit=1)
    assert ([row["attempt"] for row in latest["history"]], latest["attempts"]) == ([3], 4)


def test_an_attempt_is_shown_with_its_log_and_its_edit(agent):
    shown = agent.facts("show", attempt="3")
    assert (shown["attempt"]["proposal"]["hypothesis"], shown["measured"]["status"]) == ("It might be better.", "crash")
    assert "AssertionError: no data" in shown["traceback"]
    assert "AssertionError: no data" in agent.facts("show", attempt="3", part="log")["text"]
    assert "+SHARPNESS = 0.9" in agent.facts("show", attempt="t:1", part="diff")["diff"]
    assert agent.error("show", attempt="99") == "night t has no attempt 99; there are: 0 to 3"


def test_the_best_script_is_read_and_taken(agent, night):
    best = agent.facts("show", part="script")
    assert (best["attempt"], best["script"]) == (1, BEST)
    assert agent.facts("status")["summary"]["best"]["number"] == 1
    script = night.root / "train_mlx.py"
    script.write_text("# an edit that nothing else keeps\n")
    taken = agent.facts("take", attempt="1")
    assert script.read_text() == BEST
    assert Path(taken["before_take"]).read_text() == "# an edit that nothing else keeps\n"
    assert agent.facts("take", attempt="best")["was_there"] is True


def test_hostile_words_stay_words(agent, night):
    before = sorted(path.name for path in night.root.parent.iterdir())
    agent.facts("note", text="--tag x")
    agent.facts("note", text="$(touch ../hacked); --help")
    assert read_notes(night.folder(TAG)) == ("--tag x", "$(touch ../hacked); --help")
    for tag in ("../../x", "--help", "-x", "t\nx", "/etc/passwd", "; id"):
        for tool in ("status", "history", "facts"):
            assert agent.call(tool, tag=tag).is_error
    assert sorted(path.name for path in night.root.parent.iterdir()) == before


def test_what_a_scoring_process_said_is_not_shown(agent, night):
    """A script prints the validation text while it is scored, for the next script to hold."""
    leaks = unigram(SHARPNESS=0.8).replace(
        "def load_model(", "def load_model(path):\n    raise ValueError('a se' + 'cret')\n\n\ndef loads("
    )
    night.try_scripts("leaks", [leaks])
    assert "a secret" in night.nightshift("show", "leaks:1").stdout  # which is for people
    with agent_in(night.root) as one:
        shown = one.facts("show", attempt="leaks:1")
        assert shown["measured"]["status"] == "crash"
        told = [one.facts(tool, tag="leaks") for tool in ("history", "facts", "status")]
        for facts in (shown, one.facts("show", attempt="leaks:1", part="log"), *told):
            assert "secret" not in json.dumps(facts)
