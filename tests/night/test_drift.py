"""A night on one core that other programs take: slow runs are void, done again, and in the end they count."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from nights import Grounds, Quiet, Scripted, run_once, scripted_context, unigram

from agent.drift.speeds import points_of, slowed_within, speed
from agent.experiment import LOCAL, Attempt, Ending, Lease, Progress
from agent.judging.judges import Greedy
from agent.night.context import NightContext
from agent.night.driver import run_night
from agent.night.planning import usual_speed
from agent.records.place import run_folder
from agent.runs.train import read_curve

pytestmark = [
    pytest.mark.usefixtures("own_cache"),
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a run is kept on a core"),
]

BUDGET_S = 3.0
BY_REFERENCE = "the machine was slow: #0, trained for a moment after it, was "
CORE = max(os.sched_getaffinity(0)) if sys.platform == "linux" else 0
LOOPS = 8  # on the run's own core, of which it keeps little then, even on a machine that is busy anyway
LOOP = """  # spins while a run trains whose curve is named in a file
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[2])})
while True:
    try:
        while os.path.exists(open(sys.argv[1]).read()):
            sum(range(1_000_000))
    except OSError:
        pass
    time.sleep(0.02)
"""


def working(**dials: object) -> str:
    """The deterministic test script, whose steps are work for the processor."""
    script = unigram(**dials)
    for before, after in (
        ("    while (elapsed", "    steps = 0\n    while (elapsed"),
        ('{"step": 1,', '{"step": steps,'),
        ("        time.sleep(0.02)", "        steps += bool(sum(range(100_000)))"),
        ('"num_steps": 500,', '"num_steps": steps,'),
    ):
        assert script.count(before) == 1
        script = script.replace(before, after)
    return script


class Disturbed(Quiet):
    """A watcher on whose machine other programs take the run's core while the first runs train, so many of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.runs, self.folder, self.named = 0, folder, folder.with_name("taken")
        self.in_the_middle = False  # of a run, which then slows down within itself
        self.named.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", LOOP, str(self.named), str(CORE)]
        # in sessions of their own, or Linux would give all of them together the share of the run
        self.loops = [subprocess.Popen(command, start_new_session=True) for _ in range(LOOPS)]

    @property
    def taken_s(self) -> float:
        return sum(sum(psutil.Process(loop.pid).cpu_times()[:2]) for loop in self.loops)

    def progressed(self, progress: Progress | None, elapsed_s: float, worker: str = LOCAL) -> None:
        if self.in_the_middle and self.runs and progress is not None and 0.4 < progress.fraction < 0.9:
            self.named.write_text(str(self.folder))

    def run_began(self, attempt: Attempt, seed: int, worker: str = LOCAL) -> None:
        self.free()
        if self.runs and not self.in_the_middle:
            self.named.write_text(str(run_folder(self.folder, attempt.number, seed) / "out" / "metrics.jsonl"))

    def said(self, sentence: str) -> None:
        super().said(sentence)
        self.free()

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        self.free()

    def free(self) -> None:
        """Free the core: a run has ended."""
        self.runs -= self.named.exists()
        self.named.unlink(missing_ok=True)

    def end(self) -> None:
        for loop in self.loops:
            loop.kill()
            loop.wait()


@contextmanager
def night_after_two_runs(grounds: Grounds, scripts: Sequence[str]) -> Iterator[tuple[NightContext, Disturbed]]:
    """A night whose attempt 0 was run twice on its core, which others want from now on."""
    (grounds.root / "train_mlx.py").write_text(working())
    watcher = Disturbed(grounds.folder("t"))
    try:
        with scripted_context(grounds.root, "t", scripts, budget_s=BUDGET_S) as context:
            runner = replace(context.runner, lease=Lease(cores=(CORE,)))
            night = replace(context, runner=runner, watcher=watcher)
            run_night(replace(night, proposer=Scripted([])))
            run_once(night, 0)
            yield night, watcher
    finally:
        watcher.end()


def disturbed(grounds: Grounds, runs: int, scripts: Sequence[str] = ()) -> tuple[Attempt, Disturbed]:
    """Attempt 0, run until one more run counts, and the scripts; the core is taken during so many runs."""
    with night_after_two_runs(grounds, scripts) as (night, watcher):
        watcher.runs, before_s = runs, watcher.taken_s
        while len(night.journal.attempt(0).done_runs) < 3:
            run_once(night, 0)
        if scripts:
            run_night(night)
        assert watcher.taken_s - before_s > BUDGET_S / 4, "the loops really had the core"
    return grounds.attempts("t")[0], watcher


