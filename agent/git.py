"""Run git, through GitPython: make commits that touch nothing the user works on, and refs, diffs and bundles of them.

The user's working tree, index and HEAD are never touched, except by commit_first, where nothing is committed yet. A
commit is made with a private index, a ref moves by compare-and-swap, and nothing is ever deleted.

Of GitPython only the command runner is used. Its own readers know neither SHA-256 nor reftable, and the process that
they leave open would die of a Ctrl-C that is meant for the night.
"""

import errno
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agent.errors import MachineError, NoRepository, RepoError
from agent.files import throwaway_folder
from agent.invocation import command_to_begin
from agent.text import harmless, plain_lines, saved_like

# ---- running git -----------------------------------------------------------------------------------------------------

# hooks, fsmonitor and line ends: nothing planted in a repository runs in the middle of the night, or changes a script
SAFE = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.autocrlf=false", "core.splitIndex=false", "gc.auto=0")
# In a partial clone, git would fetch what it lacks, by programs that the settings name.
AT_HOME = {"GIT_ALLOW_PROTOCOL": ""}
DURABLE = "core.fsync=all"
NO_SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
NIGHTSHIFT_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "nightshift"), ("EMAIL", "nightshift@localhost"))
}
OF_THE_USER = {*NIGHTSHIFT_IDENTITY, *NO_SETTINGS, "GIT_CONFIG_SYSTEM"}
SAFE_FOLDER = "safe.directory"
PLAIN = "100644"  # the mode of a plain file
NO_SPACE = ("No space left on device", "Disk quota exceeded")


def leave_surrounding_git() -> None:
    """Take the variables of git out of this process's environment, except the user's name, settings and safe folders.

    A hook or an alias that starts nightshift passes GIT_DIR and GIT_INDEX_FILE on. With them, every command would read
    and write the hook's repository, whatever its folder. The variables for safe folders stay: containers without a home
    use them to allow repositories of another owner.
    """
    safe = _safe_folders()
    for name in [name for name in os.environ if name.startswith("GIT_") and name not in OF_THE_USER]:
        del os.environ[name]
    for number, folder in enumerate(safe):
        os.environ |= {f"GIT_CONFIG_KEY_{number}": SAFE_FOLDER, f"GIT_CONFIG_VALUE_{number}": folder}
    if safe:
        os.environ["GIT_CONFIG_COUNT"] = str(len(safe))


def _safe_folders() -> list[str]:
    """Return the values of safe.directory that variables and git -c give; none where git cannot read these."""
    if not {"GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"} & os.environ.keys() or shutil.which("git") is None:
        return []
    question = ("git", "config", "--show-scope", "--get-all", SAFE_FOLDER)
    answers = os.fsdecode(subprocess.run(question, capture_output=True, check=False).stdout).split("\n")
    return [folder for scope, _, folder in (line.partition("\t") for line in answers) if scope == "command"]


def detached_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run one command in a folder of the harness, without any settings. It finds no repository above the folder."""
    return _run(folder, SAFE, arguments, {**NO_SETTINGS, "GIT_CEILING_DIRECTORIES": str(folder.parent)})


def _run(
    folder: Path, settings: Iterable[str], arguments: Iterable[str], env: Mapping[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a new session, so that a Ctrl-C meant for the night does not interrupt it."""
    command = _command(folder, settings, arguments)
    from git import Git  # takes 0.15 s: most commands only look for the repository

    process = Git(folder).execute(
        command, istream=subprocess.PIPE, as_process=True, env={**AT_HOME, **env}, start_new_session=True
    )
    out, err = process.communicate(stdin)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _command(folder: Path, settings: Iterable[str], arguments: Iterable[str]) -> list[str]:
    if shutil.which("git") is None:
        raise MachineError("git is not installed or not on PATH; install it from https://git-scm.com")
    # -C: where the folder is gone, GitPython would run git in the current one
    return ["git", "-C", str(folder), *(word for setting in settings for word in ("-c", setting)), *arguments]


def _text(content: bytes) -> str:
    return content.decode(errors="surrogateescape")


def _one_line(content: bytes) -> str:
    return " ".join(_text(content).removeprefix("fatal:").split())


# ---- the user's repository -------------------------------------------------------------------------------------------

STALE_LOCK_S = 2.0  # git holds the lock of a ref for milliseconds


