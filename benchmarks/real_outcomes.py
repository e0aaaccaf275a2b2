"""What came of real nights, by their journals or shipped records: the tables and the flat keys of real_nights.py."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import measure

from agent.errors import NightError
from agent.experiment import Interval, Status
from agent.records.journal import Journal
from agent.records.record import Record, of_journal
from agent.records.shipped import FACTS, of_folder
from agent.records.summary import earned

TAG = re.compile(r"-([a-z]+)-(\d+)$")  # arm and number, at its end
COMPARED_WITH = "search"
OF_A_SOURCE = {  # of Share, with the form of its figure
    "attempts": ",.0f", "kept": ",.0f", "gain_bpb": "+.4f", "hours": ".2f", "calls": ",.0f", "failures": ",.0f",
    "tokens_in": ",.0f", "tokens_cached": ",.0f", "tokens_out": ",.0f", "usd": ",.2f",
}  # fmt: skip
Nights = Mapping[str, Sequence[Record]]  # by arm


def read_all(folder: Path, name: str) -> Nights:
    """Return the nights that have a result: those whose journals lie in folder/work, else shipped ones in the folder.

    name: how their tags begin. Raise NightError for nights of two kinds, which do not compare.
    """
    records: list[Record] = []
    for path in folder.glob("work/*/experiments/nights/*/journal.sqlite"):
        with Journal.read(path) as journal:
            records.append(of_journal(journal))
    if not records:
        records = [of_folder(path.parent) for path in folder.glob(f"*/{FACTS}")]
    nights: dict[str, list[Record]] = {}
    kinds = set()
    for record in sorted(records, key=lambda record: record.tag):
        if record.tag.startswith(name) and (match := TAG.search(record.tag)) and record.attempts[0].decision:
            nights.setdefault(match[1], []).append(record)
            kinds.add(f"{record.device}, protocol {record.protocol}")
    if len(kinds) > 1:
        raise NightError(f"nights of {' and '.join(sorted(kinds))} do not compare: choose some by --name")
    return nights


def hours_of(record: Record) -> float:
    """Return the hours from a night's beginning to the end of its last run."""
    began, ended = record.night.started, record.ended or record.night.started
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds() / 3600


def recorded(record: Record) -> float | None:
    """Return the champion's gain by the scores that the night chose by."""
    first, best = record.attempts[0].val_bpb, record.best
    return None if first is None or best is None or best.val_bpb is None else first - best.val_bpb


def confirmed(record: Record, name: str) -> float | None:
    """Return the champion's gain on dawn's fresh seeds (honest), or on the holdout.

    It is 0 where nothing is kept, None where the night was cut off before its dawn could tell.
    """
    if record.incumbent == 0:
        return 0.0
    if record.findings is None or record.findings.champion != record.incumbent:
        return None
    interval: Interval | None = getattr(record.findings, name)
    return None if interval is None else interval.mean_bpb


def over_nights(values: Sequence[float]) -> Interval | None:
    """Return the mean and its 95 % interval by Student's t, the nights being the sample; None without any night.

    Of a single night the interval is unknown: infinite.
    """
    if len(values) < 2:
        return Interval(values[0], -math.inf, math.inf) if values else None
    error = statistics.stdev(values) / math.sqrt(len(values))
    return Interval.by_student(statistics.fmean(values), error, len(values) - 1)


def flatten(nights: Nights) -> measure.Flat:
    """Return the flat keys; an interval that is not known has no keys."""
    flat: measure.Flat = {}
    gains: dict[str, list[float]] = {}
    for arm, records in nights.items():
        night = records[0].night
        flat |= {name: getattr(night, name) for name in ("device", "device_kind", "protocol", "budget_s")}
        attempts = [attempt for record in records for attempt in record.attempts]
        for name in ("honest", "holdout"):
            gains[f"{arm}_{name}"] = [g for record in records if (g := confirmed(record, name)) is not None]
        gains[f"{arm}_recorded"] = [gain for record in records if (gain := recorded(record)) is not None]
        flat |= {
            f"{arm}_nights": len(records),
            f"{arm}_confirmed_nights": len(gains[f"{arm}_honest"]),
            f"{arm}_runs": sum(len(attempt.counted_runs) for attempt in attempts),
            f"{arm}_crashes": sum(attempt.status is Status.CRASH for attempt in attempts),
            f"{arm}_hours": sum(map(hours_of, records)),
        }
        shares = [share for record in records for share in earned(record.attempts, record.asks)]
        flat |= {f"{arm}_{name}": sum(getattr(share, name) for share in shares) for name in ("attempts", "kept")}
        for source in sorted({share.source for share in shares}):
            for name in OF_A_SOURCE:
                values = [getattr(share, name) for share in shares if share.source == source]
                amounts = [value for value in values if value is not None]
                flat[f"{arm}_{source}_{name}"] = sum(amounts) if amounts else None
    intervals = {name: over_nights(values) for name, values in gains.items()}
    for arm in nights.keys() - {COMPARED_WITH} if COMPARED_WITH in nights else ():
        # by how much the gains of the search are lower
        over = Interval.of_scores(gains[f"{arm}_honest"], gains[f"{COMPARED_WITH}_honest"])
        intervals[f"{arm}_over_{COMPARED_WITH}"] = over
    for name, interval in intervals.items():
        flat[name] = None if interval is None else interval.mean_bpb
        if interval is not None and math.isfinite(interval.low_bpb):
            flat |= {f"{name}_low": interval.low_bpb, f"{name}_high": interval.high_bpb}
    return flat
