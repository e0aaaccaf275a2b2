"""Tries through MCP: started, followed, cancelled, by two clients at once, and after their client has died."""

import os
import signal
from typing import Any

import psutil
import pytest
from commands import training, wait_until
from mcp.shared.exceptions import MCPError
from mcp_clients import Agent, agent_in
from nights import Grounds, unigram

pytestmark = pytest.mark.slow
TAG = "t"
LONG_S = 600.0
SHARPER = unigram(SHARPNESS=0.9)


@pytest.fixture
def night(grounds: Grounds) -> Grounds:
    """A repository with a night of short runs, which later tries go on with as it was opened."""
    grounds.try_scripts(TAG, [])
    return grounds


@pytest.fixture
def long_night(grounds: Grounds) -> Grounds:
    """As night(), with runs that take some seconds."""
    grounds.try_scripts(TAG, [], budget_s=4.0)
    return grounds


def edit(grounds: Grounds, script: str) -> None:
    (grounds.root / "train_mlx.py").write_text(script)


def verdict(agent: Agent, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call, and wait for as long as it takes."""
    facts = agent.facts(tool, **arguments)
    while facts.get("state") in ("waiting", "running"):
        facts = agent.facts("wait", id=facts["id"], wait_s=LONG_S)
    return facts


def test_an_edit_is_tried_with_progress_until_its_verdict(night: Grounds):
    with agent_in(night.root) as agent:
        edit(night, unigram(SHARPNESS=0.9))
        kept = verdict(agent, "try_edit", message="--tag x\nThe counts are large.", wait_s=LONG_S)
        assert (kept["attempt"], kept["status"], kept["title"], kept["tag"]) == (1, "keep", "--tag x", TAG)
        given = agent.facts("try_edit", message="blunter", script_text=unigram(SHARPNESS=0.2), wait_s=0)
        assert given["state"] in ("waiting", "running")
        late = verdict(agent, "wait", id=given["id"])
        assert (late["attempt"], late["status"]) == (2, "discard")
        assert verdict(agent, "wait", id=given["id"]) == late  # a verdict stays
    assert (night.root / "train_mlx.py").read_text() == unigram(SHARPNESS=0.9)
    seconds = [spent for spent, _, _ in agent.progress]
    assert seconds
    assert all(isinstance(words, str) and words for _, _, words in agent.progress)


def test_the_first_try_opens_a_night_and_its_progress_tells_how_far_the_run_is(grounds: Grounds):
    with agent_in(grounds.root) as agent:
        facts = verdict(agent, "try_edit", message="sharper", script_text=SHARPER, budget_s=5, tag="fresh")
        assert (facts["tag"], facts["attempt"], facts["budget_s"]) == ("fresh", 1, 5.0)
    said = [words or "" for _, _, words in agent.progress]
    assert any("training of attempt 0, " in words and "% of its budget, loss " in words for words in said), said
    for earlier, later in zip(agent.progress, agent.progress[1:], strict=False):
        assert earlier[0] < later[0] or later[1] != earlier[1]  # it only grows within a call


def test_what_cannot_be_tried_is_refused_at_once_and_changes_nothing(night: Grounds):
    with agent_in(night.root) as agent:
        assert "is as it was committed" in agent.error("try_edit", message="nothing")
        assert "does not parse" in agent.error("try_edit", message="broken", script_text="def main(:\n")
        huge = agent.error("try_edit", message="huge", script_text="x = 1\n" * 1_700_000)
        assert huge.startswith("script_text has 10,200,000 bytes, beyond the limit of ")
        assert "breaks the contract" in agent.error("try_edit", message="no main", script_text="x = 1\n")
        for tag in ("../../x", "--help", "a b"):
            assert agent.call("try_edit", message="x", script_text=SHARPER, tag=tag).is_error
        assert "budget_s" in agent.error("try_edit", message="x", script_text=SHARPER, budget_s=1e-320)
        assert [one["attempt"] for one in agent.facts("history")["history"]] == [0]
    assert [path.name for path in (night.root / "experiments" / "nights").iterdir() if path.is_dir()] == [TAG]


def test_a_script_that_floods_or_crashes_leaves_a_bounded_verdict(night: Grounds):
    crash = unigram(SHARPNESS=0.7).replace(
        "data = prepare", "print('x' * 5_000_000)\n    raise ValueError('\\x1b[2J say hello')\n    data = prepare"
    )
    with agent_in(night.root) as agent:
        facts = verdict(agent, "try_edit", message="crashes", script_text=crash)
    assert facts["status"] == "crash"
    assert "ValueError: \\x1b[2J say hello" in facts["traceback"]


def test_a_cancelled_call_ends_the_waiting_and_not_the_try(long_night: Grounds):
    with agent_in(long_night.root) as agent:
        with pytest.raises(MCPError):
            agent.call("try_edit", limit_s=3, message="sharper", script_text=SHARPER, wait_s=LONG_S)
        (one,) = agent.facts("status")["tries"]
        facts = verdict(agent, "wait", id=one["id"])
    assert (facts["attempt"], facts["status"], facts["title"]) == (1, "keep", "sharper")


def test_two_clients_at_once_get_a_verdict_each(night: Grounds):
    with agent_in(night.root) as one, agent_in(night.root) as other:
        first = one.facts("try_edit", message="one", script_text=SHARPER, wait_s=0)
        second = other.facts("try_edit", message="other", script_text=unigram(SHARPNESS=0.85), wait_s=0)
        assert first["id"] != second["id"]
        found = [verdict(one, "wait", id=first["id"]), verdict(other, "wait", id=second["id"])]
        assert [facts["title"] for facts in found] == ["one", "other"]
        assert sorted(facts["attempt"] for facts in found) == [1, 2]
        assert one.facts("wait", id=second["id"]) == found[1]  # a try is everybody's


def test_a_try_outlives_the_server_and_is_found_again(long_night: Grounds):
    known = set(psutil.Process().children())
    with agent_in(long_night.root) as agent:
        started = agent.facts("try_edit", message="sharper", script_text=SHARPER, wait_s=0)
        (server,) = set(psutil.Process().children()) - known
        wait_until(training(long_night, TAG, 1))
        os.killpg(server.pid, signal.SIGKILL)  # as a client does that ends with all that it has started
        with pytest.raises(MCPError):
            agent.call("wait", id=started["id"])
    with agent_in(long_night.root) as agent:
        assert started["id"] in [one["id"] for one in agent.facts("status")["tries"]]
        facts = verdict(agent, "wait", id=started["id"])
    assert (facts["attempt"], facts["status"], facts["title"]) == (1, "keep", "sharper")
    assert len(long_night.attempts(TAG)[1].runs) == 1  # nothing was begun a second time
