"""How the user starts this program, so that a command that it prints can be pasted."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def typed(*words: str) -> str:
    """A command line of this program as it is typed here: with uv, as a module or by its name, as it was started."""
    return " ".join([_program(), *map(_quoted, words)])


def _quoted(word: str) -> str:
    """On one line, and with nothing that a terminal would obey: in the $'…' of bash and zsh where it has to be."""
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
    """Whether `uv run` started this Python, and not only some program above it."""
    environment = os.environ.get("VIRTUAL_ENV")
    return "UV_RUN_RECURSION_DEPTH" in os.environ and environment is not None and Path(environment) == Path(sys.prefix)
