"""What a night says as it begins: whether the machine is free, and which night it goes on with."""

import dataclasses
import os
from pathlib import Path

import pytest
from busy import beside
from samples import NIGHT

from agent.cli.run import busy_lines
from agent.pools.device_slots import gpu_in_use
from agent.records.journal import Journal
from agent.records.place import place_of_night


def test_a_busy_machine_is_noticed_with_the_remedy():
    with beside(os.cpu_count() or 1):
        (said,) = busy_lines(NIGHT)
    assert said.startswith("other programs take ")
    assert "end them, or expect longer runs" in said


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


@pytest.mark.parametrize(
    ("named", "tag", "script"),
    [
        ("train_mlx.py", "other", "lab/other.py"),
        ("train_mlx.py", "new", "train_mlx.py"),
        ("./lab/a.py", "other", "lab/a.py"),  # a name that is refused
    ],
)
def test_a_night_of_another_script_goes_on_without_naming_it(grounds, monkeypatch, named, tag, script):
    other = dataclasses.replace(NIGHT, tag="other", script="lab/other.py")
    with Journal.create(grounds.folder("other") / "journal.sqlite", other):
        pass
    monkeypatch.chdir(grounds.root)
    (grounds.root / "lab").mkdir()
    assert place_of_night(Path(named), tag).script == script
