"""Build command lines for the user to paste, according to how this program was started and installed.

The name `nightshift` on the package index belongs to another project, so no hint may name it.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

DISTRIBUTION = "nightshift-mlx"
SCRIPT = "train_mlx.py"
IDEAS = "ideas"  # the folder of known ideas: ours, and a user's own beside the script
BUILDS = {"cpu", "cuda"}  # extras that exclude each other
DATA = ("prepare.py", "corpus.py", "corpus_sources.py", "corpus_workers.py", "encode.py", "packing.py")
SKILL = ".agents/skills/nightshift/SKILL.md"  # what coding agents read
OWN = (SCRIPT, *DATA, "hardware.py", "kernels", "program.md")
ABOVE = Path(__file__).resolve().parents[1]  # a clone's root, or the folder of installed packages
# options of `uv run` that change what is installed, with a value and without; those that say where have values, too
UV_CHOICES = ("--group", "--no-group", "--only-group", "--extra", "--no-extra", "--with", "--python", "-p")
UV_SWITCHES = ("--all-groups", "--all-extras", "--no-default-groups", "--no-dev")
UV_PLACES = ("--project", "--directory", "--env-file", "--color", "--cache-dir", "--config-file")
AS_MODULE = (  # python -m agent, also where it is not installed and another folder is the current one
    f"import runpy, sys; above = {str(ABOVE)!r}; above in sys.path or sys.path.insert(0, above); "
    "runpy.run_module('agent', run_name='__main__', alter_sys=True)"
)

# ---- how it is started ----


def typed(*words: str) -> str:
    """Return a command line of this program in the form in which it was started: with uv, as a module or by name."""
    return typed_in(Path.cwd(), *words)


def typed_in(folder: Path, *words: str) -> str:
    """Return a command line as typed() does, for use in another folder."""
    return " ".join([_program(folder), *map(_quoted, words)])


def typed_for_readers(*words: str) -> str:
    """Return a command line as typed() does, for a page that may be sent to others.

    Where it would name a folder of this machine, it has the bare name of the program.
    """
    program = _program(Path.cwd())
    names_folder = any(Path(part).is_absolute() for word in shlex.split(program) for part in word.split("="))
    return " ".join(["nightshift" if names_folder else program, *map(_quoted, words)])


def own_command(*words: str) -> list[str]:
    """Return a command for a process of this program, started as it was itself, since its sentences name commands."""
    started = Path(sys.argv[0])
    by_name = started.name == "nightshift" and started.is_file()
    program = [str(started.absolute())] if by_name else ["-c", AS_MODULE]
    return [sys.executable, "-P", *program, *words]  # -P: the folder may hold agent/


def _quoted(word: str) -> str:
    """Quote a word on one line without control characters, as $'…' of bash and zsh if necessary."""
    if word.isprintable():
        return shlex.quote(word)
    codes = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", "'": "\\'"}
    return f"$'{''.join(codes.get(one) or (one if one.isprintable() else ascii(one)[1:-1]) for one in word)}'"


def _program(folder: Path) -> str:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    as_module = spec is not None and spec.name == "agent.__main__"
    if _is_of_uv():
        return f"{_uv_run(folder)} python -m agent" if as_module else f"{_uv_run(folder)} nightshift"
    if as_module:
        return f"{shlex.quote(_seen_from(folder, sys.orig_argv[0]))} -m agent"
    started = Path(sys.argv[0])
    found = shutil.which(started.name)
    on_path = found is not None and Path(found).absolute() == started.absolute()
    is_named = started.name == "nightshift" and not on_path
    return shlex.quote(_seen_from(folder, str(started))) if is_named else "nightshift"


def _seen_from(folder: Path, program: str) -> str:
    """Return the path of a program as another folder needs it; a bare name is found through PATH."""
    return program if os.sep not in program or folder == Path.cwd() else str(Path(program).absolute())


def _uv_run(folder: Path) -> str:
    """Return `uv run`, with its choices, and with the project where uv would not find it from the folder."""
    elsewhere = _is_clone(ABOVE) and not folder.is_relative_to(ABOVE)
    return shlex.join(["uv", "run", *(["--project", str(ABOVE)] if elsewhere else []), *_uv_choices()])


@cache
def _uv_choices() -> tuple[str, ...]:
    """Return the options by which `uv run` was told what to install: without them, packages would change.

    uv waits above this process, or above the one of ours that has started it.
    """
    import psutil

    with suppress(psutil.Error):
        for process in psutil.Process().parents():
            words = process.cmdline()
            if words and Path(words[0]).name == "uv" and "run" in words:
                return tuple(_chosen(iter(words[words.index("run") + 1 :])))
    return ()


def _chosen(words: Iterator[str]) -> list[str]:
    """Return those options; none where uv started another program, such as one that tests this."""
    found: list[str] = []
    for word in words:
        if word in ("--", "-m") or not word.startswith("-"):
            return found if word in ("--", "-m") or Path(word).name.startswith(("nightshift", "python")) else []
        name, has_value, _ = word.partition("=")
        value = [] if has_value or name not in {*UV_CHOICES, *UV_PLACES} else [next(words, "")]
        found += [word, *value] if name in UV_CHOICES or word in UV_SWITCHES else []
    return []


def python_for(folder: Path) -> str:
    """Return the command that starts this Python, with its packages, from a folder."""
    if _is_of_uv():
        return f"{_uv_run(folder)} python"
    return "python" if _is_on_path("python") else shlex.quote(sys.executable)


def _is_of_uv() -> bool:
    """Return whether `uv run` started this Python itself, not only a parent process."""
    environment = os.environ.get("VIRTUAL_ENV")
    return "UV_RUN_RECURSION_DEPTH" in os.environ and environment is not None and Path(environment) == Path(sys.prefix)


# ---- how it is installed ----


def version() -> str:
    """Return the version of nightshift; of a clone, as its pyproject.toml has it."""
    if _is_clone(ABOVE):
        return str(_toml(ABOVE / "pyproject.toml")["project"]["version"])
    from importlib.metadata import version as version_of  # slow to import

    return version_of(DISTRIBUTION)


def command_for(extra: str) -> str:
    """Return the command that installs an extra, from where nightshift itself was installed."""
    if (receipt := _receipt()) is not None:
        return _tool_command(receipt, extra)
    return _install(_requirement(extra), *_editable())


def install_command(package: str) -> str:
    """Return the command that installs a package beside nightshift."""
    if (receipt := _receipt()) is not None:
        return _tool_command(receipt, package=package)
    return _install(package)


def command_to_begin(folder: Path | None = None) -> str:
    """Return the command that makes a folder (default: the current one) one where a night can begin."""
    return typed("init") if folder is None or folder.resolve() == Path.cwd() else typed("init", str(folder))


def _install(requirement: str, *options: str) -> str:
    """Use uv if uv made the environment (it has no pip), else pip, and name the environment where it is not active."""
    prefix = Path(sys.prefix)
    if _made_by_uv(prefix):
        tool = ["uv", "pip", "install", *([] if _is_found_by_uv(prefix) else ["--python", str(prefix)])]
    else:
        tool = ["pip", "install"] if _is_on_path("pip") else [sys.executable, "-m", "pip", "install"]
    return shlex.join([*tool, *options, requirement])


def _tool_command(receipt: dict[str, Any], extra: str | None = None, package: str | None = None) -> str:
    """Return the command that makes a tool's environment again, with an extra or a package beside what it has."""
    asked = receipt.get("requirements", [])
    own: dict[str, Any] = next((one for one in asked if one.get("name") == DISTRIBUTION), {})
    builds = BUILDS if extra in BUILDS else set()  # of MLX: one takes the place of another
    extras = sorted({*own.get("extras", [])} - builds | ({extra} if extra else set()))
    others = [*(one["name"] for one in asked if one.get("name") not in (None, DISTRIBUTION)), *filter(None, [package])]
    python = ["--python", receipt["python"]] if "python" in receipt else []
    words = ["uv", "tool", "install", "--force", *python, *_editable(), _requirement(*extras)]
    return shlex.join([*words, *(word for other in others for word in ("--with", other))])


