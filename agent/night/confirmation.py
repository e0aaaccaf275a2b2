"""Measure the night's result again, to confirm it, and take out the edits that bring nothing.

The runs use fresh seeds and are also scored on the holdout: no choice of the night has seen either.
agent/judging/ablation.py chooses the next run and interprets the results. This module carries them out, and resumes
after an interruption as the night does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agent.clock import utc_now
from agent.experiment import Attempt, Proposal, all_confirmation_runs, confirmed_branch
from agent.findings import Confirmation, Findings
from agent.judging.ablation import FRESH, Ablation, Edits
from agent.night.loop import Driver, at_work
from agent.night.plan import Candidate, Decide, Enter, Plan, fallen_keeps
from agent.night.state import NightContext, State, unaudited
from agent.records.results import write_results
from agent.runs.jobs import Measure
from agent.script.merge import without_edits
from agent.text import numbered
from agent.view.words import confirmation_lines


def confirm_night(context: NightContext, most_runs: int) -> Findings | None:
    """Make at most `most_runs` runs, and put the best script without the edits that have no effect on the branch
    …-confirmed.

    Return None if the night kept nothing. Earlier runs of this best script's confirmation count.
    """
    context.journal.mark_lost_runs()
    state = context.state()
    with at_work(state) as driver:
        plan = ConfirmationPlan(state, driver.in_flight, all_confirmation_runs(state.attempts) + most_runs)
        _begin(state)
        _reopen(state, most_runs)
        while driver.take_a_step(plan):
            _begin(state)  # the best script may have been revoked
        concluded = _conclude(driver, plan)
    if concluded is not None:
        for line in confirmation_lines(concluded, state.attempts, context.night):
            context.watcher.said(line)
    return concluded


def is_interrupted(context: NightContext) -> bool:
    """Return whether the best script's confirmation has begun and not ended."""
    confirmation = _confirmation_of(context.state())
    return confirmation is not None and confirmation.ended is None


def _confirmation_of(state: State) -> Confirmation | None:
    """Return the confirmation of the best script; None where it has none, or there is no best script."""
    last = state.confirmations[-1] if state.confirmations else None
    return last if last is not None and state.best is not None and last.best == state.best.number else None


def _begin(state: State) -> None:
    """Begin a confirmation, with fresh seeds, for a best script that has none."""
    best = state.best
    if best is not None and best.number and _confirmation_of(state) is None:
        _put(state, Confirmation(len(state.confirmations) + 1, best.number, FRESH, utc_now()))


def _reopen(state: State, runs: int) -> None:
    """Reopen a confirmation that has ended, for more fresh runs; without a confirmed gain, use all runs for these."""
    confirmation = _confirmation_of(state)
    if confirmation is not None and confirmation.ended is not None and runs > 0:
        confirmed = confirmation.findings is not None and confirmation.findings.script is not None
        more = FRESH if confirmed else max(FRESH, runs // 2)
        _put(state, replace(confirmation, ended=None, fresh=confirmation.fresh + more))


def _put(state: State, confirmation: Confirmation) -> None:
    state.context.journal.put_confirmation(confirmation)
    state.read()


@dataclass(frozen=True, slots=True)
class ConfirmationPlan(Plan):
    """Find the next step of a confirmation."""

    until: int  # runs in all confirmations of the night after which this one ends
    impossible: set[tuple[int, Edits]] = field(default_factory=set)  # (best script, edits that it needs)

    def candidates(self) -> Iterator[Candidate]:
        state = self.state
        if self.context.stop.now:
            return
        confirmation = _confirmation_of(state)
        yield from self.missing_audits()
        if confirmation is not None:
            yield from self.missing_audits(confirmation.number)
        if self.context.stop.after_run:
            return  # the user wants an end: only finished runs are audited
        for attempt in state.unsettled:
            if attempt.decision is not None or not attempt.is_idea:  # the night itself goes on with undecided ideas
                step = self.step_of(attempt)
                if step is not None:
                    yield step
        fallen = fallen_keeps(state.attempts)
        if fallen:
            yield Decide(fallen)
        if (
            confirmation is not None
            and self.in_flight.idle > 0
            and self.context.limits.allows_confirmation_run(state.pace)
        ):
            step = self._next_run(confirmation)
            if step is not None:
                yield step

    def _next_run(self, confirmation: Confirmation) -> Measure | Enter | None:
        """Return the most useful run if those in flight bring what is expected; None if none is worth its time."""
        history, best = self.state.attempts, self.state.attempts[confirmation.best]
        while isinstance(chosen := self._chosen(confirmation), tuple):
            script = without_edits(history, best, chosen, self.context.night.device_kind)
            if script is not None:
                return Enter(best.number, self._question(best, chosen, script))
            self.impossible.add((best.number, chosen))
        return None if chosen is None else self.measure(history[chosen], confirmation.number)

    def _chosen(self, confirmation: Confirmation) -> int | Edits | None:
        begun = tuple(job.attempt for job in self.in_flight.jobs if isinstance(job, Measure))
        left = self.until - all_confirmation_runs(self.state.attempts) - len(begun)
        return replace(self.ablation(confirmation), in_flight=begun).next_run(left, confirmation.fresh)

    def ablation(self, confirmation: Confirmation) -> Ablation:
        """Return what this confirmation asks of the best script."""
        history = self.state.attempts
        impossible = {edits for best, edits in self.impossible if best == confirmation.best}
        return Ablation(history, history[confirmation.best], confirmation.number, impossible)

    def _question(self, best: Attempt, edits: Edits, script: str) -> Proposal:
        """Return the best script without these edits, so that it can be measured."""
        titles = "; ".join(self.state.attempts[number].title for number in edits)
        title = f"#{best.number} without {numbered(edits)}"
        return Proposal.of(
            script, title, f"Does the best script of the night miss it? {titles}", "confirmation", without=edits
        )


# ---- consequences ----------------------------------------------------------------------------------------------------


def _conclude(driver: Driver, plan: ConfirmationPlan) -> Findings | None:
    """Record the findings, move the branch …-confirmed, and return the findings."""
    journal, confirmation = driver.journal, _confirmation_of(driver.state)
    if confirmation is None:
        return None
    ablation = plan.ablation(confirmation)
    for edits in sorted(ablation.impossible):
        why = "later edits need those lines, or have turned those dials"
        driver.say(f"#{confirmation.best} cannot be had without {numbered(edits)}: {why}")
    concluded = ablation.findings()
    _drop_weights(driver, confirmation)
    recorded = replace(confirmation, findings=concluded)
    # recorded first: the branch may be refused, and hours were spent on these findings
    journal.put_confirmation(recorded)
    write_results(driver.context.place, (driver.context.night, driver.state.attempts), driver.say)
    if concluded.script is not None:
        branch, commit = confirmed_branch(driver.context.night.branch), driver.commit(concluded.script)
        driver.point_branch(branch, commit, f"confirmed: attempt {concluded.script}")
    if not driver.context.stop.after_run:
        journal.put_confirmation(replace(recorded, ended=utc_now()))
    return concluded


def _drop_weights(driver: Driver, confirmation: Confirmation) -> None:
    """Drop the weights of the confirmation's questions; an interrupted one needs those that it has not audited."""
    for attempt in driver.state.attempts:
        needed = {run.seed for run, _ in unaudited(attempt, confirmation.number)}
        for run in () if attempt.is_idea else attempt.runs:
            if run.seed not in needed:
                driver.context.runner.drop_weights(attempt.number, run.seed)
