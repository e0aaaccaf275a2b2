"""Plan what a night does next: pure, except that it reads the clock and the curves and losses of earlier runs.

plan() looks at the whole night; unsettled.py plans attempts that wait for a decision, second_thoughts.py those that
have one. All yield candidates, the most urgent first. The first that can be carried out now is the next step: of a job,
that depends on the workers; anything else can be carried out at once, so what would follow it is not looked at.

Nothing here writes or prints anything, so after a kill the same state leads to the same step.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from agent.judging.champion import adoption
from agent.night.context import NightContext
from agent.night.planning import merging
from agent.night.planning.flight import Flight
from agent.night.planning.next_job import measure, rehearsal
from agent.night.planning.second_thoughts import adopted, loose_ends, review_of, to_measure_first
from agent.night.planning.state import State
from agent.night.planning.steps import Begin, Candidate, EnterIdea, Merge, NextStep, Reconsider, Wait
from agent.night.planning.unsettled import steps_of_attempts
from agent.runs.jobs import Job, Measure, Rehearse

Other = TypeVar("Other")


def plan(context: NightContext, state: State, flight: Flight, *, idea_is_made: bool = False) -> NextStep | None:
    """Return the next step that can be carried out now; None when the night is over.

    After a wish to end the night, no run begins; those in flight end, and are scored and settled. No time is reserved
    for asking if an idea is made already.
    """
    return first_possible(context, state, flight, _candidates(context, state, flight, idea_is_made=idea_is_made))


def first_possible(
    context: NightContext, state: State, flight: Flight, candidates: Iterable[Job | Other]
) -> Other | Begin | Wait | None:
    """Return the first candidate that is no job, or for which a worker is free.

    Else wait if anything is in flight, or if a worker for one of the jobs may come before the hours are over or the
    user ends the night; without any of that return None.
    """
    lacks_worker = False
    for candidate in candidates:
        if not isinstance(candidate, Job):
            return candidate
        worker = flight.worker_for(candidate)
        if worker is not None:
            return Begin(candidate, worker)
        lacks_worker = True
    if flight.jobs or flight.awaits_idea:
        return Wait()
    is_over = context.stop.after_run or context.limits.is_over(state.pace)
    return Wait() if lacks_worker and flight.pool.expects_workers and not is_over else None


def _candidates(context: NightContext, state: State, flight: Flight, *, idea_is_made: bool) -> Iterator[Candidate]:
    if context.stop.now:
        return
    stops = context.stop.after_run
    for step in steps_of_attempts(context, state, flight, state.unsettled):
        if not (stops and isinstance(step, Rehearse | Measure)):
            yield step
    yield from loose_ends(context, state, flight)
    if flight.is_held:
        if not flight.jobs:
            yield rehearsal(context, state, state.first)
    elif not stops and not flight.left:
        yield from _beside_attempts(context, state, flight, idea_is_made=idea_is_made)


def _beside_attempts(context: NightContext, state: State, flight: Flight, *, idea_is_made: bool) -> Iterator[Candidate]:
    """Yield what is done beside unsettled attempts: reviews of keeps, runs of the incumbent, and new attempts."""
    review = state.once("review", lambda: review_of(context, state))
    if review.decisions:
        yield Reconsider(review.decisions)
    if context.limits.has_enough_ideas(state.ideas) or 0 in state.unsettled or flight.idle == 0:
        return
    confirmed = adoption(state.attempts, state.last_dawn) if state.dawns else {}
    if confirmed:
        if not flight.jobs and not context.limits.reached(state.ideas, state.pace):
            yield adopted(confirmed, state.attempts)
        return
    due = state.once("due", lambda: to_measure_first(context, state))
    again = review.again if due is None else due.number
    if again is not None and not flight.has(again) and context.limits.allows_run(again, state.pace):
        yield measure(context, state, state.attempts[again])
    if due is None:
        yield from _new_attempts(context, state, flight, idea_is_made=idea_is_made)


def _new_attempts(context: NightContext, state: State, flight: Flight, *, idea_is_made: bool) -> Iterator[Candidate]:
    """Yield a merge that is due, else the next idea, if a worker is free for it and the limits allow it."""
    wanted, overtaken = _ideas_wanted(context, state, flight), merging.due(state)
    pace = replace(state.pace, asking_s=0.0) if idea_is_made or overtaken is not None else state.pace
    if wanted < 1 or context.limits.reached(state.ideas, pace):
        return
    if overtaken is not None:
        yield Merge(overtaken)
    left = context.limits.left(state.ideas).experiments
    if left is not None and state.attempts:  # merges count as well: leave room for those of the attempts in flight
        wanted = min(wanted, left - int(merging.EXPECTED * len(flight.jobs)))
    if wanted >= 1 and not flight.awaits_idea and not flight.is_out_of_ideas:
        yield EnterIdea(wanted)


def _ideas_wanted(context: NightContext, state: State, flight: Flight) -> int:
    """Return how many ideas could be tried now: as many as workers have neither a job nor an attempt that needs one."""
    unsettled = (state.attempts[number] for number in state.unsettled if not flight.has(number))
    queued = sum(not (one.done_runs and merging.waits_for_parent(state, one)) for one in unsettled)
    left = context.limits.left(state.ideas).experiments
    free = flight.idle - queued
    return free if left is None or not state.attempts else min(free, left)
