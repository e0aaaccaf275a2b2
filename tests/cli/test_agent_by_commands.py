"""A scripted agent that uses no command but those that AGENTS.md names comes to the best script."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from nights import PROJECT, Grounds
from scripted_agent import BUDGET_S, ScriptedAgent

pytestmark = pytest.mark.slow
RULES = PROJECT / "AGENTS.md"
ALLOWANCE_S = 20.0  # for starting MLX on a busy machine; the slow try sleeps for as long


class CommandLine:
    """The hands of an agent at a shell; its timeouts are short."""

    def __init__(self, grounds: Grounds) -> None:
        self._grounds = grounds
        self._night = ("--tag", "t", "--budget-s", str(BUDGET_S), "--judge", "greedy", "--sandbox", "off")
        self._night += ("--allowance-s", str(ALLOWANCE_S))
        self.used: set[str] = set()

    def try_edit(self, message: str) -> dict[str, Any]:
        facts = self._json("try", "--start", "-m", message, *self._night)
        while facts.get("state") in ("waiting", "running"):
            facts = self._json("try", "--wait", str(facts["id"]), "--for", "5")
        return facts

    def take_best(self) -> dict[str, Any]:
        return self._json("take", "best")

    def status(self) -> dict[str, Any]:
        return self._json("status")

    def log(self, attempt: int) -> dict[str, Any]:
        return self._json("show", str(attempt), "--log")

    def _json(self, command: str, *words: str) -> dict[str, Any]:
        self.used |= {
            command,
            *(f"{command} {word}" for word in words if re.fullmatch(r"--(start|wait|log)", word)),
        }
        done = self._grounds.nightshift(command, *words, "--json")
        facts: dict[str, Any] = json.loads(done.stdout)
        assert facts["exit_code"] == done.returncode, done.stderr
        assert (facts["error"] is None) == (done.returncode == 0), done.stderr
        return facts


def named(page: Path, used: str) -> bool:
    """Is the command in the page, with its option if it has one?"""
    command, _, option = used.partition(" ")
    return re.search(rf"nightshift {command}\b[^`\n]*{re.escape(option)}", page.read_text()) is not None


def test_an_agent_that_follows_the_rules_ends_with_the_best_script_in_its_tree(grounds):
    hands = CommandLine(grounds)
    agent = ScriptedAgent(grounds.root, hands)
    best = agent.work()
    assert "SHARPNESS = 1.0" in best
    assert "SHARE = 1.0" in best
    assert [used for used in sorted(hands.used) if not named(RULES, used)] == []
