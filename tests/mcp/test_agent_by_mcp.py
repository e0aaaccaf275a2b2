"""An agent that follows AGENTS.md makes eight tries by the tools of MCP, and looks at their answers alone."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from mcp_clients import Agent, agent_in
from nights import Grounds, git, unigram

pytestmark = pytest.mark.slow
BUDGET_S = 0.05
COMMITTED = unigram()
LOGITS = "    logits = (SHARPNESS + jitter) * np.log(counts + SMOOTHING)\n"
SHIFTED = f"{LOGITS}    logits -= logits.max()\n"
LOADED = "    data = prepare"
Edit = Callable[[str], str]


def dial(name: str, value: object) -> Edit:
    """Return an edit that sets a constant, on every device."""
    return lambda script: re.sub(rf"(?m)^{name} = .*?(  #|$)", f"{name} = {value!r}\\1", script)


def replaced(old: str, new: str) -> Edit:
    return lambda script: script.replace(old, new)


class ScriptedAgent:
    """Edits the script in the working tree, tries it, and does what the answer says."""

    def __init__(self, grounds: Grounds, agent: Agent) -> None:
        self.root, self.agent = grounds.root, agent
        self.script = grounds.root / "train_mlx.py"

    def answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the object that a tool answers, be it an error or not."""
        result = self.agent.call(tool, **arguments)
        assert result.structured_content is not None, result.content
        assert result.is_error is (result.structured_content["error"] is not None)
        return result.structured_content

    def tried(self, message: str, *edits: Edit, base: str | None = None) -> dict[str, Any]:
        """Edit the script of the working tree, or another one, and follow it to its verdict."""
        text = before = self.script.read_text() if base is None else base
        for edit in edits:
            text = edit(text)
        assert text != before
        self.script.write_text(text)
        facts = self.answer("try_edit", message=message, wait_s=2)
        while facts.get("state") in ("waiting", "running"):
            assert facts["next"] == f"there is no verdict yet; call wait with id {facts['id']}"
            facts = self.answer("wait", id=facts["id"], wait_s=30)
        return facts

    def take_best(self) -> int:
        taken: int = self.answer("take", attempt="best")["attempt"]
        return taken


def test_an_agent_that_follows_the_rules_ends_with_the_best_script_in_its_tree(grounds: Grounds):
    grounds.try_scripts("t", [], budget_s=BUDGET_S)
    with agent_in(grounds.root) as client:
        agent = ScriptedAgent(grounds, client)
        goes_wrong(agent)
        improves(agent)
        assert [row["attempt"] for row in client.facts("history")["history"]] == [*range(7)]


def goes_wrong(agent: ScriptedAgent) -> None:
    good = agent.tried("sharper\nThe counts are large.", dial("SHARPNESS", 0.9), replaced(LOGITS, SHIFTED))
    assert (good["status"], good["attempt"], good["best"]["number"]) == ("keep", 1, 1)
    assert good["next"] == "edit on from here: attempt 1 is the best script now"
    broken = agent.tried("without its colon", replaced("def main() -> None:", "def main() -> None"))
    assert "does not parse" in broken["error"]
    agent.take_best()
    crash = agent.tried("no data", replaced(LOADED, f"    assert False, 'no data'\n{LOADED}"))
    assert (crash["status"], crash["attempt"], crash["val_bpb"]) == ("crash", 2, None)
    assert crash["traceback"].splitlines()[-1] == "AssertionError: no data"
    assert "read traceback" in crash["next"]
    assert "AssertionError: no data" in str(agent.answer("show", attempt="2", part="log"))
    assert agent.take_best() == 1
    stale = agent.tried("smoother", dial("SMOOTHING", 2.0), base=COMMITTED)  # the agent kept an old copy
    assert (stale["state"], stale["based_on"]) == ("stale", 0)
    assert [edit["attempt"] for edit in stale["missing_edits"]] == [1]
    assert "take best" in stale["next"]
    agent.take_best()


def improves(agent: ScriptedAgent) -> None:
    branch = agent.answer("status")["summary"]["night"]["branch"].removeprefix("refs/heads/")
    git(agent.root, "checkout", "-q", "-f", branch)  # its owner looks at the night's branch
    agent.take_best()
    more = agent.tried("more of the text", dial("SHARE", 1.0))
    assert (more["status"], more["attempt"], more["parent"]) == ("keep", 3, 1)
    better = agent.tried("all of it", dial("SHARPNESS", 1.0))
    assert (better["status"], better["attempt"], better["parent"]) == ("keep", 4, 3)
    assert better["gain_bpb"] > 0
    worse = agent.tried("blunter", dial("SHARPNESS", 0.3))
    assert (worse["status"], worse["attempt"], worse["gain_bpb"] < 0) == ("discard", 5, True)
    agent.take_best()
    deletion = agent.tried("without the shift", replaced(SHIFTED, LOGITS))  # of a kept edit's line: no stale script
    assert (deletion["error"], deletion["attempt"], deletion["parent"]) == (None, 6, 4)

    assert [entry["state"] for entry in agent.answer("status")["tries"]] == ["done"] * 6
    best = agent.take_best()
    assert best in (4, 6)  # the same score with less code may be kept
    script = agent.script.read_text()
    assert script.strip() == git(agent.root, "show", f"refs/experiments/t/{best:04d}:train_mlx.py")
    assert "SHARPNESS = 1.0" in script
    assert "SHARE = 1.0" in script
