"""Hints on installing fit the way nightshift was installed, and never name another project's package."""

import os
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


TOOLS = {"pip": "", "uv": "uv = 0.9.1\n"}  # what each leaves in an environment that it makes
RECEIPT = """\
[tool]
requirements = [{ name = "nightshift-mlx", extras = ["cpu"] }, { name = "cowsay" }]
python = "3.12"
"""


@pytest.fixture(params=TOOLS)
def environment(request, tmp_path, monkeypatch):
    """A virtual environment, as pip or uv makes it, and how a hint begins that installs something into it."""
    place = tmp_path / "environment"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "pip").write_text("#!/bin/sh\n")
    (place / "bin" / "pip").chmod(0o755)
    (place / "pyvenv.cfg").write_text("home = /usr/bin\n" + TOOLS[request.param])
    monkeypatch.setattr(sys, "prefix", str(place))
    monkeypatch.setenv("VIRTUAL_ENV", str(place))
    monkeypatch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")
    return {"pip": "pip install", "uv": "uv pip install"}[request.param]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As site-packages: no pyproject.toml of ours above, and nothing said of where the wheel came from."""
    monkeypatch.setattr(invocation, "ABOVE", tmp_path)
    monkeypatch.setattr(invocation, "DISTRIBUTION", "nightshift-mlx-of-the-index")


def test_a_wheel_of_the_index_is_extended_by_the_name_of_the_distribution(environment, installed):
    assert invocation.command_for("openai") == f"{environment} 'nightshift-mlx-of-the-index[openai]'"


def test_an_environment_that_is_not_active_is_named(environment, installed, monkeypatch, tmp_path):
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    named = (
        f"uv pip install --python {sys.prefix}" if environment.startswith("uv") else f"{sys.executable} -m pip install"
    )
    assert invocation.install_command("mlx") == f"{named} mlx"
    Path(sys.prefix).rename(tmp_path / ".venv")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    if environment.startswith("uv"):  # it looks there by itself
        assert invocation.install_command("mlx") == f"{environment} mlx"


def test_a_clone_is_extended_from_its_own_folder(environment, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert invocation.command_for("cpu") == f"{environment} -e '.[cpu]'"
    monkeypatch.chdir(tmp_path)
    assert invocation.command_for("cpu") == f"{environment} -e '{ROOT}[cpu]'"


def test_a_tool_of_uv_is_installed_again_with_all_that_it_has(environment, installed):
    (Path(sys.prefix) / "uv-receipt.toml").write_text(RECEIPT.replace("nightshift-mlx", invocation.DISTRIBUTION))
    again = "uv tool install --force --python 3.12"
    name = invocation.DISTRIBUTION
    assert invocation.command_for("openai") == f"{again} '{name}[cpu,openai]' --with cowsay"
    assert invocation.install_command("mlx") == f"{again} '{name}[cpu]' --with cowsay --with mlx"


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
