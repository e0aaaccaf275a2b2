"""Find the weights that an attempt's runs left: in the night's own folders, or in those of replays."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.errors import NightError
from agent.experiment import Attempt, Night
from agent.files import read_plain
from agent.invocation import typed
from agent.records.journal import Journal
from agent.records.place import Place, check_unpacked, run_folder
from agent.runs.outputs import read_weights
from agent.runs.runner import WEIGHTS
from agent.text import is_finite
from agent.view.answer import Replay

NAME = Path(WEIGHTS).name
REPLAY = "replay.json"  # what a replay leaves beside its weights


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Hold weights that are still there, and how they came to be."""

    path: Path
    seed: int
    val_bpb: float
    params: int
    device: str
    trained: str | None  # ISO 8601, UTC; None where it was not recorded
    holdout_bpb: float | None = None
    replayed: bool = False  # by a run after the night


@dataclass(frozen=True, slots=True)
class KeptReplay:
    """Hold what is read of replay.json, the answer of `replay --json`."""

    now: Replay


def find_weights(place: Place, tag: str, number: int) -> KeptWeights | None:
    """Return an attempt's weights with the lowest score; of a replay only where none of the night's are left.

    None if there are none, as for a night that ran elsewhere.
    """
    if not place.journal(tag).exists():
        return None
    with Journal.read(place.journal(tag)) as journal:
        night, attempt = journal.night(), journal.attempt(number)
    folder = place.folder(tag)
    kept = [*_of_night(folder, night, attempt)] or [*_of_replays(folder, night, attempt)]
    return min(kept, key=lambda weights: weights.val_bpb, default=None)


def weights_of(place: Place, tag: str, number: int) -> KeptWeights:
    """Return the same; raise NightError with the remedy where there are none."""
    weights = find_weights(place, tag, number)
    if weights is not None:
        return weights
    if not place.journal(tag).exists():
        check_unpacked(place, tag)
    raise NightError(
        f"attempt {number} of night {tag} has no weights here: those of edits that are not kept are deleted, and git "
        f"carries none; make them again with: {typed('replay', f'{tag}:{number}')}"
    )


def _of_night(folder: Path, night: Night, attempt: Attempt) -> Iterator[KeptWeights]:
    for run in attempt.counted_runs:
        path = run_folder(folder, attempt.number, run.seed) / WEIGHTS
        sizes = read_weights(path.parent)
        if run.val_bpb is not None and sizes is not None:
            yield KeptWeights(path, run.seed, run.val_bpb, sizes.params, night.device, run.began, run.holdout_bpb)


def _of_replays(folder: Path, night: Night, attempt: Attempt) -> Iterator[KeptWeights]:
    """Yield the weights of replays that succeeded under the conditions of the night."""
    for place in sorted((folder / "replays").glob(f"{attempt.number}-*")):
        try:
            replay = msgspec.json.decode(read_plain(place / REPLAY).encode(), type=KeptReplay).now
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        sizes = read_weights(place)
        score, is_alike = replay.val_bpb, replay.failure is None and replay.protocol == night.protocol
        if sizes is not None and is_alike and score is not None and is_finite(score):
            yield KeptWeights(place / NAME, replay.seed, score, sizes.params, replay.device, None, replayed=True)
