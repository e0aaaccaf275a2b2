"""The search learns how much memory a script takes, and proposes none that cannot fit."""

import math
from dataclasses import replace

import pytest
from test_search import SCRIPT, attempt, brief, values

from agent.experiment import Attempt, Ending, Summary
from agent.proposers.search.memory import Memory
from agent.proposers.search.search import Search

ROWS = "BATCH_ROWS = 8  # {1, 2, 4, 8, 16, 32}\n"


def test_what_cannot_fit_in_memory_is_never_proposed():
    history = [measured_gb(attempt(0, ROWS + SCRIPT, 1.0, keep=True), 6.3)]
    found = {
        limit: [values(Search("cpu", seed, memory_limit_gb=limit).propose(brief(history)).script) for seed in range(20)]
        for limit in (None, 10.0)
    }
    assert any(dials["BATCH_ROWS"] > 8 for dials in found[None])
    assert all(dials["BATCH_ROWS"] <= 8 for dials in found[10.0])


def test_how_memory_moves_is_learnt_from_the_runs():
    dials = [{"BATCH_ROWS": rows, "STRANGE": strange, "LR": 0.1} for rows, strange in ((8, 1), (16, 1), (8, 2), (4, 4))]
    memory = Memory.learnt([(one, 1.0 + 0.01 * one["BATCH_ROWS"]) for one in dials[:2]], 100.0)
    assert memory.expected_gb(dials[1] | {"BATCH_ROWS": 32}) < 1.5, "rows cost next to nothing here"
    memory = Memory.learnt([(one, float(one["STRANGE"]) ** 2) for one in dials], 100.0)
    assert memory.expected_gb(dials[0] | {"STRANGE": 4}) == pytest.approx(16.0, rel=0.25)
    assert Memory.learnt([], 1.0).fits({"BATCH_ROWS": 10**9}), "nothing is known before attempt 0"


def measured_gb(one: Attempt, gb: float, ending: Ending = Ending.FINISHED) -> Attempt:
    return replace(one, runs=(replace(one.runs[0], peak_bytes=int(gb * 1e9), ending=ending),))


def test_memory_is_learnt_from_what_the_harness_measured():
    honest = [measured_gb(attempt(0, ROWS + SCRIPT, 1.0, keep=True), 6.3)]
    twice = attempt(1, ROWS.replace("= 8", "= 16") + SCRIPT, 1.1, memory_mb=12000.0)
    for claimed_mb in (1.0, 1e6):
        history = [
            measured_gb(attempt(0, ROWS + SCRIPT, 1.0, keep=True, memory_mb=claimed_mb), 6.3),
            replace(twice, runs=(replace(twice.runs[0], summary=Summary(peak_vram_mb=claimed_mb)),)),
        ]
        for seed in range(3):
            wanted, found = (
                Search("cpu", seed, memory_limit_gb=10.0).propose(brief(some)) for some in (honest, history)
            )
            assert values(found.script)["BATCH_ROWS"] <= 8
            assert values(wanted.script)["BATCH_ROWS"] <= 8


def test_a_run_that_crashed_before_it_trained_says_nothing_about_memory():
    grown = attempt(1, ROWS.replace("= 8", "= 16") + SCRIPT, None)
    history = [measured_gb(attempt(0, ROWS + SCRIPT, 1.0, keep=True), 6.3), measured_gb(grown, 0.1, Ending.CRASHED)]
    found = [Search("cpu", seed, memory_limit_gb=10.0).propose(brief(history)).script for seed in range(20)]
    assert all(values(script)["BATCH_ROWS"] <= 8 for script in found)


@pytest.mark.parametrize("nonsense", [-1.0, 0.0, math.nan, math.inf])
def test_memory_that_cannot_be_does_not_end_the_search(nonsense):
    dials = {"BATCH_ROWS": 8}
    assert Memory.learnt([(dials, nonsense)], 10.0).fits({"BATCH_ROWS": 16})
    memory = Memory.learnt([(dials, 4.0), ({"BATCH_ROWS": 16}, nonsense)], 10.0)
    assert memory.fits(dials)
    assert not memory.fits({"BATCH_ROWS": 64})
    history = [attempt(0, ROWS + SCRIPT, 1.0, keep=True), attempt(1, SCRIPT, 1.1, memory_mb=nonsense)]
    assert Search("cpu", 0, memory_limit_gb=10.0).propose(brief(history)).source == "search"
