"""Compare two attempts side by side, and say in one sentence how sure their difference is. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.experiment import NOT_BELIEVED, Attempt, Run
from agent.findings import Interval
from agent.records.record import Record
from agent.records.summary import lower_bpb
from agent.script.dials import Value
from agent.text import counted
from agent.view.answer import AttemptOfNight, CompareAnswer
from agent.view.terminal import measured_facts
from agent.view.words import Form, outcome


@dataclass(frozen=True, slots=True)
class Side:
    """One of two attempts that are compared."""

    night: Record
    attempt: Attempt

    @property
    def name(self) -> str:
        return f"#{self.attempt.number} of {self.night.tag}"

    def facts(self) -> dict[str, str]:
        """Return name → what is known of it, in words; "" for what is not."""
        return {
            "night": self.night.tag,
            "device": self.night.device,
            "budget": f"{self.night.budget_s:g} s",
            "protocol": self.night.protocol,
            "verdict": outcome(self.attempt.kind, lower_bpb(self.attempt, self.night.parent(self.attempt))),
            "parent": "" if self.attempt.parent is None else f"#{self.attempt.parent}",
            "proposer": self.attempt.proposer,
            **measured_facts(self.night, self.attempt),
        }


def compared(a: Side, b: Side) -> CompareAnswer:
    """Compare two attempts, of one night or of two."""
    is_doubted = {a.attempt.kind, b.attempt.kind} & NOT_BELIEVED
    gain, by = (None, "") if is_doubted else _gain(a, b)
    winner, sentence = _verdict(a, b, gain, by)
    before, after = a.attempt.outline.dials, b.attempt.outline.dials
    pairs = {name: (before.get(name), after.get(name)) for name in dict.fromkeys((*before, *after))}
    first, second = AttemptOfNight.of(a.night, a.attempt), AttemptOfNight.of(b.night, b.attempt)
    dials: dict[str, tuple[Value, Value]] = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return CompareAnswer(first, second, dials, gain, by, winner, sentence)


def rows(a: Side, b: Side, dials: Mapping[str, tuple[Value, Value]]) -> list[tuple[str, ...]]:
    """Return the name of each fact that differs, and its words for either; dials: those that differ."""
    others = b.facts()
    rows = [(name, words, others[name]) for name, words in a.facts().items() if words != others[name]]
    return rows + [(name, *("none" if value is None else str(value) for value in pair)) for name, pair in dials.items()]


def _gain(a: Side, b: Side) -> tuple[Interval | None, str]:
    """Return how much lower B scores than A, and the runs that tell it; None without scores or noise."""
    runs = a.attempt.runs, b.attempt.runs
    confirmations = [{run.confirmation for run in own if run.confirmation and run.val_bpb is not None} for own in runs]
    for confirmation in sorted(confirmations[0] & confirmations[1], reverse=True) if a.night.tag == b.night.tag else ():
        gain = Interval.of_scores(_scores(runs[0], confirmation), _scores(runs[1], confirmation))
        if gain is not None:
            return gain, "confirmation runs on fresh seeds"
    sigmas = a.night.sigma_bpb, b.night.sigma_bpb
    if a.attempt.val_bpb is None or b.attempt.val_bpb is None or sigmas[0] is None or sigmas[1] is None:
        return None, ""
    seeds = max(1, a.attempt.seeds), max(1, b.attempt.seeds)
    error_bpb = math.hypot(sigmas[0] / math.sqrt(seeds[0]), sigmas[1] / math.sqrt(seeds[1]))
    around = Interval.of_runs(a.attempt.val_bpb - b.attempt.val_bpb, error_bpb, 1)
    return around, f"{counted(seeds[0], 'run')} of A, {seeds[1]} of B and the noise of the night"


def _scores(runs: Sequence[Run], confirmation: int) -> list[float]:
    return [run.val_bpb for run in runs if run.confirmation == confirmation and run.val_bpb is not None]


def _verdict(a: Side, b: Side, gain: Interval | None, by: str) -> tuple[str | None, str]:
    """Return the better one, a or b, None if that is open, and a sentence on how sure it is."""
    for side in (a, b):
        if side.attempt.val_bpb is None:
            why = side.attempt.words or side.attempt.kind or "it is not decided yet"
            return None, f"nothing to compare: {side.name} has no score ({why})"
        if side.attempt.kind in NOT_BELIEVED:
            return None, f"no verdict: the score of {side.name} is not believed ({side.attempt.words})"
    if a.night.protocol != b.night.protocol:
        return None, (
            f"not comparable: {a.name} has protocol {a.night.protocol}, {b.name} has {b.night.protocol} (another "
            f"text, budget or kind of device), so their scores measure different things"
        )
    if gain is None:
        return None, "no verdict: the noise is not known, as no attempt of the night had two runs"
    winner, better, worse = ("a", a, b) if gain.mean_bpb < 0 else ("b", b, a)
    if gain.mean_bpb < 0:
        gain = Interval(-gain.mean_bpb, -gain.high_bpb, -gain.low_bpb)
    unit = "" if a.night.night.options.metric else " bpb"
    gained, caveat = f"{Form.of(a.night.night).interval(gain)}{unit}, from {by}", ""
    if a.night.device != b.night.device:
        caveat = "; they ran on different devices, and a faster one trains more steps in the same budget"
    elif "confirmation" not in by:
        caveat = "; these scores decided what was kept, so they flatter it"
    if gain.low_bpb <= 0:
        return None, f"no difference is certain: {better.name} gains {gained} over {worse.name}{caveat}"
    return winner, f"{better.name} is better than {worse.name}: it gains {gained}{caveat}"
