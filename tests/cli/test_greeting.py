"""The start of a night: which one it is, how fast it will go, whether the machine is free; and how it goes on."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nights import Grounds, Quiet, scripted_context
from samples import NIGHT

from agent.cli.run import busy_lines, greet
from agent.experiment import Terms
from agent.lab.hardware import usable_cores
from agent.night.limits import Limits
from agent.night.state import NightContext
from agent.pools.leases import gpu_in_use, leases_of_machine
from agent.records.journal import Journal
from agent.records.place import place_of_night


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path, trained_night: Path) -> Iterator[Grounds]:
    """A repository with one night, t."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        yield Grounds(Path(shutil.copytree(trained_night, tmp_path_factory.mktemp("greeting") / "user")))


@pytest.fixture(scope="module")
def further(grounds: Grounds) -> Iterator[NightContext]:
    """A night that was opened after it, and has not run anything yet."""
    with scripted_context(grounds.root, "nov22-2", []) as context:
        yield context


def greeted(context: NightContext, tag: str = "nov22-2", **limits: float) -> str:
    watcher, night = Quiet(), dataclasses.replace(context.runner.night, tag=tag)
    runner = dataclasses.replace(context.runner, night=night)
    greet(dataclasses.replace(context, limits=Limits(**limits), runner=runner, watcher=watcher))  # type: ignore[arg-type]
    return "\n".join(watcher.sentences)


def test_a_further_night_says_how_the_last_one_goes_on(further):
    said = greeted(further, experiments=3)
    assert "night nov22-2 on branch experiments/0.05s-nov22-2\n" in said
    assert "before   t was the last night here; to go on with that one instead: nightshift run --tag t" in said


@pytest.mark.skipif(usable_cores() < 2 or not hasattr(os, "sched_setaffinity"), reason="no cores can be lent here")
def test_workers_are_told_with_their_part_of_the_machine(further):
    assert "  workers " not in greeted(further)
    night = dataclasses.replace(further.runner.night, device_kind="cpu", terms=Terms(workers=2, cores_each=1))
    said = greeted(dataclasses.replace(further, runner=dataclasses.replace(further.runner, night=night)))
    first, second = (lease.worker for lease in leases_of_machine("cpu", 2, 1))
    assert re.search(rf"workers  2: {first}; {second}; up to [\d.]+ GB of the machine's memory for each\n", said)


# ---- a busy machine --------------------------------------------------------------------------------------------------


def test_a_busy_machine_is_noticed_with_the_remedy(further):
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        (said,) = busy_lines(further.runner.night)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert said.startswith("other programs take ")
    assert "end them, or expect worse scores" in said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("3, 600, 81920", None),
        ("97, 40960, 81920", "the GPU is in use already: 97% of its time, 40.0 of 80.0 GB"),
        ("", None),
    ],
)
def test_a_gpu_in_use_is_noticed(tmp_path, monkeypatch, answer, said):
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$1 $2" = "-i 3" ] && echo "{answer}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    assert gpu_in_use() == said


def test_a_night_of_another_script_goes_on_without_naming_it(grounds, monkeypatch):
    with Journal.create(grounds.folder("other") / "journal.sqlite", dataclasses.replace(NIGHT, script="lab/other.py")):
        pass
    monkeypatch.chdir(grounds.root)
    (grounds.root / "lab").mkdir()
    for named, tag, script in (
        ("train_mlx.py", "other", "lab/other.py"),
        ("train_mlx.py", "new", "train_mlx.py"),
        ("./lab/a.py", "other", "lab/a.py"),  # which is refused
    ):
        assert place_of_night(Path(named), tag).script == script
