"""The workers of this machine: one job each at a time, and nothing left running when their pool is closed."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from jobs import MEASURE, STAYS, runner_in

from agent.experiment import Ending, Run
from agent.pools.pool import Ended, LocalPool
from agent.work import DeviceSlot

SOON_S = 30.0
ENDS = "print('done')\n"


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[LocalPool]:
    runner = runner_in(tmp_path / "nights" / "t")
    with closing(LocalPool([replace(runner, slot=DeviceSlot(name)) for name in ("a", "b")])) as pool:
        yield pool


def next_ended(pool: LocalPool) -> Ended:
    (ended,) = pool.ended(SOON_S)
    return ended


def test_a_worker_has_one_job_at_a_time_and_is_free_once_its_result_is_taken(pool):
    short, long = replace(MEASURE, script=ENDS), replace(MEASURE, attempt=4, script=STAYS)
    assert pool.free == "a"
    pool.begin("a", long)
    assert pool.free == "b"
    pool.begin("b", short)
    assert (pool.free, set(pool.jobs)) == (None, {"a", "b"})
    ended = next_ended(pool)
    assert (ended.worker, ended.job, ended.lost, ended.error) == ("b", short, None, None)
    assert isinstance(ended.result, Run)
    assert ended.result.last_lines.endswith("it left no out/model.safetensors")
    assert (pool.free, set(pool.jobs)) == ("b", {"a"})


def test_closing_ends_what_runs_and_its_result_says_that_it_was_stopped(pool):
    before = processes()  # other tests have processes, too, such as the one that counts shared resources
    pool.begin("a", replace(MEASURE, script=STAYS))
    deadline = time.monotonic() + SOON_S
    while not (begun := processes() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert begun
    pool.close()
    assert processes() <= before
    (ended,) = pool.ended(0.0)
    assert isinstance(ended.result, Run)
    assert ended.result.ending is Ending.STOPPED


def processes() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def test_an_error_comes_back_with_its_job(pool, tmp_path):
    (tmp_path / "nights").write_text("no folder can be made here")
    job = replace(MEASURE, script=ENDS)
    pool.begin("b", job)
    ended = next_ended(pool)
    assert (ended.job, ended.result) == (job, None)
    assert isinstance(ended.error, OSError)
