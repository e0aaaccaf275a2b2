"""Describe the attempts of a night: what each came to, against the script that it edited and against the incumbent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from agent.experiment import NOT_BELIEVED, Attempt, History, Kind, Noise, Status, kept, source_name
from agent.judging.failures import stopped_early, too_slow, training_failure
from agent.judging.intervals import Interval
from agent.proposers.author.excerpts import fenced, harmless_code, newest, quoted, quoted_sentence
from agent.proposers.briefing import Briefing
from agent.script.dials import skeleton_in
from agent.text import diff_lines, percent_sure

FAILURES = frozenset({*NOT_BELIEVED, Kind.CRASHED, Kind.TOO_SLOW, Kind.IGNORES_SEED})
NEAR_MISS = 0.3  # sure of a gain: an idea that is not kept may be one on another incumbent
# an overtaken edit gets its second try unchanged: the night merges it onto the best script
NO_SECOND_TRY = FAILURES | {Kind.STOPPED_EARLY, Kind.PASSENGER, Kind.QUESTION, Kind.OVERTAKEN}
MOST_OFFERED = 8  # near misses to combine: each is shown with its edit


def was_near(attempt: Attempt) -> bool:
    """Return whether it may be a gain, though it was not kept."""
    decision = attempt.decision
    if decision is None or decision.status is not Status.DISCARD or decision.kind in NO_SECOND_TRY:
        return False
    return (decision.gain_bpb or 0.0) > 0 or (decision.sure or 0.0) >= NEAR_MISS


def near_misses(history: History) -> list[Attempt]:
    """Return the ideas that were nearly kept, the most promising first."""
    near = (one for one in history if one.is_idea and one.parent is not None and was_near(one))
    return sorted(near, key=lambda one: (-_sure(one), -one.number))


@dataclass(frozen=True, slots=True)
class Combinable:
    """Hold the numbers of the attempts that one edit may combine."""

    near: tuple[int, ...]  # nearly kept: not in the best script
    keeps: tuple[int, ...]


def to_combine(history: History) -> Combinable | None:
    """Return what an edit may combine; None unless there are two attempts, one of them a near miss.

    What is kept stands in the best script already, so keeps alone leave nothing to bring in.
    """
    near = sorted(one.number for one in near_misses(history)[:MOST_OFFERED])
    keeps = [one.number for one in kept(history) if one.is_idea and one.parent is not None]
    return Combinable(tuple(near), tuple(keeps)) if near and len(near) + len(keeps) > 1 else None


def _sure(attempt: Attempt) -> float:
    return (attempt.decision.sure if attempt.decision else None) or 0.0


TITLE_CHARS = 120
SEARCH = "search"
RUNNING = "running"  # of an attempt in flight, beside which the next idea is made
LEGEND = """\
Each line: the verdict, val_bpb, the difference to the script that was edited ± its 95 % interval (below zero is
better), the gain that the judge estimates from all runs so far (above zero is better) and the probability that there
is one; tokens a second, steps and memory against attempt {best}'s."""


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """Hold an attempt with what it is compared with; None where there is nothing to compare."""

    attempt: Attempt
    difference_bpb: Interval | None  # of val_bpb to its parent's: below zero is better
    is_near: bool  # not kept, but it may be a gain
    speed: float | None  # tokens a second by the incumbent's
    steps: int | None  # of its last run, by its own count
    steps_share: float | None  # by the incumbent's
    memory_gb: float | None

    @property
    def verdict(self) -> str:
        """Return its status, or the kind of its decision where that says more: near miss, too slow, stopped early."""
        if self.is_near:
            return "near miss"
        kind = self.attempt.kind
        return RUNNING if kind is None else str(kind)


def rows(briefing: Briefing) -> tuple[AttemptRow, ...]:
    """Return a row for each attempt of the night."""
    by_number = {attempt.number: attempt for attempt in briefing.history}
    return tuple(
        _row(one, by_number.get(-1 if one.parent is None else one.parent), briefing) for one in by_number.values()
    )


def _row(attempt: Attempt, parent: Attempt | None, briefing: Briefing) -> AttemptRow:
    best = briefing.parent
    steps = _steps(attempt)
    return AttemptRow(
        attempt=attempt,
        difference_bpb=_difference(attempt, parent, briefing.noise),
        is_near=was_near(attempt),
        speed=_share(attempt.tokens_s, best.tokens_s),
        steps=steps,
        steps_share=_share(steps, _steps(best)),
        memory_gb=memory_gb(attempt, briefing.night.device_kind),
    )


