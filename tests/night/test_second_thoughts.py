"""What a night does about attempts that it had settled: measured again, revoked, brought down."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from judged import scored_attempt
from nights import BROKEN, Grounds, scripted_context, unigram

from agent.errors import NoIdea
from agent.experiment import Attempt, Audit, Decision, History, Kind, Proposal, Review, Score, Status
from agent.judging.judges import Greedy
from agent.night.limits import Limits
from agent.night.loop import run_night
from agent.night.plan import fallen_keeps
from agent.night.state import NightContext
from agent.proposers.proposer import Briefing, Proposer

pytestmark = pytest.mark.usefixtures("own_cache")


@dataclass(frozen=True)
class Doubtful:
    """Greedy, but it thinks again once so many have settled: it has #1 measured again, or revokes an attempt."""

    again_after: int | None = None  # attempts so far
    revoked: Mapping[int, int] = field(default_factory=dict)  # attempts so far → the one to revoke
    calibration: int = 1

    def judge(self, attempt: Attempt, history: History) -> Decision:
        return Greedy().judge(attempt, history)

    def review(self, history: History) -> Review:
        number = self.revoked.get(len(history))
        if number is not None and history[number].status is Status.KEEP:
            return Review(decisions={number: Decision(Kind.REVOKED, "revoked: it was luck", -0.01, 0.2)})
        return Review((1,) if len(history) == self.again_after and len(history[1].done_runs) < 2 else ())


def night(grounds: Grounds, scripts: list[str], judge: Doubtful, **options: object) -> NightContext:
    with scripted_context(grounds.root, "t", scripts) as context:
        context = dataclasses.replace(context, judge=judge, **options)
        run_night(context)
    return context


def tip(grounds: Grounds) -> str:
    return grounds.git("rev-parse", "refs/heads/experiments/0.05s-t")


@pytest.mark.slow
def test_a_revoked_keep_gives_its_place_back_to_its_parent(grounds):
    scripts, judge = [unigram(SHARPNESS=sharpness) for sharpness in (0.8, 0.2, 0.7)], Doubtful(2, revoked={3: 1})
    for most in (2, 3):  # a resumed night decides the same
        night(grounds, scripts, judge, limits=Limits(experiments=most))
    assert [len(attempt.done_runs) for attempt in grounds.attempts("t")] == [1, 2, 1, 1]
    attempts = grounds.attempts("t")
    assert [attempt.status for attempt in attempts] == ["keep", "discard", "discard", "keep"]
    assert [attempt.parent for attempt in attempts] == [None, 0, 1, 0]
    assert [decision.kind for decision in attempts[1].decisions] == [Kind.KEPT, Kind.REVOKED]
    assert tip(grounds) == attempts[3].commit
    assert grounds.rows()[1]["reason"] == "revoked: it was luck"
    assert (grounds.rows()[1]["gain_bpb"], grounds.rows()[1]["sure"]) == ("-0.010000", "0.20")
    weights = sorted({path.parents[2].name for path in grounds.folder("t").rglob("model.safetensors")})
    assert weights == ["0000", "0003"]


class Sometimes(Proposer):
    """Has an idea when it is asked for the third time, and never after that."""

    name = "sometimes"

    def __init__(self) -> None:
        self.asked = 0

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        self.asked += 1
        if self.asked != 3:
            raise NoIdea("the server is down")
        return [Proposal.of(BROKEN, "late", "", "sometimes")]


@pytest.mark.slow
def test_a_night_waits_for_ideas_but_not_for_ever(grounds, monkeypatch):
    monkeypatch.setattr("agent.night.proposals.WAITS_S", (0.01, 0.02))
    sometimes = Sometimes()
    context = night(grounds, [], Doubtful(), proposers=[sometimes])
    assert [attempt.status for attempt in grounds.attempts("t")] == ["keep", "crash"]
    assert sometimes.asked == 3 + 3
    assert "no proposer has an idea now; asking again in 0.02 s" in context.watcher.sentences


def test_a_keep_falls_with_a_later_run_or_its_audit_and_with_its_parent():
    history = [
        scored_attempt(number, 1.0, confirmation=(1.0,), status=Status.KEEP, parent=number - 1 if number else None)
        for number in range(3)
    ]
    assert fallen_keeps(history) == {}
    first, run = history[1].runs
    for holdout, fall in (
        (Score(1.0, 1.0, audit=Audit(16, 9.0, 1.0, "a lie")), Decision(Kind.FAILED_AUDIT, "audit: a lie")),
        (
            Score(None, 1.0, "scoring crashed: ValueError: a line of the holdout"),
            Decision(Kind.CRASHED, "with another seed: it has no score on the holdout"),
        ),
    ):
        history[1] = dataclasses.replace(history[1], runs=(first, dataclasses.replace(run, holdout=holdout)))
        assert fallen_keeps(history) == {1: fall}
    history[1] = dataclasses.replace(history[1], decisions=(fall,))
    assert fallen_keeps(history) == {2: Decision(Kind.ORPHANED, "made from #1, which is no longer kept")}
