"""The agent that follows AGENTS.md makes its ten tries by the tools of MCP, through the official client."""

from typing import Any

import pytest
from mcp_clients import Agent, agent_in
from nights import Grounds
from scripted_agent import BUDGET_S, ScriptedAgent

pytestmark = pytest.mark.slow
ALLOWANCE_S = 20.0  # for starting MLX on a busy machine; the slow try sleeps for as long


class Tools:
    """The agent's hands: every answer is the object of a tool, be it an error or not."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def _answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.agent.call(tool, **arguments)
        assert result.structured_content is not None, result.content
        assert result.is_error is (result.structured_content["error"] is not None)
        return result.structured_content

    def try_edit(self, message: str) -> dict[str, Any]:
        facts = self._answer("try_edit", message=message, wait_s=2)
        while facts.get("state") in ("waiting", "running"):
            assert facts["next"] == f"there is no verdict yet; call wait with id {facts['id']}"
            facts = self._answer("wait", id=facts["id"], wait_s=30)
        return facts

    def take_best(self) -> dict[str, Any]:
        return self._answer("take", attempt="best")

    def status(self) -> dict[str, Any]:
        return self._answer("status")

    def log(self, attempt: int) -> dict[str, Any]:
        return self._answer("show", attempt=str(attempt), part="log")


def test_an_agent_that_follows_the_rules_ends_with_the_best_script_in_its_tree(grounds: Grounds):
    grounds.try_scripts("t", [], budget_s=BUDGET_S, allowance_s=ALLOWANCE_S)
    with agent_in(grounds.root) as agent:
        best = ScriptedAgent(grounds.root, Tools(agent)).work()
        assert [row["attempt"] for row in agent.facts("history")["history"]] == [*range(8)]
        assert agent.facts("show", part="script")["script"].strip() == best
    assert "SHARPNESS = 1.0" in best
    assert "SHARE = 1.0" in best
