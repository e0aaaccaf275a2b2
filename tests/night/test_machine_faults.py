"""Whose fault a failed run is: the script's, or that of a machine that broke, or that others used up."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from nights import Grounds, Quiet, make_repository, mounted, scripted_context, unigram

from agent.errors import MachineError
from agent.experiment import (
    LOCAL,
    Attempt,
    Ending,
    Kind,
    Status,
)
from agent.night import plan
from agent.night.loop import run_night
from agent.night.state import NightContext

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.slow]  # nights on real disks, some seconds each

MB = 1 << 20
LOADS = "    data = prepare.load_data(verify=False)\n"


def needs(file: Path, **dials: object) -> str:
    """A script that runs only where this file is: a GPU, say."""
    return unigram(**dials).replace(LOADS, f"    assert Path({str(file)!r}).exists(), 'the device is lost'\n{LOADS}")


def test_crashes_on_a_broken_machine_are_void_and_done_again_when_the_night_goes_on(grounds, tmp_path, monkeypatch):
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
    voided = grounds.attempts("t")[1:]
    assert [(attempt.status, attempt.settled, attempt.runs[0].ending) for attempt in voided] == [
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
    grounds.try_scripts("t", [*crashing, unigram(SHARPNESS=0.9)])
    assert [attempt.kind for attempt in grounds.attempts("t")] == [Kind.BASELINE, *[Kind.CRASHED] * 3, Kind.KEPT]


# ---- a machine that others have used up ------------------------------------------------------------------------------


@contextmanager
def tight(
    grounds: Grounds, scripts: Sequence[str], watcher: Quiet, spare_bytes: int = 200 * MB
) -> Iterator[NightContext]:
    """A night on a disk of which so much is left to all programs together."""
    with scripted_context(grounds.root, "t", scripts) as context:
        disk = os.statvfs(grounds.root)
        free = disk.f_bavail * disk.f_frsize
        limits = dataclasses.replace(context.runner.resource_limits, spare_disk_bytes=free - spare_bytes)
        yield dataclasses.replace(
            context, runner=dataclasses.replace(context.runner, resource_limits=limits), watcher=watcher
        )


class Neighbour(Quiet):
    """Fills the disk while attempt 0 runs; frees it when something was said about that."""

    def __init__(self, hoard: Path) -> None:
        super().__init__()
        self.hoard, self.came = hoard, False

    def run_began(self, attempt: Attempt, seed: int, worker: str = LOCAL) -> None:
        if not self.came:
            self.came = True
            self.hoard.write_bytes(bytes(300 * MB))

    def said(self, sentence: str) -> None:
        super().said(sentence)
        self.hoard.unlink(missing_ok=True)


@pytest.fixture
def own_disk(tmp_path: Path) -> Iterator[Grounds]:
    """A disk that only this test writes to."""
    with mounted(tmp_path / "disk", "size=2g") as disk:
        yield Grounds(make_repository(disk / "user", unigram()))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_a_disk_that_somebody_else_filled_makes_a_run_void(own_disk):
    watcher = Neighbour(own_disk.root.parent / "hoard")
    with tight(own_disk, [unigram(SHARPNESS=0.7)], watcher) as context:
        run_night(context)
    attempts = own_disk.attempts("t")
    assert [run.ending for run in attempts[0].runs] == [Ending.SPOILT, Ending.FINISHED]
    assert [attempt.status for attempt in attempts] == [Status.KEEP, Status.KEEP]
    assert any(
        "does not count and is done again" in sentence and ": disk full: " in sentence for sentence in watcher.sentences
    )


HOARDS = unigram(SHARPNESS=0.9).replace(
    LOADS, "    hoard = open('hoard', 'wb')\n    Path('hoard').unlink()\n    hoard.write(bytes(300 << 20))\n"
    f"    time.sleep(20)\n{LOADS}"
)  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_a_script_that_hides_what_it_takes_is_blamed_the_second_time(own_disk):
    with tight(own_disk, [HOARDS, unigram(SHARPNESS=0.7)], Quiet()) as context:
        run_night(context)
    attempts = own_disk.attempts("t")
    assert [run.ending for run in attempts[1].runs] == [Ending.SPOILT, Ending.EXCEEDED]
    assert [attempt.status for attempt in attempts] == [Status.KEEP, Status.CRASH, Status.KEEP]
    assert attempts[1].decision.reason.startswith("disk full: ")
