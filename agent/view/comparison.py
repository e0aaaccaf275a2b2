"""Two attempts, or two nights, side by side, and in one sentence how sure their difference is. Pure."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent.experiment import NOT_BELIEVED, Attempt, Run
from agent.invocation import typed
from agent.judging.intervals import Interval, Spread, difference
from agent.records.record import Record
from agent.records.summary import NightSummary, Scored, summary_of
from agent.script.dials import Value
from agent.text import counted, duration, percent_sure, shorten, shown_difference
from agent.view.answer import Measured
from agent.view.words import memory, score

TITLE_CHARS = 40


class Winner(StrEnum):
    """Name the better one of two, for programs."""

    A = "a"
    B = "b"
    OPEN = "open"  # the difference may be chance
    UNKNOWN = "unknown"  # no noise is known
    NO_SCORE = "no score"
    NOT_BELIEVED = "not believed"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Side:
    """Hold one of the two: an attempt, or a night by its incumbent."""

    night: Record
    attempt: Attempt
    dials: Mapping[str, Value] | None = None  # of its script; None: not known
    skeleton: str | None = None  # of its script without the dials; None: not known

    @property
    def name(self) -> str:
        return f"#{self.attempt.number} of {self.night.tag}"


@dataclass(frozen=True, slots=True)
class Contrast:
    """Hold one fact of both, and the change from the first to the second."""

    name: str
    a: str
    b: str
    change: str = ""  # from A to B


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold what differs between two attempts or nights."""

    lines: tuple[Contrast, ...]
    dials: Mapping[str, tuple[Value, Value]]  # those that differ; None: it has no such dial
    gain: Interval | None  # of B over A; positive: B is better
    by: str  # what the interval is learnt from; "" without one
    winner: Winner
    sentence: str


def attempts_compared(a: Side, b: Side) -> Comparison:
    """Compare two attempts, of one night or of two."""
    gain, by = _gain(a, b)
    winner, sentence = _verdict(a, b, gain, by)
    dials: dict[str, tuple[Value, Value]] = {}
    if a.dials is not None and b.dials is not None:
        names = dict.fromkeys((*a.dials, *b.dials))
        both = {name: (a.dials.get(name), b.dials.get(name)) for name in names}
        dials = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
    lines = [*_of_attempts(a, b)]
    lines += [Contrast(name, *("none" if one is None else str(one) for one in pair)) for name, pair in dials.items()]
    if a.skeleton and b.skeleton and a.skeleton != b.skeleton:
        lines.append(Contrast("code", "", "differs, too: see --diff"))
    return Comparison(tuple(lines), dials, gain, by, winner, sentence)


def nights_compared(a: Record, b: Record) -> Comparison:
    """Compare two nights by their best scripts, and show what each took."""
    lines, sides = tuple(_of_nights(a, b)), [_best(night) for night in (a, b)]
    first, second = sides
    if first is None or second is None:
        without = a if first is None else b
        return Comparison(lines, {}, None, "", Winner.NO_SCORE, f"night {without.tag} has kept nothing yet")
    gain, by = _gain(first, second)
    winner, sentence = _verdict(first, second, gain, by)
    chosen = [len(side.night.ideas) for side in (first, second) if side.attempt.number]
    if gain is not None and winner in (Winner.A, Winner.B, Winner.OPEN) and chosen:
        among = " and of ".join(counted(count, "attempt") for count in chosen)
        sentence += f"; the best score of {among} is luck in part"
    return Comparison(lines, {}, gain, by, winner, sentence)


def _best(night: Record) -> Side | None:
    found = night.attempt(night.incumbent)
    return None if found is None or found.val_bpb is None else Side(night, found)


# ---- the difference --------------------------------------------------------------------------------------------------


