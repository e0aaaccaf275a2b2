"""Hints on installing fit the way nightshift was installed, and never name another project's package."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from agent import invocation
from agent.script.contract import fixed_files

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TEXTS = [
    *ROOT.glob("*.md"), *ROOT.glob("*.py"), *ROOT.glob("*.toml"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*"),
    *(ROOT / "agent").rglob("*.py"), *ROOT.glob("kernels/*"), *(ROOT / "tests").rglob("*.py"),
]  # fmt: skip


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Make a virtual environment, as pip or uv does."""

    def made(tool: str) -> None:
        (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n" + ("uv = 0.9.1\n" if tool == "uv" else ""))
        monkeypatch.setattr(sys, "prefix", str(tmp_path))

    return made


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_wheel_is_extended_by_the_name_of_the_distribution(tool, environment, tmp_path, monkeypatch):
    environment(tool)
    monkeypatch.setattr(invocation, "ABOVE", tmp_path)  # as site-packages: no pyproject.toml of ours
    prefix = "uv " if tool == "uv" else ""
    assert invocation.command_for("openai") == f"{prefix}pip install 'nightshift-mlx[openai]'"


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_clone_is_extended_from_its_own_folder(tool, environment, tmp_path, monkeypatch):
    environment(tool)
    prefix = "uv " if tool == "uv" else ""
    monkeypatch.chdir(ROOT)
    assert invocation.command_for("cpu") == f"{prefix}pip install -e '.[cpu]'"
    monkeypatch.chdir(tmp_path)
    assert invocation.command_for("cpu") == f"{prefix}pip install -e '{ROOT}[cpu]'"


def test_every_extra_that_a_hint_names_exists():
    sources = [path.read_text() for path in (ROOT / "agent").rglob("*.py")]
    named = {extra for text in sources for extra in re.findall(r"""command_for\(["'](\w+)["']""", text)}
    assert named
    assert named <= set(PYPROJECT["project"]["optional-dependencies"])


def test_what_is_copied_to_begin_with_is_the_script_and_all_that_a_night_needs_beside_it():
    needed = fixed_files(ROOT, (ROOT / invocation.SCRIPT).read_text())
    assert {Path(name).parts[0] for name in needed} | {invocation.SCRIPT, "program.md"} == set(invocation.OWN)
    packed = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["include"]
    assert {pattern.partition("/")[0] for pattern in packed} == {"agent", invocation.IDEAS, *invocation.OWN}


def test_the_distribution_has_a_name_of_its_own_and_the_command_keeps_its_short_one():
    assert PYPROJECT["project"]["name"] == invocation.DISTRIBUTION == "nightshift-mlx"
    assert PYPROJECT["project"]["scripts"] == {"nightshift": "agent.__main__:main"}


def test_no_text_has_anyone_install_the_package_of_another_project():
    bare = re.compile(
        r"""(pip|pipx|tool) install [^&`]*\bnightshift(?!-mlx)\b|\bnightshift\[|--with[ =]nightshift(?!-mlx)\b"""
    )
    told = [(path.name, line) for path in TEXTS if path.suffix not in (".png", ".pyc") and path.is_file()
            for line in path.read_text().splitlines() if bare.search(line) and path != Path(__file__)]  # fmt: skip
    assert told == []
