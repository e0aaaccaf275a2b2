"""Describe the attempts of a night: what each came to, their edits, and the dials that were turned.

Each function is pure. The templates of prompts/ put their results into words.
"""

from collections import defaultdict
from itertools import islice

from agent.experiment import NOT_BELIEVED, Attempt, Kind, Status
from agent.findings import Interval
from agent.judging.failures import process_failure, stopped_early, too_slow
from agent.proposers.proposer import Briefing
from agent.script.dials import Value, read_dials, show
from agent.text import diff_lines, harmless_code, one_line, quoted

FAILURES = frozenset({*NOT_BELIEVED, Kind.CRASHED, Kind.TOO_SLOW, Kind.IGNORES_SEED})
NEAR_MISS = 0.3  # sure of a gain: an idea that is not kept may be one on another best script
# an overtaken edit gets its second try unchanged: the night merges it onto the best script
NO_SECOND_TRY = FAILURES | {Kind.STOPPED_EARLY, Kind.QUESTION, Kind.OVERTAKEN}


# ---- what an attempt came to -----------------------------------------------------------------------------------------


def was_near(attempt: Attempt) -> bool:
    """Return whether it may be a gain, though it was not kept."""
    decision = attempt.decision
    if decision is None or decision.status is not Status.DISCARD or decision.kind in NO_SECOND_TRY:
        return False
    return (decision.gain_bpb or 0.0) > 0 or (decision.sure or 0.0) >= NEAR_MISS


def verdict(attempt: Attempt) -> str:
    """Return the kind of an attempt's decision; or say that it was nearly kept, or that it still runs."""
    return "near miss" if was_near(attempt) else str(attempt.kind or "running")


def difference_bpb(attempt: Attempt, briefing: Briefing) -> Interval | None:
    """Return its score minus that of the script that it edits; None if one is missing."""
    parent = attempt if attempt.parent is None else briefing.history[attempt.parent]
    if parent is attempt or attempt.val_bpb is None or parent.val_bpb is None:
        return None
    sigma_bpb = briefing.sigma_bpb
    runs = len(attempt.scores_bpb), len(parent.scores_bpb)
    return Interval.of_runs(briefing.night.sign * (attempt.val_bpb - parent.val_bpb), sigma_bpb, *runs)


def what_happened(attempt: Attempt) -> str | None:
    """Return why an attempt failed, from its records, not from its reason's text; None if it did not fail."""
    if (slow := too_slow(attempt)) is not None:
        return f"it was {slow}"
    if attempt.dry_run is not None and attempt.dry_run.failure is not None:
        return f"it broke in a dry run of a few seconds: {quoted(attempt.dry_run.failure)}"
    if (hopeless := stopped_early(attempt)) is not None:
        return f"it was {hopeless}"
    if untrained := next(filter(None, map(process_failure, attempt.counted_runs)), None):
        return f"its training failed: {quoted(untrained)}"
    scores = [run.score for run in attempt.counted_runs if run.score is not None]
    audits = [score.audit for score in scores if score.audit is not None]
    if any(score.is_reported for score in scores):
        return next((quoted(score.failure) for score in scores if score.failure is not None), None)
    if any(score.val_bpb is None for score in scores):
        return "it trained, but its scoring failed: look at load_model, the shapes and the values of its logits"
    if not all(audit.passed for audit in audits):
        return (
            "it failed the audit: its logits were not deterministic, causal, normalised and independent of other rows, "
            "or load_model and the model took too long"
        )
    if attempt.kind is Kind.QUARANTINED:
        return "its gain was too large to be believed"
    return "it has no score" if attempt.status is Status.CRASH else None


# ---- their edits -----------------------------------------------------------------------------------------------------

MOST_TEACHING = 5  # edits that are shown


def teaching_edits(briefing: Briefing) -> list[Attempt]:
    """Return the newest near misses, keeps and crashes; the list of dials has those that only turn dials."""
    edits = (
        attempt
        for attempt in reversed(briefing.history)
        if attempt.is_edit and (was_near(attempt) or attempt.status in (Status.KEEP, Status.CRASH))
        if not attempt.outline.differs_in_dials_only(_parent(attempt, briefing).outline)
    )
    return list(islice(edits, MOST_TEACHING))


def edit_of(attempt: Attempt, briefing: Briefing) -> str:
    """Return the diff to the script that an attempt edits, harmless to read."""
    sides = _parent(attempt, briefing), attempt
    before, after = (side.proposal.script.splitlines() for side in sides)
    return harmless_code("\n".join(diff_lines(before, after, context=1)[2:]))


def _parent(attempt: Attempt, briefing: Briefing) -> Attempt:
    return briefing.history[attempt.parent or 0]


# ---- the dials that they turned --------------------------------------------------------------------------------------

VALUE_CHARS = 60  # characters of one value: a script may put any text into a dial
LATEST = 8  # number of listed turns of one dial
MOST_AT_ONCE = 3  # dials that one edit turned; with more, its verdict says little about each


def turned_dials(briefing: Briefing) -> dict[str, tuple[str, list[str]]]:
    """Return the best script's dials that have a range, or all if none has: the value, and the result of each turn."""
    dials = read_dials(briefing.parent.proposal.script, briefing.night.device_kind, strict=False)
    turns = defaultdict[str, list[str]](list)
    for attempt in briefing.history:
        old, new = _parent(attempt, briefing).outline.dials, attempt.outline.dials
        changed = [name for name, value in new.items() if name in old and old[name] != value]
        if attempt.is_edit and len(changed) <= MOST_AT_ONCE:
            together = f" with {len(changed) - 1} more" if len(changed) > 1 else ""
            for name in changed:
                turns[name].append(f"to {_shown(new[name])} {verdict(attempt)} #{attempt.number}{together}")
    ranged = [dial for dial in dials if dial.span is not None] or dials
    return {dial.name: (_shown(dial.value), turns[dial.name][-LATEST:]) for dial in ranged}


def _shown(value: Value) -> str:
    return harmless_code(one_line(show(value), VALUE_CHARS))
