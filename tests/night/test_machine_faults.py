"""Whose fault a failed run is: the script's, or that of a machine that broke, or that was used up."""

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from nights import Grounds, Quiet, make_repository, mounted, scripted_context, unigram, with_limits

from agent.errors import MachineError
from agent.experiment import Attempt, Ending, Kind
from agent.night import plan
from agent.night.loop import run_night

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.slow]  # some seconds each

LOADS = "    data = prepare.load_data(verify=False)\n"


def needs(file: Path, **dials: object) -> str:
    """A script that runs only where this file is: a GPU, say."""
    return unigram(**dials).replace(LOADS, f"    assert Path({str(file)!r}).exists(), 'the device is lost'\n{LOADS}")


def test_crashes_on_a_broken_machine_are_invalid_and_repeated_when_the_night_goes_on(grounds, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "CRASHES_IN_A_ROW", 1)
    device = tmp_path / "device"
    device.touch()
    (grounds.root / "train_mlx.py").write_text(needs(device))
    ideas = [needs(device, SHARPNESS=0.6 + n / 100) for n in range(3)]
    watcher = Acts(lambda attempt: attempt.number == 0 and device.unlink())
    with scripted_context(grounds.root, "t", ideas) as context, pytest.raises(MachineError) as raised:
        run_night(dataclasses.replace(context, watcher=watcher))
    assert str(raised.value).startswith(
        "not even attempt 0 trains here any more: exit code 1: AssertionError: the device is lost"
    )
    assert watcher.sentences[-1] == "the crashes of #1 do not count and are done again"
    assert [row["attempt"] for row in grounds.rows()] == ["0"]
    invalidated = grounds.attempts("t")[1:]
    assert [(attempt.status, attempt.settled, attempt.runs[0].ending) for attempt in invalidated] == [
        (None, False, Ending.BROKEN)
    ] * 2
    device.touch()
    grounds.try_scripts("t", ideas)
    # both crashed ones were made from #0, and turn the same dial
    assert [attempt.kind for attempt in grounds.attempts("t")] == [Kind.BASELINE, Kind.KEPT, Kind.STALE, Kind.KEPT]
    assert len(grounds.rows()) == 4


class Acts(Quiet):
    """Does something whenever an attempt has settled."""

    def __init__(self, deed: Callable[[Attempt], object]) -> None:
        super().__init__()
        self._deed = deed

    def attempt_settled(self, attempt: Attempt) -> None:
        self._deed(attempt)


def test_a_streak_of_crashes_on_a_sound_machine_ends_no_night(grounds, monkeypatch):
    monkeypatch.setattr(plan, "CRASHES_IN_A_ROW", 1)
    crashing = [unigram().replace(LOADS, f"    raise ValueError({number})\n") for number in range(3)]
    with scripted_context(grounds.root, "t", [*crashing, unigram(SHARPNESS=0.9)]) as context:
        run_night(dataclasses.replace(context, dry_runs=True))
    assert [attempt.kind for attempt in grounds.attempts("t")] == [Kind.BASELINE, *[Kind.CRASHED] * 3, Kind.KEPT]


HOARDS = unigram(SHARPNESS=0.9).replace(
    LOADS, "    hoard = open('hoard', 'wb')\n    Path('hoard').unlink()\n    hoard.write(bytes(300 << 20))\n"
    f"    time.sleep(20)\n{LOADS}"
)  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_a_script_that_hides_what_it_takes_of_the_disk_is_blamed_the_second_time(tmp_path):
    with mounted(tmp_path / "disk", "size=2g") as disk:
        grounds = Grounds(make_repository(disk / "user", unigram()))
        with scripted_context(grounds.root, "t", [HOARDS, unigram(SHARPNESS=0.7)]) as context:
            spare = shutil.disk_usage(disk).free - (200 << 20)
            limits = dataclasses.replace(context.runner.resource_limits, spare_disk_bytes=spare)
            run_night(with_limits(context, limits))
        attempts = grounds.attempts("t")
    assert [run.ending for run in attempts[1].runs] == [Ending.INVALID, Ending.EXCEEDED]
    assert attempts[1].words.startswith("disk full: ")
    assert [attempt.kind for attempt in attempts] == [Kind.BASELINE, Kind.CRASHED, Kind.KEPT]
