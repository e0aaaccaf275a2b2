"""How this copy of nightshift was installed, and so the command that brings what it lacks.

The name `nightshift` on the package index belongs to another project: no hint may name it.
"""

import shlex
import sys
from pathlib import Path

DISTRIBUTION = "nightshift-mlx"
SCRIPT = "train_mlx.py"
OWN = (SCRIPT, "prepare.py", "corpus.py", "encode.py", "hardware.py", "kernels", "program.md")
ABOVE = Path(__file__).resolve().parents[1]  # a clone's root, or the folder of installed packages


def command_for(extra: str) -> str:
    """The command that installs an extra: from the clone where this is one, else by the distribution's name."""
    return install_command(f"{_source(ABOVE)}[{extra}]", editable=_is_clone(ABOVE))


def install_command(requirement: str, *, editable: bool = False) -> str:
    """pip's, or uv's where uv made the environment, which has no pip then."""
    tool = ("uv", "pip", "install") if _made_by_uv(Path(sys.prefix)) else ("pip", "install")
    return " ".join([*tool, *(["-e"] if editable else []), shlex.quote(requirement)])


def command_to_begin() -> str:
    """The command that copies nightshift's own script, and what it needs beside it, into the folder where one is."""
    return f"(cd {shlex.quote(str(ABOVE))} && cp -R {' '.join(OWN)} {shlex.quote(str(Path.cwd()))})"


def _source(above: Path) -> str:
    if not _is_clone(above):
        return DISTRIBUTION
    return "." if Path.cwd() == above else str(above)


def _is_clone(above: Path) -> bool:
    try:
        return f'name = "{DISTRIBUTION}"' in (above / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return False


def _made_by_uv(prefix: Path) -> bool:
    try:
        lines = (prefix / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.partition("=")[0].strip() == "uv" for line in lines)
