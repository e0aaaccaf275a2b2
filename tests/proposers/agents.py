"""Coding agents that are shell scripts, and what they are shown."""

import shlex
from pathlib import Path

import pytest
from judged import scored_attempt
from queued import SCRIPT
from samples import NIGHT

from agent.errors import NoIdea
from agent.experiment import Attempt, Status
from agent.proposers.command import Command
from agent.proposers.proposer import Briefing, Messages

IDEA = "printf 'half the step size\\n\\nIt overshoots.\\n' > IDEA.md\n"
EDITED = SCRIPT.replace("LR = 0.04", "LR = 0.02")
BASE = scored_attempt(0, 1.0, script=SCRIPT, status=Status.KEEP)


def brief(*history: Attempt, **more: object) -> Briefing:
    history = history or (BASE,)
    best = next(attempt for attempt in reversed(history) if attempt.status is Status.KEEP)
    return Briefing(NIGHT, history, best, **more)


class Agent:
    """A night's folder and a coding agent that is a shell script."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asks, self.stopping = folder / "night", [], False
        (self.folder / "fixed" / "agent" / "lab" / "kernels").mkdir(parents=True)
        (self.folder / "fixed" / "prepare.py").write_text("BUDGET_S = 300\n")
        (self.folder / "fixed" / "agent" / "lab" / "kernels" / "plain.py").write_text("# plain\n")
        self.program = folder / "agent.sh"

    def does(self, script: str, *arguments: str, interpreter: str = "/bin/sh", **options: object) -> Command:
        self.program.write_text(f"#!{interpreter}\n{script}")
        self.program.chmod(0o755)
        line = " ".join([shlex.quote(str(self.program)), *arguments])
        return Command(line, self.folder, Messages(self.asks.append, lambda: self.stopping), **options)

    def saw(self, briefing: Briefing) -> Path:
        """A copy of its clone."""
        with pytest.raises(NoIdea):
            self.does(f"cp -R . '{self.folder}/seen'\n").proposals(briefing)
        return self.folder / "seen"
