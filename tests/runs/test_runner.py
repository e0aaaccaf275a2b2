"""A night's folders are laid out over anything, hold plain weights only, and are removed in any state."""

import dataclasses
import os
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest
from nights import Quiet
from samples import NIGHT

from agent.errors import MachineError
from agent.experiment import BASELINE_TRIES, Ending
from agent.files import plain_bytes, remove
from agent.runs import runner as runner_module
from agent.runs.runner import WARM, WEIGHTS, Runner, beside
from agent.sandbox.environment import TMP
from agent.sandbox.process import Outcome
from agent.sandbox.sandboxes import Open
from agent.sandbox.supervisor import limits_of_machine


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Make a folder with a file that must stay unchanged."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("mine")
    return tmp_path / "outside"


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    night = dataclasses.replace(NIGHT, data=str(tmp_path / "data"))
    folder = tmp_path / "user" / "experiments" / "nights" / "t"
    made = Runner(night, folder, Open("a test"), limits_of_machine(), lambda: False, Quiet().progressed)
    made.fixed.mkdir(parents=True)
    (made.fixed / "prepare.py").write_text("FIXED = True\n")
    return made


def closed(path: Path) -> None:
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "file").write_text("x")
    (path / "inner").chmod(0)
    path.chmod(0o500)


def linked(path: Path) -> None:
    path.symlink_to(path.parent / "outside")


def with_links(path: Path) -> None:
    path.mkdir()
    (path / "link").symlink_to(path.parent / "outside")
    (path / "dangling").symlink_to("nowhere")
    (path / "firm").hardlink_to(path.parent / "outside" / "precious")


@pytest.mark.parametrize("leave", [closed, linked, with_links, os.mkfifo])
def test_a_folder_is_laid_out_over_anything(runner, tmp_path, outside, leave):
    folder = runner.run_folder(3, 0)
    folder.parent.mkdir(parents=True)
    (folder.parent / "outside").symlink_to(outside)
    leave(folder)
    runner.lay_out(folder, "A = 1\n")
    assert not folder.is_symlink()
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert files == {"prepare.py", "train_mlx.py", TMP, f"{TMP}/cache"}
    assert (outside / "precious").read_text() == "mine"


def test_what_a_run_does_to_its_fixed_files_and_caches_ends_with_it(runner):
    (runner.warm / "cache" / "kernels").mkdir(parents=True)
    (runner.warm / "cache" / "kernels" / "good.so").write_text("good")
    runner.lay_out(runner.run_folder(1, 0), "A = 1\n")
    cached = Path(TMP, "cache", "kernels", "good.so")
    for name in (cached, "prepare.py"):
        (runner.run_folder(1, 0) / name).write_text("bad")
    runner.lay_out(runner.run_folder(2, 0), "A = 2\n")
    assert (runner.run_folder(2, 0) / cached).read_text() == "good"
    assert (runner.run_folder(2, 0) / "prepare.py").read_text() == "FIXED = True\n"


# ---- after a process -------------------------------------------------------------------------------------------------


def test_a_run_that_closes_its_folder_is_tidied_all_the_same(runner):
    folder = runner.run_folder(1, 0)
    runner.lay_out(folder, "A = 1\n")
    closing = f"mkdir {TMP}/inner; touch {TMP}/inner/file; mkdir out; touch out/as-us; chmod 6711 out/as-us; "
    closing += f"chmod 300 out; chmod 000 {TMP} ."
    runner.call(["sh", "-c", closing], folder, 30)
    assert (folder / "out").stat().st_mode & 0o777 == 0o700  # results could be read by name, but not listed
    assert (folder / "out" / "as-us").stat().st_mode & 0o6000 == 0  # another user could run it with our rights
    remove(folder / TMP)
    assert not (folder / TMP).exists()
    runner.keep_only(folder)
    assert [path.name for path in folder.iterdir()] == ["log.txt"]


def test_thousands_of_files_that_a_run_leaves_are_removed_by_few_programs(runner, monkeypatch):
    """One program for each would hold the night up for a minute after a run of a second."""
    folder, run, started = runner.run_folder(1, 0), subprocess.run, list[object]()
    runner.lay_out(folder, "A = 1\n")
    (folder / "out").mkdir()
    for number in range(2000):
        (folder / "out" / f"-{number}").touch()
    (folder / WEIGHTS).write_text("x")
    monkeypatch.setattr(subprocess, "run", lambda command, **how: (started.append(command), run(command, **how))[1])
    runner.keep_only(folder, WEIGHTS)
    assert [path.name for path in (folder / "out").iterdir()] == [Path(WEIGHTS).name]
    assert len(started) < 20


