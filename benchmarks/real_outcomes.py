"""What came of real nights, by their shipped records and journals: the tables and the flat keys of real_nights.py."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import measure

from agent.errors import NightError
from agent.experiment import Ask, Attempt, History, Night, Status, source_name
from agent.judging.findings import Findings
from agent.judging.intervals import Interval, Spread, difference
from agent.records.journal import Journal
from agent.records.shipped import FACTS, of_folder
from agent.records.summary import kept_gains_bpb

ARM = re.compile(r"-([a-z]+)-(\d+)$")  # the end of a night's tag
COMPARED_WITH = "search"


@dataclass(frozen=True)
class Share:
    """What a source's ideas have brought, by the judge's estimates, and how long they took."""

    attempts: int = 0
    keeps: int = 0
    crashes: int = 0
    gain_bpb: float = 0.0
    hours: float = 0.0  # training, scoring, audits and asking, without dawn

    def __add__(self, other: Share) -> Share:
        return Share(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def flat(self, prefix: str) -> measure.Flat:
        return {
            f"{prefix}_attempts": self.attempts,
            f"{prefix}_keeps": self.keeps,
            f"{prefix}_crashes": self.crashes,
            f"{prefix}_believed": self.gain_bpb,
            f"{prefix}_busy_hours": self.hours,
            f"{prefix}_attempts_an_hour": measure.ratio(self.attempts, self.hours),
            f"{prefix}_believed_an_hour": measure.ratio(self.gain_bpb, self.hours),
        }


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
    first_bpb: float | None
    recorded_bpb: float | None
    honest: Interval | None
    holdout: Interval | None
    sources: Mapping[str, Share]
    asks: tuple[Ask, ...] | None  # None where its journal is gone: its record does not hold what they cost

    @property
    def all(self) -> Share:
        return sum(self.sources.values(), Share())


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
    honest, holdout = at_dawn(record.findings, best)
    ended = record.ended or record.night.started
    lasted = datetime.fromisoformat(ended) - datetime.fromisoformat(record.night.started)
    asks, journal_path = None, folder.parent / "work" / tag / "experiments" / "nights" / tag / "journal.sqlite"
    with suppress(NightError, OSError), Journal.read(journal_path) as journal:
        asks = journal.asks()
    return Outcome(
        arm=arm,
        number=number,
        night=record.night,
        hours=lasted.total_seconds() / 3600,
        runs=sum(len(attempt.counted_runs) for attempt in history),
        first_bpb=first,
        recorded_bpb=None if first is None or after is None else first - after,
        honest=honest,
        holdout=holdout,
        sources=dict(sources(history, record.asks)),
        asks=asks,
    )


def at_dawn(findings: Findings | None, best: Attempt | None) -> tuple[Interval | None, Interval | None]:
    """Return the champion's gain over attempt 0 on both texts, by the last dawn's findings about it."""
    if best is not None and best.number == 0:
        return Interval(0.0, 0.0, 0.0), Interval(0.0, 0.0, 0.0)
    if best is None or findings is None or findings.champion != best.number:
        return None, None
    return findings.honest, findings.holdout


def sources(history: History, asks: Sequence[Ask]) -> Iterator[tuple[str, Share]]:
    """Yield each source with what its ideas brought; dawn's questions are none."""
    ideas, gains_bpb = [attempt for attempt in history if attempt.is_edit], kept_gains_bpb(history)
    for name in sorted({source_name(attempt.proposal.source) for attempt in ideas}):
        mine = [attempt for attempt in ideas if source_name(attempt.proposal.source) == name]
        keeps = [attempt for attempt in mine if attempt.status is Status.KEEP]
        asked_s = sum(ask.wall_s for ask in asks if ask.attempt in {attempt.number for attempt in mine})
        yield (
            name,
            Share(
                attempts=len(mine),
                keeps=len(keeps),
                crashes=sum(attempt.status is Status.CRASH for attempt in mine),
                gain_bpb=sum(gains_bpb[attempt.number] for attempt in keeps),
                hours=(sum(attempt.spent_s for attempt in mine) + asked_s) / 3600,
            ),
        )


# ---- over nights -----------------------------------------------------------------------------------------------------


