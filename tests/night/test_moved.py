"""A night that has moved to another GPU, where nothing is compiled yet: attempt 0 compiles it once, before other runs.

There is no GPU here, so a night on a CPU says that it has one.
"""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from nights import Grounds, Quiet, scripted_context, unigram

from agent.errors import MachineError
from agent.experiment import Kind
from agent.night.confirmation import confirm_night
from agent.night.lock import AFTER_RUN
from agent.night.loop import run_night
from agent.night.state import NightContext
from agent.pools.pool import LocalPool

pytestmark = pytest.mark.slow

LOADS = "    data = prepare.load_data(verify=False)\n"
CODE = "    code = Path(__import__('os').environ['TMPDIR'], 'mlx', 'code')\n"
COMPILES = unigram().replace(LOADS, f"{CODE}    code.parent.mkdir(exist_ok=True)\n    code.touch()\n{LOADS}")


def needs_code(sharpness: float) -> str:
    return unigram(SHARPNESS=sharpness).replace(LOADS, f"{CODE}    assert code.exists()\n{LOADS}")


@contextlib.contextmanager
def elsewhere(grounds: Grounds, scripts: Sequence[str], kind: str = "cuda") -> Iterator[tuple[NightContext, Quiet]]:
    """The night as it goes on where its device is of this kind, with its watcher."""
    with scripted_context(grounds.root, "t", scripts) as context:
        runner = replace(context.runner, night=replace(context.night, device_kind=kind))
        yield replace(context, runner=runner, pool=LocalPool([runner])), context.watcher  # type: ignore[misc]


@pytest.fixture
def moved(grounds: Grounds) -> Grounds:
    """A night of attempt 0 alone, without the code that it compiled."""
    (grounds.root / "train_mlx.py").write_text(COMPILES)
    grounds.try_scripts("t", [])
    shutil.rmtree(grounds.folder("t") / "warm")
    return grounds


def test_attempt_0_compiles_before_the_first_run_and_once_without_a_trace_in_the_journal(moved):
    first, ideas = moved.attempts("t")[0], [needs_code(0.6), needs_code(0.7)]
    for count, sentences in ((1, 1), (2, 0)):
        with elsewhere(moved, ideas[:count]) as (context, watcher):
            run_night(context)
        assert len([said for said in watcher.sentences if "nothing of this night is compiled" in said]) == sentences
        assert [attempt.kind for attempt in moved.attempts("t")] == [Kind.BASELINE, *[Kind.KEPT] * count]
    assert moved.attempts("t")[0] == first


def test_the_confirmation_does_so_too(moved):
    with elsewhere(moved, []) as (context, _):
        confirm_night(context, 0)
        assert context.runner.is_warm
        assert (context.runner.warm / "mlx" / "code").exists()


def test_on_a_cpu_and_after_a_wish_to_end_it_does_not(moved):
    with elsewhere(moved, [needs_code(0.6)], "cpu") as (context, watcher):
        run_night(context)
    assert moved.attempts("t")[1].kind is Kind.CRASHED
    with elsewhere(moved, []) as (context, watcher):
        context.stop.wish(AFTER_RUN)
        run_night(context)
        assert (watcher.sentences, context.runner.is_warm) == ([], False)


def test_where_attempt_0_does_not_train_no_run_begins_and_the_night_can_go_on(grounds, tmp_path):
    device = tmp_path / "device"
    device.touch()
    needs_device = unigram().replace(LOADS, f"    assert Path({str(device)!r}).exists(), 'no device'\n{LOADS}")
    (grounds.root / "train_mlx.py").write_text(needs_device)
    grounds.try_scripts("t", [])
    shutil.rmtree(grounds.folder("t") / "warm")
    device.unlink()
    with elsewhere(grounds, [unigram(SHARPNESS=0.6)]) as (context, _), pytest.raises(MachineError, match="no device"):
        run_night(context)
    assert len(grounds.attempts("t")) == 1
    device.touch()
    with elsewhere(grounds, [unigram(SHARPNESS=0.6)]) as (context, _):
        run_night(context)
    assert [attempt.kind for attempt in grounds.attempts("t")] == [Kind.BASELINE, Kind.KEPT]
