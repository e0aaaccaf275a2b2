"""Measure the night's result again at dawn, and take out the edits that bring nothing.

The runs use fresh seeds and are also scored on the holdout: no choice of the night has seen either.
agent/judging/champion.py chooses the next run and interprets the results. This module carries them out, and resumes
after an interruption as the night does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agent.clock import utc_now
from agent.experiment import (
    Attempt,
    Dawn,
    Findings,
    Proposal,
    confirmed_branch,
    runs_at_dawns,
)
from agent.judging.champion import FRESH, Ablation, Edits
from agent.night.loop import Driver, at_work
from agent.night.plan import Candidate, Decide, Enter, Plan, fallen_keeps
from agent.night.state import NightContext, State, unaudited
from agent.records.results import write_ledger
from agent.runs.jobs import Measure
from agent.script.merge import without_edits
from agent.text import numbered
from agent.view.words import dawn_lines


def confirm_night(context: NightContext, most_runs: int) -> Findings | None:
    """Make at most `most_runs` runs, and put the champion without its passengers on the branch …-confirmed.

    Return None if the night kept nothing. Earlier runs of this champion's dawn count.
    """
    context.journal.mark_lost_runs()
    state = context.state()
    with at_work(state) as driver:
        plan = DawnPlan(state, driver.flight, runs_at_dawns(state.attempts) + most_runs)
        _begin(state)
        _reopen(state, most_runs)
        while driver.take_a_step(plan):
            _begin(state)  # the champion may have been revoked
        concluded = _conclude(driver, plan)
    if concluded is not None:
        for line in dawn_lines(concluded, state.attempts, context.night):
            context.watcher.said(line)
    return concluded


def is_interrupted(context: NightContext) -> bool:
    """Return whether the champion's dawn has begun and not ended."""
    dawn = _dawn_of(context.state())
    return dawn is not None and dawn.ended is None


def _dawn_of(state: State) -> Dawn | None:
    """Return the dawn of the champion; None where it has none, or there is no champion."""
    last = state.dawns[-1] if state.dawns else None
    return last if last is not None and state.best is not None and last.champion == state.best.number else None


def _begin(state: State) -> None:
    """Begin a dawn, with fresh seeds, for a champion that has none."""
    champion = state.best
    if champion is not None and champion.number and _dawn_of(state) is None:
        _put(state, Dawn(len(state.dawns) + 1, champion.number, FRESH, utc_now()))


def _reopen(state: State, runs: int) -> None:
    """Reopen a dawn that has ended, for more fresh runs; without a confirmed gain, use all runs for these."""
    dawn = _dawn_of(state)
    if dawn is not None and dawn.ended is not None and runs > 0:
        confirmed = dawn.findings is not None and dawn.findings.script is not None
        more = FRESH if confirmed else max(FRESH, runs // 2)
        _put(state, replace(dawn, ended=None, fresh=dawn.fresh + more))


def _put(state: State, dawn: Dawn) -> None:
    state.context.journal.put_dawn(dawn)
    state.read()


@dataclass(frozen=True, slots=True)
class DawnPlan(Plan):
    """Find the next step of a dawn."""

    until: int  # runs at all dawns of the night after which this one ends
    impossible: set[tuple[int, Edits]] = field(default_factory=set)  # (champion, edits that it needs)

    def candidates(self) -> Iterator[Candidate]:
        state = self.state
        if self.context.stop.now:
            return
        dawn = _dawn_of(state)
        yield from self.missing_audits()
        if dawn is not None:
            yield from self.missing_audits(dawn.number)
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
        if dawn is not None and self.flight.idle > 0 and self.context.limits.allows_dawn_run(state.pace):
            step = self._next_run(dawn)
            if step is not None:
                yield step

    def _next_run(self, dawn: Dawn) -> Measure | Enter | None:
        """Return the most useful run if those in flight bring what is expected; None if none is worth its time."""
        history, champion = self.state.attempts, self.state.attempts[dawn.champion]
        while isinstance(chosen := self._chosen(dawn), tuple):
            script = without_edits(history, champion, chosen, self.context.night.device_kind)
            if script is not None:
                return Enter(champion.number, self._question(champion, chosen, script))
            self.impossible.add((champion.number, chosen))
        return None if chosen is None else self.measure(history[chosen], dawn.number)

    def _chosen(self, dawn: Dawn) -> int | Edits | None:
        begun = tuple(job.attempt for job in self.flight.jobs if isinstance(job, Measure))
        left = self.until - runs_at_dawns(self.state.attempts) - len(begun)
        return replace(self.ablation(dawn), in_flight=begun).next_run(left, dawn.fresh)

    def ablation(self, dawn: Dawn) -> Ablation:
        """Return what this dawn asks of the champion."""
        history = self.state.attempts
        impossible = {edits for champion, edits in self.impossible if champion == dawn.champion}
        return Ablation(history, history[dawn.champion], dawn.number, impossible)

    def _question(self, champion: Attempt, edits: Edits, script: str) -> Proposal:
        """Return the champion without these edits, so that it can be measured."""
        titles = "; ".join(self.state.attempts[number].title for number in edits)
        title = f"#{champion.number} without {numbered(edits)}"
        return Proposal.of(script, title, f"Does the best script of the night miss it? {titles}", "dawn", without=edits)


# ---- consequences ----------------------------------------------------------------------------------------------------


def _conclude(driver: Driver, plan: DawnPlan) -> Findings | None:
    """Record the findings, move the branch …-confirmed, and return the findings."""
    journal, dawn = driver.journal, _dawn_of(driver.state)
    if dawn is None:
        return None
    ablation = plan.ablation(dawn)
    for edits in sorted(ablation.impossible):
        why = "later edits need those lines, or have turned those dials"
        driver.say(f"#{dawn.champion} cannot be had without {numbered(edits)}: {why}")
    concluded = ablation.findings()
    _drop_weights(driver, dawn)
    recorded = replace(dawn, findings=concluded)
    journal.put_dawn(recorded)  # recorded first: the branch may be refused, and hours were spent on these findings
    write_ledger(driver.context.place, (driver.context.night, driver.state.attempts), driver.say)
    if concluded.script is not None:
        branch, commit = confirmed_branch(driver.context.night.branch), driver.commit(concluded.script)
        driver.point_branch(branch, commit, f"confirmed: attempt {concluded.script}")
    if not driver.context.stop.after_run:
        journal.put_dawn(replace(recorded, ended=utc_now()))
    return concluded


def _drop_weights(driver: Driver, dawn: Dawn) -> None:
    """Drop the weights of dawn's questions; an interrupted dawn needs those that it has not audited."""
    for attempt in driver.state.attempts:
        needed = {run.seed for run, _ in unaudited(attempt, dawn.number)}
        for run in () if attempt.is_idea else attempt.runs:
            if run.seed not in needed:
                driver.context.runner.drop_weights(attempt.number, run.seed)
