"""What a replay says of an attempt: its score then beside its score now, and a verdict in one sentence. Pure."""

import math
from dataclasses import dataclass
from enum import StrEnum

from agent.experiment import Attempt
from agent.judging.intervals import Interval
from agent.judging.noise import SAME
from agent.records.record import Record
from agent.records.summary import Scored
from agent.text import SCORE_DECIMALS, counted, shown_difference
from agent.view.answer import Before, Replay
from agent.view.words import score

SLOWER = 0.05  # share of the speed that is worth a word


class Verdict(StrEnum):
    """Name what a replay shows, for programs."""

    REPRODUCED = "reproduced"
    WITHIN_NOISE = "within noise"
    DIFFERENT = "different"
    UNKNOWN = "unknown"  # whether the difference is noise
    NOT_COMPARABLE = "not comparable"
    NOT_BELIEVED = "not believed"
    FAILED = "failed"
    SCORED_NOW = "scored now"  # it had no score then


@dataclass(frozen=True, slots=True)
class Replayed:
    """Hold the comparison of a replay with the attempt of the night."""

    verdict: Verdict
    sentence: str
    before: Before | None
    difference_bpb: float | None  # now minus then, as the two scores are shown
    noise_bpb: float | None  # what chance explains, 19 times in 20


def before(night: Record, attempt: Attempt, seed: int) -> Before | None:
    """Return the score with this seed, or else the attempt's mean; None without a score."""
    for run in attempt.runs:
        if run.seed == seed and run.val_bpb is not None:
            return Before(run.val_bpb, 1, seed, run.tokens_s)
    known = Scored.of(night, attempt)
    return None if known is None else Before(known.val_bpb, max(1, known.seeds), None, attempt.tokens_s)


def replayed(night: Record, attempt: Attempt, again: Replay) -> Replayed:
    """Compare a replay with the night's own runs of the attempt."""
    then = before(night, attempt, again.seed)
    difference_bpb = noise_bpb = None
    if then is not None and again.val_bpb is not None:
        difference_bpb = shown_difference(again.val_bpb, then.val_bpb)
        known = night.sigma_bpb is not None
        noise_bpb = Interval.of_runs(0.0, night.sigma_bpb, 1, then.runs).high_bpb if known else None
    verdict, sentence = _verdict(night, attempt, again, then, noise_bpb)
    return Replayed(verdict, sentence, then, difference_bpb, noise_bpb)


def _verdict(
    night: Record, attempt: Attempt, again: Replay, then: Before | None, noise_bpb: float | None
) -> tuple[Verdict, str]:
    """Return the verdict, in a sentence too."""
    why_without = attempt.words or attempt.kind or "it was not decided"
    earlier = f"then it had none: {why_without}" if then is None else f"then it had {score(then.val_bpb)}"
    if again.val_bpb is None:
        return Verdict.FAILED, f"failed: {again.failure}; {earlier}"
    if again.failure is not None:
        return Verdict.NOT_BELIEVED, f"not believed: {again.failure}"
    if then is None:
        return Verdict.SCORED_NOW, f"it has a score now; {earlier}"
    how = _how(again.val_bpb, then)
    if again.protocol != night.protocol:
        return Verdict.NOT_COMPARABLE, (
            f"not comparable: protocol {again.protocol} now, {night.protocol} then (another text, budget or kind "
            f"of device), so a score that is {how} says nothing about the attempt"
        )
    if then.seed is not None and math.isclose(again.val_bpb, then.val_bpb, rel_tol=SAME):
        same = f"reproduced exactly: {score(then.val_bpb)} with seed {again.seed}, then and now"
        return Verdict.REPRODUCED, same
    if noise_bpb is None:
        return Verdict.UNKNOWN, f"{how}; how much is chance is not known, since the night has not measured its noise"
    if abs(again.val_bpb - then.val_bpb) <= noise_bpb:
        return Verdict.WITHIN_NOISE, f"within noise: {how}, and chance alone explains {score(noise_bpb)}"
    why = "; ".join(_reasons(night, again, then))
    return Verdict.DIFFERENT, f"different: {how}, more than the {score(noise_bpb)} that chance explains: {why}"


def _how(val_bpb: float, then: Before) -> str:
    """Say how far the score of now is from that of then."""
    difference_bpb = shown_difference(val_bpb, then.val_bpb)
    than = "then" if then.seed is not None else f"the mean of its {counted(then.runs, 'run')}"
    if difference_bpb == 0:
        return f"the same as {than} in {SCORE_DECIMALS} decimals"
    return f"{score(abs(difference_bpb))} {'higher' if difference_bpb > 0 else 'lower'} than {than}"


def _reasons(night: Record, again: Replay, then: Before) -> list[str]:
    """Return what may have made the difference, the likeliest first."""
    reasons = []
    if again.device != night.device:
        reasons.append(f"it ran on {night.device} then and on {again.device} now")
    if again.changed_files:
        reasons.append(f"{', '.join(again.changed_files)} changed since")
    if then.tokens_s and again.tokens_s and abs(again.tokens_s / then.tokens_s - 1) > SLOWER:
        change = again.tokens_s / then.tokens_s - 1
        reasons.append(f"its tokens a second changed by {change:+.0%}: did other programs run beside it?")
    if then.seed is None:
        reasons.append("the night may have kept it for luck")
    return reasons or ["MLX, Python or a driver may have another version, which a night does not record"]
