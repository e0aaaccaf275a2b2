"""What else lies in the folder of a script: another project's prepare.py, and folders named like packages."""

import os
import subprocess
import sys

import pytest
from commands import refused
from nights import PROJECT, Grounds

from agent.invocation import own_python
from agent.runs.fixed import laid_out, probe
from agent.script.contract import fixed_files


@pytest.fixture
def crowded(grounds: Grounds) -> Grounds:
    """Add folders and a file that Python would import in place of packages."""
    for name in ("agent", "mlx", "numpy", "prepare"):
        (grounds.root / name).mkdir()
        (grounds.root / name / "__init__.py").write_text(f"raise SystemExit('{name} of the user was imported')\n")
    (grounds.root / "agent.py").write_text("raise SystemExit('agent.py of the user was imported')\n")
    return grounds


def test_another_project_s_prepare_py_is_named_before_anything_is_written(grounds):
    (grounds.root / "prepare.py").write_text("import torch\nTIME_BUDGET_S = 300\n")
    before = sorted(grounds.root.iterdir())
    for command in ("init", "run"):
        said = refused(grounds.nightshift(command))
        assert f"{grounds.root}/prepare.py is not nightshift's, which every run needs: it has no checked_logits" in said
    assert sorted(grounds.root.iterdir()) == before
    (grounds.root / "prepare.py").rename(grounds.root / "own.py")
    assert grounds.nightshift("init").returncode == 0
    assert (grounds.root / "prepare.py").read_bytes() == (PROJECT / "prepare.py").read_bytes()


def test_the_machine_is_asked_with_nightshift_s_own_packages(crowded):
    with laid_out(crowded.root, fixed_files(crowded.root, "import agent, mlx.core, numpy")) as folder:
        assert probe(folder)["fingerprint"]
    done = subprocess.run(own_python("import agent.lab.data"), cwd=crowded.root, check=False)
    assert done.returncode == 0


@pytest.mark.slow
def test_a_night_and_the_doctor_use_nightshift_s_own_packages(crowded):
    assert crowded.nightshift_process("doctor").returncode == 0
    done = crowded.nightshift_process(
        "run", "--experiments", "1", "--budget-s", "0.05", "--tag", "t", "--judge", "greedy"
    )
    assert done.returncode == 0, done.stderr
    assert [attempt.settled for attempt in crowded.attempts("t")] == [True, True]


@pytest.mark.slow
def test_the_doctor_names_another_project_s_prepare_py(grounds):
    (grounds.root / "prepare.py").write_text("import torch\n")
    done = grounds.nightshift("doctor")
    assert (done.returncode, "prepare.py is not nightshift's" in done.stdout) == (1, True)


@pytest.mark.parametrize("script", ["prepare.py", "train_mlx.py"])
@pytest.mark.parametrize(("options", "missing"), [(["-S"], "'mlx'"), ([], "'agent.lab'")])
def test_a_script_alone_says_in_a_sentence_what_it_needs(tmp_path, script, options, missing):
    """Without packages (-S), and beside a folder of the user called agent."""
    for name in ("prepare.py", "train_mlx.py"):
        (tmp_path / name).write_bytes((PROJECT / name).read_bytes())
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "__init__.py").touch()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *options, tmp_path / script, "--help"], env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"No module named {missing}; run this with the Python that nightshift is installed in"
    )
    assert len(done.stderr.splitlines()) == 1
