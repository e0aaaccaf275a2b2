"""Find the weights that an attempt's runs left in the night's folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.errors import NightError
from agent.experiment import Attempt, Night
from agent.invocation import SCRIPT, typed, typed_python
from agent.records.journal import Journal
from agent.records.place import Place, check_unpacked, run_folder
from agent.runs.runner import WEIGHTS
from agent.runs.train import read_weights

NAME = Path(WEIGHTS).name


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


def find_weights(place: Place, tag: str, number: int) -> KeptWeights | None:
    """Return an attempt's weights with the lowest score; None if there are none, as for a night that ran elsewhere."""
    if not place.journal(tag).exists():
        return None
    with Journal.read(place.journal(tag)) as journal:
        night, attempt = journal.night(), journal.attempt(number)
    folder = place.folder(tag)
    return min(_kept(folder, night, attempt), key=lambda weights: weights.val_bpb, default=None)


def weights_of(place: Place, tag: str, number: int) -> KeptWeights:
    """Return the same; raise NightError with the remedy where there are none."""
    weights = find_weights(place, tag, number)
    if weights is not None:
        return weights
    if not place.journal(tag).exists():
        check_unpacked(place, tag)
    take, train = typed("take", f"{tag}:{number}"), typed_python(SCRIPT)
    raise NightError(
        f"attempt {number} of night {tag} has no weights here: those of edits that are not kept are deleted, and git "
        f"carries none; train it again with: {take}, and {train} --out DIR"
    )


def _kept(folder: Path, night: Night, attempt: Attempt) -> Iterator[KeptWeights]:
    for run in attempt.counted_runs:
        path = run_folder(folder, attempt.number, run.seed) / WEIGHTS
        sizes = read_weights(path.parent)
        if run.val_bpb is not None and sizes is not None:
            yield KeptWeights(path, run.seed, run.val_bpb, sizes.params, night.device, run.began, run.holdout_bpb)
