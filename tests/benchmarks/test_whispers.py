"""What one sandbox can tell a later one is counted, and no number moves with what a sandbox did unless it is listed."""

import random
import sys
from pathlib import Path

import pytest
from nights import PROJECT, bubblewrap, kernels_own, usable

sys.path.insert(0, str(PROJECT / "benchmarks"))

import whispers
from whispers import BOUNDS, Line, bits_of_count, bits_of_marks

from agent.sandbox.sandboxes import Open

AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


def test_a_number_tells_as_many_bits_as_amounts_can_be_told_apart():
    assert bits_of_count(quiet=[10, 11], sent=[73, 74], share=1.0) == pytest.approx(6, abs=0.1)
    assert bits_of_count(quiet=[10, 11], sent=[73, 74], share=0.25) == pytest.approx(8, abs=0.1)
    assert bits_of_count(quiet=[10, 11], sent=[73, 74], share=0.25, most=3) == 2
    assert bits_of_count(quiet=[0, 80], sent=[73, 74], share=0.25) == 0


def test_of_marks_those_bits_count_that_arrive():
    rng = random.Random(1)
    sent, other = ("".join(rng.choices("01", k=1000)) for _ in range(2))
    half = "".join(bit if rng.random() < 0.5 else rng.choice("01") for bit in sent)
    assert bits_of_marks(sent, sent) > 990
    assert 100 < bits_of_marks(sent, half) < 300
    assert bits_of_marks(sent, other) == bits_of_marks(sent, "1" * 1000) == 0


def test_each_sandbox_has_a_bound_for_each_way():
    assert {frozenset(bounds) for bounds in BOUNDS.values()} == {frozenset((*whispers.COUNTS, *whispers.MARKS, "load"))}


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", [bubblewrap, kernels_own], ids=["bubblewrap", "landlock"])
def test_no_number_that_a_sandbox_shows_moves_with_what_another_did_unless_it_is_listed(sandbox, tmp_path: Path):
    assert whispers.unlisted(Line(usable(sandbox()), tmp_path), handovers=4, send_s=1.0) == set()


@pytest.mark.slow
def test_without_a_sandbox_the_number_of_sessions_is_found(tmp_path: Path):
    if not AUTOGROUP.exists() or AUTOGROUP.read_text() != "1\n":
        pytest.skip("this kernel numbers no sessions")
    assert "session" in whispers.unlisted(Line(Open("compared with"), tmp_path), handovers=2, send_s=2.0)
