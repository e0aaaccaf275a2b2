"""The loop: plan the next step, have it executed, record its result.

Only the driver writes. Its plan depends on the state alone, and the state is read from the journal. So continuing and
resuming are the same: after a kill, the same state leads to the same step.
"""

from collections.abc import Callable
from dataclasses import replace

from agent.clock import boot_id
from agent.experiment import (
    Decision,
    Progress,
)
from agent.night.context import NightContext
from agent.night.ideas import Ideas
from agent.night.opening.night import check_disk
from agent.night.plan import Finish, MeasureAgain, NextIdea, Reconsider, Unfinished, plan, plan_attempt
from agent.night.record import (
    check_streak,
    commit,
    reconsider,
    record,
    settle,
    tell_settled,
    tell_standing,
)
from agent.night.state import State
from agent.profile.of_night import is_measured, limit_s, measure_phases
from agent.runs.execute import execute
from agent.runs.jobs import Evaluate, Job, Measure, Reexamine, Rehearse


def run_night(context: NightContext) -> None:
    """Run until a limit is reached, the user stops the night or the proposer is exhausted; raise NightshiftError."""
    context.journal.mark_lost_runs(boot_id())
    state = context.state()
    known = len(state.attempts) - len(state.unsettled)
    tell_standing(context, state)
    with Ideas(context, state) as ideas:
        while not context.stop.after_run and take_a_step(context, state, ideas):
            check_streak(context, state, state.attempts[known:])


def take_a_step(context: NightContext, state: State, ideas: Ideas) -> bool:
    """Plan and carry out one step; return False when nothing is left to do or the user stopped the night."""
    check_disk(context.place.repo.root)
    ideas.note_news()
    match plan(context, state, idea_is_made=ideas.is_one_made):
        case None:
            return False
        case Finish(number):
            return bring_to_an_end(context, state, number, ideas)
        case Reconsider() as step:
            reconsider(context, state, step)
            return True
        case MeasureAgain(measure):
            context.watcher.attempt_began(state.attempts[measure.attempt])
            return perform(context, state, measure, ideas)
        case NextIdea() if wants_phases(context, state):
            found = measure_phases(context.runner, state.first)
            if found is not None:
                context.watcher.said(found)
            return True
        case NextIdea():
            return ideas.enter_next()
        case job:
            return perform(context, state, job, ideas)


def wants_phases(context: NightContext, state: State) -> bool:
    """Return whether to measure now where a step's time goes: once, after calibration, if the hours allow it."""
    runner = context.runner
    if not context.measures_phases or state.best is None or is_measured(runner.folder):
        return False
    return not context.limits.reached(state.ideas, state.pace, limit_s(runner.night.budget_s, state.first))


def bring_to_an_end(context: NightContext, state: State, number: int, ideas: Ideas | None = None) -> bool:
    """Commit, measure, decide and settle an attempt; one that has a decision is only settled."""
    if state.attempts[number].decision is None:
        context.watcher.attempt_began(state.attempts[number])
        commit(context, state, state.attempts[number])
    while (attempt := state.attempts[number]).decision is None:
        match plan_attempt(context, state, attempt):
            case Decision() as decision:
                state.decide(number, decision)
            case Unfinished(why):
                context.watcher.said(why)
                return False
            case Measure() if attempt.done_runs and context.stop.after_run:
                return False
            case job:
                state.check_in_place()  # before minutes are spent whose result could not be recorded
                if not perform(context, state, job, ideas):
                    return False
    settle(context, state, number)
    tell_settled(context, state, state.attempts[number])
    return True


def perform(context: NightContext, state: State, job: Job, ideas: Ideas | None = None) -> bool:
    """Execute a job and record its result; return False when the user stopped it."""
    announce(context, state, job)
    run_id = state.start_run(job.attempt, job.seed, job.dawn) if isinstance(job, Measure) else 0
    runner = context.runner
    if ideas is not None:
        if not isinstance(job, Rehearse):
            ideas.ask_ahead()
        runner = replace(runner, progressed=_with_news(ideas, runner.progressed))
    result = execute(job, runner)
    return result is not None and record(context, state, job, result, run_id)


def _with_news(
    ideas: Ideas, progressed: Callable[[Progress | None, float], None]
) -> Callable[[Progress | None, float], None]:
    """Wrap the worker's tick, which runs in the driver's thread, so that paid calls are recorded at once."""

    def tick(progress: Progress | None, elapsed_s: float) -> None:
        ideas.note_news()
        progressed(progress, elapsed_s)

    return tick


def announce(context: NightContext, state: State, job: Job) -> None:
    attempt = state.attempts[job.attempt]
    match job:
        case Rehearse():
            context.watcher.dry_run_began(attempt)
        case Measure():
            context.watcher.run_began(attempt, job.seed)
        case Evaluate():
            context.watcher.scoring_began(attempt)
        case Reexamine():
            context.watcher.audit_began(attempt)
