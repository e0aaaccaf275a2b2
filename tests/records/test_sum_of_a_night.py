"""Where a night stands, from its attempts."""

import pytest
from judged import decided, scored_attempt
from samples import enter
from test_journal import NIGHT

from agent.experiment import Attempt, Audit, Decision, DryRun, Ending, Kind, Proposal, Run, Score, Status
from agent.records.journal import Journal
from agent.records.record import Record
from agent.records.summary import earned, summary_of

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
    history = journal.attempts()
    now, brought = summary_of(Record(NIGHT, history)), earned(history, ())
    assert now.best.number == 5
    assert (now.kept, now.discarded, now.crashed) == (2, 2, 1)  # of ideas: neither attempt 0 nor a question
    assert now.stopped.stopped == 1
    assert now.hours["other"] == pytest.approx((99 + 98 + 4 + 3) / 3600)
    assert now.unfinished == ((6, "title 6"), (8, "title 8"))
    assert {one.source: (one.attempts, one.kept) for one in brought} == {"search": (4, 2), "llm": (3, 0)}
    assert sum(one.gain_bpb for one in brought) == pytest.approx(0.02 + 0.01)
