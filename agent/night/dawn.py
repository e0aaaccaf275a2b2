"""Dawn: measure the night's result again, and take out the edits that bring nothing.

The runs use fresh seeds and are also scored on the holdout: no choice of the night has seen either.
agent/judging/champion.py chooses the next run and interprets the results. This module carries them out, and resumes
after an interruption as the night does.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from agent.clock import boot_id, utc_now
from agent.experiment import (
    Attempt,
    Dawn,
    Decision,
    Ending,
    History,
    Kind,
    Night,
    Proposal,
    Run,
    Status,
    edit_of,
    incumbent,
    is_half,
    named,
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
from agent.night.context import NightContext
from agent.night.driver import Driver, at_work
from agent.night.opening import check_disk
from agent.night.planning.flight import Flight
from agent.night.planning.next_job import evaluation, measure, reexamination
from agent.night.planning.plan import first_possible
from agent.night.planning.second_thoughts import fallen_keeps, loose_ends
from agent.night.planning.state import State
from agent.night.planning.steps import Candidate, NextStep, Reconsider
from agent.night.planning.unsettled import steps_of_attempts
from agent.night.record import commit, point_branch, settle, tell_standing
from agent.records.place import Place
from agent.runs.jobs import Job, Measure
from agent.runs.score import Rows, Split, read_committed
from agent.script.merge import dials_of, without_edits
from agent.view.findings import findings_lines, titled
from agent.view.status import confirmed_branch

SPLITS: tuple[Split, ...] = ("validation", "holdout")
Edits = tuple[int, ...]
LEAST_DIALS = 3  # that an edit has turned, if its halves are asked about


def confirm(context: NightContext, most_runs: int) -> Findings | None:
    """Make at most `most_runs` runs, then put the champion without its passengers on the branch …-confirmed.

    Return None if the night kept nothing. Earlier runs of this champion's dawn count.
    """
    context.journal.mark_lost_runs(boot_id())
    state = context.state()
    _reopen(state, most_runs)
    until = state.runs_at_dawns + most_runs
    tell_standing(context, state)
    context.watcher.dawn_began(most_runs)
    with at_work(context, state) as driver:
        return _confirmed(driver, until)


def _confirmed(driver: Driver, until: int) -> Findings | None:
    """Make runs until there are so many at all dawns of the night, and carry out the consequences."""
    context, state = driver.context, driver.state
    impossible: set[Edits] = set()
    while (step := _next_step(driver, impossible, until)) is not None:
        if isinstance(step, Without):
            _add_without(context, state, step.edits, impossible)
        else:
            driver.take(step)
    dawn = ensure_dawn(state)
    if dawn is None:
        return None
    texts = _texts(context, state.attempts, dawn)
    divisible = _divisible(context, state)
    found = findings(state.attempts, impossible=impossible, divisible=divisible, dawn=dawn.number, texts=texts)
    assert found is not None
    _record(context, state, found, dawn)
    known = replace(dawn, findings=asdict(found))
    state.put_dawn(known)  # before the branch, which may be refused: hours were spent on these findings
    _point_at_confirmed(context, state, found)
    if not context.stop.after_run:
        state.put_dawn(replace(known, ended=utc_now()))
    return found


def confirm_aloud(context: NightContext, most_runs: int) -> Findings | None:
    """Confirm the night's result, and tell the watcher the findings."""
    found = confirm(context, most_runs)
    if found is not None:
        for line in in_words(context.place, context.runner.night, context.journal.attempts(), found):
            context.watcher.said(line)
    return found


def in_words(place: Place, night: Night, history: History, found: Findings) -> list[str]:
    is_there = place.repo.find(confirmed_branch(night.branch)) is not None
    return findings_lines(found, history, night, is_branch_there=is_there)


def ensure_dawn(state: State) -> Dawn | None:
    """Return the champion's dawn; begin one, with fresh seeds, for a champion without any."""
    champion = state.best
    if champion is None or champion.number == 0:
        return None
    if state.last_dawn is None or state.last_dawn.champion != champion.number:
        state.put_dawn(Dawn(len(state.dawns) + 1, champion.number, FRESH, utc_now()))
    return state.last_dawn


def is_interrupted(context: NightContext) -> bool:
    """Return whether the champion's dawn has begun and not ended."""
    best, last = incumbent(context.journal.attempts()), next(reversed(context.journal.dawns()), None)
    return last is not None and last.ended is None and best is not None and best.number == last.champion


