"""Several workers of one machine: attempts in flight at the same time, ended in any order, stopped and counted."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from nights import Grounds, Quiet, make_repository, scripted_context, unigram

from agent.experiment import Attempt, Ending, Proposal, Run
from agent.night.confirmation import confirm_night
from agent.night.limits import Limits
from agent.night.lock import AFTER_RUN
from agent.night.loop import run_night
from agent.night.plan import Begin, InFlight, Plan
from agent.night.state import NightContext
from agent.pools.pool import Ended, LocalPool
from agent.runs.jobs import AuditRun
from agent.work import DeviceSlot

WORKERS = ("left", "right")
TRAINS = "    while (elapsed := "


class Watching(Quiet):
    """Remembers the order in which attempts settle; opens a gate after attempt 2."""

    def __init__(self, gate: Path | None = None) -> None:
        super().__init__()
        self.gate = gate
        self.settled: list[int] = []

    def attempt_settled(self, attempt: Attempt) -> None:
        self.settled.append(attempt.number)
        if self.gate is not None and attempt.number == 2:
            self.gate.touch()


class Careless(LocalPool):
    """Loses the first audit of attempt 2, as where its node has left."""

    has_lost = False

    def ended(self, wait_s: float) -> Sequence[Ended]:
        return [self._perhaps_lost(ended) for ended in super().ended(wait_s)]

    def _perhaps_lost(self, ended: Ended) -> Ended:
        if self.has_lost or not isinstance(ended.job, AuditRun) or ended.job.attempt != 2:
            return ended
        self.has_lost = True
        return Ended(ended.worker, ended.job, lost="its node has left")


def with_workers(context: NightContext, watcher: Quiet) -> NightContext:
    pool = Careless([dataclasses.replace(context.runner, slot=DeviceSlot(name)) for name in WORKERS])
    return dataclasses.replace(context, watcher=watcher, pool=pool)


@dataclass(frozen=True)
class Parallel:
    grounds: Grounds
    watcher: Watching
    attempts: tuple[Attempt, ...]


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Parallel:
    """After a night in which attempt 1 trains until attempt 2 is settled; more was proposed than is tried."""
    folder = tmp_path_factory.mktemp("parallel")
    grounds, gate = Grounds(make_repository(folder / "user", unigram())), folder / "gate"
    waits = f"    while not Path({str(gate)!r}).exists():\n        time.sleep(0.01)\n{TRAINS}"
    slow = unigram(SHARPNESS=0.6).replace(TRAINS, waits)
    scripts, watcher = [slow, unigram(SHARPNESS=0.7), unigram(SHARPNESS=0.8)], Watching(gate=gate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        with scripted_context(grounds.root, "t", scripts) as context:
            run_night(dataclasses.replace(with_workers(context, watcher), limits=Limits(experiments=2)))
    return Parallel(grounds, watcher, grounds.attempts("t"))


def overlap(one: Run, other: Run) -> bool:
    assert None not in (one.began, one.ended, other.began, other.ended)
    return max(one.began, other.began) < min(one.ended, other.ended)  # type: ignore[type-var]


def test_two_workers_train_at_the_same_time_and_attempts_settle_in_any_order(parallel):
    assert parallel.watcher.settled == [0, 2, 1]
    first, second = (parallel.attempts[number].runs[0] for number in (1, 2))
    assert overlap(first, second)
    assert {first.worker, second.worker} == set(WORKERS)
    assert [row["status"] for row in parallel.grounds.rows()] == ["keep", "discard", "keep"]


def test_no_run_begins_after_the_hours_or_a_wish_to_end(trained):
    with scripted_context(trained.root, "t", []) as context:
        context.state().enter(0, Proposal.of(unigram(SHARPNESS=0.8), "an edit", "", "you"))
        in_flight, late = InFlight(LocalPool([context.runner])), dataclasses.replace(context, limits=Limits(hours=1e-6))
        assert isinstance(Plan(context.state(), in_flight).next_step(), Begin)
        assert Plan(late.state(), in_flight).next_step() is None
        context.stop.wish(AFTER_RUN)
        assert Plan(context.state(), in_flight).next_step() is None


def test_an_audit_whose_worker_is_lost_is_done_again_and_the_run_counts(parallel):
    (run,) = parallel.attempts[2].runs
    assert run.ending is Ending.FINISHED
    assert run.score is not None
    assert run.score.audit is not None
    assert "this audit of #2 does not count and is done again: its node has left" in parallel.watcher.sentences


def test_the_first_script_runs_alone_and_then_beside_itself_on_all_workers(parallel):
    alone, *beside = parallel.attempts[0].runs
    assert [run.seed for run in (alone, *beside)] == [0, 1, 2]
    assert not any(overlap(alone, run) for run in beside)
    assert overlap(*beside)


@pytest.mark.slow
def test_the_confirmation_keeps_all_workers_busy_and_makes_as_many_runs_as_it_was_given(grounds):
    grounds.try_scripts("t", [unigram(SHARPNESS=0.8)])
    with scripted_context(grounds.root, "t", []) as context:
        assert confirm_night(with_workers(context, Watching()), 4) is not None
    first, edit = grounds.attempts("t")
    assert [[run.seed for run in attempt.confirmation_runs()] for attempt in (first, edit)] == [[1000, 1001]] * 2
    assert overlap(first.confirmation_runs()[0], edit.confirmation_runs()[0])
    assert all(run.holdout is not None and run.holdout.audit is not None for run in edit.confirmation_runs())
