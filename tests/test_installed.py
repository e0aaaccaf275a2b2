"""A built wheel takes a new user from an empty folder to a result, and hints on installing fit how it was installed."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from agent import __version__, invocation
from agent.script.contract import fixed_files

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_what_is_copied_to_begin_with_is_the_script_and_all_that_a_night_needs_beside_it():
    needed = fixed_files(ROOT, (ROOT / invocation.SCRIPT).read_text())
    assert {*needed, invocation.SCRIPT, "program.md"} == set(invocation.OWN)
    packed = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert packed == {name: f"agent/starter/{name}" for name in (*invocation.OWN, invocation.SKILL)}


# ---- from a wheel ----------------------------------------------------------------------------------------------------

needs_uv = pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
TINY = {"DEPTH": "1", "ASPECT_RATIO": "32", "HEAD_DIM": "32", "BATCH_ROWS": "1", "WINDOW_PATTERN": '"L"'}
NIGHT = ("run", "--budget-s", "1", "--judge", "greedy", "--no-dry-run", "--proposer", "queue", "--experiments", "1")


def uv(*words: str, **env: str) -> str:
    """Run uv; what a cache lacks comes from the package index, and without a network the cache has to do."""
    for offline in ((), ("--offline",)):
        done = subprocess.run(
            ["uv", *words, *offline], env=own_environment(**env), capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return done.stdout
    return pytest.fail(done.stderr)


def own_environment(**more: str) -> dict[str, str]:
    """Of a shell that knows nothing of this environment."""
    hidden = {"VIRTUAL_ENV", "PYTHONPATH", "UV_PROJECT_ENVIRONMENT", "UV_RUN_RECURSION_DEPTH"}
    return {name: value for name, value in os.environ.items() if name not in hidden} | more


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "--out-dir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return f"{invocation.DISTRIBUTION}[cpu] @ {built.as_uri()}"


@needs_uv
@pytest.mark.slow
def test_a_wheel_puts_the_package_agent_into_site_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(Path(unquote(urlsplit(wheel.partition(" @ ")[2]).path))).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"agent"}
    assert {f"agent/starter/{name}" for name in invocation.OWN} <= {*names}
    assert "agent/ideas/README.md" in names


def shell(wheel: str, folder: Path) -> Callable[..., str]:
    """What types a line in a new folder, where the wheel alone is installed, and returns all that is printed."""
    folder.mkdir()
    uv("venv", "--python", sys.executable, str(folder.parent / "venv"))
    uv("pip", "install", "--python", str(folder.parent / "venv"), wheel)
    env = own_environment(PATH=f"{folder.parent}/venv/bin:{os.environ['PATH']}")

    def typed(line: str, code: int = 0) -> str:
        done = subprocess.run(
            line, shell=True, cwd=folder, env=env, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout

    return typed


@needs_uv
@pytest.mark.slow
def test_from_a_wheel_an_empty_folder_comes_to_a_result(wheel, tmp_path, own_cache):
    """Where a command prints what comes next, that line is what is typed."""
    typed = shell(wheel, tmp_path / "empty")
    assert typed("nightshift --version") == f"nightshift {__version__}\n"
    typed("nightshift init")
    script = tmp_path / "empty" / invocation.SCRIPT
    text = script.read_text()
    for name, value in TINY.items():
        text, count = re.subn(rf"(?m)^{name} = .*?(  #)", rf"{name} = {value}\1", text)
        assert count == 1, name
    script.write_text(text)

    assert "val_bpb:" in typed(f"python {invocation.SCRIPT} --budget-s 1 --max-steps 2")
    (tmp_path / "idea.py").write_text(text.replace("MATRIX_LR = 0.04", "MATRIX_LR = 0.02"))
    typed("nightshift try --queue --edit ../idea.py -m 'half the step size'")
    end = typed(shlex.join(["nightshift", *NIGHT, "--dataset", str(ROOT / "agent")]))
    assert re.search(r"data +agent-tiny-", end)
    assert "2 attempts, 1 of them ideas: " in end
    assert "half the step size" in typed("nightshift results")
    typed("nightshift take 1")
    assert script.read_text() == text.replace("MATRIX_LR = 0.04", "MATRIX_LR = 0.02")
    typed("nightshift report --png progress.png")
    assert (tmp_path / "empty" / "progress.png").read_bytes().startswith(b"\x89PNG")

    remedy = typed("nightshift mcp", code=1).partition("install it: ")[2]
    assert "[cpu,mcp]" in remedy or "[mcp]" in remedy
    typed(remedy)
    typed("nightshift mcp < /dev/null")