@dataclass(frozen=True)
class Repo:
    root: Path  # the top of the working tree
    common_dir: Path  # the git folder that linked worktrees of one repository share

    @classmethod
    def containing(cls, folder: Path) -> "Repo":
        """Find the repository of a folder; raise NoRepository without one, or without commits."""
        repo, has_commits = repo_around(folder)
        if repo is None:
            raise NoRepository(f"{folder} is not in a git repository; run: {command_to_begin(folder)}")
        if not has_commits:
            raise NoRepository(f"{repo.root} has no commits yet; run: git add . && git commit -m start")
        return repo

    @classmethod
    def begin(cls, folder: Path) -> "Repo":
        """Make a folder a repository, without commits."""
        repo = cls(folder, folder / ".git")
        repo.git("init", "--quiet")
        return repo

    def commit_first(self, texts: Mapping[str, str], message: str) -> None:
        """Commit path → text alone, where nothing is committed yet; what else is staged stays so.

        Unlike `git add` and `git commit`, this runs no filter of the user's.
        """
        listed = "".join(f"{PLAIN} {self.hash_of(text, '-w')}\t{path}\0" for path, text in texts.items())
        with throwaway_folder() as folder:
            index = {"GIT_INDEX_FILE": str(folder / "index")}
            self.git("update-index", "-z", "--index-info", env=index, stdin=listed)
            tree = self.git("write-tree", env=index)
        commit = self.git("commit-tree", tree, env=self._identity, stdin=message)
        self.git("update-index", "-z", "--index-info", stdin=listed)
        self.git("update-ref", "-m", f"commit (initial): {message}", "HEAD", commit, "0" * len(commit))

    def git(self, *arguments: str, env: Mapping[str, str] | None = None, stdin: str = "") -> str:
        """Run one command and return its output without the last line end.

        Its objects and refs are flushed to disk. Raise RepoError with git's message, OSError on a full disk.
        """
        done = self._run(*arguments, env=env, stdin=stdin)
        if done.returncode != 0:
            message = _text(done.stderr or done.stdout).strip()
            if any(words in message for words in NO_SPACE):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.root))
            first = message.splitlines()[0] if message else f"exit code {done.returncode}"
            raise RepoError(f"git {arguments[0]} failed in {self.root}: {first}")
        return _text(done.stdout).removesuffix("\n")

    def _run(
        self, *arguments: str, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        return _run(self.root, (*SAFE, DURABLE), arguments, env or {}, stdin.encode(errors="surrogateescape"))

    @cached_property
    def _identity(self) -> Mapping[str, str]:
        """Return an author for commits if git has none configured; else nothing."""
        done = self._run("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
        return {} if done.returncode == 0 else NIGHTSHIFT_IDENTITY

    # ---- reading ----

    def find(self, revision: str) -> str | None:
        """Return the commit that a revision names; None if there is none."""
        done = self._run("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if done.returncode not in (0, 1):
            message = _one_line(done.stderr) or f"exit code {done.returncode}"
            raise RepoError(f"git could not look up {revision} in {self.root}: {message}")
        return _text(done.stdout).strip() or None

    def read(self, commit: str, path: str) -> str:
        """Read a committed file in plain lines; raise RepoError if it is not committed."""
        text = self.text(f"{commit}:{path}")
        if text is None:
            raise RepoError(f"{path} is not committed; run: git add {path} && git commit -m start")
        return plain_lines(text)

    def text(self, name: str) -> str | None:
        """Return the text of this name, such as the beginning of its hash; None if it is not here."""
        done = self._run("cat-file", "blob", name)
        return _text(done.stdout) if done.returncode == 0 else None

    def hash_of(self, text: str, *options: str) -> str:
        """Return the name that git gives a file with this text; with -w, keep it."""
        return self.git("hash-object", *options, "--no-filters", "--stdin", stdin=text)

    def diff(self, old: str, new: str) -> str:
        return self.git("diff-tree", "-p", "--no-ext-diff", "--no-textconv", "--ignore-cr-at-eol", old, new)

    def tracks(self, path: str) -> bool:
        """Return whether git tracks this file, any file in this folder, or a link or submodule that it lies below.

        A clone then brings it along. Letter case makes no difference, as on the disk of a Mac.
        """
        top, wanted = path.partition("/")[0], f"{path.casefold()}/"
        listed = self.git("ls-files", "-z", "--", f":(literal,icase){top}").split("\0")
        tracked = (f"{name.casefold()}/" for name in listed if name)
        return any(name.startswith(wanted) or wanted.startswith(name) for name in tracked)

    def checked_out(self) -> tuple[str, ...]:
        """List the branches that are checked out, in this working tree or a linked one."""
        lines = self.git("worktree", "list", "--porcelain").splitlines()
        return tuple(line.removeprefix("branch ") for line in lines if line.startswith("branch "))

    # ---- commits ----

    def commit_script(self, parent: str, path: str, script: str, message: str, when: str) -> str:
        """Commit the parent's tree with one file replaced, which keeps its line ends.

        The same arguments give the same commit.
        """
        before = self.text(f"{parent}:{path}") or ""
        blob = self.hash_of(saved_like(script, before), "-w")
        is_executable = self.git("ls-tree", "--full-tree", parent, path).startswith("100755")
        mode = "100755" if is_executable else PLAIN  # also in the place of a link
        with throwaway_folder() as folder:
            index = {"GIT_INDEX_FILE": str(folder / "index")}
            self.git("read-tree", parent, env=index)
            self.git("update-index", "--add", "--replace", "--cacheinfo", f"{mode},{blob},{path}", env=index)
            tree = self.git("write-tree", "--missing-ok", env=index)  # a partial clone lacks files of others
        dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        return self.git("commit-tree", tree, "-p", parent, env={**self._identity, **dates}, stdin=message)

    # ---- refs ----

    def move_ref(self, ref: str, new: str, old: str | None, why: str) -> None:
        """Move a ref by compare-and-swap; raise RepoError if it is neither at old (None: missing) nor at new.

        Create a ref that was deleted again: each attempt also has its own ref, so no commit was lost.
        """
        now = self.find(ref)
        if now == new:
            return
        if now not in (None, old):
            raise RepoError(
                f"{ref} was moved to {now} by somebody else (expected {old or 'nothing'}); "
                f"start a new night with another --tag"
            )
        self.set_ref(ref, new, why, now or "0" * len(new))

    def set_ref(self, ref: str, new: str, why: str, *old: str) -> None:
        """Create a ref that only this night writes, or move it, from an old commit or wherever it was.

        Remove the lock that a killed git left on it, since only the one night that runs writes it.
        """
        lock = self.common_dir / f"{ref}.lock"
        deadline = time.monotonic() + STALE_LOCK_S
        while lock.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        lock.unlink(missing_ok=True)
        self.git("update-ref", "--create-reflog", "-m", f"nightshift: {why}", ref, new, *old)


def repo_around(folder: Path) -> tuple[Repo | None, bool]:
    """Return the repository of a folder, None outside of any, and whether it has commits."""
    if not folder.is_dir():
        raise RepoError(f"{folder} is not a folder")
    question = ("rev-parse", "--show-toplevel", "--git-common-dir", "HEAD^{commit}")
    env = {**os.environ, **AT_HOME, "LC_ALL": "C", "LANGUAGE": "C"}
    done = subprocess.run(_command(folder, SAFE, question), env=env, capture_output=True, check=False)
    lines, path = os.fsdecode(done.stdout).split("\n"), str(folder)
    if len(lines) > 4 or "\n" in path or path.encode(errors="replace") != os.fsencode(path):  # MLX reads names as UTF-8
        raise RepoError(
            f"{harmless(path)} cannot hold a night: its path has a line break, or is not UTF-8 in this locale; "
            f"rename it, or set LC_ALL=C.UTF-8"
        )
    match lines:
        case [root, common_dir, _, _]:
            return Repo(Path(root), (folder / common_dir).resolve()), done.returncode == 0
    if b"not a git repository" in done.stderr:
        return None, False
    # The clone may belong to another user, for instance; git's message names the remedy.
    raise RepoError(f"git refuses {folder}: {_one_line(done.stderr)}")


# ---- the refs of a night, and its commits in one file ----------------------------------------------------------------

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def valid_tag(tag: str) -> bool:
    """Return whether a tag is fit for a branch name, a folder name and a table cell."""
    return bool(re.fullmatch(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?<!\.)(?<!\.lock)", tag))


def refs_of_night(repo: Repo, tag: str) -> dict[str, str]:
    """Return ref → commit of a night's attempts and of its branches."""
    places = (f"refs/experiments/{tag}", "refs/heads/experiments")
    lines = repo.git("for-each-ref", "--format=%(refname) %(objectname)", *places).splitlines()
    return {ref: sha for ref, sha in (line.split(" ") for line in lines) if is_of_night(ref, tag)}


def is_of_night(ref: str, tag: str) -> bool:
    """Return whether a ref is an attempt of this night, its branch, or its confirmed branch."""
    night, name = re.escape(tag), r"[A-Za-z0-9._-]+"
    branch = rf"refs/heads/experiments/[A-Za-z0-9._]*-{night}(?:-confirmed)?"
    return re.fullmatch(rf"refs/experiments/{night}/{name}|{branch}", ref) is not None


def write_bundle(repo: Repo, file: Path, refs: Mapping[str, str], base: str) -> None:
    """Write the commits of these refs into a file; those of the base, the user's own, are only referred to.

    base: "" to write them too, for a repository that may lack them.
    """
    present = [f"^{base}"] if base and repo.find(base) is not None else []
    repo.git("bundle", "create", "--quiet", str(file), *refs, *present)


def read_bundle(repo: Repo, file: Path, refs: Mapping[str, str]) -> None:
    """Create the refs of a bundle that are missing here, with their commits.

    Raise RepoError where the bundle is damaged, or the commit is gone that the night began from.
    """
    repo.git("bundle", "verify", str(file))
    repo.git("bundle", "unbundle", str(file))
    for ref, sha in refs.items():
        if repo.find(sha) is None:
            raise RepoError(f"{file} lacks commit {sha[:7]}, which {ref} is to name; it is damaged")
    # If a ref's commit lacked trees or files, the user's own `git gc` would fail.
    repo.git("rev-list", "--objects", "--quiet", *refs.values(), "--not", "--all")
    for ref, sha in refs.items():
        if repo.find(ref) is None:
            repo.move_ref(ref, sha, None, "unpacked")
