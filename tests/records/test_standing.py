"""Where a night stands, by a few questions to its journal: what the attempts themselves would say."""

import dataclasses
import json

import pytest
from judged import decided, scored_attempt
from samples import enter
from test_journal import NIGHT

from agent.experiment import Attempt, Audit, Decision, DryRun, Ending, Kind, Proposal, Run, Score, Status
from agent.judging.noise import noise
from agent.records.journal import Journal
from agent.records.standing import NOISE, Standing, noise_of_night, remember_noise

AUDIT = Audit(4, 0, 0.0, 0.0, 2.5)


def run(seed: int, ending: Ending, wall_s: float, score: Score | None = None) -> Run:
    return Run(seed, ending, 0, wall_s, None, "", score)


def attempt(number: int, parent: int, source: str, *runs: Run, without: tuple[int, ...] = ()) -> Attempt:
    proposal = Proposal(f"A = {number}", f"title {number}", "", source, without=without)
    return Attempt(number, parent, proposal, "", runs=runs)


@pytest.fixture
def journal(tmp_path):
    """Every kind of end that a run and an attempt may come to."""
    with Journal.create(tmp_path / "journal.sqlite", NIGHT) as journal:
        enter(journal, scored_attempt(0, 1.5, 1.51, 1.49, status=Status.KEEP, script="A = 0"))
        keep, good = decided(Status.KEEP, "below", 0.02, 0.95), Score(1.47, 3.0, audit=AUDIT)
        felled = run(0, Ending.SPOILT, 4.0), run(0, Ending.CRASHED, 5.0), run(1, Ending.FINISHED, 9.0, good)
        enter(journal, attempt(1, 0, "search", run(0, Ending.FINISHED, 10.0, good)), keep)
        enter(journal, attempt(2, 1, "llm:a", *felled), decided(Status.CRASH, "the machine went down"))
        void = run(0, Ending.SLEPT, 99.0), run(0, Ending.STOPPED, 98.0), run(0, Ending.HOPELESS, 3.0)
        enter(journal, attempt(3, 1, "llm:b", *void), Decision(Kind.STOPPED_EARLY, "stopped early", -0.1))
        enter(journal, attempt(4, 1, "search", run(0, Ending.FINISHED, 11.0, Score(1.4, 2.0))), keep, Decision(
            Kind.REVOKED, "revoked", 0.0, 0.4))  # fmt: skip
        no_estimate = decided(Status.KEEP, "0.010000 below the incumbent")
        enter(journal, attempt(5, 1, "search", run(0, Ending.FINISHED, 12.0, Score(1.46, 2.0))), no_estimate)
        enter(journal, attempt(6, 5, "search", run(0, Ending.CRASHED, 1.0)), Decision(Kind.VOID, "broken"))
        enter(journal, attempt(7, 5, "you", without=(1,)), Decision(Kind.QUESTION, "a question of dawn"))
        enter(journal, attempt(8, 5, "llm:a"))
        journal.record_dry_run(8, DryRun(3.0, None))
        journal.start_run(8, 0)
        yield journal


def test_a_night_stands_where_its_attempts_say(journal):
    by_attempts, by_questions = Standing.of(journal.attempts()), Standing.read(journal)
    assert by_questions == dataclasses.replace(by_attempts, brought=by_questions.brought, spent=by_questions.spent)
    assert {one.source: one for one in by_questions.brought} == {one.source: one for one in by_attempts.brought}
    assert dataclasses.astuple(by_questions.spent) == pytest.approx(dataclasses.astuple(by_attempts.spent))
    assert by_questions.best.number == 5
    assert by_questions.counts == {"keep": 2, "discard": 2, "crash": 1}  # of ideas: neither attempt 0 nor a question
    assert by_questions.stopped.stopped == 1
    assert by_questions.spent.other_s == 99 + 98 + 4 + 3
    assert by_questions.unfinished == [(6, "title 6"), (8, "title 8")]
    assert {one.source: one.kept for one in by_questions.brought} == {"search": 2, "llm": 0}


def test_of_a_long_night_only_what_the_noise_is_learnt_from_is_read(tmp_path):
    with Journal.create(tmp_path / "journal.sqlite", NIGHT) as journal:
        journal._db.execute("PRAGMA synchronous = OFF")
        enter(journal, scored_attempt(0, 1.5, 1.51, 1.49, status=Status.KEEP, script="A = 0"))
        for number in range(1, 450):
            enter(journal, scored_attempt(number, 1.6, parent=0, script=f"A = {number}"))
        by_attempts, by_questions = Standing.of(journal.attempts()), Standing.read(journal)
        assert by_questions == by_attempts


def test_the_noise_is_remembered_until_something_comes_that_it_is_learnt_from(tmp_path):
    def told() -> float:
        return json.loads((tmp_path / NOISE).read_text())["noise"]["sigma_bpb"]

    with Journal.create(tmp_path / "journal.sqlite", NIGHT) as journal:
        enter(journal, scored_attempt(0, 1.5, 1.51, 1.49, status=Status.KEEP, script="A = 0"))
        first = noise_of_night(journal)
        assert first == noise(journal.attempts())
        assert first.sigma_bpb == told()
        changed = json.loads((tmp_path / NOISE).read_text())
        changed["noise"]["sigma_bpb"] = 0.5
        (tmp_path / NOISE).write_text(json.dumps(changed))
        journal.start_run(0, 9)  # nothing is known of it yet
        assert noise_of_night(journal).sigma_bpb == 0.5
        journal.end_run(journal.start_run(0, 3), run(3, Ending.FINISHED, 9.0))
        journal.record_score(0, 3, Score(1.9, 2.0))
        later = noise_of_night(journal)
        assert later == noise(journal.attempts())
        assert later.sigma_bpb > first.sigma_bpb
        journal.record_decision(0, decided(Status.DISCARD, "no baseline"))
        assert noise_of_night(journal) is None is noise(journal.attempts())
        assert remember_noise(journal, first) == noise_of_night(journal) == first  # as a night does that goes on
        journal.settle(0)
        later = noise_of_night(journal)
        assert later == noise(journal.attempts())
        for text in ("", "[]", '{"of": 1}', "\0"):
            (tmp_path / NOISE).write_text(text)
            assert noise_of_night(journal) == later
            assert told() == later.sigma_bpb


def test_a_night_without_attempts_stands_at_its_beginning(tmp_path):
    with Journal.create(tmp_path / "journal.sqlite", NIGHT) as journal:
        assert Standing.read(journal) == Standing.of([])
