"""Tries through MCP: started, followed, cancelled, by two clients at once, and after their client has died."""

import os
import signal
from typing import Any

import psutil
import pytest
from commands import training, wait_until
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
        assert any("training of attempt 0" in (words or "") for _, _, words in one.progress)

        first = one.facts("try_edit", message="one", script_text=unigram(SHARPNESS=0.2), wait_s=0)
        second = other.facts("try_edit", message="other", script_text=unigram(SHARPNESS=0.85), wait_s=0)
        verdicts = [verdict(one, "wait", id=first["id"]), verdict(other, "wait", id=second["id"])]
        assert [(facts["title"], facts["attempt"]) for facts in verdicts] == [("one", 2), ("other", 3)]
        assert one.facts("wait", id=second["id"]) == verdicts[1]  # a verdict stays, and a try is everybody's
    assert (grounds.root / "train_mlx.py").read_text() == SHARPER


def test_a_try_outlives_its_call_and_the_server_and_is_found_again(grounds: Grounds):
    from mcp.shared.exceptions import MCPError

    grounds.try_scripts("t", [], budget_s=4.0)
    children = set(psutil.Process().children())
    with agent_in(grounds.root) as agent:
        with pytest.raises(MCPError):
            agent.call("try_edit", limit_s=3, message="sharper", script_text=SHARPER, wait_s=LONG_S)
        (started,) = agent.facts("status")["tries"]
        (server,) = set(psutil.Process().children()) - children
        wait_until(training(grounds, "t", 1))
        os.killpg(server.pid, signal.SIGKILL)  # some clients end with everything that they have started
        with pytest.raises(MCPError):
            agent.call("wait", id=started["id"])
    with agent_in(grounds.root) as agent:
        facts = verdict(agent, "wait", id=agent.facts("status")["tries"][0]["id"])
    assert (facts["attempt"], facts["status"], facts["title"]) == (1, "keep", "sharper")
    assert len(grounds.attempts("t")[1].runs) == 1  # nothing was begun a second time
