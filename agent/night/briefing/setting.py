"""Read what surrounds a night, for a source that can read. What cannot change during the night is read once."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from agent.errors import NightError
from agent.experiment import (
    Attempt,
    Corpus,
    Curve,
    Ending,
    History,
    KnownIdea,
    Night,
    Noise,
    Setting,
    incumbent,
)
from agent.files import read_end
from agent.judging.early_stop import points_of
from agent.profile.of_night import phases_of
from agent.proposers.author.calls import read_calls
from agent.proposers.author.curves import compared, thinned
from agent.proposers.catalogue.evidence import prospects
from agent.proposers.catalogue.idea import idea_folders, read_ideas
from agent.proposers.catalogue.listing import Listed
from agent.records.past import PastNight, past_nights
from agent.records.place import Place, run_folder
from agent.runs.fixed import read_machine
from agent.runs.train import METRICS, METRICS_BYTES

MANIFEST_BYTES = 4 << 20


def setting_of(place: Place, night: Night, history: History, found: Noise | None) -> Setting:
    folder = place.folder(night.tag)
    cores, memory_gb = read_machine(folder)
    return Setting(
        cores=cores,
        memory_gb=memory_gb,
        corpus=_corpus(Path(night.data)),
        phases=phases_of(folder),
        ideas=_known_ideas(place, night, history, found),
        calls=_calls(folder / "fixed"),
        curves=_curves(folder, history),
    )


_calls = cache(read_calls)
_past: Callable[[Place, str], tuple[PastNight, ...]] = cache(past_nights)


@cache
def _corpus(data: Path) -> Corpus | None:
    """Read from the manifest what the text is; None if it is missing or says something else."""
    try:
        said: dict[str, Any] = json.loads(read_end(data, "manifest.json", MANIFEST_BYTES))
        text = said["splits"]["validation"]
        per_token = float(text["bytes"]) / float(text["tokens"])
        return Corpus(
            f"{said['dataset']}, scale {said['scale']}", per_token, int(said["vocab_size"]), int(said["seq_len"])
        )
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        return None


def _known_ideas(place: Place, night: Night, history: History, found: Noise | None) -> tuple[KnownIdea, ...]:
    """Return the ideas of the catalogue, the most promising first; whether a patch still fits is no matter here."""
    ideas, _ = read_ideas(*idea_folders(place.script_path))
    sigma_bpb = found.sigma_bpb if found is not None and incumbent(history) is not None else None
    try:
        known = prospects(ideas, night, history, sigma_bpb, _past(place, night.tag))
    except NightError:  # an earlier night's journal is damaged
        known = prospects(ideas, night, history, sigma_bpb, ())
    return tuple(KnownIdea(one.idea.slug, one.idea.title, Listed(one, None).state) for one in known)


def _curves(folder: Path, history: History) -> dict[int, Curve]:
    """Return the curves that are worth a comparison, each of an attempt's last run that has one."""
    best = incumbent(history)
    shown = compared(history, best) if best is not None else ()
    return {one.number: curve for one in shown if (curve := _curve_of(folder, one))}


def _curve_of(folder: Path, attempt: Attempt) -> Curve:
    ended = [run for run in attempt.done_runs if run.ending in (Ending.FINISHED, Ending.HOPELESS)]
    return _curve_in(run_folder(folder, attempt.number, ended[-1].seed) / "out") if ended else ()


@cache
def _curve_in(out: Path) -> Curve:
    try:
        return thinned(points_of(read_end(out, METRICS, METRICS_BYTES)))
    except OSError:
        return ()
