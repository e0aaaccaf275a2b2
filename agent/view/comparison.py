"""Two attempts side by side, and in one sentence how sure their difference is. Pure."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent.experiment import NOT_BELIEVED, Attempt, Interval, Run
from agent.records.record import Record
from agent.records.summary import Scored
from agent.script.dials import Value
from agent.text import counted, duration, percent_sure
from agent.view.answer import AttemptOfNight, CompareAnswer, Measured, for_author
from agent.view.words import interval_words, memory, score, scored_words


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
    """Hold one of the two."""

    night: Record
    attempt: Attempt
    dials: Mapping[str, Value] | None = None  # of its script; None: not known
    skeleton: str | None = None  # of its script without the dials; None: not known

    @property
    def name(self) -> str:
        return f"#{self.attempt.number} of {self.night.tag}"

    def told(self) -> AttemptOfNight:
        """Return what an author may know of it."""
        return AttemptOfNight(self.night.tag, for_author(self.attempt), Measured.of(self.night, self.attempt))


def compared(a: Side, b: Side) -> CompareAnswer:
    """Compare two attempts, of one night or of two."""
    gain, by = _gain(a, b)
    winner, sentence = _verdict(a, b, gain, by)
    dials: dict[str, tuple[Value, Value]] = {}
    if a.dials is not None and b.dials is not None:
        names = dict.fromkeys((*a.dials, *b.dials))
        both = {name: (a.dials.get(name), b.dials.get(name)) for name in names}
        dials = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
    return CompareAnswer(a.told(), b.told(), dials, gain, by, winner, sentence)


def rows(a: Side, b: Side, dials: Mapping[str, tuple[Value, Value]]) -> list[tuple[str, ...]]:
    """Return the name of each fact that differs, and its words for either; dials: those that differ."""
    facts, others = _facts(a), _facts(b)
    rows = [(name, words, others[name]) for name, words in facts.items() if words != others[name]]
    turned = [(name, *("none" if value is None else str(value) for value in pair)) for name, pair in dials.items()]
    has_other_code = a.skeleton and b.skeleton and a.skeleton != b.skeleton
    return [*rows, *turned, *([("code", "", "differs, too: see --diff")] if has_other_code else [])]


# ---- the difference --------------------------------------------------------------------------------------------------


def _gain(a: Side, b: Side) -> tuple[Interval | None, str]:
    """Return how much lower B scores than A, and what that is learnt from; None without scores or noise."""
    runs = a.attempt.runs, b.attempt.runs
    dawns = [{run.dawn for run in own if run.dawn and run.val_bpb is not None} for own in runs]
    for dawn in sorted(dawns[0] & dawns[1], reverse=True) if a.night.tag == b.night.tag else ():
        gain, counts = _welch(runs, dawn)
        if gain is not None:
            return gain, f"{counts} at dawn, with seeds that no choice has seen"
    if a.attempt.val_bpb is None or b.attempt.val_bpb is None:
        return None, ""
    sigmas, seeds = (a.night.sigma_bpb, b.night.sigma_bpb), (max(1, a.attempt.seeds), max(1, b.attempt.seeds))
    if sigmas[0] is not None and sigmas[1] is not None:  # σ of many runs tells more than the spread of two
        error_bpb = math.hypot(sigmas[0] / math.sqrt(seeds[0]), sigmas[1] / math.sqrt(seeds[1]))
        around = Interval.of_runs(a.attempt.val_bpb - b.attempt.val_bpb, error_bpb, 1)
        return around, f"{counted(seeds[0], 'run')} of A, {seeds[1]} of B and the noise of the night"
    gain, by = _welch(runs, 0)
    return gain, "" if gain is None else by


def _welch(runs: Sequence[Sequence[Run]], dawn: int) -> tuple[Interval | None, str]:
    """Return the gain by the runs of a dawn alone, or of the night (0), and how many those are."""
    a, b = ([run.val_bpb for run in own if run.dawn == dawn and run.val_bpb is not None] for own in runs)
    return Interval.of_scores(a, b), f"{counted(len(a), 'run')} of A, {len(b)} of B"


def _verdict(a: Side, b: Side, gain: Interval | None, by: str) -> tuple[Winner, str]:
    """Return the better one of the two, and how sure that is in a sentence."""
    for side in (a, b):
        if side.attempt.val_bpb is None:
            why = side.attempt.words or side.attempt.kind or "it is not decided yet"
            return Winner.NO_SCORE, f"nothing to compare: {side.name} has no score ({why})"
        if side.attempt.kind in NOT_BELIEVED:
            doubt = f"no verdict: the score of {side.name} is not believed ({side.attempt.words})"
            return Winner.NOT_BELIEVED, doubt
    if a.night.protocol != b.night.protocol:
        return Winner.NOT_COMPARABLE, (
            f"not comparable: {a.name} has protocol {a.night.protocol}, {b.name} has {b.night.protocol} (another "
            f"text, budget or kind of device), so their scores measure different things"
        )
    if gain is None:
        unknown = "no verdict: how much of the difference is chance is not known, since no attempt has two runs"
        return Winner.UNKNOWN, unknown
    winner, better, worse = (Winner.A, a, b) if gain.mean_bpb < 0 else (Winner.B, b, a)
    if gain.mean_bpb < 0:
        gain = Interval(-gain.mean_bpb, -gain.high_bpb, -gain.low_bpb)
    how, beside = f"{interval_words(gain)} bpb, by {by}", ""
    if a.night.device != b.night.device:
        beside = "; they ran on different devices, and a faster one comes further within the budget"
    elif "dawn" not in by and (a.attempt.status != b.attempt.status or a.night.tag != b.night.tag):
        beside = "; the night chose by these scores, which flatters what it kept"
    if gain.low_bpb <= 0:
        return Winner.OPEN, f"no difference is certain: {better.name} gains {how} over {worse.name}{beside}"
    return winner, f"{better.name} is better than {worse.name}: it gains {how}{beside}"


# ---- the facts -------------------------------------------------------------------------------------------------------


def _facts(side: Side) -> dict[str, str]:
    """Return what is known of an attempt, in words; "" for what is not."""
    night, attempt = side.night, side.attempt
    scored, measured = Scored.of(night, attempt), Measured.of(night, attempt)
    at_dawn = [run.val_bpb for run in attempt.runs if run.dawn and run.val_bpb is not None]
    sure = "" if attempt.sure is None else f", {percent_sure(attempt.sure)} sure"
    return {
        "night": night.tag,
        "device": night.device,
        "budget": f"{night.budget_s:g} s",
        "protocol": night.protocol,
        "val_bpb": "none" if scored is None else scored_words(scored),
        "at dawn": score(statistics.fmean(at_dawn)) if at_dawn else "",
        "verdict": attempt.kind or "not decided",
        "parent": "" if attempt.parent is None else f"#{attempt.parent}",
        "gain over it": "" if attempt.gain_bpb is None else f"{score(attempt.gain_bpb, '+')}{sure}",
        "time": duration(attempt.spent_s / 3600),
        "source": attempt.source,
        "commit": (attempt.commit or "")[:7],
        "parameters": "" if measured.params is None else f"{measured.params:,}",
        "memory": "" if measured.memory_gb is None else memory(measured.memory_gb),
        "tokens/s": "" if measured.tokens_s is None else f"{measured.tokens_s:,.0f}",
    }
