"""Two attempts, or two nights, side by side, and in one sentence how sure their difference is. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent.experiment import NOT_BELIEVED, Status
from agent.invocation import typed
from agent.judging.intervals import Interval, Spread, difference
from agent.script.dials import Value
from agent.text import SCORE_DECIMALS, counted, duration, percent_sure, shorten, shown_difference
from agent.view.facts.nouns import AttemptFacts, NightFacts, RunFacts
from agent.view.facts.overview import cost_usd, hours, overview_of, scored_of
from agent.view.terminal import memory

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

    night: NightFacts
    attempt: AttemptFacts
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
    winner = _winner(a, b, gain)
    dials = _other_dials(a, b)
    turned = (Contrast(name, _shown(old), _shown(new)) for name, (old, new) in dials.items())
    lines = (*_facts(a, b), *turned, *_code(a, b))
    return Comparison(lines, dials, gain, by, winner, _sentence(a, b, gain, by, winner))


def nights_compared(a: NightFacts, b: NightFacts) -> Comparison:
    """Compare two nights by their best scripts, and show what each took."""
    lines, best_a, best_b = tuple(_of_nights(a, b)), _best(a), _best(b)
    if best_a is None or best_b is None:
        without = a if best_a is None else b
        return Comparison(lines, {}, None, "", Winner.NO_SCORE, f"night {without.tag} has kept nothing yet")
    gain, by = _gain(best_a, best_b)
    winner = _winner(best_a, best_b, gain)
    sentence = _sentence(best_a, best_b, gain, by, winner)
    chosen = [len(side.night.ideas) for side in (best_a, best_b) if side.attempt.number]
    if gain is not None and winner in (Winner.A, Winner.B, Winner.OPEN) and chosen:
        among = " and of ".join(counted(count, "attempt") for count in chosen)
        sentence += f"; the best score of {among} is luck in part"
    return Comparison(lines, {}, gain, by, winner, sentence)


# ---- the difference --------------------------------------------------------------------------------------------------


def _gain(a: Side, b: Side) -> tuple[Interval | None, str]:
    """Return how much lower B scores than A, and what that is learnt from; None without scores or noise."""
    for dawn in _common_dawns(a, b):
        both = _scores(a.attempt.runs, dawn), _scores(b.attempt.runs, dawn)
        gain = difference(*both)
        if gain is not None:
            return gain, f"{_runs(*map(len, both))} at dawn, with seeds that no choice has seen"
    if a.attempt.val_bpb is None or b.attempt.val_bpb is None:
        return None, ""
    errors = [_error(side) for side in (a, b)]
    if errors[0] is not None and errors[1] is not None:  # σ of many runs tells more than the spread of two
        spread = Spread(math.hypot(errors[0], errors[1]), math.inf)
        counts = (max(1, side.attempt.seeds) for side in (a, b))
        return spread.around(a.attempt.val_bpb - b.attempt.val_bpb), f"{_runs(*counts)} and the noise of the night"
    both = _scores(a.attempt.runs, 0), _scores(b.attempt.runs, 0)
    gain = difference(*both)
    return gain, "" if gain is None else _runs(*map(len, both))


def _common_dawns(a: Side, b: Side) -> list[int]:
    """Return the dawns at which both were run, the latest first."""
    if a.night.tag != b.night.tag:
        return []
    at = [{run.dawn for run in side.attempt.runs if run.dawn and run.val_bpb is not None} for side in (a, b)]
    return sorted(at[0] & at[1], reverse=True)


def _scores(runs: Sequence[RunFacts], dawn: int) -> list[float]:
    return [run.val_bpb for run in runs if run.dawn == dawn and run.val_bpb is not None]


def _error(side: Side) -> float | None:
    sigma_bpb = side.night.sigma_bpb
    return None if sigma_bpb is None else sigma_bpb / math.sqrt(max(1, side.attempt.seeds))


def _runs(a: int, b: int) -> str:
    return f"{counted(a, 'run')} of A, {b} of B" if a != b else f"{counted(a, 'run')} each"


def _winner(a: Side, b: Side, gain: Interval | None) -> Winner:
    if a.attempt.val_bpb is None or b.attempt.val_bpb is None:
        return Winner.NO_SCORE
    if a.night.protocol != b.night.protocol:
        return Winner.NOT_COMPARABLE
    if a.attempt.kind in NOT_BELIEVED or b.attempt.kind in NOT_BELIEVED:
        return Winner.NOT_BELIEVED
    if gain is None:
        return Winner.UNKNOWN
    if gain.low_bpb > 0 or gain.high_bpb < 0:
        return Winner.B if gain.low_bpb > 0 else Winner.A
    return Winner.OPEN


def _sentence(a: Side, b: Side, gain: Interval | None, by: str, winner: Winner) -> str:
    match winner:
        case Winner.NO_SCORE:
            without = a if a.attempt.val_bpb is None else b
            why = without.attempt.words or without.attempt.kind or "it is not decided yet"
            return f"nothing to compare: {without.name} has no score ({why})"
        case Winner.NOT_COMPARABLE:
            return (
                f"not comparable: {a.name} has protocol {a.night.protocol}, {b.name} has {b.night.protocol} (another "
                f"text, budget or kind of device), so their scores measure different things"
            )
        case Winner.NOT_BELIEVED:
            doubted = a if a.attempt.kind in NOT_BELIEVED else b
            return f"no verdict: the score of {doubted.name} is not believed ({doubted.attempt.words})"
        case Winner.UNKNOWN:
            return "no verdict: how much of the difference is chance is not known, since no attempt has two runs"
    assert gain is not None
    a_leads = winner is Winner.A or (winner is Winner.OPEN and gain.mean_bpb < 0)
    low, high = (-gain.high_bpb, -gain.low_bpb) if a_leads else (gain.low_bpb, gain.high_bpb)
    width = f"95 %: {low:+.{SCORE_DECIMALS}f} to {high:+.{SCORE_DECIMALS}f}, by {by}"
    if winner is Winner.OPEN:
        lower, higher = "AB" if a_leads else "BA"
        size = f"{abs(gain.mean_bpb):.{SCORE_DECIMALS}f} bpb"
        sentence = f"no difference is certain: {lower} scores {size} lower than {higher} ({width})"
    else:
        better, worse = (b, a) if winner is Winner.B else (a, b)
        is_one = a.night.tag == b.night.tag
        names = [f"#{side.attempt.number}" if is_one else side.name for side in (better, worse)]
        sentence = f"{names[0]} is better than {names[1]} by {abs(gain.mean_bpb):.{SCORE_DECIMALS}f} bpb ({width})"
    return sentence + _caution(a, b, by)


def _caution(a: Side, b: Side, by: str) -> str:
    """Return what the interval leaves out; "" if it leaves nothing out."""
    if a.night.device != b.night.device:
        return "; they ran on different devices, and a faster one comes further within the budget"
    if "dawn" in by or a.attempt.status == b.attempt.status:
        return ""
    return f"; the night chose by these scores, which flatters what it kept: {typed('confirm')} measures on fresh seeds"


# ---- the facts -------------------------------------------------------------------------------------------------------


def _facts(a: Side, b: Side) -> Iterator[Contrast]:
    one, two = a.attempt, b.attempt
    if a.night.tag != b.night.tag:
        yield from _where(a.night, b.night)
    yield Contrast("val_bpb", _score(a), _score(b), _bpb(_change(one.val_bpb, two.val_bpb), "+"))
    yield Contrast("runs", str(one.seeds), str(two.seeds))
    at_dawn = [_mean([run.val_bpb for run in side.runs if run.dawn]) for side in (one, two)]
    yield Contrast("at dawn", *map(_bpb, at_dawn))
    yield Contrast("verdict", one.kind or "not decided", two.kind or "not decided")
    yield Contrast("parent", *("" if side.parent is None else f"#{side.parent}" for side in (one, two)))
    yield Contrast("gain over it", _gained(one), _gained(two))
    yield Contrast("parameters", _whole(one.params), _whole(two.params), _ratio(one.params, two.params))
    yield Contrast("memory", _memory(one), _memory(two), _ratio(one.memory_gb, two.memory_gb))
    yield Contrast("tokens/s", _whole(one.tokens_s), _whole(two.tokens_s), _ratio(one.tokens_s, two.tokens_s))
    yield Contrast("time", f"{one.spent_s:,.0f} s", f"{two.spent_s:,.0f} s")
    yield Contrast("source", one.source, two.source)
    yield Contrast("commit", (one.commit or "")[:7], (two.commit or "")[:7])


def _code(a: Side, b: Side) -> Iterator[Contrast]:
    if a.skeleton and b.skeleton and a.skeleton != b.skeleton:
        yield Contrast("code", "", "differs, too: see --diff")


def _of_nights(a: NightFacts, b: NightFacts) -> Iterator[Contrast]:
    yield from _where(a, b)
    yield Contrast("ideas", *(f"{len(night.ideas):,}" for night in (a, b)))
    for status in Status:
        yield Contrast(status, *(f"{getattr(overview_of(night), status):,}" for night in (a, b)))
    first, last = _first_bpb(a), _first_bpb(b)
    best = _best(a), _best(b)
    reached = [side.attempt.val_bpb if side else None for side in best]
    yield Contrast("baseline", _bpb(first), _bpb(last), _bpb(_change(first, last), "+"))
    yield Contrast("best", *(_score(side) if side else "" for side in best))
    yield Contrast("found by", *(_titled(side.attempt) if side else "" for side in best))
    gains = [_change(end, start) for start, end in zip((first, last), reached, strict=True)]
    yield Contrast("recorded gain", *(_bpb(gain, "+") for gain in gains))
    yield Contrast("honest gain", *(_interval(night.dawn.honest if night.dawn else None) for night in (a, b)))
    yield Contrast("σ of a run", _bpb(a.sigma_bpb), _bpb(b.sigma_bpb))
    for (what, spent_a), (_, spent_b) in zip(hours(a), hours(b), strict=True):
        yield Contrast(f"time for {what}", duration(spent_a), duration(spent_b))
    yield Contrast("cost", _cost(a), _cost(b))


def _where(a: NightFacts, b: NightFacts) -> Iterator[Contrast]:
    yield Contrast("night", a.tag, b.tag)
    yield Contrast("began", a.started[:10], b.started[:10])
    yield Contrast("device", a.device, b.device)
    yield Contrast("budget", f"{a.budget_s:g} s", f"{b.budget_s:g} s")
    yield Contrast("protocol", a.protocol, b.protocol)


def _first_bpb(night: NightFacts) -> float | None:
    return next((one.val_bpb for one in night.attempts if one.parent is None), None)


def _best(night: NightFacts) -> Side | None:
    found = night.attempt(night.incumbent)
    return None if found is None or found.val_bpb is None else Side(night, found)


def _other_dials(a: Side, b: Side) -> dict[str, tuple[Value, Value]]:
    """Return the dials whose values differ; empty also where the dials of one are not known."""
    if a.dials is None or b.dials is None:
        return {}
    names = dict.fromkeys((*a.dials, *b.dials))
    return {name: (a.dials.get(name), b.dials.get(name)) for name in names if a.dials.get(name) != b.dials.get(name)}


# ---- words -----------------------------------------------------------------------------------------------------------


def _score(side: Side) -> str:
    """Return the score with half the width of its 95 % interval by the noise of the night."""
    known = scored_of(side.night, side.attempt)
    if known is None:
        return "none"
    around = f" ± {_bpb(known.val_bpb - known.low_bpb)}" if side.night.sigma_bpb is not None else ""
    return f"{_bpb(known.val_bpb)}{around}"


def _titled(attempt: AttemptFacts) -> str:
    return f"#{attempt.number} {shorten(attempt.title, TITLE_CHARS)}"


def _gained(attempt: AttemptFacts) -> str:
    sure = "" if attempt.sure is None else f", {percent_sure(attempt.sure)} sure"
    return "" if attempt.gain_bpb is None else f"{attempt.gain_bpb:+.{SCORE_DECIMALS}f}{sure}"


def _interval(known: Interval | None) -> str:
    half_bpb = (known.high_bpb - known.low_bpb) / 2 if known is not None else 0.0
    return "" if known is None else f"{_bpb(known.mean_bpb, '+')} ± {_bpb(half_bpb)}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _bpb(value: float | None, sign: str = "") -> str:
    return "" if value is None else format(value, f"{sign}.{SCORE_DECIMALS}f")


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _change(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else shown_difference(b, a)


def _ratio(a: float | None, b: float | None) -> str:
    return f"{b / a - 1:+.1%}" if a and b is not None else ""


def _memory(attempt: AttemptFacts) -> str:
    return "" if attempt.memory_gb is None else memory(1024 * attempt.memory_gb)


def _cost(night: NightFacts) -> str:
    known_usd = cost_usd(night.sources)
    return "" if known_usd is None else f"${known_usd:.2f}"


def _shown(value: Value) -> str:
    return "none" if value is None else str(value)
