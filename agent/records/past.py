"""What earlier nights measured, as evidence for a later one: from the journals here and from experiments/shipped/."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.errors import NightError
from agent.experiment import Night, Noise
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.shipped import DAMAGED, Outline, read_record
from agent.records.summary import noise_of_night

MOST = 2000  # attempts that are read of all journals: a script takes half a millisecond
OTHER_PROTOCOL, OTHER_DEVICE = 0.5, 0.5  # how much a night on another text, or another device of the kind, tells


@dataclass(frozen=True, slots=True)
class PastNight:
    """Hold an earlier night and its attempts, in the order of their numbers; attempt 0 is always there."""

    night: Night
    sigma_bpb: float | None  # standard deviation of one run; None where it is not known
    attempts: tuple[Outline, ...]


def past_nights(place: Place, except_tag: str) -> tuple[PastNight, ...]:
    """Return all other nights with a journal or a shipped record here, the oldest first; skip damaged ones.

    A night that has both is read from its journal.
    """
    nights: dict[tuple[str, str], PastNight] = {}  # by start and tag
    read = 0
    for path in sorted(place.nights.glob("*/journal.sqlite"), key=_modified_at, reverse=True):
        if read < MOST and path.parent.name != except_tag:
            with suppress(NightError, OSError), Journal.read(path) as journal:
                nights[journal.night().started, path.parent.name] = past = of_journal(journal)
                read += len(past.attempts)
    for folder in place.shipped.glob("[!.]*/"):  # not what a `ship` that was killed left half-made
        with suppress(*DAMAGED):
            record = read_record(folder)
            if record.night.tag != except_tag:
                past = _past(record.night, record.noise, record.outlines)
                nights.setdefault((record.night.started, record.night.tag), past)
    return tuple(nights[key] for key in sorted(nights))


def likeness(past: Night, night: Night) -> float:
    """Return how much an earlier night tells about this one: 1 on the same device by the same protocol, 0 to 1 else."""
    if past.device_kind != night.device_kind or min(past.budget_s, night.budget_s) <= 0:
        return 0.0
    alike = 1.0 if past.device == night.device else OTHER_DEVICE
    if past.protocol != night.protocol:
        budgets = past.budget_s, night.budget_s
        alike *= OTHER_PROTOCOL * min(budgets) / max(budgets)
    return alike


def of_journal(journal: Journal) -> PastNight:
    """Read a night from its journal; raise NightError where that is damaged."""
    night, history = journal.night(), journal.attempts()
    outlines = tuple(Outline.of(attempt, night.device_kind) for attempt in history)
    return _past(night, noise_of_night(journal, history), outlines)


def _past(night: Night, noise: Noise | None, outlines: tuple[Outline, ...]) -> PastNight:
    return PastNight(night, noise.sigma_bpb if noise is not None else None, outlines)


def _modified_at(path: Path) -> float:
    """Return when a file was last written; 0 where that cannot be read."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0
