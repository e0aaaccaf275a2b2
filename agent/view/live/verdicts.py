"""One line on an attempt that was decided, and one on a training run that goes on."""

from rich.markup import escape

from agent.experiment import NOT_BELIEVED, Attempt, Kind, Progress, Status
from agent.proposers.author.attempts import reason_for_author
from agent.records.summary import gain_bpb, measured_gain_bpb
from agent.text import ABSURD, harmless

COLOURS = {Status.KEEP: "green", Status.DISCARD: "bright_black", Status.CRASH: "red"}
# whose reasons are shown
TELLING = NOT_BELIEVED | {Kind.IGNORES_SEED, Kind.STOPPED_EARLY, Kind.PROVISIONAL, Kind.TOO_SLOW}


def verdict(attempt: Attempt, before: Attempt | None, *, for_author: bool = False) -> str:
    """Return number, title, score, gain (higher is better) and decision, in rich markup.

    The gain is the judge's estimate, or else the difference to the earlier incumbent.

    for_author: without words of a process that has read validation text.
    """
    status = attempt.status or Status.CRASH
    words = [f"#{attempt.number}", escape(harmless(attempt.proposal.title))]
    measured_bpb, estimated_bpb = measured_gain_bpb(attempt, before), gain_bpb(attempt, before)
    if attempt.val_bpb is not None:
        words.append(f"val_bpb {attempt.val_bpb:.6f}")
    if measured_bpb is not None:
        words.append(f"gain {estimated_bpb:+.6f}")
    why = reason_for_author(attempt) if for_author else attempt.decision and attempt.decision.words
    explained = attempt.decision is not None and why and _wants_a_reason(attempt, measured_bpb)
    words.append(f"[{COLOURS[status]}]{status}[/]{f' ({escape(harmless(why))})' if why and explained else ''}")
    return " · ".join(words)


def _wants_a_reason(attempt: Attempt, measured_bpb: float | None) -> bool:
    """Return whether to show the reason: for crashes, the kinds of TELLING, and decisions against the difference."""
    if attempt.status is Status.CRASH or attempt.kind in TELLING:
        return True
    return measured_bpb is not None and (measured_bpb > 0) != (attempt.status is Status.KEEP)


def describe(point: Progress, budget_s: float) -> str:
    """Return a line on the progress of a training run, without implausible numbers."""
    done, left, *known = progress_words(point, budget_s)
    return " · ".join((done, *reversed(known), left))


def progress_words(point: Progress, budget_s: float) -> list[str]:
    """Return what is known of a training run's progress, the most important first."""
    done = within_one(point.fraction)
    words = [f"{done:.0%}", f"{(1 - done) * budget_s:.0f} s left"]
    if point.tokens_s is not None and 0 <= point.tokens_s < ABSURD:
        words.append(f"{point.tokens_s:,.0f} tokens/s")
    if point.loss is not None and abs(point.loss) < ABSURD:
        words.append(f"loss {point.loss:.3f}")
    if point.step is not None and 0 <= point.step < ABSURD:
        words.append(f"step {point.step:.0f}")
    return words


def within_one(fraction: float) -> float:
    return min(1.0, max(0.0, fraction))
