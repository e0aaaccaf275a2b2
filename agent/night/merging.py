"""Carry an overtaken edit onto the incumbent, as a new attempt that has to win again.

Pure but for the one record at the end, so a kill in between leads to the same merge, and no edit is merged twice: the
attempt that merges it says so in the journal.
"""

from dataclasses import replace

from agent.errors import NightError
from agent.experiment import HYPOTHESIS_CHARS, TITLE_CHARS, Attempt, Decision, Kind, Proposal
from agent.night.context import NightContext
from agent.night.state import State
from agent.proposers.checked import tried_as
from agent.script.merge import merged
from agent.text import one_line, paragraphs

MERGED = ", merged"


def due(state: State) -> int | None:
    """Return the first overtaken attempt that no other merges yet; None if there is none."""
    return min(state.overtaken - state.merged, default=None)


def merge(context: NightContext, state: State, number: int) -> None:
    """Enter the edit of an overtaken attempt as an edit of the incumbent; decide that it is stale where that cannot be.

    It asks no source, and counts as an attempt of the source that had the idea.
    """
    best = state.best
    assert best is not None
    try:
        state.add(best.number, carried(context, state, number, best))
    except NightError as error:
        state.decide(number, Decision(Kind.STALE, f"better than its parent, but {error}", *_measured(state, number)))


def carried(context: NightContext, state: State, number: int, best: Attempt) -> Proposal:
    """Return the proposal that makes an attempt's edit in the incumbent; raise NightError where it cannot."""
    overtaken = state.attempts[number]
    base = state.parent_of(overtaken)
    assert base is not None
    script: str | None = overtaken.proposal.script
    if base.number != best.number:  # it is again where the keeps since were revoked: then the very script is run again
        kind = context.runner.night.device_kind
        script = merged(best.proposal.script, base.proposal.script, overtaken.proposal.script, kind)
    if script is None:
        raise NightError(f"it conflicts with what was kept since #{base.number}, or adds nothing to it")
    tried = tried_as(script, state.others(number) if base.number == best.number else state.attempts)
    if tried is not None:
        raise NightError(f"in #{best.number}, it makes the script of #{tried}, which was tried")
    idea = first_of(state, overtaken)
    return replace(
        idea.proposal,
        script=script,
        title=one_line(idea.proposal.title, TITLE_CHARS - len(MERGED)) + MERGED,
        hypothesis=paragraphs(_hypothesis(overtaken, best, idea), HYPOTHESIS_CHARS),
        repairs=None,
        merges=number,
    )


def first_of(state: State, attempt: Attempt) -> Attempt:
    """Return the attempt that had the idea which this one merges, perhaps after others; itself if it merges none."""
    while attempt.proposal.merges is not None:
        attempt = state.attempts[attempt.proposal.merges]
    return attempt


def _hypothesis(overtaken: Attempt, best: Attempt, idea: Attempt) -> str:
    found = overtaken.decision
    gain = "" if found is None or found.gain_bpb is None else f" by an estimated {found.gain_bpb:.6f}"
    edit = f"Makes the edit of #{overtaken.number}, better than #{overtaken.parent}{gain}, in #{best.number}."
    return f"{edit}\n\n{idea.proposal.hypothesis}".strip()


def _measured(state: State, number: int) -> tuple[float | None, float | None]:
    found = state.attempts[number].decision
    return (found.gain_bpb, found.sure) if found is not None else (None, None)
