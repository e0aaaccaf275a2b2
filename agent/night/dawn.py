"""Dawn: measure the night's result again, and take out the edits that bring nothing.

The runs use fresh seeds and are also scored on the holdout: no choice of the night has seen either.
agent/judging/champion.py chooses the next run and interprets the results. This module carries them out, and resumes
after an interruption as the night does.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from agent.clock import boot_id, utc_now
from agent.experiment import (
    Attempt,
    Dawn,
    Decision,
    History,
    Kind,
    Night,
    Part,
    Proposal,
    Run,
    Score,
    Split,
    Status,
    edit_of,
    incumbent,
    is_half,
    named,
    runs_at_dawns,
)
from agent.judging.champion import (
    FRESH,
    QUESTION,
    SOURCE,
    Again,
    DawnRun,
    Edit,
    Findings,
    Without,
    as_expected,
    edits_of,
    findings,
    names,
    next_run,
)
from agent.judging.intervals import Pieces, Spread
from agent.lab.data import load_data
from agent.night.loop import Driver, at_work
from agent.night.opening import check_disk
from agent.night.plan import Candidate, NextStep, Planner, Reconsider, fallen_keeps
from agent.night.state import NightContext, State
from agent.records.place import Place
from agent.runs.jobs import Job, Measure
from agent.runs.score import SPLITS, Rows, read_committed
from agent.script.merge import dials_of, without_edits
from agent.view.findings import findings_lines, titled
from agent.view.status import confirmed_branch

Edits = tuple[Part, ...]
LEAST_DIALS = 3  # that an edit has turned, if its halves are asked about


def confirm(context: NightContext, most_runs: int) -> Findings | None:
    """Make at most `most_runs` runs, then put the champion without its passengers on the branch …-confirmed.

    Return None if the night kept nothing. Earlier runs of this champion's dawn count.
    """
    context.journal.mark_lost_runs(boot_id())
    state = context.state()
    _reopen(state, most_runs)
    context.tell_standing(state)
    context.watcher.dawn_began(most_runs)
    with at_work(context, state) as driver:
        until = runs_at_dawns(state.attempts) + most_runs
        return Confirmation(driver.context, state, driver.flight, driver, until).carried_out()


def confirm_aloud(context: NightContext, most_runs: int) -> Findings | None:
    """Confirm the night's result, and tell the watcher the findings."""
    findings = confirm(context, most_runs)
    if findings is not None:
        for line in in_words(context.place, context.runner.night, context.journal.attempts(), findings):
            context.watcher.said(line)
    return findings


def in_words(place: Place, night: Night, history: History, findings: Findings) -> list[str]:
    """Return the findings of a dawn as lines for people."""
    is_there = place.repo.find(confirmed_branch(night.branch)) is not None
    return findings_lines(findings, history, night, is_branch_there=is_there)


def is_interrupted(context: NightContext) -> bool:
    """Return whether the champion's dawn has begun and not ended."""
    best, last = incumbent(context.journal.attempts()), next(reversed(context.journal.dawns()), None)
    return last is not None and last.ended is None and best is not None and best.number == last.champion


def ensure_dawn(state: State) -> Dawn | None:
    """Return the champion's dawn; begin one, with fresh seeds, for a champion without any."""
    champion = state.best
    if champion is None or champion.number == 0:
        return None
    if state.last_dawn is None or state.last_dawn.champion != champion.number:
        state.put_dawn(Dawn(len(state.dawns) + 1, champion.number, FRESH, utc_now()))
    return state.last_dawn


