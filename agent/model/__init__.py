"""Take a night's best model out of the night: as a folder that other programs load, or to write text with it.

Here its best script is found, and the weights that the runs of an attempt left in the night's folder; folder.py writes
the folder, and sampling.py text.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.errors import NightError, NothingYet
from agent.experiment import Attempt, Run
from agent.findings import Findings
from agent.invocation import SCRIPT, typed, typed_python
from agent.records.place import Place, check_unpacked, run_folder
from agent.records.record import Record
from agent.runs.runner import WEIGHTS
from agent.runs.train import read_params


def best_script(record: Record) -> tuple[Attempt, Findings | None]:
    """Return the attempt that was confirmed, with the findings, else the one that was kept last.

    Raise NothingYet before anything is kept.
    """
    best, findings = record.to_take, record.findings
    if best is None:
        raise NothingYet(
            f"night {record.tag} has kept no script yet, not even attempt 0; wait for it, or where it does not "
            f"run, go on with: {typed('run', '--tag', record.tag)}"
        )
    is_about = findings is not None and best.number in (findings.best, findings.script)
    return best, findings if is_about else None


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Weights that are still there, and the run that made them."""

    path: Path
    attempt: Attempt
    run: Run
    val_bpb: float
    params: int


def find_weights(place: Place, record: Record, attempt: Attempt) -> KeptWeights | None:
    """Return an attempt's weights with the lowest score; None if there are none, as for a night that ran elsewhere."""
    kept = _kept(place.folder(record.tag), attempt) if record.is_here else ()
    return min(kept, key=lambda weights: weights.val_bpb, default=None)


def weights_of(place: Place, record: Record, attempt: Attempt) -> KeptWeights:
    """Return an attempt's weights with the lowest score; raise NightError with the remedy where there are none."""
    weights = find_weights(place, record, attempt)
    if weights is not None:
        return weights
    take = typed("take", f"{record.tag}:{attempt.number}")
    if record.night.options.metric is not None:
        raise NightError(
            f"night {record.tag} has no weights, as its script reports {record.night.metric} itself; take the script "
            f"with: {take}, and run it"
        )
    if not record.is_here:
        check_unpacked(place, record.tag)
        raise NightError(f"the weights of night {record.tag} stayed where it ran: its record here has none")
    train = typed_python(SCRIPT)
    raise NightError(
        f"attempt {attempt.number} of night {record.tag} has no weights here: those of edits that are not kept are "
        f"deleted, and git and {typed('pack', '--weights', 'none')} carry none; train it again with: {take}, and "
        f"{train} --out DIR"
    )


def _kept(folder: Path, attempt: Attempt) -> Iterator[KeptWeights]:
    for run in attempt.counted_runs:
        path = run_folder(folder, attempt.number, run.seed) / WEIGHTS
        params = read_params(path.parent)
        if run.val_bpb is not None and params is not None:
            yield KeptWeights(path, attempt, run, run.val_bpb, params)
