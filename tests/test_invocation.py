"""Printed commands can be pasted unchanged, and the program starts its own code again."""

import shutil
import subprocess
import sys

import pytest
from nights import PROJECT, environment

from agent.invocation import typed, typed_python


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_commands_begin_with_uv_run_where_uv_has_started_the_program_and_run_in_a_folder_elsewhere(tmp_path):
    code = (
        "from pathlib import Path; from agent.invocation import typed; "
        "print(typed('status')); print(typed('--version', folder=Path('/')))"
    )
    command = ["uv", "run", "--no-sync", "python", "-c", code]
    done = subprocess.run(command, cwd=PROJECT, env=environment(), capture_output=True, text=True, check=False)
    inside, elsewhere = done.stdout.splitlines()
    assert inside == "uv run nightshift status", done.stderr
    assert elsewhere == f"uv run --project {PROJECT} nightshift --version"
    words = elsewhere.replace("uv run", "uv run --no-sync")
    done = subprocess.run(words.split(), cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_commands_begin_with_the_bare_name_elsewhere():
    assert typed("take", "a b", "$HOME") == "nightshift take 'a b' '$HOME'"
    assert typed_python("train_mlx.py") == f"{sys.executable} train_mlx.py"


def test_packages_are_installed_by_pip_where_the_environment_has_it_whatever_else_is_on_the_path(tmp_path):
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    tell = "import sys; sys.path += sys.argv[1:]; from agent.invocation import install_command as by; print(by('x'))"
    for more, words in (([], "uv pip install --python {} x"), ([str(tmp_path)], "{} -m pip install x")):
        call = [sys.executable, "-S", "-c", tell, str(PROJECT), *more]  # -S: without the packages of this environment
        done = subprocess.run(call, env=environment(), capture_output=True, text=True, check=True)
        assert done.stdout.strip() == words.format(sys.executable)


def test_its_own_processes_run_its_own_code_from_any_folder_also_where_that_is_not_installed(tmp_path):
    clone, elsewhere = tmp_path / "clone", tmp_path / "elsewhere"
    shutil.copytree(PROJECT / "agent", clone / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    (clone / "agent" / "__init__.py").write_text('__version__ = "123.4"\n')
    (elsewhere / "agent").mkdir(parents=True)
    (elsewhere / "agent" / "__init__.py").write_text("raise SystemExit('another agent')\n")
    starts_its_own = (
        "import subprocess, sys; sys.path.insert(0, sys.argv[1]); from agent.invocation import own_command; "
        "subprocess.run(own_command('--version'), cwd=sys.argv[2], check=True)"
    )
    call = [sys.executable, "-c", starts_its_own, str(clone), str(elsewhere)]
    done = subprocess.run(call, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.endswith("123.4\n")
