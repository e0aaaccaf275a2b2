"""Build command lines for the user to paste, according to how this program was started and installed.

The name `nightshift` on the package index belongs to another project, so no hint may name it.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

DISTRIBUTION = "nightshift-mlx"
SCRIPT = "train_mlx.py"
IDEAS = "ideas"  # the folder of known ideas: ours, and a user's own beside the script
DATA = ("prepare.py", "corpus.py", "corpus_sources.py", "corpus_workers.py", "encode.py", "packing.py")
OWN = (SCRIPT, *DATA, "hardware.py", "kernels", "program.md")
ABOVE = Path(__file__).resolve().parents[1]  # a clone's root, or the folder of installed packages

# ---- how it is started ----


def typed(*words: str) -> str:
    """Return a command line of this program in the form in which it was started: with uv, as a module or by name."""
    return " ".join([_program(), *map(_quoted, words)])


def _quoted(word: str) -> str:
    """Quote a word on one line without control characters, as $'…' of bash and zsh if necessary."""
    if word.isprintable():
        return shlex.quote(word)
    codes = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", "'": "\\'"}
    return f"$'{''.join(codes.get(one) or (one if one.isprintable() else ascii(one)[1:-1]) for one in word)}'"


def _program() -> str:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    as_module = spec is not None and spec.name == "agent.__main__"
    if _is_of_uv():
        return "uv run python -m agent" if as_module else "uv run nightshift"
    if as_module:
        return f"{shlex.quote(sys.orig_argv[0])} -m agent"
    started = Path(sys.argv[0])
    found = shutil.which(started.name)
    on_path = found is not None and Path(found).absolute() == started.absolute()
    return shlex.quote(str(started)) if started.name == "nightshift" and not on_path else "nightshift"


def _is_of_uv() -> bool:
    """Return whether `uv run` started this Python itself, not only a parent process."""
    environment = os.environ.get("VIRTUAL_ENV")
    return "UV_RUN_RECURSION_DEPTH" in os.environ and environment is not None and Path(environment) == Path(sys.prefix)


# ---- how it is installed ----


def command_for(extra: str) -> str:
    """Return the command that installs an extra, from the clone if this is one, else by the distribution's name."""
    return install_command(f"{_source(ABOVE)}[{extra}]", editable=_is_clone(ABOVE))


def install_command(requirement: str, *, editable: bool = False) -> str:
    """Return the command that installs a requirement: pip's, or uv's if uv made the environment (it has no pip)."""
    tool = ("uv", "pip", "install") if _made_by_uv(Path(sys.prefix)) else ("pip", "install")
    return " ".join([*tool, *(["-e"] if editable else []), shlex.quote(requirement)])


def command_to_begin() -> str:
    """Return the command that copies nightshift's own script and the files it needs into the current folder."""
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
