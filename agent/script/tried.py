"""Find out whether a script was tried: comments and layout do not count."""

from agent.experiment import History
from agent.script.dials import fingerprint


def tried_as(script: str, history: History) -> int | None:
    """Return the first attempt that had this script."""
    return first_with(fingerprint(script), history)


def first_with(wanted: str, history: History) -> int | None:
    """Return the first attempt whose script has this fingerprint."""
    return next((attempt.number for attempt in history if fingerprint(attempt.proposal.script) == wanted), None)
