"""Hold what a command answers: facts for a program, and the same for people.

With --json a program gets one JSON object on stdout, also where the command failed, and needs neither the exit code nor
stderr to know how it ended. docs/json.md explains the keys.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.view.answer import plain

SCHEMA_VERSION = 1  # raised where a key is removed or its meaning changes, not where one is added


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold how a command ended; without an error, it succeeded."""

    facts: Any = field(default_factory=dict)  # a record of agent/view/answer.py, or its keys and values
    show: Callable[[], object] = lambda: None  # prints the same for people, where the command has not done so yet
    error: str | None = None  # one sentence, with the remedy
    exit_code: int = 0

    def as_facts(self) -> dict[str, object]:
        """Return the object that a program gets: schema version, error and exit code come first."""
        head: dict[str, object] = {"schema_version": SCHEMA_VERSION, "error": self.error, "exit_code": self.exit_code}
        return {**head, **plain(self.facts)}

    def as_json(self) -> str:
        return json.dumps(self.as_facts(), indent=1)
