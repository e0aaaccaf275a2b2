"""Git by plumbing: the user's working tree, index and HEAD are never touched, and nothing is ever deleted.

Every commit is made without an index; every ref moves by compare-and-swap.
"""

import errno
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from agent.errors import NoRepository, RepoError
from agent.git.run import git
from agent.invocation import command_to_begin

FIRST_COMMIT = "git add . && git commit -m start"
TRIES = 3  # at a commit: a `git gc --prune=now` may take its half-made objects away, or memory run out for git alone
NO_SPACE = ("No space left on device", "Disk quota exceeded")
STALE_LOCK_S = 2.0  # git holds the lock of a ref for milliseconds
NIGHTSHIFT_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "nightshift"), ("EMAIL", "nightshift@localhost"))
}


@dataclass(frozen=True, slots=True)
class Repo:
    root: Path  # the top of the working tree

    @classmethod
    def containing(cls, folder: Path) -> "Repo":
        """Find the repository of a folder; raise NoRepository without one, or without commits."""
        repo = cls.around(folder)
        if repo is None:
            raise NoRepository(f"{folder} is not in a git repository; run: {command_to_begin(folder)}")
        if repo.find("HEAD") is None:
            is_empty = all(path.name == ".git" for path in repo.root.iterdir())  # git would commit nothing
            first = command_to_begin(repo.root) if is_empty else FIRST_COMMIT
            raise NoRepository(f"{repo.root} has no commits yet; run: {first}")
        return repo

    @classmethod
    def around(cls, folder: Path) -> "Repo | None":
        """Find the repository of a folder, with commits or without; None outside of any."""
        if not folder.is_dir():
            raise RepoError(f"{folder} is not a folder")
        status, top, said = _run(folder, "rev-parse", "--show-toplevel")
        if status != 0 and "not a git repository" not in said:
            # for instance a clone that belongs to another user; git names the remedy itself
            raise RepoError(f"git refuses {folder}: {' '.join(said.removeprefix('fatal:').split())}")
        return cls(Path(top)) if status == 0 else None

    def git(self, *arguments: str, env: Mapping[str, str] | None = None, told: str = "") -> str:
        """Run one plumbing command, which reads `told`; raise RepoError with git's message, OSError on a full disk."""
        status, out, err = _run(self.root, *arguments, env=env, told=told)
        if status != 0 and any(words in err for words in NO_SPACE):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.root))
        if status != 0:
            said = (err or out).strip().splitlines()
            raise RepoError(f"git {arguments[0]} failed in {self.root}: {said[0] if said else f'exit code {status}'}")
        return out

    def find(self, revision: str) -> str | None:
        """Return the commit that a revision names; None if there is none."""
        status, sha, err = _run(self.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if status not in (0, 1):
            raise RepoError(f"git could not look up {revision} in {self.root}: {err.strip() or f'exit code {status}'}")
        return sha if status == 0 else None

    def refs(self, prefix: str) -> tuple[str, ...]:
        """List the refs at or below a prefix."""
        return tuple(self.git("for-each-ref", "--format=%(refname)", prefix).splitlines())

    def common_dir(self) -> Path:
        """Return the git folder that linked worktrees of one repository share."""
        return _common_dir(self)

    def is_shallow(self) -> bool:
        """Return whether this clone lacks the older part of its history."""
        return self.git("rev-parse", "--is-shallow-repository") == "true"

    def commit_script(self, parent: str, path: str, script: str, message: str, when: str) -> str:
        """Commit the parent's tree with one file replaced; the same arguments give the same commit."""
        for _ in range(TRIES - 1):
            with suppress(RepoError):
                return self._commit_script(parent, path, script, message, when)
        return self._commit_script(parent, path, script, message, when)

    def _commit_script(self, parent: str, path: str, script: str, message: str, when: str) -> str:
        tree = self._tree_with(parent, path, script)
        dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        commit = ("commit-tree", tree, "-p", parent)
        with suppress(RepoError):  # of a user whom git does not know
            return self.git("-c", "user.useConfigOnly=true", *commit, env=dates, told=message)
        return self.git(*commit, env={**self.identity(), **dates}, told=message)

    def _tree_with(self, parent: str, path: str, script: str) -> str:
        """Write the parent's tree with one file replaced, folder by folder from the file up; return its name."""
        made = self.git("hash-object", "-w", "--no-filters", "--stdin", told=script)
        names = path.split("/")
        for depth in reversed(range(len(names))):
            entries = _entries(self, parent, "/".join(names[:depth]))
            if depth == len(names) - 1:  # executable if it was; a link becomes a plain file
                is_executable = entries.get(names[depth], "").startswith("100755")
                entry = f"{'100755' if is_executable else '100644'} blob {made}"
            else:
                entry = f"040000 tree {made}"
            lines = (f"{entry}\t{name}\0" for name, entry in {**entries, names[depth]: entry}.items())
            made = self.git("mktree", "-z", told="".join(lines))
        return made

    def set_ref(self, ref: str, new: str, why: str) -> None:
        """Create a ref that only this night writes, or move it, wherever it was."""
        self._break_stale_lock(ref)
        self.git("update-ref", "--create-reflog", "-m", f"nightshift: {why}", ref, new)

    def move_ref(self, ref: str, new: str, old: str | None, why: str) -> None:
        """Move a ref by compare-and-swap; raise RepoError if it is neither at old (None: missing) nor at new.

        Create a ref that was deleted again: each attempt also has its own ref, so no commit was lost.
        """
        now = self.find(ref)
        if now == new:
            return
        if now is None:
            old = None
        if now != old:
            raise RepoError(
                f"{ref} was moved to {now or 'nothing'} by somebody else (expected {old or 'nothing'}); "
                f"start a new night with another --tag"
            )
        self._break_stale_lock(ref)
        self.git("update-ref", "--create-reflog", "-m", f"nightshift: {why}", ref, new, old or "0" * len(new))

    def checked_out(self) -> tuple[str, ...]:
        """List the branches that are checked out, in this working tree or a linked one."""
        lines = self.git("worktree", "list", "--porcelain").splitlines()
        return tuple(line.removeprefix("branch ") for line in lines if line.startswith("branch "))

    def _break_stale_lock(self, ref: str) -> None:
        """Remove the lock that a killed git left on a ref: only one night runs, and only nights write these refs."""
        lock = self.common_dir() / f"{ref}.lock"
        deadline = time.monotonic() + STALE_LOCK_S
        while lock.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        lock.unlink(missing_ok=True)

    def read(self, commit: str, path: str) -> str:
        """Read a committed file; raise RepoError if it is not committed."""
        done = git(self.root, "cat-file", "blob", f"{commit}:{path}")
        if done.returncode != 0:
            raise RepoError(f"{path} is not committed; run: git add {path} && git commit -m start")
        return done.stdout.decode(errors="surrogateescape")

    def diff(self, old: str, new: str) -> str:
        return self.git("diff-tree", "-p", "--no-ext-diff", "--no-textconv", old, new)

    def tracks(self, path: str) -> bool:
        """Return whether git tracks this file, any file in this folder, or a link or submodule that it lies below.

        A clone then brings it along. Letter case makes no difference, as on the disk of a Mac.
        """
        top, wanted = path.partition("/")[0], f"{path.casefold()}/"
        tracked = self.git("ls-files", "-z", "--", f":(literal,icase){top}").split("\0")
        found = (f"{one.casefold()}/" for one in tracked if one)
        return any(one.startswith(wanted) or wanted.startswith(one) for one in found)

    def identity(self) -> dict[str, str]:
        """Return an author for commits if git has none configured, so that the night can go on; else nothing."""
        status, _, _ = _run(self.root, "-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
        return {} if status == 0 else dict(NIGHTSHIFT_IDENTITY)


@lru_cache(maxsize=16)  # of a commit, which never changes: most attempts have one of a few parents
def _entries(repo: Repo, commit: str, folder: str) -> Mapping[str, str]:
    """Return name → mode, type and object of everything in a folder of a commit; nothing where there is none."""
    listed = repo.git("ls-tree", "-z", "--full-tree", commit, *([f"{folder}/"] if folder else [])).split("\0")
    entries = (line.split("\t", 1) for line in listed if line)
    return {name.removeprefix(f"{folder}/"): facts for facts, name in entries}


@lru_cache(maxsize=16)
def _common_dir(repo: Repo) -> Path:
    return (repo.root / repo.git("rev-parse", "--git-common-dir")).resolve()


def valid_tag(tag: str) -> bool:
    """Return whether a tag is fit for a branch name, a folder name and a table cell."""
    return (
        bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", tag))
        and ".." not in tag
        and not tag.endswith((".", ".lock"))
    )


def _run(folder: Path, *arguments: str, env: Mapping[str, str] | None = None, told: str = "") -> tuple[int, str, str]:
    """Return exit status, output without its last line end, and errors."""
    done = git(folder, *arguments, env=env, told=told.encode(errors="surrogateescape"))
    out, err = (text.decode(errors="surrogateescape") for text in (done.stdout, done.stderr))
    return done.returncode, out.removesuffix("\n"), err
