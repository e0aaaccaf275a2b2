"""What came of real nights, by their shipped records and journals: the tables and the flat keys of real_nights.py."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import measure

from agent.errors import NightError
from agent.experiment import Interval, Night, Status
from agent.records.journal import Journal
from agent.records.shipped import FACTS, of_folder
from agent.records.summary import Share, earned

ARM = re.compile(r"-([a-z]+)-(\d+)$")  # the end of a night's tag
COMPARED_WITH = "search"
NOTHING = Interval(0.0, 0.0, 0.0)
OF_A_SOURCE = (  # of Share, with the form of its figure
    *(("attempts", ",.0f"), ("kept", ",.0f"), ("gain_bpb", "+.4f"), ("hours", ".2f"), ("calls", ",.0f")),
    *(("failures", ",.0f"), ("tokens_in", ",.0f"), ("tokens_cached", ",.0f"), ("tokens_out", ",.0f"), ("usd", ",.2f")),
)


@dataclass(frozen=True)
class Outcome:
    """One night. honest and holdout: the champion's gain on fresh seeds; 0 where nothing is kept, None where the night
    was cut off before its dawn could tell.
    """

    arm: str
    number: int
    night: Night
    hours: float  # from its beginning to the end of its last run
    runs: int  # dawn's included
    crashes: int
    recorded_bpb: float | None
    honest: Interval | None
    holdout: Interval | None
    sources: tuple[Share, ...]  # where its journal is gone, without models and costs


def read_all(folder: Path) -> list[Outcome]:
    """Return the nights whose records lie in a folder, by arm and number."""
    paths = [path.parent for path in folder.glob(f"*/{FACTS}") if not path.parent.name.startswith(".")]
    matches = [(path, match) for path in paths if (match := ARM.search(path.name))]
    nights = [read(path, match[1], int(match[2])) for path, match in matches]
    return sorted(nights, key=lambda night: (night.arm, night.number))


def read(folder: Path, arm: str, number: int) -> Outcome:
    record = of_folder(folder)
    history, best, tag = record.attempts, record.best, record.night.tag
    first, after = history[0].val_bpb, best.val_bpb if best is not None else None
    honest, holdout = (NOTHING, NOTHING) if best is not None and best.number == 0 else (None, None)
    if best is not None and best.number and record.findings and record.findings.champion == best.number:
        honest, holdout = record.findings.honest, record.findings.holdout
    ended = record.ended or record.night.started
    lasted = datetime.fromisoformat(ended) - datetime.fromisoformat(record.night.started)
    asks, journal_path = record.asks, folder.parent / "work" / tag / "experiments" / "nights" / tag / "journal.sqlite"
    with suppress(NightError, OSError), Journal.read(journal_path) as journal:
        asks = journal.asks()
    return Outcome(
        arm=arm,
        number=number,
        night=record.night,
        hours=lasted.total_seconds() / 3600,
        runs=sum(len(attempt.counted_runs) for attempt in history),
        crashes=sum(attempt.status is Status.CRASH for attempt in history),
        recorded_bpb=None if first is None or after is None else first - after,
        honest=honest,
        holdout=holdout,
        sources=earned(history, asks),
    )


# ---- over nights -----------------------------------------------------------------------------------------------------


def over_nights(values: Sequence[float]) -> Interval | None:
    """Return the mean and its 95 % interval by Student's t, the nights being the sample; None without any night.

    Of a single night the interval is unknown: infinite.
    """
    if len(values) < 2:
        return Interval(values[0], -math.inf, math.inf) if values else None
    error = statistics.stdev(values) / math.sqrt(len(values))
    return Interval.by_student(statistics.fmean(values), error, len(values) - 1)


def honest_of(nights: Sequence[Outcome]) -> list[float]:
    return [night.honest.mean_bpb for night in nights if night.honest is not None]


def flatten(nights: Sequence[Outcome]) -> measure.Flat:
    """Return the flat keys; an interval that is not known has no keys. Raises NightError for nights of two kinds."""
    protocols = {(night.night.protocol, night.night.device) for night in nights}
    if len(protocols) > 1:
        kinds = ", ".join(f"{n.night.tag} ({n.night.device}, protocol {n.night.protocol})" for n in nights)
        raise NightError(f"these nights do not compare: {kinds}; keep the nights of each device and corpus apart")
    flat: measure.Flat = {"nights": len(nights)}
    for name in ("device", "device_kind", "protocol", "budget_s"):
        flat[name] = getattr(nights[0].night, name) if nights else None
    arms = {arm: [night for night in nights if night.arm == arm] for arm in dict.fromkeys(n.arm for n in nights)}
    for arm, mine in arms.items():
        flat |= {f"{arm}_nights": len(mine), f"{arm}_confirmed_nights": len(honest_of(mine))}
        for name in ("runs", "crashes", "hours"):
            flat[f"{arm}_{name}"] = sum(getattr(night, name) for night in mine)
        put(flat, f"{arm}_recorded", over_nights([n.recorded_bpb for n in mine if n.recorded_bpb is not None]))
        put(flat, f"{arm}_honest", over_nights(honest_of(mine)))
        put(flat, f"{arm}_holdout", over_nights([n.holdout.mean_bpb for n in mine if n.holdout is not None]))
        shares = [share for night in mine for share in night.sources]
        flat |= {f"{arm}_{name}": sum(getattr(share, name) for share in shares) for name in ("attempts", "kept")}
        for source in sorted({share.source for share in shares}):
            for name, _ in OF_A_SOURCE:
                values = [getattr(share, name) for share in shares if share.source == source]
                known = [value for value in values if value is not None]
                flat[f"{arm}_{source}_{name}"] = sum(known) if known else None
    for arm in arms.keys() - {COMPARED_WITH} if COMPARED_WITH in arms else ():
        put(
            flat,
            f"{arm}_over_{COMPARED_WITH}",
            Interval.of_scores(honest_of(arms[arm]), honest_of(arms[COMPARED_WITH])),
        )
        gain, other = flat[f"{arm}_honest"], flat[f"{COMPARED_WITH}_honest"]
        is_gain = isinstance(other, float) and other > 0
        flat[f"{arm}_times_{COMPARED_WITH}"] = measure.ratio(gain, other) if is_gain else None
    return flat


def put(flat: measure.Flat, name: str, interval: Interval | None) -> None:
    flat[name] = None if interval is None else interval.mean_bpb
    if interval is not None and math.isfinite(interval.low_bpb):
        flat |= {f"{name}_low": interval.low_bpb, f"{name}_high": interval.high_bpb}


def print_results(flat: measure.Flat) -> None:
    if not flat["nights"]:
        measure.say("no night has a result yet")
        return
    arms = [key.removesuffix("_confirmed_nights") for key in flat if key.endswith("_confirmed_nights")]
    columns = {name: (name.replace("_", " "), ",.0f") for name in ("nights", "attempts", "kept", "crashes", "runs")}
    columns |= {"hours": ("hours", ".2f"), f"times_{COMPARED_WITH}": (f"times that of {COMPARED_WITH}", ".1f")}
    title = f"{flat['device']}, runs of {flat['budget_s']:g} s"
    measure.print_grid(title, flat, {f"{arm}_": arm for arm in arms}, columns)
    gains = [(arm, name) for arm in arms for name in ("recorded", "honest", "holdout", f"over_{COMPARED_WITH}")]
    rows = {f"{arm}_{name}": f"{arm}: {name.replace('_', ' ')}" for arm, name in gains if f"{arm}_{name}" in flat}
    columns = {"": ("gain, bpb", "+.4f"), "_low": ("from", "+.4f"), "_high": ("to", "+.4f")}
    measure.print_grid("Gains over nights, which are the sample, with 95 % intervals", flat, rows, columns)
    of_sources = [key.removesuffix("gain_bpb") for key in flat if key.endswith("_gain_bpb")]
    columns = {name: (name.replace("_", " "), form) for name, form in OF_A_SOURCE}
    names = {row: row.replace("_", " ") for row in of_sources}
    measure.print_grid("Sources, by the judge's estimates of what is kept", flat, names, columns)
