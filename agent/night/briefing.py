"""Put together what a source of ideas is told: a night's records, its owner's words, and what surrounds the night.

It knows neither the loop nor its state, so that a command can brief as a night does.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agent.experiment import Ask, Attempt, History, Night, Noise, incumbent
from agent.files import read_end
from agent.judging.noise import noise
from agent.profile.phases import phases_of
from agent.proposers.catalogue.evidence import prospects
from agent.proposers.catalogue.files import idea_folders, read_ideas
from agent.proposers.notes import read_notes, read_program
from agent.proposers.source import Briefing, Corpus, Left, Setting
from agent.records.place import Place, past_nights
from agent.records.record import Record

MANIFEST_BYTES = 4 << 20


def briefing_of(
    place: Place,
    night: Night,
    history: History,
    parent: Attempt,
    *,
    asks: Sequence[Ask] = (),
    left: Left,
    has_reader: bool,  # a source can read: tell it what surrounds the night
) -> Briefing:
    """Return a briefing with the owner's program and notes as they stand now; `parent` is to be edited."""
    spread = noise(history)
    return Briefing(
        night=night,
        history=history,
        parent=parent,
        noise=spread,
        program=read_program(place.script_path.parent / "program.md"),
        notes=read_notes(place.folder(night.tag)),
        asks=asks,
        left=left,
        setting=_setting(place, night, history, spread) if has_reader else None,
    )


def _setting(place: Place, night: Night, history: History, spread: Noise | None) -> Setting:
    """Return what surrounds a night, for a source that can read; what cannot change meanwhile is read once."""
    folder, best = place.folder(night.tag), incumbent(history)
    ideas, _ = read_ideas(*idea_folders(place.script_path))  # whether a patch still fits is no matter here
    sigma_bpb = spread.sigma_bpb if spread is not None and best is not None else None
    ranked = prospects(ideas, night, history, sigma_bpb, _past(place, night.tag))
    return Setting(
        cores=night.cores,
        memory_gb=None if night.memory_bytes is None else night.memory_bytes / 2**30,
        corpus=_corpus(Path(night.data)),
        phases=phases_of(folder),
        ideas={prospect.idea.title: prospect.state for prospect in ranked},
    )


_past: Callable[[Place, str], tuple[Record, ...]] = cache(past_nights)


@cache
def _corpus(data: Path) -> Corpus | None:
    """Read from the manifest what the text is; None if it is missing or says something else."""
    try:
        manifest: dict[str, Any] = json.loads(read_end(data, "manifest.json", MANIFEST_BYTES))
        text = manifest["splits"]["validation"]
        per_token = float(text["bytes"]) / float(text["tokens"])
        return Corpus(
            name=f"{manifest['dataset']}, scale {manifest['scale']}",
            bytes_per_token=per_token,
            vocab_size=int(manifest["vocab_size"]),
            seq_len=int(manifest["seq_len"]),
        )
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        return None