def _reopen(state: State, runs: int) -> None:
    """Reopen a dawn that has ended, for more fresh runs; without a confirmed gain, use all runs for these."""
    dawn = ensure_dawn(state)
    if dawn is not None and dawn.ended is not None and runs > 0:
        confirmed = dawn.findings is not None and dawn.findings["script"] is not None
        more = FRESH if confirmed else max(FRESH, runs // 2)
        state.put_dawn(replace(dawn, ended=None, fresh=dawn.fresh + more))


@dataclass(frozen=True, slots=True)
class Confirmation(Planner):
    """Plan a dawn and carry it out: its runs, and what follows from them."""

    driver: Driver
    until: int  # so many runs at all dawns of the night
    impossible: set[Edits] = field(default_factory=set)  # to be taken out

    def carried_out(self) -> Findings | None:
        """Make the runs, and return the findings; None where the night has kept nothing."""
        while (step := self._next_step()) is not None:
            if isinstance(step, Without):
                self._add_without(step.edits)
            else:
                self.driver.take(step)
        dawn = ensure_dawn(self.state)
        return None if dawn is None else self._concluded(dawn)

    # ---- the next run ------------------------------------------------------------------------------------------------

    def _next_step(self) -> NextStep | Without | None:
        return self.first_possible(self._candidates_at_dawn())

    def _candidates_at_dawn(self) -> Iterator[Candidate | Without]:
        context, state, flight = self.context, self.state, self.flight
        if context.stop.now:
            return
        dawn = ensure_dawn(state)
        yield from self.loose_ends()
        if dawn is not None:
            yield from self._loose_ends_of_dawn(dawn)
        if context.stop.after_run:
            return  # the run was scored
        if not flight.jobs:
            check_disk(context.place.repo.root)
        # an idea without a verdict is the night's to go on with
        yield from self.steps_of(
            attempt for attempt in state.unsettled if attempt.decision is not None or not attempt.is_idea
        )
        fallen = fallen_keeps(state.attempts)
        if fallen:
            yield Reconsider(fallen)
        if dawn is not None and flight.idle > 0 and not context.limits.is_over(state.pace):
            step = self._next_run(dawn)
            if step is not None:
                yield step

    def _loose_ends_of_dawn(self, dawn: Dawn) -> Iterator[Job]:
        """Yield the audits that the runs of this dawn lack, on two texts; none for attempt 0."""
        for attempt in self.state.attempts:
            if attempt.is_idea and attempt.status is not Status.KEEP:
                continue  # it has fallen, and its weights are gone
            for run in attempt.dawn_runs(dawn.number):
                split = _unaudited(attempt, run)
                if split is not None and run.seed not in self.flight.seeds_of(attempt.number):
                    yield self.audit(attempt, run, split)

    def _next_run(self, dawn: Dawn) -> Measure | Without | None:
        """Return the most useful run if those in flight bring what is expected; None if none is worth its time."""
        state, flight = self.state, self.flight
        begun = sorted((job.attempt, job.seed) for job, _ in flight.jobs.values() if isinstance(job, Measure))
        left = self.until - runs_at_dawns(state.attempts) - len(begun)

        def ask() -> DawnRun | None:
            return next_run(
                as_expected(state.attempts, begun, dawn.number), left, impossible=self.impossible,
                divisible=self._divisible(), at_least=dawn.fresh, dawn=dawn.number,
            )  # fmt: skip

        chosen = state.once(f"the next run beside {begun}, without {sorted(self.impossible)}", ask)
        if not isinstance(chosen, Again):
            return chosen
        busy = flight.seeds_of(chosen.attempt)
        return self.measure(state.attempts[chosen.attempt], dawn.number, in_flight=busy)

    def _divisible(self) -> set[int]:
        """Return the edits of the champion that turn many dials and change nothing else."""
        history, best = self.state.attempts, self.state.best
        kind = self.context.runner.night.device_kind
        edits = edits_of(best, history) if best is not None else ()
        return {edit.number for edit in edits if len(dials_of(history, edit.number, kind)) >= LEAST_DIALS}

    def _add_without(self, edits: Edits) -> None:
        """Enter the champion without these edits as an attempt, committed and settled, so that it can be measured."""
        history, champion, kind = self.state.attempts, self.state.best, self.context.runner.night.device_kind
        assert champion is not None
        script = without_edits(history, champion, edits, kind)
        if script is None:
            why = "later edits need those lines, or have turned those dials"
            self.context.watcher.said(f"#{champion.number} cannot be had without {names(edits)}: {why}")
            self.impossible.add(edits)
            return
        titles = "; ".join(titled(history, number, kind) for number in edits)
        title, hypothesis = f"#{champion.number} without {names(edits)}", "Does the best script of the night miss it?"
        question = self.state.add(
            champion.number, Proposal.of(script, title, f"{hypothesis} {titles}", SOURCE, without=edits)
        )
        self.driver.commit(question)
        self.state.decide(question.number, Decision(Kind.QUESTION, QUESTION))
        self.driver.settle(question.number)

    # ---- consequences ------------------------------------------------------------------------------------------------

    def _concluded(self, dawn: Dawn) -> Findings:
        """Return what the runs say, once it is recorded and the branch …-confirmed is where it belongs."""
        state, number = self.state, dawn.number
        texts: dict[str, Spread] = {split: text for split in SPLITS if (text := self._text(dawn, split)) is not None}
        concluded = findings(
            state.attempts, impossible=self.impossible, divisible=self._divisible(), dawn=number, texts=texts
        )
        assert concluded is not None
        self._record(concluded, dawn)
        recorded = replace(dawn, findings=asdict(concluded))
        state.put_dawn(recorded)  # before the branch, which may be refused: hours were spent on these findings
        commit = state.attempts[concluded.script].commit if concluded.script is not None else None
        if commit is not None:
            branch = confirmed_branch(self.context.runner.night.branch)
            self.driver.point_branch(branch, commit, f"confirmed: attempt {concluded.script}")
        if not self.context.stop.after_run:
            state.put_dawn(replace(recorded, ended=utc_now()))
        return concluded

    def _text(self, dawn: Dawn, split: Split) -> Spread | None:
        """Return how far the champion's gain varies with the choice of documents, from committed losses.

        None where attempt 0 or the champion has no losses on this text.
        """
        history, runner = self.state.attempts, self.context.runner
        rows = Rows.of(runner.night, split)
        bos = load_data(Path(runner.night.data), verify=False).bos
        pieces = Pieces.of(rows.targets, rows.token_bytes, bos)
        nats = []
        for attempt in (history[0], history[dawn.champion]):
            files = (runner.losses(attempt.number, run.seed, split) for run in attempt.dawn_runs(dawn.number))
            committed = (losses for file in files if (losses := read_committed(file, rows)) is not None)
            sums = [pieces.nats(losses, rows.counted) for losses in committed]
            if not sums:
                return None
            nats.append(np.mean(sums, axis=0))
        return pieces.spread(nats[0] - nats[1])

    def _record(self, findings: Findings, dawn: Dawn) -> None:
        """Record dawn's findings in the decisions of the kept edits and the questions, which the ledger shows."""
        history = self.state.attempts
        for number in (edit_of(edit.number) for edit in findings.edits if not is_half(edit.number)):
            effects = [_in_short(edit, findings) for edit in findings.edits if edit_of(edit.number) == number]
            words, decision = ", and ".join(filter(None, effects)), history[number].decision
            if words and decision is not None:
                self._decide_again(history[number], replace(decision, at_dawn=f"at dawn {words}"))
        for attempt in history:
            if attempt.is_idea or attempt.status is Status.KEEP:
                continue
            for run in attempt.runs:
                # of others, an interrupted dawn needs them when it goes on
                if run.dawn and (run.dawn != dawn.number or _unaudited(attempt, run) is None):
                    self.driver.pool.drop_weights(attempt.number, run.seed)
            if attempt.decision and attempt.kind is Kind.QUESTION and attempt.dawn_runs():
                reason = f"{QUESTION}: is #{attempt.parent} as good without {names(attempt.proposal.without)}?"
                self._decide_again(attempt, replace(attempt.decision, reason=reason))

    def _decide_again(self, attempt: Attempt, decision: Decision) -> None:
        """Record a decision with other words, if they differ from the present ones."""
        if decision != attempt.decision:
            self.state.decide(attempt.number, decision)
            self.driver.settle(attempt.number)


def _unaudited(attempt: Attempt, run: Run) -> Split | None:
    """Return a text on which a run at dawn has a score that was not audited; None without any, and for attempt 0."""
    scores: tuple[tuple[Split, Score | None], ...] = (("validation", run.score), ("holdout", run.holdout))
    due = (split for split, score in scores if score and score.val_bpb is not None and score.audit is None)
    return next(due, None) if attempt.number else None


def _in_short(edit: Edit, findings: Findings) -> str | None:
    """Say what dawn found of an edit or a half; None if dawn leaves it alone."""
    dropped = edit.number in findings.passengers
    if edit.runs == 0 and not dropped:
        return None
    how = f"by {edit.runs} run{'s' if edit.runs > 1 else ''} without it" if edit.runs else "by the night's own runs"
    half = f"{named(edit.number)} " if is_half(edit.number) else ""
    return f"{half}{edit.effect.mean_bpb:+.6f} {how}, {'a passenger' if dropped else 'it stays'}"
