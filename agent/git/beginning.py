"""Make a folder a git repository, with a first commit: the one time that the user's index and HEAD are written."""

from collections.abc import Iterable
from pathlib import Path

from agent.errors import RepoError
from agent.git.repo import Repo
from agent.git.run import git


def begin(folder: Path) -> Repo:
    """Make a folder a repository, without commits."""
    done = git(folder, "init", "--quiet")
    if done.returncode != 0:
        raise RepoError(f"git init failed in {folder}: {' '.join(done.stderr.decode(errors='replace').split())}")
    return Repo(folder)


def commit_first(repo: Repo, paths: Iterable[str], message: str) -> None:
    """Commit these files alone, where nothing is committed yet; what else is staged stays so."""
    literal, files = {"GIT_LITERAL_PATHSPECS": "1"}, ("--", *paths)
    repo.git("add", "--force", *files, env=literal)
    how = ("--quiet", "--no-gpg-sign", "--only", "-m", message)
    repo.git("commit", *how, *files, env={**repo.identity(), **literal})
