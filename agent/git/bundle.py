"""Write the commits of some refs into one file, and read them back: git's own bundles, made and read by plumbing."""

import re
from collections.abc import Mapping
from pathlib import Path

from agent.errors import RepoError
from agent.git.repo import Repo

NAME = re.compile(r"[A-Za-z0-9._-]+")  # of a ref, without the folders that it is in
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def refs_of_night(repo: Repo, tag: str) -> dict[str, str]:
    """Return ref → commit of a night's attempts and of its branches."""
    names = (*repo.refs(f"refs/experiments/{tag}"), *repo.refs("refs/heads/experiments"))
    return {name: sha for name in names if is_of_night(name, tag) and (sha := repo.find(name)) is not None}


def is_of_night(ref: str, tag: str) -> bool:
    """Return whether a ref is an attempt of this night, its branch, or its confirmed branch."""
    folder, _, name = ref.rpartition("/")
    if not NAME.fullmatch(name):
        return False
    if folder == f"refs/experiments/{tag}":
        return True
    return folder == "refs/heads/experiments" and name.partition("-")[2] in (tag, f"{tag}-confirmed")


def write_bundle(repo: Repo, file: Path, refs: Mapping[str, str], base: str) -> None:
    """Write the commits of these refs into a file; those of the base, the user's own, are only referred to.

    base: "" to write them too, for a repository that may lack them.
    """
    known = [f"^{base}"] if base and repo.find(base) is not None else []
    repo.git("bundle", "create", "--quiet", str(file), *refs, *known)


def read_bundle(repo: Repo, file: Path, refs: Mapping[str, str]) -> tuple[str, ...]:
    """Bring back those of these refs that are gone, with their commits; return the refs that now lead elsewhere.

    Raise RepoError where the bundle is damaged, or the commit is gone that the night began from.
    """
    repo.git("bundle", "verify", "--quiet", str(file))
    repo.git("bundle", "unbundle", str(file))
    for ref, sha in refs.items():
        if repo.find(sha) is None:
            raise RepoError(f"{file} lacks commit {sha[:7]}, which {ref} is to name; it is damaged")
    # with a ref to a commit whose trees or files are missing, the user's own `git gc` would fail
    repo.git("rev-list", "--objects", "--quiet", *refs.values(), "--not", "--all")
    moved = []
    for ref, sha in refs.items():
        now = repo.find(ref)
        if now is None:
            repo.move_ref(ref, sha, None, "unpacked")
        elif now != sha:
            moved.append(ref)
    return tuple(moved)