def over_nights(values: Sequence[float]) -> Interval | None:
    """Return the mean and its 95 % interval by Student's t, the nights being the sample; None without any night.

    Of a single night the interval is unknown: infinite.
    """
    if len(values) < 2:
        return Interval(values[0], -math.inf, math.inf) if values else None
    return Spread(statistics.stdev(values) / math.sqrt(len(values)), len(values) - 1).around(statistics.fmean(values))


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
        firsts = [night.first_bpb for night in mine if night.first_bpb is not None]
        flat |= {f"{arm}_nights": len(mine), f"{arm}_confirmed_nights": len(honest_of(mine))}
        flat |= {f"{arm}_runs": sum(n.runs for n in mine), f"{arm}_hours": sum(night.hours for night in mine)}
        flat[f"{arm}_first_bpb"] = statistics.fmean(firsts) if firsts else None
        flat |= sum((night.all for night in mine), Share()).flat(arm)
        put(flat, f"{arm}_recorded", over_nights([n.recorded_bpb for n in mine if n.recorded_bpb is not None]))
        put(flat, f"{arm}_honest", over_nights(honest_of(mine)))
        put(flat, f"{arm}_holdout", over_nights([n.holdout.mean_bpb for n in mine if n.holdout is not None]))
        flat[f"{arm}_of_first"] = measure.ratio(flat[f"{arm}_honest"], flat[f"{arm}_first_bpb"])
        for name in sorted({name for night in mine for name in night.sources}):
            flat |= sum((night.sources.get(name, Share()) for night in mine), Share()).flat(f"{arm}_{name}")
        if all(night.asks is not None for night in mine):
            flat |= costs(arm, [ask for night in mine for ask in night.asks or ()])
    for arm in arms.keys() - {COMPARED_WITH} if COMPARED_WITH in arms else ():
        put(flat, f"{arm}_over_{COMPARED_WITH}", difference(honest_of(arms[arm]), honest_of(arms[COMPARED_WITH])))
        gain, other = flat[f"{arm}_honest"], flat[f"{COMPARED_WITH}_honest"]
        times = measure.ratio(gain, other)
        flat[f"{arm}_times_{COMPARED_WITH}"] = times if isinstance(other, float) and other > 0 else None
    return flat


def costs(arm: str, asks: Sequence[Ask]) -> measure.Flat:
    """Return what the asking cost; tokens and dollars are of the calls that told them."""
    flat: measure.Flat = {
        f"{arm}_models": ", ".join(sorted({ask.model for ask in asks if ask.model})) or None,
        f"{arm}_calls": len(asks),
        f"{arm}_failed_calls": sum(ask.failure is not None for ask in asks),
        f"{arm}_asking_hours": sum(ask.wall_s for ask in asks) / 3600,
    }
    for name in ("tokens_in", "tokens_cached", "tokens_out", "usd"):
        known = [value for ask in asks if (value := getattr(ask, name)) is not None]
        flat[f"{arm}_{name}"] = sum(known) if known else None
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
    columns = {name: (name, ",.0f") for name in ("nights", "confirmed_nights", "attempts", "keeps", "crashes")}
    columns |= {"first_bpb": ("attempt 0", ".4f"), "of_first": ("honest gain of it", ".2%")}
    columns |= {f"times_{COMPARED_WITH}": (f"times that of {COMPARED_WITH}", ".1f")}
    title = f"{flat['device']}, runs of {flat['budget_s']:g} s"
    measure.print_grid(title, flat, {f"{arm}_": arm for arm in arms}, columns)
    gains = [(arm, name) for arm in arms for name in ("recorded", "honest", "holdout", f"over_{COMPARED_WITH}")]
    rows = {f"{arm}_{name}": f"{arm}: {name.replace('_', ' ')}" for arm, name in gains if f"{arm}_{name}" in flat}
    columns = {"": ("gain, bpb", "+.4f"), "_low": ("from", "+.4f"), "_high": ("to", "+.4f")}
    measure.print_grid("Gains over nights, which are the sample, with 95 % intervals", flat, rows, columns)
    of_sources = [key.removesuffix("_believed_an_hour") for key in flat if key.endswith("_believed_an_hour")]
    columns = {
        "attempts": ("attempts", ",.0f"), "keeps": ("keeps", ",.0f"), "crashes": ("crashes", ",.0f"),
        "busy_hours": ("hours", ".2f"), "attempts_an_hour": ("attempts an hour", ".0f"),
        "believed": ("believed gain", "+.4f"), "believed_an_hour": ("an hour", "+.4f"),
    }  # fmt: skip
    names = {f"{row}_": row.replace("_", ": ") for row in of_sources if row not in arms}
    measure.print_grid("Sources, by the judge's estimates of what is kept", flat, names, columns)
    names = {"calls": ",.0f", "failed_calls": ",.0f", "asking_hours": ".2f", "usd": ",.2f", "models": ""}
    names |= dict.fromkeys(("tokens_in", "tokens_cached", "tokens_out"), ",.0f")
    asked = {f"{arm}_": arm for arm in arms if flat.get(f"{arm}_calls")}
    if asked:
        columns = {name: (name.replace("_", " "), form) for name, form in names.items()}
        measure.print_grid("What the asking cost", flat, asked, columns)
