"""Trust a keep only after its audits, and only where its gain is plausible."""

from agent.experiment import Attempt, Decision, Kind

# Honest edits move the score by a few percent. Halving it in one step is a sign that something else is measured.
PLAUSIBLE_GAIN = 0.2  # of the incumbent's bits per byte


def trusted(verdict: Decision, attempt: Attempt, best: Attempt | None, plausible: float = PLAUSIBLE_GAIN) -> Decision:
    """Return a keep unchanged unless an audit failed or the gain is implausibly large; then, that decision."""
    scores = [score for run in attempt.counted_runs for score in (run.score, run.holdout) if score is not None]
    audits = [score.audit for score in scores if score.audit is not None]
    failure = next((audit.failure for audit in audits if audit.failure is not None), None)
    if failure is not None:
        return Decision(Kind.FAILED_AUDIT, f"audit: {failure}")
    if best is not None and best.val_bpb and attempt.val_bpb is not None:
        gain = 1 - attempt.val_bpb / best.val_bpb
        if gain > plausible:
            reason = (
                f"quarantine: {gain:.0%} below the incumbent, more than {plausible:.0%} in one step is not believed"
            )
            return Decision(Kind.QUARANTINED, reason)
    return verdict
