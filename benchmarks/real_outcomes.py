"""What came of real nights, by their shipped records: the tables and the flat keys of real_nights.py."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import measure

from agent.errors import NightError
from agent.experiment import Ask, Attempt, History, Night, Status, source_name
from agent.judging.findings import Findings
from agent.judging.intervals import Interval, Spread, difference
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

    def an_hour(self, amount: float) -> float | None:
        return amount / self.hours if self.hours > 0 else None


@dataclass(frozen=True)
class Outcome:
    """One night. honest and holdout: the champion's gain on fresh seeds; 0 where nothing is kept, None where the night
    was cut off before its dawn could tell.
    """

    tag: str
    arm: str
    number: int
    night: Night
    ended: str | None
    runs: int  # dawn's included
    first_bpb: float | None
    recorded_bpb: float | None
    honest: Interval | None
    holdout: Interval | None
    sources: Mapping[str, Share]

    @property
    def all(self) -> Share:
        return sum(self.sources.values(), Share())

    @property
    def hours(self) -> float | None:
        """From the night's beginning to the end of its last run."""
        if self.ended is None:
            return None
        lasted = datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.night.started)
        return lasted.total_seconds() / 3600


def read_all(folder: Path) -> list[Outcome]:
    """Return the nights whose records lie in a folder, by arm and number."""
    found = []
    for path in sorted(folder.glob(f"*/{FACTS}")):
        name = ARM.search(path.parent.name)
        if name is not None and not path.parent.name.startswith("."):
            found.append(read(path.parent, name[1], int(name[2])))
    return sorted(found, key=lambda one: (one.arm, one.number))


def read(folder: Path, arm: str, number: int) -> Outcome:
    record = of_folder(folder)
    history, best = record.attempts, record.best
    first = history[0].val_bpb
    after = best.val_bpb if best is not None else None
    honest, holdout = at_dawn(record.findings, best)
    return Outcome(
        tag=record.night.tag,
        arm=arm,
        number=number,
        night=record.night,
        ended=record.ended,
        runs=sum(len(one.counted_runs) for one in history),
        first_bpb=first,
        recorded_bpb=None if first is None or after is None else first - after,
        honest=honest,
        holdout=holdout,
        sources=dict(sources(history, record.asks)),
    )


def at_dawn(found: Findings | None, best: Attempt | None) -> tuple[Interval | None, Interval | None]:
    """Return the champion's gain over attempt 0 on both texts, by the last dawn's findings about it."""
    if best is not None and best.number == 0:
        return Interval(0.0, 0.0, 0.0), Interval(0.0, 0.0, 0.0)
    if best is None or found is None or found.champion != best.number:
        return None, None
    return found.honest, found.holdout


def sources(history: History, asks: Sequence[Ask]) -> Iterator[tuple[str, Share]]:
    """Yield each source with what its ideas brought; dawn's questions are none."""
    ideas, gains_bpb = [one for one in history if one.is_edit], kept_gains_bpb(history)
    for name in sorted({source_name(one.proposal.source) for one in ideas}):
        mine = [one for one in ideas if source_name(one.proposal.source) == name]
        keeps = [one for one in mine if one.status is Status.KEEP]
        numbers = {one.number for one in mine}
        asked_s = sum(ask.wall_s for ask in asks if ask.attempt in numbers)
        yield (
            name,
            Share(
                attempts=len(mine),
                keeps=len(keeps),
                crashes=sum(one.status is Status.CRASH for one in mine),
                gain_bpb=sum(gains_bpb[one.number] for one in keeps),
                hours=(sum(one.spent_s for one in mine) + asked_s) / 3600,
            ),
        )


# ---- over nights -----------------------------------------------------------------------------------------------------


