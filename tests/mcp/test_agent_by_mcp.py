"""The agent that follows AGENTS.md makes ten tries of a toy script by the tools of MCP, through the official client.

It looks only at the verdicts, as an agent does: it takes the best script, edits it, tries that, and does what the
answer says.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_clients import Agent, agent_in
from nights import Grounds, git, unigram

pytestmark = pytest.mark.slow
ALLOWANCE_S = 20.0  # s for starting MLX on a busy machine; the slow try sleeps as long
BUDGET_S = 0.05
COMMITTED = unigram()
LOGITS = "    logits = (SHARPNESS + jitter) * np.log(counts + SMOOTHING)\n"
SHIFTED = f"{LOGITS}    logits -= logits.max()\n"


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


def dial(name: str, value: object) -> Callable[[str], str]:
    """Return an edit that sets a constant, on every device."""

    def edit(script: str) -> str:
        text, count = re.subn(rf"(?m)^{name} = .*?(  #|$)", f"{name} = {value!r}\\1", script)
        assert count == 1, name
        return text

    return edit


def replaced(old: str, new: str) -> Callable[[str], str]:
    def edit(script: str) -> str:
        assert old in script
        return script.replace(old, new)

    return edit


class ScriptedAgent:
    """Works in a repository until it has made its ten tries."""

    def __init__(self, root: Path, hands: Tools) -> None:
        self._root, self._hands = root, hands
        self._script = root / "train_mlx.py"
        self.tries = 0

    def _try(self, message: str, *edits: Callable[[str], str], base: str | None = None) -> dict[str, Any]:
        """Edit the script of the working tree, or another one, and try it."""
        text = self._script.read_text() if base is None else base
        for edit in edits:
            text = edit(text)
        self._script.write_text(text)
        self.tries += 1
        facts = self._hands.try_edit(message)
        assert facts["exit_code"] == (0 if facts["error"] is None else 2), facts
        return facts

    def work(self) -> str:
        """Make the ten tries, assert what is answered to each, and return the best script."""
        self._begin()
        self._go_wrong()
        self._improve()
        return self._end()

    def _begin(self) -> None:
        good = self._try(
            "sharper, and shifted\nThe counts are large.", dial("SHARPNESS", 0.9), replaced(LOGITS, SHIFTED)
        )
        assert (good["status"], good["attempt"], good["best"]["number"]) == ("keep", 1, 1)
        assert good["next"] == "edit on from here: attempt 1 is the best script now"

        broken = self._try("without its colon", replaced("def main() -> None:", "def main() -> None"))
        assert "does not parse" in broken["error"]
        self._hands.take_best()

        duplicate = self._try("with a comment", lambda script: f"{script}\n# words\n")
        assert "is attempt 1 of night t, keep (see:" in duplicate["error"]
        self._hands.take_best()

    def _go_wrong(self) -> None:
        crash = self._try("no data", replaced("data = prepare", "assert False, 'no data'\n    data = prepare"))
        assert (crash["status"], crash["attempt"], crash["val_bpb"]) == ("crash", 2, None)
        assert crash["traceback"].splitlines()[-1] == "AssertionError: no data"
        assert "read traceback" in crash["next"]
        assert "AssertionError: no data" in str(self._hands.log(2))
        assert self._hands.take_best()["attempt"] == 1

        stale = self._try("smoother", dial("SMOOTHING", 2.0), base=COMMITTED)  # the agent kept an old copy
        assert (stale["state"], stale["based_on"]) == ("stale", 0)
        assert [edit["attempt"] for edit in stale["missing_edits"]] == [1]
        assert "take best" in stale["next"]
        self._hands.take_best()

        slow = self._try("it sleeps", replaced("    data = prepare", "    time.sleep(3600)\n    data = prepare"))
        assert (slow["status"], slow["attempt"]) == ("discard", 3)
        assert "too slow" in slow["reason"]
        self._hands.take_best()

    def _improve(self) -> None:
        branch = self._hands.status()["summary"]["night"]["branch"].removeprefix("refs/heads/")
        git(self._root, "checkout", "-q", "-f", branch)  # the owner looks at the night's branch
        self._hands.take_best()
        more = self._try("more of the text", dial("SHARE", 1.0))
        assert (more["status"], more["attempt"], more["parent"]) == ("keep", 4, 1)

        better = self._try("all of it", dial("SHARPNESS", 1.0))
        assert (better["status"], better["attempt"], better["parent"]) == ("keep", 5, 4)
        assert better["gain_bpb"] > 0

        worse = self._try("blunter", dial("SHARPNESS", 0.3))
        assert (worse["status"], worse["attempt"], worse["gain_bpb"] < 0) == ("discard", 6, True)
        self._hands.take_best()

        deletion = self._try("without the shift", replaced(SHIFTED, LOGITS))  # no stale script
        assert (deletion["error"], deletion["attempt"], deletion["parent"]) == (None, 7, 5)

    def _end(self) -> str:
        assert self.tries == 10
        facts = self._hands.status()
        best = facts["summary"]["best"]["number"]
        assert best in (5, 7)  # the same score with less code may be kept
        assert [entry["state"] for entry in facts["tries"]] == ["done"] * len(facts["tries"])
        assert self._hands.take_best()["attempt"] == best
        script = git(self._root, "show", f"refs/experiments/t/{best:04d}:train_mlx.py")
        assert self._script.read_text().strip() == script
        return script


def test_an_agent_that_follows_the_rules_ends_with_the_best_script_in_its_tree(grounds: Grounds):
    grounds.try_scripts("t", [], budget_s=BUDGET_S, allowance_s=ALLOWANCE_S)
    with agent_in(grounds.root) as agent:
        best = ScriptedAgent(grounds.root, Tools(agent)).work()
        assert [row["attempt"] for row in agent.facts("history")["history"]] == [*range(8)]
        assert agent.facts("show", part="script")["script"].strip() == best
    assert "SHARPNESS = 1.0" in best
    assert "SHARE = 1.0" in best