def _difference(attempt: Attempt, parent: Attempt | None, noise: Noise | None) -> Interval | None:
    if parent is None or attempt.val_bpb is None or parent.val_bpb is None:
        return None
    runs = len(attempt.scores_bpb), len(parent.scores_bpb)
    return Interval.of_runs(attempt.val_bpb - parent.val_bpb, noise.sigma_bpb if noise else None, *runs)


def memory_gb(attempt: Attempt, device_kind: str) -> float | None:
    """Return the most memory that it filled: of a GPU by the script's count, else by the harness's watch."""
    if device_kind == "cuda":
        peak_mb = attempt.summary.peak_vram_mb if attempt.summary is not None else None
        return peak_mb / 1024 if peak_mb is not None else None
    return attempt.peak_bytes / 2**30 if attempt.peak_bytes is not None else None


def _steps(attempt: Attempt) -> int | None:
    return attempt.summary.num_steps if attempt.summary is not None else None


def _share(value: float | None, other: float | None) -> float | None:
    return value / other if value is not None and other else None


# ---- as lines -------------------------------------------------------------------------------------------------------


def history(briefing: Briefing, most_chars: int) -> str:
    """List the attempts. If that is too long, without hypotheses; then kept ones first to stay, and the newest."""
    legend = LEGEND.format(best=briefing.parent.number)
    found, room = rows(briefing), most_chars - len(legend) - 60
    lines = {row.attempt.number: line_of(row) for row in found}
    if sum(len(line) + 1 for line in lines.values()) > room:
        lines = {row.attempt.number: line_of(row, brief=True) for row in found}
    kept = [one.number for one in briefing.history if one.status is Status.KEEP]
    by_weight = [number for number in lines if number not in set(kept)] + kept
    shown = set(newest([lines[number] for number in by_weight], room))
    left_out = sum(line not in shown for line in lines.values())
    head = [legend, f"({left_out} earlier ones are left out)"] if left_out else [legend]
    return "\n".join([*head, *(line for line in lines.values() if line in shown)])


def line_of(row: AttemptRow, *, brief: bool = False) -> str:
    """Describe an attempt in a line; brief: without its hypothesis."""
    attempt, decision = row.attempt, row.attempt.decision
    words = [", ".join(filter(None, [_score(row), "near miss" if row.is_near else ""]))]
    if decision is not None and decision.gain_bpb is not None and decision.sure is not None and row.difference_bpb:
        words.append(f"gain {decision.gain_bpb:+.4f}, {percent_sure(decision.sure)} sure")
    words += [", ".join(costs)] if (costs := list(_costs(row))) else []
    words.append(quoted(attempt.proposal.title, TITLE_CHARS))
    says_more = attempt.number and source_name(attempt.proposal.source) != SEARCH  # whose title says it all
    if not brief and says_more and (why := quoted_sentence(attempt.proposal.hypothesis)):
        words.append(f"hypothesis {why}")
    if happened := what_happened(attempt):
        words.append(happened)
    return "; ".join(words)


def _score(row: AttemptRow) -> str:
    attempt, difference = row.attempt, row.difference_bpb
    edits = "" if attempt.parent is None else f" (edits {attempt.parent})"
    score = f" {attempt.val_bpb:.4f}" if attempt.val_bpb is not None else ""
    if difference is not None:
        width = f" ± {difference.high_bpb - difference.mean_bpb:.4f}" if difference.has_width else ""
        score += f" ({difference.mean_bpb:+.4f}{width})"
    return f"- {attempt.number}{edits}: {attempt.status or RUNNING}{score}"


def _costs(row: AttemptRow) -> Iterator[str]:
    if row.attempt.number and row.speed is not None:
        yield f"speed {row.speed - 1:+.0%}"
    if row.steps is not None:
        share = row.steps_share if row.attempt.number else None
        yield f"{row.steps} steps" if share is None else f"steps {share - 1:+.0%}"
    if row.memory_gb is not None:
        yield f"{row.memory_gb:.2g} GB"


def what_happened(attempt: Attempt) -> str | None:
    """Return why an attempt failed, from its records, not from its reason's text; None if it did not fail."""
    if (slow := too_slow(attempt)) is not None:
        return f"it was {slow}"
    if attempt.dry_run is not None and attempt.dry_run.failure is not None:
        return f"it broke in a dry run of a few seconds: {quoted(attempt.dry_run.failure)}"
    if (hopeless := stopped_early(attempt)) is not None:
        return f"it was {hopeless}"
    untrained = next((why for run in attempt.counted_runs if (why := training_failure(run)) is not None), None)
    if untrained is not None:
        return f"its training failed: {quoted(untrained)}"
    scores = [run.score for run in attempt.counted_runs if run.score is not None]
    if any(score.val_bpb is None for score in scores):
        return "it trained, but its scoring failed: look at load_model, the shapes and the values of its logits"
    if any(score.audit is not None and score.audit.overran for score in scores):
        return "its audit took too long: look at what load_model and the model do beyond computing logits"
    if any(score.audit is not None and not score.audit.passed for score in scores):
        return "it failed the audit: its logits were not deterministic, causal, normalised or independent of other rows"
    if attempt.kind is Kind.QUARANTINED:
        return "its gain was too large to be believed"
    return "it has no score" if attempt.status is Status.CRASH else None


