"""Find the weights and caches of a night that neither its best script nor a comparison with attempt 0 needs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.cli.housekeeping.nights import size_of
from agent.errors import NightError
from agent.experiment import History, Status, incumbent
from agent.invocation import typed
from agent.model.weights import NAME
from agent.night.state import unaudited
from agent.records.journal import Journal
from agent.records.place import Place
from agent.runs.runner import WEIGHTS, weights_bytes
from agent.sandbox.environment import TMP

OF_ATTEMPT = re.compile(r"[0-9]{4,9}")  # the folder of its runs
OF_REPLAY = re.compile(r"([0-9]{1,9})-.*")
CACHES = (TMP, "__pycache__")  # in the folder of a run


@dataclass(frozen=True, slots=True)
class Prunable:
    path: Path  # a file of weights, or a folder of caches
    bytes: int


def find_prunable(place: Place, tag: str) -> tuple[Prunable, ...]:
    """Return the weights and caches that can go; raise NightError while a dawn has not come to its end."""
    dear = _dear(place, tag)
    folder = place.folder(tag)
    found = [*_of_runs(folder / "runs", dear), *_of_replays(folder / "replays", dear)]
    return tuple(sorted(found, key=lambda one: one.path))


def _dear(place: Place, tag: str) -> set[int]:
    """Return the attempts whose weights stay.

    These are the first, the best, what dawn is about, and those that have to be judged, scored or audited still.
    """
    with Journal.read(place.journal(tag)) as journal:
        history, dawns = journal.outlines(), journal.dawns()
    if dawns and dawns[-1].ended is None:
        go_on = typed("confirm", "--tag", tag)
        raise NightError(f"the dawn of night {tag} is not at its end, and may need any weights; go on with: {go_on}")
    best = incumbent(history)
    dear = {0} | ({best.number} if best is not None else set())
    dear |= _unfinished(history)
    for dawn in dawns:
        script = dawn.findings["script"] if dawn.findings else None
        dear |= {dawn.champion} | ({int(script)} if script is not None else set())
    return dear


def needed_to_go_on(journal: Journal) -> frozenset[int] | None:
    """Return the attempts whose weights a night needs where it goes on; None while a dawn may need any of them.

    These are the best, and those that have to be judged, scored or audited still.
    """
    history, dawns = journal.outlines(), journal.dawns()
    if dawns and dawns[-1].ended is None:
        return None
    best = incumbent(history)
    return frozenset(_unfinished(history) | ({best.number} if best is not None else set()))


def check_goes_on_without(journal: Journal) -> None:
    """Raise NightError where a night needs weights for its next step: of a dawn, or of a run that has to be audited."""
    night, dawns = journal.night(), journal.dawns()
    if dawns and dawns[-1].ended is None:
        go_on = typed("confirm", "--tag", night.tag)
        raise NightError(f"the dawn of night {night.tag} needs its weights until it has ended; go on with: {go_on}")
    for attempt in journal.attempts():
        if unaudited(attempt) and (not attempt.settled or attempt.status is Status.KEEP):
            raise NightError(
                f"attempt {attempt.number} of night {night.tag} needs its weights until it is audited: go on with "
                f"{typed('run', '--tag', night.tag)}, end it with {typed('stop')}, and pack it then"
            )


def _unfinished(history: History) -> set[int]:
    found = {one.number for one in history if not one.settled}
    return found | {one.number for one in history if one.status is Status.KEEP and unaudited(one)}


def _of_runs(runs: Path, dear: set[int]) -> Iterator[Prunable]:
    for attempt in _folders(runs):
        if OF_ATTEMPT.fullmatch(attempt.name) and int(attempt.name) not in dear:
            for run in _folders(attempt):
                size = weights_bytes(run)
                if size is not None:
                    yield Prunable(run / WEIGHTS, size)
                for name in CACHES:
                    if (run / name).is_dir() and not (run / name).is_symlink():
                        yield Prunable(run / name, size_of(run / name))


def _of_replays(replays: Path, dear: set[int]) -> Iterator[Prunable]:
    for replay in _folders(replays):
        number, weights = OF_REPLAY.fullmatch(replay.name), replay / NAME
        if number and int(number[1]) not in dear and weights.is_file() and not weights.is_symlink():
            yield Prunable(weights, weights.stat().st_size)


def _folders(above: Path) -> Iterator[Path]:
    inside = above.iterdir() if above.is_dir() and not above.is_symlink() else ()
    yield from (one for one in inside if one.is_dir() and not one.is_symlink())