def _requirement(*extras: str) -> str:
    """Name nightshift with extras, for pip and for uv: by its clone, by where it came from, or by its name."""
    chosen = f"[{','.join(extras)}]" if extras else ""
    if _is_clone(ABOVE):
        return f"{'.' if Path.cwd() == ABOVE else ABOVE}{chosen}"
    origin = _origin()
    return f"{DISTRIBUTION}{chosen} @ {origin}" if origin else f"{DISTRIBUTION}{chosen}"


def _origin() -> str | None:
    """Return the address that nightshift was installed from (PEP 610); None for the package index."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote

    try:
        facts = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        url = str(facts["url"])
    except (PackageNotFoundError, ValueError, KeyError, TypeError):
        return None
    if vcs := facts.get("vcs_info"):
        revision = vcs.get("requested_revision")
        return f"{vcs['vcs']}+{url}{f'@{revision}' if revision else ''}"
    return url if not url.startswith("file://") or Path(unquote(url.removeprefix("file://"))).exists() else None


def _editable() -> list[str]:
    return ["-e"] if _is_clone(ABOVE) else []


def _is_clone(above: Path) -> bool:
    try:
        return f'name = "{DISTRIBUTION}"' in (above / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return False


def _receipt() -> dict[str, Any] | None:
    """Return what `uv tool install` noted about this environment; None for any other environment."""
    try:
        return dict(_toml(Path(sys.prefix) / "uv-receipt.toml")["tool"])
    except (OSError, ValueError, KeyError):
        return None


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(path.read_text(encoding="utf-8"))


def _made_by_uv(prefix: Path) -> bool:
    try:
        lines = (prefix / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.partition("=")[0].strip() == "uv" for line in lines)


def _is_found_by_uv(prefix: Path) -> bool:
    """Return whether uv would take this environment by itself in the user's shell."""
    active = None if _is_of_uv() else os.environ.get("VIRTUAL_ENV")  # `uv run` sets it for its child alone
    if active:
        return Path(active) == prefix
    here = Path.cwd()
    near = next((place / ".venv" for place in (here, *here.parents) if (place / ".venv").is_dir()), None)
    return near is not None and near.resolve() == prefix.resolve()


def _is_on_path(program: str) -> bool:
    """Return whether a program's name starts that of this environment."""
    found = shutil.which(program)
    return found is not None and Path(found).absolute().parent == Path(sys.prefix).absolute() / "bin"