def _reopen(state: State, runs: int) -> None:
    """Reopen a dawn that has ended, for more fresh runs; without a confirmed gain, use all runs for these."""
    dawn = ensure_dawn(state)
    if dawn is not None and dawn.ended is not None and runs > 0:
        confirmed = dawn.findings is not None and dawn.findings["script"] is not None
        more = FRESH if confirmed else max(FRESH, runs // 2)
        state.put_dawn(replace(dawn, ended=None, fresh=dawn.fresh + more))


def _next_step(driver: Driver, impossible: set[Edits], until: int) -> NextStep | Without | None:
    """Return the next step of dawn that can be carried out now; None when dawn is over."""
    return first_possible(driver.context, driver.state, driver.flight, _candidates(driver, impossible, until))


def _candidates(driver: Driver, impossible: set[Edits], until: int) -> Iterator[Candidate | Without]:
    context, state, flight = driver.context, driver.state, driver.flight
    if context.stop.now:
        return
    dawn = ensure_dawn(state)
    yield from loose_ends(context, state, flight)
    if dawn is not None:
        yield from _loose_ends_of_dawn(context, state, flight, dawn)
    if context.stop.after_run:
        return  # the run was scored
    if not flight.jobs:
        check_disk(context.place.repo.root)
    # an idea without a verdict is the night's to go on with
    own = [number for number in state.unsettled if _is_dawns(state.attempts[number])]
    yield from steps_of_attempts(context, state, flight, own)
    fallen = fallen_keeps(state.attempts, state.kept)
    if fallen:
        yield Reconsider(fallen)
    if dawn is not None and flight.idle > 0 and not context.limits.is_over(state.pace):
        step = _next_run(driver, dawn, impossible, until)
        if step is not None:
            yield step


def _next_run(driver: Driver, dawn: Dawn, impossible: set[Edits], until: int) -> Measure | Without | None:
    """Return the most useful run if those in flight bring what is expected of them; None if none is worth its time."""
    context, state, flight = driver.context, driver.state, driver.flight
    begun = [one.job for one in flight.jobs.values() if isinstance(one.job, Measure)]
    divisible, left = _divisible(context, state), until - state.runs_at_dawns - len(begun)

    def ask() -> DawnRun | None:
        history = as_expected(state.attempts, [(job.attempt, job.seed) for job in begun], dawn.number)
        return next_run(
            history, left, impossible=impossible, divisible=divisible, at_least=dawn.fresh, dawn=dawn.number
        )

    beside = sorted((job.attempt, job.seed) for job in begun)
    asked = state.once(f"the next run beside {beside}, without {sorted(impossible)}", ask)
    if not isinstance(asked, Again):
        return asked
    busy = flight.seeds_of(asked.attempt)
    return measure(context, state, state.attempts[asked.attempt], dawn.number, in_flight=busy)


def _divisible(context: NightContext, state: State) -> set[int]:
    """Return the edits of the champion that turn many dials and change nothing else."""
    chain = edits_of(state.best, state.attempts) if state.best is not None else ()
    kind = context.runner.night.device_kind
    return {edit.number for edit in chain if len(dials_of(state.attempts, edit.number, kind)) >= LEAST_DIALS}


def _is_dawns(attempt: Attempt) -> bool:
    return attempt.decision is not None or not attempt.is_idea


def _loose_ends_of_dawn(context: NightContext, state: State, flight: Flight, dawn: Dawn) -> Iterator[Job]:
    """Yield the scoring or the audit that a run of this dawn lacks: both on two texts, no audit for attempt 0."""
    for number in sorted(state.at_dawn):
        attempt, busy = state.attempts[number], flight.seeds_of(number)
        if attempt.is_idea and attempt.status is not Status.KEEP:
            continue  # it has fallen, and its weights are gone
        for run in attempt.dawn_runs(dawn.number):
            if run.ending is Ending.FINISHED and run.seed not in busy:
                job = _measurement_of(context, state, attempt, run)
                if job is not None:
                    yield job


def _lacks(attempt: Attempt, run: Run) -> tuple[str, Split] | None:
    """Return whether a run at dawn lacks a score or an audit, and on which text; None if it is complete."""
    if run.score is None:
        return "score", "validation"
    if run.score.val_bpb is None:
        return None
    if run.holdout is None:
        return "score", "holdout"
    if attempt.number == 0:
        return None
    if run.score.audit is None:
        return "audit", "validation"
    return ("audit", "holdout") if run.holdout.val_bpb is not None and run.holdout.audit is None else None


def _measurement_of(context: NightContext, state: State, attempt: Attempt, run: Run) -> Job | None:
    match _lacks(attempt, run):
        case ("score", split):
            return evaluation(context, state, attempt, run, split)
        case ("audit", split):
            return reexamination(context, state, attempt, run, split)
    return None


def _add_without(context: NightContext, state: State, edits: Edits, impossible: set[Edits]) -> None:
    """Enter the champion without these edits as an attempt, committed and settled, so that it can be measured."""
    history, champion = state.attempts, state.best
    assert champion is not None
    script = without_edits(history, champion, edits, context.runner.night.device_kind)
    if script is None:
        why = "later edits need those lines, or have turned those dials"
        context.watcher.said(f"#{champion.number} cannot be had without {names(edits)}: {why}")
        impossible.add(edits)
        return
    titles = "; ".join(titled(history, number, context.runner.night.device_kind) for number in edits)
    proposal = Proposal.of(
        script,
        f"#{champion.number} without {names(edits)}",
        f"Does the best script of the night miss it? {titles}",
        SOURCE,
        without=edits,
    )
    question = state.add(champion.number, proposal)
    commit(context, state, question)
    state.decide(question.number, Decision(Kind.QUESTION, QUESTION))
    settle(context, state, question.number)


# ---- consequences ----------------------------------------------------------------------------------------------------


def _texts(context: NightContext, history: History, dawn: Dawn) -> dict[str, Spread]:
    """Return for each text how far the champion's gain varies with the choice of documents, from committed losses."""
    found: dict[str, Spread] = {}
    for split in SPLITS:
        text = _text(context, (history[0], history[dawn.champion]), dawn, split)
        if text is not None:
            found[split] = text
    return found


def _text(context: NightContext, pair: tuple[Attempt, Attempt], dawn: Dawn, split: Split) -> Spread | None:
    """Compare the committed losses of a pair on one text; None if one of them has no losses there."""
    night = context.runner.night
    rows = Rows.of(night, split)
    pieces = Pieces.of(rows.targets, rows.token_bytes, load_data(Path(night.data), verify=False).bos)
    nats = []
    for attempt in pair:
        files = (context.runner.losses(attempt.number, run.seed, split) for run in attempt.dawn_runs(dawn.number))
        sums = [
            pieces.nats(losses, rows.counted) for file in files if (losses := read_committed(file, rows)) is not None
        ]
        if not sums:
            return None
        nats.append(np.mean(sums, axis=0))
    return pieces.spread(nats[0] - nats[1])


def _record(context: NightContext, state: State, found: Findings, dawn: Dawn) -> None:
    """Record dawn's findings in the decisions of the kept edits and the questions, which the ledger shows."""
    history, pool = state.attempts, context.pool
    assert pool is not None
    for number in (edit.number for edit in found.edits if not is_half(edit.number)):
        told = [_in_short(edit, found) for edit in found.edits if edit_of(edit.number) == number]
        words = ", and ".join(filter(None, told))
        if words:
            kept = history[number]
            assert kept.decision is not None
            _record_words(context, state, kept, replace(kept.decision, at_dawn=f"at dawn {words}"))
    for attempt in history:
        if attempt.is_idea or attempt.status is Status.KEEP:
            continue
        for run in attempt.runs:
            # of others, an interrupted dawn needs them when it goes on
            if run.dawn and (run.dawn != dawn.number or _lacks(attempt, run) is None):
                pool.drop_weights(attempt.number, run.seed)
        if attempt.decision and attempt.kind is Kind.QUESTION and attempt.dawn_runs():
            asked = f"{QUESTION}: is #{attempt.parent} as good without {names(attempt.proposal.without)}?"
            _record_words(context, state, attempt, replace(attempt.decision, reason=asked))


def _in_short(edit: Edit, found: Findings) -> str | None:
    """Say what dawn found of an edit or a half; None if dawn leaves it alone."""
    dropped = edit.number in found.passengers
    if edit.runs == 0 and not dropped:
        return None
    how = f"by {edit.runs} run{'s' if edit.runs > 1 else ''} without it" if edit.runs else "by the night's own runs"
    half = f"{named(edit.number)} " if is_half(edit.number) else ""
    return f"{half}{edit.effect.mean_bpb:+.6f} {how}, {'a passenger' if dropped else 'it stays'}"


def _record_words(context: NightContext, state: State, attempt: Attempt, told: Decision) -> None:
    """Record a decision with other words, if they differ from the present ones."""
    if told != attempt.decision:
        state.decide(attempt.number, told)
        settle(context, state, attempt.number)


def _point_at_confirmed(context: NightContext, state: State, found: Findings) -> None:
    """Point the branch …-confirmed at the confirmed script, if a gain was found."""
    commit = state.attempts[found.script].commit if found.script is not None else None
    if commit is not None:
        branch = confirmed_branch(context.runner.night.branch)
        point_branch(context, state, branch, commit, f"confirmed: attempt {found.script}")