def edited(grounds: Grounds, script: str, runs: int, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """An edit, tried while the core is taken from the middle of its first runs on."""
    monkeypatch.setattr(usual_speed, "REFERENCE_S", 0.5)  # a moment of toys
    with night_after_two_runs(grounds, [script]) as (night, watcher):
        watcher.runs, watcher.in_the_middle = runs, True
        run_night(night)
    return grounds.attempts("t")[1]


def test_a_run_whose_core_is_taken_is_void_and_done_again_when_it_is_free(grounds):
    first, watcher = disturbed(grounds, 1)
    runs = [run for run in first.runs if run.seed == first.runs[2].seed]
    assert runs[0].ending is Ending.SLOWED
    assert runs[-1].ending is Ending.FINISHED
    assert speed(runs[-1]) > 1.25 * speed(runs[0])
    assert "the machine was slow: it trained " in runs[0].last_lines
    assert any(
        said.startswith("this run of #0 does not count and is done again: the machine was slow: it trained ")
        for said in watcher.sentences
    )


def test_a_core_that_stays_taken_is_accepted_and_the_incumbent_is_measured_at_its_new_pace(grounds):
    first, watcher = disturbed(grounds, 99, [working(SHARPNESS=0.9)])
    endings = [run.ending for run in first.runs]
    assert endings[:5] == [Ending.FINISHED] * 2 + [Ending.SLOWED] * 2 + [Ending.FINISHED]
    accepted, again = first.runs[4], first.runs[5]
    assert "it counts all the same: it trained " in accepted.last_lines
    assert sum("slow 3 times in a row, so it counts: the machine trains at another pace now" in said
               for said in watcher.sentences) == 1  # fmt: skip
    assert again.ending is Ending.FINISHED, "the slow pace is the usual one now"
    edit = grounds.attempts("t")[1]
    assert edit.runs[0].began > again.began, "the incumbent came first"
    assert edit.runs[0].ending is Ending.FINISHED
    assert edit.decision is not None


def test_an_edit_that_slows_down_is_void_where_attempt_0_trains_slowly_as_well(grounds, monkeypatch):
    edit = edited(grounds, working(SHARPNESS=0.9), 1, monkeypatch)
    assert edit.runs[0].ending is Ending.SLOWED
    assert BY_REFERENCE in edit.runs[0].last_lines
    assert edit.done_runs[0].seed == edit.runs[0].seed
    assert edit.decision is not None


def test_an_edit_that_slows_down_by_itself_is_void_only_where_attempt_0_is_slow(grounds, monkeypatch):
    growing = working(SHARPNESS=0.9).replace("range(100_000)", "range(100_000 if elapsed < 1.5 else 400_000)")
    edit = edited(grounds, growing, 0, monkeypatch)
    curve = points_of(read_curve(run_folder(grounds.folder("t"), 1, 0) / "out"))
    assert (slowed_within(curve) or 0.0) > 0.25
    assert edit.decision is not None
    assert all(BY_REFERENCE in run.last_lines for run in edit.runs if run.ending is Ending.SLOWED), "a busy machine"


def test_no_edit_has_its_runs_void_by_saying_that_it_was_slow(grounds, monkeypatch):
    monkeypatch.setattr(usual_speed, "REFERENCE_S", 0.5)
    claims = working(SHARPNESS=0.9, JITTER=0.01).replace(
        '"num_steps": steps,', '"num_steps": steps // (1 + options.seed),'
    )
    with night_after_two_runs(grounds, []) as (night, _):
        run_night(replace(night, proposer=Scripted([claims]), judge=Greedy(confirm=2)))
    edit = grounds.attempts("t")[1]
    was_slow = any(run.ending is Ending.SLOWED for one in grounds.attempts("t") for run in one.runs)
    assert len(edit.done_runs) == 3 or was_slow, "a busy machine may change its pace, which asks for further runs"
    for run in edit.done_runs[:3]:
        taken = points_of(read_curve(run_folder(grounds.folder("t"), 1, run.seed) / "out"))[-1][1]
        assert run.summary is not None
        assert run.summary.num_steps <= (taken + 1) // (1 + run.seed), "it claims fewer steps than it took"
    assert all(BY_REFERENCE in run.last_lines for run in edit.runs if run.ending is Ending.SLOWED), "a busy machine"
