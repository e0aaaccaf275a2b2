"""A folder that is gone afterwards, and git in it: nothing leads from there to the user's repository, or back."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import RepoError
from agent.workshop import remove

# VIRTUAL_ENV: what a tool installs there would be installed for the user; PWD and OLDPWD: where the user stands
LEADS_HOME = frozenset({"VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PWD", "OLDPWD"})
NO_SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


@contextmanager
def throwaway_folder() -> Iterator[Path]:
    """However full of links, pipes and closed folders it is by then, it goes."""
    folder = Path(tempfile.mkdtemp(prefix="nightshift-")).resolve()
    try:
        yield folder
    finally:
        remove(folder)


def detached_env() -> dict[str, str]:
    """The user's environment, keys and all, without what git, nightshift or a virtual environment have set in it."""
    ours = ("GIT_", "NIGHTSHIFT_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours) and name not in LEADS_HOME}


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """One command, with nobody's settings and hooks; it finds no repository above the folder."""
    if shutil.which("git") is None:
        raise RepoError("git is not installed or not on PATH; install it from https://git-scm.com")
    env = {
        **detached_env(),
        **NO_SETTINGS,
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "LC_ALL": "C",
    }
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false", *arguments]
    # a session of its own: a Ctrl-C meant for the night must not tear it
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False, start_new_session=True)