def over_nights(values: Sequence[float]) -> Interval | None:
    """Return the mean and its 95 % interval by Student's t, the nights being the sample; None without any night.

    Of a single night the interval is unknown: infinite.
    """
    if not values:
        return None
    if len(values) == 1:
        return Interval(values[0], -math.inf, math.inf)
    return Spread(statistics.stdev(values) / math.sqrt(len(values)), len(values) - 1).around(statistics.fmean(values))


def over(mine: Sequence[float], others: Sequence[float]) -> Interval | None:
    """Return how far the mean of some nights lies above that of others, by Welch's t; None with fewer than two each."""
    return difference(mine, others)


def honest_of(nights: Sequence[Outcome]) -> list[float]:
    return [one.honest.mean_bpb for one in nights if one.honest is not None]


def by_arm(nights: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    return {arm: [one for one in nights if one.arm == arm] for arm in dict.fromkeys(one.arm for one in nights)}


def flatten(nights: Sequence[Outcome]) -> measure.Flat:
    """Return the flat keys; an interval that is not known has no keys. Raises NightError for nights of two kinds."""
    protocols = {(one.night.protocol, one.night.device) for one in nights}
    if len(protocols) > 1:
        told = ", ".join(f"{one.tag} ({one.night.device}, protocol {one.night.protocol})" for one in nights)
        raise NightError(f"these nights do not compare: {told}; keep the nights of each device and corpus apart")
    flat: measure.Flat = {"nights": len(nights)}
    for name in ("device", "device_kind", "protocol", "budget_s"):
        flat[name] = getattr(nights[0].night, name) if nights else None
    arms = by_arm(nights)
    for arm, mine in arms.items():
        total = sum((one.all for one in mine), Share())
        hours = [one.hours for one in mine if one.hours is not None]
        firsts = [one.first_bpb for one in mine if one.first_bpb is not None]
        flat |= {f"{arm}_nights": len(mine), f"{arm}_runs": sum(one.runs for one in mine)}
        flat |= {f"{arm}_confirmed_nights": len(honest_of(mine)), f"{arm}_hours": sum(hours)}
        flat[f"{arm}_first_bpb"] = statistics.fmean(firsts) if firsts else None
        _put_share(flat, arm, total)
        put(flat, f"{arm}_recorded", over_nights([one.recorded_bpb for one in mine if one.recorded_bpb is not None]))
        put(flat, f"{arm}_honest", over_nights(honest_of(mine)))
        put(flat, f"{arm}_holdout", over_nights([one.holdout.mean_bpb for one in mine if one.holdout is not None]))
        for name in sorted({name for one in mine for name in one.sources}):
            _put_share(flat, f"{arm}_{name}", sum((one.sources.get(name, Share()) for one in mine), Share()))
    for arm in arms.keys() - {COMPARED_WITH} if COMPARED_WITH in arms else ():
        put(flat, f"{arm}_over_{COMPARED_WITH}", over(honest_of(arms[arm]), honest_of(arms[COMPARED_WITH])))
        flat[f"{arm}_times_{COMPARED_WITH}"] = _times(flat, arm)
    return flat


def _put_share(flat: measure.Flat, name: str, share: Share) -> None:
    flat |= {f"{name}_attempts": share.attempts, f"{name}_keeps": share.keeps, f"{name}_crashes": share.crashes}
    flat |= {f"{name}_believed": share.gain_bpb, f"{name}_busy_hours": share.hours}
    flat |= {f"{name}_attempts_an_hour": share.an_hour(share.attempts)}
    flat |= {f"{name}_believed_an_hour": share.an_hour(share.gain_bpb)}


def _times(flat: measure.Flat, arm: str) -> float | None:
    """Return the ratio of two honest gains; None where the search's is none, or that of the arm unknown."""
    mine, other = flat.get(f"{arm}_honest"), flat.get(f"{COMPARED_WITH}_honest")
    if not isinstance(mine, float) or not isinstance(other, float) or other <= 0:
        return None
    return mine / other


def put(flat: measure.Flat, name: str, interval: Interval | None) -> None:
    flat[name] = None if interval is None else interval.mean_bpb
    if interval is not None and math.isfinite(interval.low_bpb):
        flat |= {f"{name}_low": interval.low_bpb, f"{name}_high": interval.high_bpb}


# ---- tables ----------------------------------------------------------------------------------------------------------


def between(flat: Mapping[str, Any], name: str) -> str:
    """Return a mean with its interval, if that is known."""
    if flat.get(name) is None:
        return ""
    mean, low, high = flat[name], flat.get(f"{name}_low"), flat.get(f"{name}_high")
    return f"{mean:+.4f}" + ("" if low is None or low == high else f" [{low:+.4f}, {high:+.4f}]")


def print_results(nights: Sequence[Outcome], flat: measure.Flat) -> None:
    if not nights:
        measure.say("no night has a result yet")
        return
    title = f"{flat['device']}, runs of {flat['budget_s']:g} s, gains in bpb [95 %]"
    head = ("night", "hours", "attempts", "runs", "kept", "crashed", "attempt 0", "recorded", "honest", "holdout")
    measure.print_table(title, head, [_night_row(one) for one in nights])
    head = ("arm", "nights", "attempts", "kept", "crashed", "recorded", "honest", "of attempt 0", "honest, over search")
    measure.print_table("Over nights, which are the sample", head, [_arm_row(flat, arm) for arm in by_arm(nights)])
    head = ("arm: source", "attempts", "kept", "crashed", "hours", "attempts an hour", "believed gain", "an hour")
    pairs = dict.fromkeys((one.arm, name) for one in nights for name in one.sources)
    title = "Sources, by the judge's estimates of what is kept"
    measure.print_table(title, head, [_source_row(flat, arm, name) for arm, name in pairs])


def _night_row(one: Outcome) -> list[str]:
    interval: measure.Flat = {}
    put(interval, "honest", one.honest)
    total = one.all
    counts = [str(count) for count in (total.attempts, one.runs, total.keeps, total.crashes)]
    told = [measure.show(one.hours, ".2f"), *counts, measure.show(one.first_bpb, ".4f")]
    holdout = one.holdout.mean_bpb if one.holdout is not None else None
    gains = [measure.show(one.recorded_bpb, "+.4f"), between(interval, "honest"), measure.show(holdout, "+.4f")]
    return [one.tag, *told, *gains]


def _arm_row(flat: measure.Flat, arm: str) -> list[str]:
    honest, first = flat[f"{arm}_honest"], flat[f"{arm}_first_bpb"]
    share = measure.ratio(honest, first) if isinstance(honest, float) and isinstance(first, float) else None
    times = measure.show(flat.get(f"{arm}_times_{COMPARED_WITH}"), ".1f")
    above = ", ".join(filter(None, [between(flat, f"{arm}_over_{COMPARED_WITH}"), times and f"×{times}"]))
    counts = [measure.show(flat[f"{arm}_{name}"]) for name in ("nights", "attempts", "keeps", "crashes")]
    if flat[f"{arm}_confirmed_nights"] != flat[f"{arm}_nights"]:  # the honest gain is of these
        counts[0] = f"{flat[f'{arm}_confirmed_nights']} of {counts[0]}"
    gains = [between(flat, f"{arm}_{name}") for name in ("recorded", "honest")]
    return [arm, *counts, *gains, measure.show(share, ".2%"), above]


def _source_row(flat: measure.Flat, arm: str, source: str) -> list[str]:
    forms = {
        "attempts": ",.0f", "keeps": ",.0f", "crashes": ",.0f", "busy_hours": ".2f", "attempts_an_hour": ".0f",
        "believed": "+.4f", "believed_an_hour": "+.4f",
    }  # fmt: skip
    return [f"{arm}: {source}", *(measure.show(flat[f"{arm}_{source}_{name}"], form) for name, form in forms.items())]
