"""Several workers of one machine: attempts in flight at the same time, ended in any order, stopped and counted."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from nights import Grounds, Quiet, make_repository, scripted_context, unigram

from agent.experiment import LOCAL, Attempt, Ending, Lease, Proposal, Run
from agent.night.dawn import confirm_night
from agent.night.limits import Limits
from agent.night.lock import AFTER_RUN, NOW
from agent.night.loop import run_night
from agent.night.plan import Begin, Flight, Plan, Wait
from agent.night.state import NightContext
from agent.pools.pool import Ended, LocalPool
from agent.runs.execute import AuditRun, Job

WORKERS = ("left", "right")
TRAINS = "    while (elapsed := "


class Watching(Quiet):
    """Does something when a run begins; remembers the order in which attempts settle, and whose work was shown."""

    def __init__(self, deed: Callable[[int], object] = lambda number: None, gate: Path | None = None) -> None:
        super().__init__()
        self.deed = deed
        self.gate = gate  # opened when attempt 2 is settled
        self.settled: list[int] = []
        self.shown: set[str] = set()

    def run_began(self, attempt: Attempt, seed: int, worker: str = LOCAL) -> None:
        self.deed(attempt.number)

    def progressed(self, progress: object, elapsed_s: float, worker: str = LOCAL) -> None:
        self.shown.add(worker)

    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None:
        self.settled.append(attempt.number)
        if self.gate is not None and attempt.number == 2:
            self.gate.touch()


class Careless(LocalPool):
    """Loses the weights of one attempt, the first time that they are to be audited."""

    loses: int | None = None

    def ended(self, wait_s: float) -> Sequence[Ended]:
        return [self._lost(one) if self._is_lost(one.job) else one for one in super().ended(wait_s)]

    def _is_lost(self, job: Job) -> bool:
        return isinstance(job, AuditRun) and job.attempt == self.loses

    def _lost(self, ended: Ended) -> Ended:
        self.loses = None
        return Ended(ended.worker, ended.job, lost="the weights are gone")


def with_workers(context: NightContext, watcher: Quiet, *, loses: int | None = None) -> NightContext:
    pool = Careless([dataclasses.replace(context.runner, lease=Lease(name)) for name in WORKERS])
    pool.loses = loses
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
            run_night(dataclasses.replace(with_workers(context, watcher, loses=2), limits=Limits(experiments=2)))
    return Parallel(grounds, watcher, grounds.attempts("t"))


def overlap(one: Run, other: Run) -> bool:
    assert None not in (one.began, one.ended, other.began, other.ended)
    return max(one.began, other.began) < min(one.ended, other.ended)  # type: ignore[type-var]


def test_two_workers_train_at_the_same_time_and_attempts_settle_in_any_order(parallel):
    assert parallel.watcher.settled == [0, 2, 1]
    first, second = (parallel.attempts[number].runs[0] for number in (1, 2))
    assert overlap(first, second)
    assert {first.worker, second.worker} == set(WORKERS)
    assert parallel.watcher.shown == set(WORKERS)
    assert [row["status"] for row in parallel.grounds.rows()] == ["keep", "discard", "keep"]


class Away:
    """Workers that may come."""

    workers = ()
    expects_workers = True
    free = None


def test_a_worker_is_waited_for_until_the_hours_are_over_or_the_user_ends_the_night(grounds):
    with scripted_context(grounds.root, "t", []) as context:
        state, flight = context.state(), Flight(Away())  # type: ignore[arg-type]
        state.enter(None, Proposal(unigram(), "baseline", "", "you"))
        assert Plan(context, state, flight).next_step() == Wait()
        late = dataclasses.replace(context, limits=Limits(hours=1e-6))
        assert Plan(late, state, flight).next_step() is None
        context.stop.wish(AFTER_RUN)
        assert Plan(context, state, flight).next_step() is None


def test_no_run_begins_after_the_hours_or_a_wish_to_end(grounds):
    grounds.try_scripts("t", [])
    with scripted_context(grounds.root, "t", []) as context:
        state, flight = context.state(), Flight(LocalPool([context.runner]))
        state.enter(0, Proposal(unigram(SHARPNESS=0.8), "an edit", "", "you"))
        assert isinstance(Plan(context, state, flight).next_step(), Begin)
        late = dataclasses.replace(context, limits=Limits(hours=1e-6))
        assert Plan(late, state, flight).next_step() is None
        context.stop.wish(AFTER_RUN)
        assert Plan(context, state, flight).next_step() is None


def test_a_run_whose_weights_are_lost_is_void_and_made_again(parallel):
    assert [run.ending for run in parallel.attempts[2].runs] == [Ending.LOST, Ending.FINISHED]
    assert parallel.attempts[2].seeds == 1
    assert "this run of #2 does not count and is done again: the weights are gone" in parallel.watcher.sentences


def test_the_first_script_runs_alone_and_then_beside_itself_on_all_workers(parallel):
    alone, *beside = parallel.attempts[0].runs
    assert [run.seed for run in (alone, *beside)] == [0, 1, 2]
    assert not any(overlap(alone, run) for run in beside)
    assert overlap(*beside)


@pytest.mark.slow
def test_a_wish_to_end_lets_all_runs_in_flight_be_settled_and_a_second_one_ends_them(grounds):
    scripts = [unigram(SHARPNESS=0.5 + number / 100) for number in range(1, 9)]
    with scripted_context(grounds.root, "t", scripts, budget_s=1.0) as context:
        watcher = Watching(lambda number: number == 2 and context.stop.wish(AFTER_RUN))
        run_night(with_workers(context, watcher))
        assert [one.settled for one in context.journal.attempts()] == [True] * 3
        watcher = Watching(lambda number: number == 4 and context.stop.wish(NOW))
        context.stop.forget()
        run_night(with_workers(context, watcher))
        cut = context.journal.attempts()[3:]
        assert [[run.ending for run in one.runs] for one in cut] == [[Ending.STOPPED]] * 2
        context.stop.forget()
        watcher = Watching()
        run_night(dataclasses.replace(with_workers(context, watcher), limits=Limits(experiments=4)))
        assert not any("does not count" in one for one in watcher.sentences)
        ended = context.journal.attempts()[3:]
    assert [[run.ending for run in one.runs] for one in ended] == [[Ending.STOPPED, Ending.FINISHED]] * 2


@pytest.mark.slow
def test_dawn_keeps_all_workers_busy_and_makes_as_many_runs_as_it_was_given(grounds):
    grounds.try_scripts("t", [unigram(SHARPNESS=0.8)])
    with scripted_context(grounds.root, "t", []) as context:
        assert confirm_night(with_workers(context, Watching()), 4) is not None
    first, edit = grounds.attempts("t")
    assert [[run.seed for run in one.dawn_runs()] for one in (first, edit)] == [[1000, 1001]] * 2
    assert overlap(first.dawn_runs()[0], edit.dawn_runs()[0])
    assert all(run.holdout is not None and run.holdout.audit is not None for run in edit.dawn_runs())
