"""Write command lines for the user to paste, and start this program again.

The name `nightshift` on the package index belongs to another project, so no hint may name it.
"""

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "nightshift-mlx"
SCRIPT = "train_mlx.py"
IDEAS = "ideas"  # the folder of known ideas: ours in this package, and a user's own beside the script
SKILL = ".agents/skills/nightshift/SKILL.md"  # coding agents read it
OWN = (SCRIPT, "prepare.py", "program.md")  # files that a folder needs for a night
PACKAGE = Path(__file__).resolve().parent
ABOVE = PACKAGE.parent  # a clone's root, or the folder of installed packages
STARTER = PACKAGE / "starter" if (PACKAGE / "starter").is_dir() else ABOVE  # folder of OWN, in a wheel too


def typed(*words: str, folder: Path = Path()) -> str:
    """Return a command line of this program for a folder, with `uv run` before it where uv has started us."""
    return shlex.join([*_uv_run(folder), "nightshift", *words])


def typed_python(script: str, *words: str) -> str:
    """Return the command that runs a script with this Python and its packages."""
    uv_run = _uv_run(Path())
    return shlex.join([*([*uv_run, "python"] if uv_run else [sys.executable]), script, *words])


def _uv_run(folder: Path) -> list[str]:
    """Return how uv runs a program in a folder: from elsewhere, it has to be told the project that holds us."""
    if "UV_RUN_RECURSION_DEPTH" not in os.environ:
        return []
    project = next((place for place in (ABOVE, Path(sys.prefix).parent) if (place / "pyproject.toml").is_file()), None)
    is_inside = project is None or folder.resolve().is_relative_to(project)
    return ["uv", "run", *([] if is_inside else ["--project", str(project)])]


def command_to_begin(folder: Path) -> str:
    """Return the command that makes a folder one where a night can begin."""
    return typed("init", *([] if folder.resolve() == Path.cwd() else [str(folder)]))


def own_command(*words: str) -> list[str]:
    """Return a command for a process of this very program, from any folder: that may hold another agent/."""
    return [*own_python("from agent.cli.main import main; sys.exit(main())"), *words]


def own_python(code: str, *options: str) -> list[str]:
    """Return the command that runs code, which may begin with our imports, in a process of this Python.

    Python keeps what it has compiled of an imported file, but compiles a program at each start.
    """
    return [sys.executable, "-P", *options, "-c", f"import sys; sys.path.insert(0, {str(ABOVE)!r}); {code}"]


def install_command(*requirements: str) -> str:
    """Return the command that installs packages beside nightshift: by pip, which an environment of uv's lacks."""
    pip = [sys.executable, "-m", "pip", "install"]
    uv = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*(uv if find_spec("pip") is None else pip), *requirements])


def command_for(extra: str) -> str:
    """Return the command that installs an extra: of a clone, or of what is installed."""
    is_clone = (ABOVE / "pyproject.toml").exists()
    return install_command(*(["-e", f"{ABOVE}[{extra}]"] if is_clone else [f"{DISTRIBUTION}[{extra}]"]))
