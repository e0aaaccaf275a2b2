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
    assert "reason" not in found["history"][3]  # which may quote a scoring process
    assert "script 2" in agent.facts("facts")["facts"]
    latest = agent.facts("history", limit=1)
    assert ([row["attempt"] for row in latest["history"]], latest["attempts"]) == ([3], 4)


def test_hostile_words_stay_words(agent, night):
    before = sorted(path.name for path in night.root.parent.iterdir())
    agent.facts("note", text="--tag x")
    agent.facts("note", text="$(touch ../hacked); --help")
    assert read_notes(night.folder(TAG)) == ("--tag x", "$(touch ../hacked); --help")
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
