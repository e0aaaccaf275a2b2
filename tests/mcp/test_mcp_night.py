"""The tools that read and steer, on a real night."""

import json
from collections.abc import Iterator

import pytest
from mcp_clients import Agent, agent_in
from nights import Grounds, unigram

from agent.proposers.notes import read_notes

pytestmark = pytest.mark.slow


@pytest.fixture
def night(grounds: Grounds) -> Grounds:
    """A night of one edit, which prints the validation text while it is scored, for the next script to hold."""
    leaks = unigram().replace(
        "def load_model(", "def load_model(path):\n    raise ValueError('a se' + 'cret')\n\n\ndef loads("
    )
    grounds.try_scripts("t", [leaks])
    return grounds


@pytest.fixture
def agent(night: Grounds) -> Iterator[Agent]:
    with agent_in(night.root) as one:
        yield one


def test_hostile_words_stay_words(agent, night):
    for text in ("--tag x", "$(touch ../hacked); --help"):
        agent.facts("note", text=text)
    assert read_notes(night.folder("t")) == ("--tag x", "$(touch ../hacked); --help")
    assert not (night.root.parent / "hacked").exists()


def test_what_a_scoring_process_said_is_not_shown(agent, night):
    assert "a secret" in night.nightshift("show", "1").stdout  # people may read it
    answers = [agent.facts(tool) for tool in ("history", "facts", "status")]
    answers += [agent.facts("show", attempt="1", part=part) for part in ("facts", "log")]
    assert answers[3]["measured"]["status"] == "crash"
    assert "secret" not in json.dumps(answers)
