"""Carry an overtaken edit onto the best script, as a new attempt that has to win again.

Pure, so after a kill the same state leads to the same merge, and no edit is merged twice: the attempt that merges it
says so in the journal.
"""

from collections.abc import Iterable
from dataclasses import replace

from agent.errors import NightError
from agent.experiment import HYPOTHESIS_CHARS, TITLE_CHARS, Attempt, Decision, History, Kind, Night, Proposal, packed
from agent.night.state import State
from agent.proposers.proposer import check_proposal
from agent.script.merge import merged
from agent.text import one_line, paragraphs

MERGED = ", merged"
EXPECTED = 0.2  # share of the attempts in flight for whose merges a night leaves room before it enters its last ideas
SURE_BASE = 0.9  # how sure of a gain a merge has to be, so that others are merged onto it before it is measured


def due(state: State) -> int | None:
    """Return the surest overtaken attempt that no other merges yet; None if there is none.

    The surest comes first, since others are merged on top of it while it is measured.
    """
    return min(
        not_merged(state.attempts), key=lambda number: (-(state.attempts[number].sure or 0.0), number), default=None
    )


def not_merged(history: History) -> set[int]:
    """Return the overtaken attempts that no other carries onto the best script."""
    overtaken = {attempt.number for attempt in history if attempt.kind is Kind.OVERTAKEN}
    merged_already = {attempt.proposal.merges for attempt in history if attempt.kind is not Kind.ORPHANED}
    return overtaken - merged_already


def merge(state: State, number: int) -> tuple[int, Proposal] | Decision:
    """Return an overtaken edit merged onto the best script, with its parent; if it conflicts, the decision stale.

    Several edits may be overtaken at once. Each is merged onto the one before, while that is still measured: so one
    round of runs can keep all of them. If that one is discarded, the edits above it are merged again.

    A merge asks no proposer, and counts as an attempt of the proposer that had the idea.
    """
    best, decision = state.best, state.attempts[number].decision
    assert best is not None
    assert decision is not None
    for onto in dict.fromkeys((tip(state.unsettled, state.attempts, best).number, best.number)):
        try:
            return onto, again(state, number, state.attempts[onto])
        except NightError as error:
            why = f"better than its parent, but {error}"
    return replace(decision, kind=Kind.STALE, reason=why)


def tip(unsettled: Iterable[Attempt], history: History, best: Attempt) -> Attempt:
    """Return the best script with the likely gains that are being measured in it, merged one on top of the other."""
    for attempt in unsettled:
        merges = attempt.proposal.merges if attempt.decision is None and attempt.parent == best.number else None
        if merges is not None and (history[merges].sure or 0.0) >= SURE_BASE:
            best = attempt
    return best


def waits_for_parent(state: State, attempt: Attempt) -> bool:
    """Return whether an attempt is measured before its parent is decided: it is judged after that."""
    parent = state.parent_of(attempt)
    return parent is not None and parent.decision is None


def again(state: State, number: int, onto: Attempt) -> Proposal:
    """Return the proposal that makes an attempt's edit in another script; raise NightError where it cannot."""
    overtaken = state.attempts[number]
    base = state.parent_of(overtaken)
    assert base is not None
    # If the keeps since were revoked, base is onto again, and the same script is run again.
    history = state.others(number) if base.number == onto.number else state.attempts
    idea = first_of(overtaken, state.attempts)
    edit = f"Makes the edit of #{number}, better than #{base.number}, in #{onto.number}."
    return replace(
        carried(overtaken.proposal, base, onto, history, state.context.night),
        title=one_line(idea.title, TITLE_CHARS - len(MERGED)) + MERGED,
        hypothesis=paragraphs(f"{edit}\n\n{idea.proposal.hypothesis}", HYPOTHESIS_CHARS),
        repairs=None,
        merges=number,
    )


def carried(proposal: Proposal, base: Attempt, onto: Attempt, history: History, night: Night) -> Proposal:
    """Return an edit of one script as an edit of another; raise NightError if it conflicts, or was tried by now."""
    if base.number != onto.number:
        script = merged(onto.proposal.script, base.proposal.script, proposal.script, night.device_kind)
        if script is None:
            raise NightError(f"it conflicts with what was kept since #{base.number}, or adds nothing to it")
        proposal = replace(proposal, packed=packed(script))
    check_proposal(proposal, history, night.script)
    return proposal


def first_of(attempt: Attempt, history: History) -> Attempt:
    """Return the attempt that had the idea which this one merges, perhaps after others; itself if it merges none."""
    while attempt.proposal.merges is not None:
        attempt = history[attempt.proposal.merges]
    return attempt
