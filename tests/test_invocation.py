"""Printed commands begin as the user's own did, and can be pasted unchanged."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nights import PROJECT, environment

from agent.invocation import typed

SAYS = "status"  # outside of a repository: a sentence without a night
NAMED = "import sys; sys.argv[0] = {!r}; from agent.invocation import typed; print(typed('status'))"


OWN = "import sys; sys.argv[0] = {!r}; from agent.invocation import own_command; print(*own_command('status'))"


def printed(command: list[str], folder: Path, **env: str) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(**env), capture_output=True, text=True, check=False)
    return done.stdout.strip()


def as_module(*interpreter: str) -> list[str]:
    return [*interpreter, "-m", "agent", "run", "--help"]


def test_as_a_module_of_the_python_that_was_typed(tmp_path):
    usage = printed(as_module(sys.executable), tmp_path)
    assert usage.startswith(f"usage: {sys.executable} -m agent run ")


def test_under_uv_run_as_uv_was_asked_and_with_the_project_where_uv_would_not_find_it(tmp_path):
    env = {"UV_RUN_RECURSION_DEPTH": "1", "VIRTUAL_ENV": sys.prefix}
    assert printed(as_module(sys.executable), PROJECT, **env).startswith("usage: uv run python -m agent run ")
    script = [sys.executable, "-c", NAMED.format("/somewhere/.venv/bin/nightshift")]
    assert printed(script, PROJECT / "docs", **env) == "uv run nightshift status"
    assert printed(script, tmp_path, **env) == f"uv run --project {PROJECT} nightshift status"


def test_a_page_for_others_has_the_command_as_it_was_typed_unless_that_names_a_folder(tmp_path):
    code = (
        "import sys; sys.argv[0] = {!r}; from agent.invocation import typed_for_readers; "
        "print(typed_for_readers('take', 'a b'))"
    )
    script = [sys.executable, "-c", code.format("/somewhere/.venv/bin/nightshift")]
    env = {"UV_RUN_RECURSION_DEPTH": "1", "VIRTUAL_ENV": sys.prefix}
    assert printed(script, PROJECT, **env) == "uv run nightshift take 'a b'"
    assert printed(script, tmp_path, **env) == "nightshift take 'a b'"
    assert printed(script, PROJECT, VIRTUAL_ENV="/another") == "nightshift take 'a b'"
    near = [sys.executable, "-c", code.format(".venv/bin/nightshift")]
    assert printed(near, tmp_path, VIRTUAL_ENV="/another") == ".venv/bin/nightshift take 'a b'"


def test_uv_above_another_environment_is_no_sign(tmp_path):
    env = {"UV_RUN_RECURSION_DEPTH": "1", "VIRTUAL_ENV": "/another", "PATH": "/usr/bin:/bin"}
    script = [sys.executable, "-c", NAMED.format("/my own/bin/nightshift")]
    assert printed(script, tmp_path, **env) == "'/my own/bin/nightshift' status"


def test_by_its_name_where_that_is_found(tmp_path):
    program = tmp_path / "nightshift"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    script = [sys.executable, "-c", NAMED.format(str(program))]
    assert printed(script, tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin") == "nightshift status"


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ([], ""),
        (["-q", "--no-group=cpu", "--group", "cuda", "--project", "."], " --no-group=cpu --group cuda"),
    ],
)
def test_uv_itself_leaves_the_sign_that_is_looked_for_and_the_groups_that_it_was_given(options, kept):
    """Without them uv takes other packages: it would lack Ray, or put MLX for CPUs in the place of that for CUDA.

    Between uv and the program that prints is another process of ours.
    """
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {NAMED.format('nightshift')!r}])"
    command = ["uv", "run", "--no-sync", *options, "python", "-c", code, "--group", "own"]
    env = {name: value for name, value in os.environ.items() if name != "UV_RUN_RECURSION_DEPTH"}
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == f"uv run{kept} nightshift status\n", done.stderr


@pytest.mark.parametrize("word", ["plain", "it's", "a\nb\tc", "\x1b[2J", "\\ and '", "ü€", "$HOME `id`", ""])
def test_a_pasted_word_is_the_word(word):
    line = typed("x", word).removeprefix(typed("x") + " ")
    assert line.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {line}"], capture_output=True, text=True, check=True)
    assert done.stdout == word


def test_its_own_processes_are_started_as_it_was_itself(tmp_path):
    command = tmp_path / "nightshift"
    for name in (str(command), "nightshift"):  # there is no such file
        said = printed([sys.executable, "-c", OWN.format(name)], PROJECT)
        assert said.startswith(f"{sys.executable} -P -c ")
        assert said.endswith(" status")
    command.touch()
    assert printed([sys.executable, "-c", OWN.format(str(command))], tmp_path).endswith(f" -P {command} status")


def test_its_own_processes_run_its_own_code_from_any_folder_also_where_that_is_not_installed(tmp_path):
    clone, elsewhere = tmp_path / "clone", tmp_path / "elsewhere"
    shutil.copytree(PROJECT / "agent", clone / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    (clone / "train_mlx.py").touch()
    (clone / "pyproject.toml").write_text('[project]\nname = "nightshift-mlx"\nversion = "123.4"\n')
    elsewhere.mkdir()
    starts_its_own = (
        "import os, subprocess, sys; sys.path.insert(0, sys.argv[1]); from agent.invocation import own_command; "
        "subprocess.run(own_command('--version'), cwd=sys.argv[2], check=True)"
    )
    said = printed([sys.executable, "-c", starts_its_own, str(clone), str(elsewhere)], elsewhere)
    assert said.endswith("123.4")
