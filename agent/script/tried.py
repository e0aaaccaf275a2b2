"""Find out whether a script was tried: comments and layout do not count."""

from collections.abc import Sequence

from agent.experiment import Attempt, History
from agent.experiment.chunks import chunks_of
from agent.script.dials import fingerprint, fingerprint_of


def tried_as(script: str, history: History) -> int | None:
    """Return the first attempt that had this script."""
    return first_with(fingerprint(script), history)


def first_with(fingerprint: str, history: History) -> int | None:
    """Return the first attempt whose script has this fingerprint."""
    found = (chunk.once(_by_fingerprint) for chunk in chunks_of(history))
    return next((numbers[fingerprint] for numbers in found if fingerprint in numbers), None)


def _by_fingerprint(attempts: Sequence[Attempt]) -> dict[str, int]:
    """Return the first attempt that had each script."""
    return {fingerprint_of(one.proposal.packed): one.number for one in reversed(attempts)}
