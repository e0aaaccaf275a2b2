"""Plan what a night does about attempts that it has settled: score further runs, revoke keeps, measure again."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from agent.experiment import Attempt, Decision, History, Kind, Review, Status
from agent.judging.failures import failure, fault, too_slow, trusted
from agent.night.context import NightContext
from agent.night.planning.flight import Flight
from agent.night.planning.next_job import evaluation, reexamination
from agent.night.planning.state import State, unaudited, unscored
from agent.night.planning.steps import Reconsider
from agent.runs.jobs import Job

# of attempts that are kept no longer, and yet were measured: an edit of such a script may make up for it
STILL_PARENTS = frozenset({Kind.REVOKED, Kind.PASSENGER, Kind.OVERTAKEN})


def loose_ends(context: NightContext, state: State, flight: Flight) -> Iterator[Job]:
    """Yield the scoring or the audit that a further run of a settled attempt lacks; dawn's runs are left out."""
    for number in sorted(state.loose - state.unsettled):
        attempt = state.attempts[number]
        if flight.has(number):
            continue
        finished, suspect = unscored(attempt), unaudited(attempt) if attempt.status is Status.KEEP else None
        if finished is not None:
            yield evaluation(context, state, attempt, finished)
        elif suspect is not None:
            yield reexamination(context, state, attempt, suspect)


def review_of(context: NightContext, state: State) -> Review:
    """Return the judge's review of what is settled; before that, revoke keeps of which a further run has failed."""
    if state.best is None:
        return Review()
    fallen = fallen_keeps(state.attempts, state.kept)
    if fallen:
        return Review(decisions=fallen)
    review = context.judge.review(state.attempts)
    if review.again is not None and failure(state.attempts[review.again]) is not None:
        return replace(review, again=None)
    return review


def fallen_keeps(history: History, kept: Iterable[int]) -> dict[int, Decision]:
    """Return decisions that revoke keeps: a later run failed, at dawn too, or its audit, or their parent has fallen."""
    verdicts = {number: _fall(history[number], history) for number in sorted(kept) if number}
    return {number: verdict for number, verdict in verdicts.items() if verdict is not None}


def _fall(attempt: Attempt, history: History) -> Decision | None:
    """Return the decision that revokes a keep; None if it stays."""
    if attempt.decision is None or attempt.status is not Status.KEEP:
        return None
    parent = None if attempt.parent is None else history[attempt.parent]
    if parent is not None and parent.status is not Status.KEEP and parent.kind not in STILL_PARENTS:
        return Decision(Kind.ORPHANED, f"made from #{attempt.parent}, which is no longer kept")
    slow = too_slow(attempt)
    if slow is not None:
        return Decision(Kind.TOO_SLOW, f"with another seed: {slow}")
    why = fault(attempt)
    if why is not None:
        return Decision(Kind.CRASHED, f"with another seed: {why}")
    verdict = trusted(attempt.decision, attempt, None)
    return verdict if verdict.status is not Status.KEEP else None


def adopted(decisions: Mapping[int, Decision], history: History) -> Reconsider:
    """Return the step that takes over dawn's decisions, as the night goes on after it."""
    sentences = []
    for number, decision in decisions.items():
        kept = decision.status is Status.KEEP
        where = f"#{number}, which dawn has confirmed" if kept else f"before #{number}"
        sentences.append(f"the night goes on from {where}: {history[number].proposal.title}")
    return Reconsider(decisions, tuple(sentences))


def to_measure_first(context: NightContext, state: State) -> Attempt | None:
    """Return the attempt that has to be measured before the incumbent is edited further; None without one.

    Edits are compared with its runs. So a script that dawn has confirmed needs as many runs of the night as a fresh
    edit would get: the night must not choose by dawn's scores.
    """
    best = state.best
    if best is None or best.is_idea:
        return None
    if best.done_runs:
        fresh = replace(best, decision=None, settled=False)
        if context.judge.judge(fresh, state.others(best.number)).status is not None:
            return None
    return best
