"""Put together what a source is told before it proposes, from a night's records and its owner's words."""

from collections.abc import Sequence

from agent.experiment import Ask, Attempt, Briefing, History, Left, Night, Noise, Status
from agent.night.briefing.setting import setting_of
from agent.proposers.notes import read_notes, read_program
from agent.records.place import Place


def briefing_of(
    place: Place,
    night: Night,
    history: History,
    best: Attempt,
    noise: Noise | None,
    *,
    asks: Sequence[Ask] = (),
    left: Left,
    has_reader: bool,  # a source can read: tell it what surrounds the night
) -> Briefing:
    """Return a briefing with the owner's program and notes as they stand now."""
    return Briefing(
        night=night,
        history=history,
        parent=best,
        noise=noise,
        program=read_program(place.script_path.parent / "program.md"),
        notes=read_notes(place.folder(night.tag)),
        asks=asks,
        broken=wants_repair(history),
        left=left,
        setting=setting_of(place, night, history, noise) if has_reader else None,
    )


def wants_repair(history: History) -> Attempt | None:
    """Return the last attempt if it crashed and is no repair itself: its source may repair it, once."""
    last = history[-1]
    return last if last.status is Status.CRASH and last.is_idea and last.proposal.repairs is None else None
