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
LONG_S = 600.0
SHARPER = unigram(SHARPNESS=0.9)


def verdict(agent: Agent, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call, and wait for as long as it takes."""
    facts = agent.facts(tool, **arguments)
    while facts.get("state") in ("waiting", "running"):
        facts = agent.facts("wait", id=facts["id"], wait_s=LONG_S)
    return facts


def test_the_first_try_opens_a_night_and_two_clients_get_a_verdict_each(grounds: Grounds):
    with agent_in(grounds.root) as one, agent_in(grounds.root) as other:
        (grounds.root / "train_mlx.py").write_text(SHARPER)
        words = {"message": "--tag x\nThe counts are large.", "budget_s": 2, "tag": "fresh"}
        kept = verdict(one, "try_edit", wait_s=LONG_S, **words)
        assert (kept["attempt"], kept["status"], kept["title"], kept["tag"]) == (1, "keep", "--tag x", "fresh")
        said = [words or "" for _, _, words in one.progress]
        assert any("training of attempt 0" in words for words in said), said
        assert [spent for spent, _, _ in one.progress] == sorted(spent for spent, _, _ in one.progress)

        first = one.facts("try_edit", message="one", script_text=unigram(SHARPNESS=0.2), wait_s=0)
        second = other.facts("try_edit", message="other", script_text=unigram(SHARPNESS=0.85), wait_s=0)
        found = [verdict(one, "wait", id=first["id"]), verdict(other, "wait", id=second["id"])]
        assert [(facts["title"], facts["attempt"]) for facts in found] == [("one", 2), ("other", 3)]
        assert one.facts("wait", id=second["id"]) == found[1]  # a verdict stays, and a try is everybody's
    assert (grounds.root / "train_mlx.py").read_text() == SHARPER


def test_what_cannot_be_tried_is_refused_at_once_and_changes_nothing(grounds: Grounds):
    with agent_in(grounds.root) as agent:
        assert "changes nothing that runs in the script as it was committed" in agent.error(
            "try_edit", message="nothing"
        )
        assert "does not parse" in agent.error("try_edit", message="broken", script_text="def main(:\n")
        huge = agent.error("try_edit", message="huge", script_text="x = 1\n" * 1_700_000)
        assert huge.startswith("script_text has 10,200,000 bytes, beyond the limit of ")
        assert agent.call("try_edit", message="x", script_text=SHARPER, tag="../../x").is_error
    assert not (grounds.root / "experiments").exists()


def test_a_try_outlives_its_call_and_the_server_and_is_found_again(grounds: Grounds):
    grounds.try_scripts("t", [], budget_s=4.0)
    known = set(psutil.Process().children())
    with agent_in(grounds.root) as agent:
        with pytest.raises(MCPError):
            agent.call("try_edit", limit_s=3, message="sharper", script_text=SHARPER, wait_s=LONG_S)
        (started,) = agent.facts("status")["tries"]
        (server,) = set(psutil.Process().children()) - known
        wait_until(training(grounds, "t", 1))
        os.killpg(server.pid, signal.SIGKILL)  # as a client does that ends with all that it has started
        with pytest.raises(MCPError):
            agent.call("wait", id=started["id"])
    with agent_in(grounds.root) as agent:
        facts = verdict(agent, "wait", id=agent.facts("status")["tries"][0]["id"])
    assert (facts["attempt"], facts["status"], facts["title"]) == (1, "keep", "sharper")
    assert len(grounds.attempts("t")[1].runs) == 1  # nothing was begun a second time
