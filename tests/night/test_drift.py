"""A night on one core that other programs take: a slow run is void and done again, and counts in the end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from nights import Grounds, Quiet, Scripted, run_once, scripted_context, unigram

from agent.experiment import LOCAL, Attempt, Ending, Lease
from agent.night.loop import run_night
from agent.night.state import NightContext
from agent.records.place import run_folder

pytestmark = [
    pytest.mark.usefixtures("own_cache"),
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a run is kept on a core"),
]

BUDGET_S = 3.0
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
        self.named.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", LOOP, str(self.named), str(CORE)]
        # in sessions of their own, or Linux would give all of them together the share of the run
        self.loops = [subprocess.Popen(command, start_new_session=True) for _ in range(LOOPS)]

    @property
    def taken_s(self) -> float:
        return sum(sum(psutil.Process(loop.pid).cpu_times()[:2]) for loop in self.loops)

    def run_began(self, attempt: Attempt, seed: int, worker: str = LOCAL) -> None:
        self.free()
        if self.runs:
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
def night_after_two_runs(grounds: Grounds) -> Iterator[tuple[NightContext, Disturbed]]:
    """A night whose attempt 0 was run twice on its core, which others want from now on."""
    (grounds.root / "train_mlx.py").write_text(working())
    watcher = Disturbed(grounds.folder("t"))
    try:
        with scripted_context(grounds.root, "t", [], budget_s=BUDGET_S) as context:
            runner = replace(context.runner, lease=Lease(cores=(CORE,)))
            night = replace(context, runner=runner, watcher=watcher)
            run_night(replace(night, sources=[Scripted([])]))
            run_once(night, 0)
            yield night, watcher
    finally:
        watcher.end()


def disturbed(grounds: Grounds, runs: int) -> tuple[Attempt, Disturbed]:
    """Attempt 0, run until one more run counts; the core is taken during so many runs."""
    with night_after_two_runs(grounds) as (night, watcher):
        watcher.runs, before_s = runs, watcher.taken_s
        while len(night.journal.attempt(0).done_runs) < 3:
            run_once(night, 0)
        assert watcher.taken_s - before_s > BUDGET_S / 4, "the loops really had the core"
    return grounds.attempts("t")[0], watcher


def test_a_run_whose_core_is_taken_is_void_and_done_again_when_it_is_free(grounds):
    first, watcher = disturbed(grounds, 1)
    runs = [run for run in first.runs if run.seed == first.runs[2].seed]
    assert [run.ending for run in runs] == [Ending.SPOILT, Ending.FINISHED]
    assert runs[1].steps_s > 1.25 * runs[0].steps_s
    assert any(
        said.startswith("this run of #0 does not count and is done again: it trained ") for said in watcher.sentences
    )
