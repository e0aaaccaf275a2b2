"""Sources that answer in turn, and nights that ask them ahead, for tests of what happens meanwhile."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nights import Grounds, Quiet, scripted_context

from agent.experiment import LOCAL, Attempt, Proposal
from agent.night.limits import Limits
from agent.night.loop import run_night
from agent.proposers.briefing import Briefing
from agent.proposers.outbox import Outbox
from agent.records.journal import Journal
from agent.script.dials import set_dials, values_of

LATE_S = 20.0  # what is waited for comes much earlier, or not at all


class Source:
    """Makes of the parent's script what it was given, in turn, and remembers what it was told."""

    def __init__(self, *edits: Callable[[str], str], name: str = "llm:x") -> None:
        self.edits, self.name = edits, name
        self.outbox: Outbox | None = None
        self.told: list[Briefing] = []

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        self.told.append(briefing)
        edit = self.edits[len(self.told) - 1]
        script = edit((briefing.broken or briefing.parent).proposal.script)
        repairs = briefing.broken.number if briefing.broken else None
        return [Proposal(script, f"idea {len(self.told)}", "", self.name, repairs=repairs)]


def turned(**dials: object) -> Callable[[str], str]:
    return lambda script: set_dials(script, "cpu", dials)


def dials(attempt: Attempt) -> tuple[object, object]:
    values = values_of(attempt.proposal.script, "cpu")
    return values["SHARPNESS"], values["SMOOTHING"]


def whole(script: str) -> Callable[[str], str]:
    return lambda before: script


@contextmanager
def lab_with(grounds: Grounds, source: Any, experiments: int, watcher: Quiet | None = None) -> Any:
    with scripted_context(grounds.root, "t", []) as context:
        watcher = watcher or Quiet()
        runner = dataclasses.replace(context.runner, progressed=watcher.progressed)
        source.outbox = Outbox(lambda: context.stop.after_run)
        limits = Limits(experiments=experiments)
        own: dict[str, Any] = {
            "proposer": source,
            "watcher": watcher,
            "runner": runner,
            "outbox": source.outbox,
            "patience_s": 1.0,
        }
        yield dataclasses.replace(context, limits=limits, **own)


def night(grounds: Grounds, source: Source, experiments: int) -> Sequence[Attempt]:
    with lab_with(grounds, source, experiments) as context:
        run_night(context)
    return grounds.attempts("t")


class Dies(Quiet):
    """Is killed as soon as so many ideas wait in the journal, while attempt 1 trains."""

    def __init__(self, journal: Path, ideas: int = 1) -> None:
        super().__init__()
        self.journal, self.ideas = journal, ideas

    def progressed(self, progress: object, elapsed_s: float, worker: str = LOCAL) -> None:
        with Journal.read(self.journal) as journal:
            if len(journal.attempts()) > 1 and len(journal.waiting_ideas()) >= self.ideas:
                os.kill(os.getpid(), 9)
