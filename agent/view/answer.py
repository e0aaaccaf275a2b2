"""What a command answers to a program: one JSON object, also where it failed, on stdout or in a file.

A reader of it needs neither the exit code nor stderr to know how the command ended. docs/json.md explains the keys.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TextIO

from agent.errors import NightError
from agent.view.facts.json import plain

SCHEMA_VERSION = 1  # raised where a key is removed or its meaning changes, not where one is added
STDOUT = Path("-")


class AnswersTo(Enum):
    """Say where a command's --json puts the answer: on stdout, or in a file that it names."""

    STDOUT = "stdout"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Answer:
    """Print the JSON that --json asks for; `to` is None if the option was not given."""

    to: Path | None

    @classmethod
    def asked_for(cls, words: Sequence[str], answers: Mapping[str, AnswersTo]) -> "Answer":
        """Read from the words of a command line, even one that does not parse, which answer is wanted.

        A command that has no --json refuses the option, and says so as JSON.
        """
        command, rest = (words[0], words[1:]) if words else ("", ())
        if command not in answers:
            asked = "--json" in words and "--" not in words[: words.index("--json")]
            return cls(STDOUT if asked else None)
        for place, word in enumerate(rest):
            option, equals, value = word.partition("=")
            if word == "--":
                break
            if len(option) > len("--") and "--json".startswith(option):
                if answers[command] is AnswersTo.STDOUT:
                    return cls(STDOUT)
                value = value if equals else next(iter(rest[place + 1 :]), "")
                return cls(Path(value) if value and (value == "-" or not value.startswith("-")) else STDOUT)
        return cls(None)

    @property
    def on_stdout(self) -> bool:
        """Return whether the answer goes to stdout; text for people then goes to stderr."""
        return self.to == STDOUT

    @property
    def for_people(self) -> TextIO:
        """Return the stream for text that is not the answer."""
        return sys.stderr if self.on_stdout else sys.stdout

    def check(self) -> None:
        """Raise NightError for a file that cannot be written, before hours are spent on its content."""
        if self.to is None or self.on_stdout:
            return
        there = self.to if self.to.exists() else self.to.absolute().parent
        if self.to.is_dir() or not there.exists() or not os.access(there, os.W_OK):
            raise NightError(f"--json {self.to} cannot be written; name a file in a folder that exists and is yours")

    def give(self, facts: Mapping[str, object]) -> None:
        """Print the facts after schema version, error and exit code, which are those of a success if facts has none."""
        head = {"schema_version": SCHEMA_VERSION, "error": None, "exit_code": 0}
        text = json.dumps(plain(head | dict(facts)), indent=1)
        if self.on_stdout:
            print(text, flush=True)
        elif self.to is not None:
            self.to.write_text(f"{text}\n")

    def say(self, sentence: str, facts: Mapping[str, object]) -> None:
        """Tell people what was done in a sentence, or a program by these facts."""
        if self.on_stdout:
            self.give(facts)
        else:
            print(sentence)

    def fail(self, error: str, exit_code: int, **more: object) -> None:
        """Say why there is no other answer; where not even that can be written, stderr has it."""
        with suppress(OSError, ValueError):
            self.give({"error": error, "exit_code": exit_code, **more})
