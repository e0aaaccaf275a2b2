"""Run git: one way for the user's repository and for the folders of the harness.

Hooks, fsmonitor and filters stay off, so that nothing planted in a repository runs in the middle of the night.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from agent.errors import RepoError
from agent.files import detached_env

SAFE = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.autocrlf=false", "gc.auto=0")
DURABLE = "core.fsync=all"
IN_ENGLISH = {"LC_ALL": "C", "LANGUAGE": "C"}  # some of git's messages are searched for
NO_SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None, told: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run one command in the user's repository, with the user's settings. Its objects and refs are flushed to disk.

    told: what the command reads.
    """
    return _run(folder, (*SAFE, DURABLE), arguments, {**os.environ, **(env or {})}, told)


def detached_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run one command in a folder of the harness, without any settings. It finds no repository above the folder."""
    env = {**detached_env(), **NO_SETTINGS, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    return _run(folder, SAFE, arguments, env)


def _run(
    folder: Path, settings: tuple[str, ...], arguments: tuple[str, ...], env: Mapping[str, str], told: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a new session, so that a Ctrl-C meant for the night does not interrupt it."""
    command = ["git", *(word for setting in settings for word in ("-c", setting)), *arguments]
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env={**env, **IN_ENGLISH},
            input=told,
            capture_output=True,
            check=False,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise RepoError(f"{folder} is gone; put it back") from error
        raise RepoError("git is not installed or not on PATH; install it from https://git-scm.com") from error