def test_a_driver_is_quoted_where_it_ended_a_process(runner):
    folder = runner.run_folder(1, 0)
    runner.lay_out(folder, "A = 1\n")
    outcome = runner.call(["sh", "-c", "echo OSError: No space left on device; exit 1"], folder, 30)
    assert outcome.why_invalid == 'its log says "no space left on device", as where the machine is at fault'
    assert runner.call(["sh", "-c", "echo ValueError; exit 1"], folder, 30).why_invalid is None


def test_what_makes_a_process_invalid_each_time_counts_as_the_edits_at_the_second_and_ends_attempt_0_at_its_last(
    runner,
):
    why_invalid, asked = Outcome(Ending.CRASHED, 1, 0.1, "", why_invalid="the disk is full"), list[int]()
    runner = dataclasses.replace(runner, night=dataclasses.replace(NIGHT, budget_s=0.05))  # short pauses
    for number, tries in ((1, 2), (0, BASELINE_TRIES)):
        asked.clear()
        with nullcontext() if number else pytest.raises(MachineError, match="at its last try: the disk is full"):
            assert runner.until_it_counts(number, lambda: (asked.append(1), why_invalid)[1]) is why_invalid
        assert len(asked) == tries


def test_the_harness_writes_beside_the_folder_of_a_run_and_not_in_it(runner):
    run = runner.run_folder(4, 2)
    own = {beside(run, "score"), beside(run, "audit"), runner.losses(4, 2), run}
    assert {path.parent for path in own} == {run.parent}
    assert len(own) == 4


# ---- what is read ----------------------------------------------------------------------------------------------------


def test_weights_are_a_plain_file_of_the_runs_own(tmp_path, outside):
    weights, precious = tmp_path / "run" / WEIGHTS, outside / "precious"
    weights.parent.mkdir(parents=True)
    linking = (lambda path: path.symlink_to(precious), lambda path: path.hardlink_to(precious))
    for make in (Path.mkdir, os.mkfifo, *linking):
        make(weights)
        assert plain_bytes(tmp_path / "run" / WEIGHTS) is None
        remove(weights)
    weights.write_text("weights")
    assert plain_bytes(tmp_path / "run" / WEIGHTS) == 7
    assert plain_bytes(tmp_path / "nowhere" / WEIGHTS) is None


# ---- warm caches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["notes", "mlx", "cache", "cache/kernels"])
def test_machine_code_is_kept_and_nothing_else_nor_a_folder_behind_a_link(runner, outside, name):
    own = runner.run_folder(0, 0) / TMP
    for folder in WARM:
        (own / folder).mkdir(parents=True)
        (own / folder / "code.so").write_text(folder)
    (own / "notes.txt").write_text("of the script's own")
    remove(own / name)
    (outside / "kernels").mkdir()
    (outside / "kernels" / "key").write_text("secret")
    (own / name).symlink_to(outside)
    runner.keep_warm(runner.run_folder(0, 0))
    kept = {path.relative_to(runner.warm).as_posix() for path in runner.warm.rglob("*") if not path.is_dir()}
    assert kept == {f"{folder}/code.so" for folder in WARM if not Path(folder).is_relative_to(name)}


def test_of_what_a_script_leaves_its_results_stay_unless_they_are_too_large(runner, monkeypatch):
    monkeypatch.setattr(runner_module, "MAX_RESULT_BYTES", 1 << 20)
    folder = runner.run_folder(1, 0)
    runner.lay_out(folder, "A = 1\n")
    (folder / "out").mkdir()
    for name in (WEIGHTS, "out/metrics.jsonl", "log.txt", "out/own.txt", "hoard"):
        (folder / name).write_text("x")
    (folder / WEIGHTS).write_bytes(bytes(4 << 20))  # a usual size of weights
    runner.keep_only(folder, WEIGHTS, "out/metrics.jsonl")
    left = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert left == {"out", WEIGHTS, "out/metrics.jsonl", "log.txt"}
    (folder / "out/metrics.jsonl").write_bytes(bytes(4 << 20))
    runner.keep_only(folder, "out/metrics.jsonl")
    assert [path.name for path in folder.iterdir()] == ["log.txt"]


def test_no_link_in_the_place_of_results_leads_the_cleaning_outside(runner, outside):
    folder = runner.run_folder(1, 0)
    runner.lay_out(folder, "A = 1\n")
    (folder / "out").symlink_to(outside)
    (outside / "model.safetensors").write_text("of another run")
    runner.drop_weights(1, 0)
    runner.keep_only(folder, "out/precious")
    assert not (folder / "out").is_symlink()
    assert {path.name: path.read_text() for path in outside.iterdir()} == {
        "precious": "mine",
        "model.safetensors": "of another run",
    }