def _gain(a: Side, b: Side) -> tuple[Interval | None, str]:
    """Return how much lower B scores than A, and what that is learnt from; None without scores or noise."""
    runs, sides = (a.attempt.runs, b.attempt.runs), (a, b)
    dawns = [{run.dawn for run in own if run.dawn and run.val_bpb is not None} for own in runs]
    for dawn in sorted(dawns[0] & dawns[1], reverse=True) if a.night.tag == b.night.tag else ():
        gain, counts = _welch(runs, dawn)
        if gain is not None:
            return gain, f"{counts} at dawn, with seeds that no choice has seen"
    if a.attempt.val_bpb is None or b.attempt.val_bpb is None:
        return None, ""
    seeds = [max(1, side.attempt.seeds) for side in sides]
    sigmas = [side.night.sigma_bpb for side in sides]
    if sigmas[0] is not None and sigmas[1] is not None:  # σ of many runs tells more than the spread of two
        error_bpb = math.hypot(sigmas[0] / math.sqrt(seeds[0]), sigmas[1] / math.sqrt(seeds[1]))
        around = Spread(error_bpb, math.inf).around(a.attempt.val_bpb - b.attempt.val_bpb)
        return around, f"{_runs(*seeds)} and the noise of the night"
    gain, by = _welch(runs, 0)
    return gain, "" if gain is None else by


def _welch(runs: Sequence[Sequence[Run]], dawn: int) -> tuple[Interval | None, str]:
    """Return the gain by the runs of a dawn alone, or of the night (0), and how many those are."""
    a, b = ([run.val_bpb for run in own if run.dawn == dawn and run.val_bpb is not None] for own in runs)
    return difference(a, b), _runs(len(a), len(b))


def _runs(a: int, b: int) -> str:
    return f"{counted(a, 'run')} of A, {b} of B" if a != b else f"{counted(a, 'run')} each"


def _verdict(a: Side, b: Side, gain: Interval | None, by: str) -> tuple[Winner, str]:
    """Return the better one of the two, and how sure that is in a sentence."""
    for side in (a, b):
        if side.attempt.val_bpb is None:
            why = side.attempt.words or side.attempt.kind or "it is not decided yet"
            return Winner.NO_SCORE, f"nothing to compare: {side.name} has no score ({why})"
    if a.night.protocol != b.night.protocol:
        return Winner.NOT_COMPARABLE, (
            f"not comparable: {a.name} has protocol {a.night.protocol}, {b.name} has {b.night.protocol} (another "
            f"text, budget or kind of device), so their scores measure different things"
        )
    for side in (a, b):
        if side.attempt.kind in NOT_BELIEVED:
            doubt = f"no verdict: the score of {side.name} is not believed ({side.attempt.words})"
            return Winner.NOT_BELIEVED, doubt
    if gain is None:
        unknown = "no verdict: how much of the difference is chance is not known, since no attempt has two runs"
        return Winner.UNKNOWN, unknown
    a_leads = gain.mean_bpb < 0
    low, high = (-gain.high_bpb, -gain.low_bpb) if a_leads else (gain.low_bpb, gain.high_bpb)
    size, width = f"{score(abs(gain.mean_bpb))} bpb", f"95 %: {score(low, '+')} to {score(high, '+')}, by {by}"
    if low <= 0:
        winner, (lower, higher) = Winner.OPEN, "AB" if a_leads else "BA"
        sentence = f"no difference is certain: {lower} scores {size} lower than {higher} ({width})"
    else:
        winner, sides = (Winner.A, (a, b)) if a_leads else (Winner.B, (b, a))
        better, worse = (f"#{one.attempt.number}" if a.night.tag == b.night.tag else one.name for one in sides)
        sentence = f"{better} is better than {worse} by {size} ({width})"
    if a.night.device != b.night.device:
        return winner, f"{sentence}; they ran on different devices, and a faster one comes further within the budget"
    if "dawn" in by or a.attempt.status == b.attempt.status:
        return winner, sentence
    measures = f"{typed('confirm')} measures on fresh seeds"
    return winner, f"{sentence}; the night chose by these scores, which flatters what it kept: {measures}"


# ---- the facts -------------------------------------------------------------------------------------------------------


def _of_attempts(a: Side, b: Side) -> Iterator[Contrast]:
    if a.night.tag != b.night.tag:
        yield from _where(a.night, b.night)
    before, after = (Scored.of(side.night, side.attempt) for side in (a, b))
    yield Contrast("val_bpb", _within(before) or "none", _within(after) or "none", _gain_words(before, after))
    for name, of in WORDS_OF_ATTEMPT:
        yield Contrast(name, of(a.attempt), of(b.attempt))
    measured = [Measured.of(side.night, side.attempt) for side in (a, b)]
    for name, amount, write in AMOUNTS:
        one, other = (amount(facts) for facts in measured)
        change = f"{other / one - 1:+.1%}" if one and other is not None else ""
        first, second = ("" if value is None else write(value) for value in (one, other))
        yield Contrast(name, first, second, change)


