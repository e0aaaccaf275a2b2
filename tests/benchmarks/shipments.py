"""Records of nights that never were, as `nightshift export record` writes them from real journals."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from samples import NIGHT

from agent.experiment import Ask, Attempt, Dawn, Decision, Ending, Findings, Interval, Kind, Proposal, Run, Score
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.shipped import ship


def ship_night(
    place: Place, out: Path, tag: str, gains: Sequence[float], honest: float | None, *asks: Ask, **facts: object
) -> None:
    """A night whose edits have these gains, the positive ones kept; half of them by another source."""
    with Journal.create(place.journal(tag), dataclasses.replace(NIGHT, tag=tag, **facts)) as journal:
        best, at = 1.5, 0
        for number, gain in enumerate([0.0, *gains]):
            source = "you" if not number else "catalogue: deeper" if number % 2 else "search"
            ending = Ending.FINISHED if math.isfinite(gain) else Ending.CRASHED
            score = Score(best - gain, 18.0) if math.isfinite(gain) else None
            proposal = Proposal(f"A = {number}\n", "title", "why", source)
            attempt = Attempt(number, at if number else None, proposal, "")
            journal.add_attempt(number, attempt.parent, proposal, NIGHT.started)
            journal.end_run(journal.start_run(number, 0), Run(0, ending, 0, 18.0, None, "", score))
            is_kept = gain > 0 or not number
            kind = Kind.BASELINE if not number else Kind.KEPT if is_kept else Kind.WORSE if score else Kind.CRASHED
            journal.record_decision(number, Decision(kind, "", gain / 2 if score else None))
            if is_kept:
                best, at = best - gain, number
        for ask in asks or (Ask(1, "search", NIGHT.started, 36.0),):
            journal.record_ask(ask)
        if honest is not None:
            around = Interval(honest, honest - 0.1, honest + 0.1)
            found = Findings(at, at, 8, None, None, around, around, (), (), None, None)
            journal.put_dawn(Dawn(1, at, 4, "", "", found))
    ship(place.repo, place.journal(tag), out / tag)