def reason_for_author(attempt: Attempt) -> str | None:
    """Return why it was decided so, without words of a scoring process, which has read validation text."""
    scores = [run.score for run in attempt.counted_runs if run.score is not None]
    if any(score.val_bpb is None or (score.audit and not score.audit.passed) for score in scores):
        return what_happened(attempt)
    return attempt.decision.words if attempt.decision else None


# ---- their edits -----------------------------------------------------------------------------------------------------

DIFF_CHARS, USUAL_CHARS = 1_500, 600  # of an edit at most; on average
LEAST_CHARS = 400  # of an edit that is worth showing, with the line above it


def diffs(briefing: Briefing, most_chars: int) -> str:
    """Show the edits that teach most, the newest of each sort first; a turned dial is told in the list of dials."""
    by_number = {row.attempt.number: row for row in rows(briefing)}
    kind = briefing.night.device_kind
    teaching = [row for row in _by_worth(tuple(by_number.values())) if not _turns_dials_alone(row, by_number, kind)]
    return _edits(teaching[: max(1, most_chars // USUAL_CHARS)], by_number, most_chars, context=1)


def edits_of(numbers: Sequence[int], briefing: Briefing, most_chars: int) -> str:
    """Show the edits of these attempts, turned dials as well."""
    by_number = {row.attempt.number: row for row in rows(briefing)}
    return _edits([by_number[number] for number in numbers], by_number, most_chars, context=0)


def _edits(chosen: Sequence[AttemptRow], by_number: Mapping[int, AttemptRow], most_chars: int, *, context: int) -> str:
    """Show these edits, each with the same room; what a short one leaves is room for the later ones."""
    shown: list[str] = []
    for at, row in enumerate(chosen):
        room = max(LEAST_CHARS, (most_chars - sum(len(text) + 2 for text in shown)) // (len(chosen) - at))
        shown.append(_edit(row, by_number, min(DIFF_CHARS, room), context=context))
    return "\n\n".join(filter(None, shown))


def _edit(row: AttemptRow, by_number: Mapping[int, AttemptRow], most_chars: int, *, context: int) -> str:
    """Show the edit of an attempt under a line about it; return an empty string where it has no parent."""
    parent = _parent(row, by_number)
    if parent is None:
        return ""
    title = quoted(row.attempt.proposal.title, TITLE_CHARS)
    head = f"Attempt {row.attempt.number} (edits {parent.attempt.number}), {row.verdict}, {title}:\n\n"
    before, after = (one.attempt.proposal.script for one in (parent, row))
    return head + fenced(diff_of(before, after, most_chars - len(head) - 20, context), "diff")


def _parent(row: AttemptRow, by_number: Mapping[int, AttemptRow]) -> AttemptRow | None:
    return None if row.attempt.parent is None else by_number.get(row.attempt.parent)


def _by_worth(found: Sequence[AttemptRow]) -> Iterator[AttemptRow]:
    """Yield near misses, kept and crashed attempts in turn, the newest first."""
    near = [row for row in reversed(found) if row.is_near]
    kept = [row for row in reversed(found) if row.attempt.status is Status.KEEP]
    crashed = [row for row in reversed(found) if row.attempt.status is Status.CRASH]
    return (row for row in chain.from_iterable(zip_longest(near, kept, crashed)) if row and row.attempt.is_idea)


def _turns_dials_alone(row: AttemptRow, by_number: Mapping[int, AttemptRow], device_kind: str) -> bool:
    """Return whether an attempt differs from its parent in dials alone; so does attempt 0, which edits nothing."""
    parent = _parent(row, by_number)
    if parent is None:
        return True
    before, after = (skeleton_in(one.attempt.proposal.script, device_kind) for one in (parent, row))
    return before == after != ""


def diff_of(before: str, after: str, most_chars: int, context: int) -> str:
    """Return a diff without its two first lines, harmless to read; a long one is cut at the end of a line."""
    lines = diff_lines(before.splitlines(), after.splitlines(), context=context)[2:]
    text = harmless_code("\n".join(lines))
    if len(text) <= most_chars:
        return text
    end = "\n[the rest is left out]"
    return text[: most_chars - len(end)].rpartition("\n")[0] + end
