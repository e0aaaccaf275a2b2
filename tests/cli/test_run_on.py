"""The command that goes on: whole, and for as long again."""

import errno
import re
from dataclasses import replace
from pathlib import Path

import pytest
from judged import scored_attempt
from samples import NIGHT

from agent.cli.options import SCRIPT
from agent.cli.run import run_on
from agent.experiment import Proposal
from agent.night.limits import Limits
from agent.proposers import registry
from agent.proposers.briefing import Briefing
from agent.proposers.registry import SOURCES
from agent.proposers.source import Source
from agent.records.journal import Journal
from agent.records.place import place_of_night

HISTORY = [scored_attempt(number, 1.0) for number in range(4)]


@pytest.mark.parametrize(
    ("limits", "script", "wanted"),
    [
        (Limits(), "train_mlx.py", ""),
        (Limits(3), "train_mlx.py", " --experiments 6"),
        (Limits(2), "train_mlx.py", " --experiments 5"),
        (Limits(9), "train_mlx.py", " --experiments 9"),  # it was stopped before
        (Limits(None, 8.0, 3), "train_mlx.py", " --hours 8 --dawn 3"),
        (Limits(), "lab/my script.py", " --script 'lab/my script.py'"),
    ],
)
def test_a_night_goes_on_for_as_long_again(limits, script, wanted):
    assert run_on(limits, Path(script), "t", HISTORY).endswith(f"nightshift run --tag t{wanted}")


@pytest.mark.parametrize(("asked", "wanted"), [(0, "0"), (4, "9"), (5, "10"), (6, "6")])
def test_so_does_its_dawn_whose_runs_are_counted_over_the_night(asked, wanted):
    confirmed = [scored_attempt(0, 1.0, dawn=(1.0, 1.0, 1.0)), scored_attempt(1, 0.9, parent=0, dawn=(0.9, 0.9))]
    assert run_on(Limits(dawn_runs=asked), SCRIPT, "t", confirmed).endswith(f" --tag t --dawn {wanted}")


def test_a_night_of_another_script_goes_on_without_naming_it(grounds, monkeypatch):
    folder = grounds.folder("t")
    with Journal.create(folder / "journal.sqlite", replace(NIGHT, script="lab/other.py")):
        pass
    monkeypatch.chdir(grounds.root)
    for named, tag, script in (
        ("train_mlx.py", "t", "lab/other.py"),
        ("train_mlx.py", None, "train_mlx.py"),
        ("train_mlx.py", "new", "train_mlx.py"),
        ("./ideas/a.py", "t", "ideas/a.py"),  # which is refused
    ):
        (grounds.root / named).parent.mkdir(exist_ok=True)
        assert place_of_night(Path(named), tag).script == script


class FullDisk(Source):
    name = "full"

    @classmethod
    def of(cls, around: object) -> "FullDisk":
        return cls()

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("own_cache")
def test_a_night_that_the_machine_halts_is_named_in_the_command_that_goes_on(grounds, monkeypatch):
    monkeypatch.setattr(registry, "SOURCES", (*SOURCES, FullDisk))
    quick = ("--budget-s", "0.05", "--judge", "greedy", "--sandbox", "off")
    done = grounds.nightshift("run", "--proposer", "full", *quick)
    again = f"nightshift run --proposer full {' '.join(quick)} --tag "
    told = f"nightshift: no space left on the disk; free some and resume with: {again}"
    named = re.fullmatch(rf"{told}(\w+) \(nothing is lost\)", done.stderr.strip())
    assert (done.returncode, bool(named)) == (2, True), done.stderr
    assert [row["attempt"] for row in grounds.rows()] == ["0"]
    assert grounds.attempts(named[1])[0].settled