def _of_nights(a: Record, b: Record) -> Iterator[Contrast]:
    yield from _where(a, b)
    nights = [summary_of(night) for night in (a, b)]
    for name, of in WORDS_OF_NIGHT:
        yield Contrast(name, *map(of, nights))
    for what in nights[0].hours:
        yield Contrast(f"time for {what}", *(duration(now.hours[what]) for now in nights))


def _where(a: Record, b: Record) -> Iterator[Contrast]:
    for name, of in WORDS_OF_PLACE:
        yield Contrast(name, of(a), of(b))


# ---- words -----------------------------------------------------------------------------------------------------------


def _within(known: Scored | None) -> str:
    """Return a score with half the width of its 95 % interval by the noise of the night."""
    if known is None:
        return ""
    return score(known.val_bpb) + (
        f" ± {score(known.val_bpb - known.low_bpb)}" if known.low_bpb < known.val_bpb else ""
    )


def _half(known: Interval | None) -> str:
    return "" if known is None else f"{score(known.mean_bpb, '+')} ± {score((known.high_bpb - known.low_bpb) / 2)}"


def _gained(attempt: Attempt) -> str:
    sure = "" if attempt.sure is None else f", {percent_sure(attempt.sure)} sure"
    return "" if attempt.gain_bpb is None else f"{score(attempt.gain_bpb, '+')}{sure}"


def _gain_words(before: Scored | None, after: Scored | None) -> str:
    """Return the gain of one score over another, above zero where it is lower, as everywhere."""
    return (
        "" if before is None or after is None else f"gain {score(shown_difference(before.val_bpb, after.val_bpb), '+')}"
    )


def _at_dawn(attempt: Attempt) -> str:
    scores = [run.val_bpb for run in attempt.runs if run.dawn and run.val_bpb is not None]
    return score(statistics.fmean(scores)) if scores else ""


WORDS_OF_ATTEMPT: Sequence[tuple[str, Callable[[Attempt], str]]] = (
    ("runs", lambda one: str(one.seeds)),
    ("at dawn", _at_dawn),
    ("verdict", lambda one: one.kind or "not decided"),
    ("parent", lambda one: "" if one.parent is None else f"#{one.parent}"),
    ("gain over it", _gained),
    ("time", lambda one: f"{one.spent_s:,.0f} s"),
    ("source", lambda one: one.source),
    ("commit", lambda one: (one.commit or "")[:7]),
)
AMOUNTS: Sequence[tuple[str, Callable[[Measured], float | None], Callable[[float], str]]] = (
    ("parameters", lambda one: one.params, "{:,.0f}".format),
    ("memory", lambda one: one.memory_gb, lambda gigabytes: memory(1024 * gigabytes)),
    ("tokens/s", lambda one: one.tokens_s, "{:,.0f}".format),
)
WORDS_OF_NIGHT: Sequence[tuple[str, Callable[[NightSummary], str]]] = (
    ("ideas", lambda now: f"{now.ideas:,}"),
    ("kept", lambda now: f"{now.kept:,}"),
    ("discarded", lambda now: f"{now.discarded:,}"),
    ("crashed", lambda now: f"{now.crashed:,}"),
    ("baseline", lambda now: _within(now.baseline)),
    ("best", lambda now: _within(now.best)),
    ("found by", lambda now: "" if now.best is None else f"#{now.best.number} {shorten(now.best.title, TITLE_CHARS)}"),
    ("recorded gain", lambda now: _gain_words(now.baseline, now.best).removeprefix("gain ")),
    ("honest gain", lambda now: _half(now.dawn.honest if now.dawn is not None else None)),
    ("σ of a run", lambda now: score(now.noise.sigma_bpb if now.noise else None)),
    ("cost", lambda now: "" if now.usd is None else f"${now.usd:.2f}"),
)
WORDS_OF_PLACE: Sequence[tuple[str, Callable[[Record], str]]] = (
    ("night", lambda night: night.tag),
    ("began", lambda night: night.started[:10]),
    ("device", lambda night: night.device),
    ("budget", lambda night: f"{night.budget_s:g} s"),
    ("protocol", lambda night: night.protocol),
)
