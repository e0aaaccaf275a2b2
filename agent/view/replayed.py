"""What a replay says of an attempt: its score then beside its score now, and a verdict in one sentence. Pure."""

import math
from dataclasses import dataclass
from enum import StrEnum

from agent.experiment import Status
from agent.judging.intervals import Interval
from agent.judging.noise import SAME
from agent.text import SCORE_DECIMALS, counted, shown_difference
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.facts.overview import scored_of

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
    FAILED_AGAIN = "failed again"
    SCORED_NOW = "scored now"  # it had no score then


@dataclass(frozen=True, slots=True)
class Replay:
    """Hold a replay as it went."""

    seed: int
    val_bpb: float | None
    failure: str | None  # why there is no score, or what the audit found
    tokens_s: float | None
    device: str
    protocol: str
    changed_files: tuple[str, ...]  # fixed files that are others than the night's


@dataclass(frozen=True, slots=True)
class Before:
    """Hold the score that a replay is compared with."""

    val_bpb: float
    runs: int  # whose mean it is
    seed: int | None  # None: it had no scored run with the replay's seed
    tokens_s: float | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """Hold the comparison of a replay with the attempt of the night."""

    verdict: Verdict
    sentence: str
    before: Before | None
    difference_bpb: float | None  # now minus then, as the two scores are shown
    noise_bpb: float | None  # what chance explains, 19 times in 20


def before(night: NightFacts, attempt: AttemptFacts, seed: int) -> Before | None:
    """Return the score with this seed, or else the attempt's mean; None without a score."""
    for run in attempt.runs:
        if run.seed == seed and run.val_bpb is not None:
            return Before(run.val_bpb, 1, seed, run.tokens_s)
    known = scored_of(night, attempt)
    return None if known is None else Before(known.val_bpb, max(1, known.seeds), None, attempt.tokens_s)


def replayed(night: NightFacts, attempt: AttemptFacts, again: Replay) -> Replayed:
    """Compare a replay with the night's own runs of the attempt."""
    then = before(night, attempt, again.seed)
    difference = noise = None
    if then is not None and again.val_bpb is not None:
        difference = shown_difference(again.val_bpb, then.val_bpb)
        noise = None if night.sigma_bpb is None else Interval.of_runs(0.0, night.sigma_bpb, 1, then.runs).high_bpb
    verdict = _verdict(night, again, then, noise)
    return Replayed(verdict, _sentence(verdict, night, attempt, again, then, noise), then, difference, noise)


def _verdict(night: NightFacts, again: Replay, then: Before | None, noise_bpb: float | None) -> Verdict:
    if again.val_bpb is None:
        return Verdict.FAILED if then is not None else Verdict.FAILED_AGAIN
    if again.failure is not None:
        return Verdict.NOT_BELIEVED
    if then is None:
        return Verdict.SCORED_NOW
    if again.protocol != night.protocol:
        return Verdict.NOT_COMPARABLE
    if then.seed is not None and math.isclose(again.val_bpb, then.val_bpb, rel_tol=SAME):
        return Verdict.REPRODUCED
    if noise_bpb is None:
        return Verdict.UNKNOWN
    return Verdict.WITHIN_NOISE if abs(again.val_bpb - then.val_bpb) <= noise_bpb else Verdict.DIFFERENT


def _sentence(
    verdict: Verdict,
    night: NightFacts,
    attempt: AttemptFacts,
    again: Replay,
    then: Before | None,
    noise_bpb: float | None,
) -> str:
    score, how = _words(again, then)
    match verdict:
        case Verdict.FAILED:
            return f"failed: {again.failure}; then it had {score}"
        case Verdict.FAILED_AGAIN:
            return f"failed again: {again.failure}; then: {_why_without(attempt)}"
        case Verdict.NOT_BELIEVED:
            return f"not believed: {again.failure}"
        case Verdict.SCORED_NOW:
            return f"it has a score now; then it had none: {_why_without(attempt)}"
        case Verdict.REPRODUCED:
            return f"reproduced exactly: {score} with seed {again.seed}, then and now"
        case Verdict.NOT_COMPARABLE:
            return (
                f"not comparable: protocol {again.protocol} now, {night.protocol} then (another text, budget or kind "
                f"of device), so a score that is {how} says nothing about the attempt"
            )
        case Verdict.UNKNOWN:
            return f"{how}; how much is chance cannot be told, since the night has not measured its noise"
    assert noise_bpb is not None
    if verdict is Verdict.WITHIN_NOISE:
        return f"within noise: {how}, and chance alone explains {noise_bpb:.{SCORE_DECIMALS}f}"
    why = "; ".join(_reasons(night, attempt, again, then))
    return f"different: {how}, more than the {noise_bpb:.{SCORE_DECIMALS}f} that chance explains: {why}"


def _words(again: Replay, then: Before | None) -> tuple[str, str]:
    """Return the score of then, and how far the score of now is from it."""
    if then is None:
        return "none", "no score"
    score = f"{then.val_bpb:.{SCORE_DECIMALS}f}"
    if again.val_bpb is None:
        return score, "no score"
    difference_bpb = shown_difference(again.val_bpb, then.val_bpb)
    than = "then" if then.seed is not None else f"the mean of its {counted(then.runs, 'run')}"
    if difference_bpb == 0:
        return score, f"the same as {than} in {SCORE_DECIMALS} decimals"
    way = "higher" if difference_bpb > 0 else "lower"
    return score, f"{abs(difference_bpb):.{SCORE_DECIMALS}f} {way} than {than}"


def _why_without(attempt: AttemptFacts) -> str:
    return attempt.words or attempt.kind or "it was not decided"


def _reasons(night: NightFacts, attempt: AttemptFacts, again: Replay, then: Before | None) -> list[str]:
    """Return what may have made the difference, the likeliest first."""
    found = []
    if again.device != night.device:
        found.append(f"it ran on {night.device} then and on {again.device} now")
    if again.changed_files:
        found.append(f"{', '.join(again.changed_files)} changed since")
    if then is not None and then.tokens_s and again.tokens_s:
        change = again.tokens_s / then.tokens_s - 1
        if abs(change) > SLOWER:
            way = "more" if change > 0 else "fewer"
            found.append(f"it trained on {abs(change):.0%} {way} tokens a second: did other programs run beside it?")
    if then is not None and then.seed is None and attempt.status == Status.KEEP and attempt.number:
        found.append("it was kept for that score, which was luck in part")
    return found or ["MLX, Python or a driver may have another version, which a night does not record"]
