"""Git by plumbing, on real repositories."""

import os
import shlex
import subprocess
import time

import pytest
from nights import Grounds, environment, git, make_repository, unigram

from agent.errors import RepoError
from agent.git import Repo, read_bundle, repo_around, valid_tag
from agent.invocation import own_python

WHEN = "2026-01-02T03:04:05Z"


@pytest.fixture
def root(tmp_path):
    return make_repository(tmp_path / "user", unigram())


@pytest.fixture
def repo(root):
    return Repo.containing(root)


def commit(repo: Repo, text: str = "A = 2\n", parent: str = "HEAD") -> str:
    return repo.commit_script(repo.find(parent) or "", "train_mlx.py", text, "title\n\nbody\n", WHEN)


def test_the_same_facts_give_the_same_commit_also_where_git_knows_no_user(repo, root, monkeypatch):
    first = commit(repo)
    time.sleep(1.1)  # the seconds of a commit are those of its attempt
    assert commit(repo) == first
    assert git(root, "log", "-1", "--format=%an <%ae>%n%B", first) == "Someone <someone@example.org>\ntitle\n\nbody"
    for name in ("user.name", "user.email"):
        git(root, "config", "--unset", name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    assert git(root, "log", "-1", "--format=%an", commit(Repo.containing(root))) == "nightshift"


def test_a_commit_changes_text_alone_so_a_program_stays_one_and_a_link_becomes_a_file(repo, root):
    (root / "train_mlx.py").chmod(0o755)
    git(root, "commit", "-qam", "executable")
    assert git(root, "ls-tree", commit(repo), "train_mlx.py").startswith("100755")
    (root / "train_mlx.py").unlink()
    (root / "train_mlx.py").symlink_to("program.md")
    git(root, "commit", "-qam", "linked")
    assert git(root, "ls-tree", commit(repo), "train_mlx.py").startswith("100644")


@pytest.mark.parametrize(
    "before", [b"\xef\xbb\xbfA = 1\r\nB = 1\r\nC = 1\r\n", b"A = 1\nB = 1\r\nC = 1\r\n", b"A = 1\r\nB = 1\nC = 1\n"]
)
def test_a_commit_and_its_diff_are_about_no_line_ends(repo, root, before):
    (root / "train_mlx.py").write_bytes(before)
    git(root, "commit", "-qam", "saved by an editor")
    sha = commit(repo, "A = 1\nB = 2\nC = 1\n")
    changed = [line.strip() for line in repo.diff("HEAD", sha).splitlines() if line.startswith(("+", "-"))]
    assert changed[2:] == ["-B = 1", "+B = 2"]
    assert repo.read(sha, "train_mlx.py") == "A = 1\nB = 2\nC = 1\n"


@pytest.mark.parametrize("path", ["deep/er/train.py", "deep/er/new.py", "not/there/yet.py"])
def test_a_script_anywhere_is_the_one_file_of_its_commit(repo, root, path):
    (root / "deep" / "er").mkdir(parents=True)
    for name in ("deep/er/train.py", "deep/er-too", "deep/beside ä.txt"):
        (root / name).write_text(name)
    git(root, "add", ".")
    git(root, "commit", "-qm", "files in folders")
    sha = repo.commit_script(repo.find("HEAD") or "", path, "A = 2\n", "title", WHEN)
    assert git(root, "-c", "core.quotePath=off", "diff-tree", "-r", "--name-only", "HEAD", sha) == path
    assert git(root, "show", f"{sha}:{path}") == "A = 2"
    assert git(root, "fsck", "--strict", "--no-dangling") == ""


def test_locks_and_half_made_objects_that_killed_gits_left_are_in_nobodys_way(repo, root):
    repo.move_ref("refs/experiments/t/0000", commit(repo), None, "before")
    git(root, "pack-refs", "--all")
    for name in ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock", "shallow.lock", "gc.pid"):
        (root / ".git" / name).touch()
    (root / ".git" / "objects" / "pack" / "tmp_pack_8aZ3").write_bytes(b"PACK half")
    lock = root / ".git" / "refs" / "heads" / "experiments" / "x.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    for folder in (root / ".git" / "objects").iterdir():
        (folder / "tmp_obj_Xy12ab").write_bytes(b"half")
    second = commit(repo, "A = 3\n")
    for ref, old in (
        ("refs/experiments/t/0000", repo.find("refs/experiments/t/0000")),
        ("refs/heads/experiments/x", None),
    ):
        repo.move_ref(ref, second, old, "after")
        assert repo.find(ref) == second
    assert git(root, "fsck", "--strict", "--no-dangling") == ""


def test_a_disk_that_is_full_for_git_is_full(repo, tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\necho 'error: x: No space left on device' >&2; exit 128\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(OSError, match="No space left on device"):
        repo.git("hash-object", "-w", "--stdin")


def test_hooks_and_filters_of_the_repository_do_not_run(repo, root):
    for hook in ("reference-transaction", "post-index-change", "pre-commit"):
        path = root / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {root}/hook-ran\n")
        path.chmod(0o755)
    for step in ("clean", "smudge", "process"):
        git(root, "config", f"filter.evil.{step}", f"touch {root}/filter-ran; cat")
    git(root, "config", "diff.evil.textconv", f"touch {root}/filter-ran; cat")
    git(root, "config", "diff.evil.command", f"touch {root}/filter-ran")
    git(root, "config", "diff.external", f"touch {root}/filter-ran")
    (root / "watcher").write_text(f"#!/bin/sh\ntouch {root}/hook-ran\n")
    (root / "watcher").chmod(0o755)
    git(root, "config", "core.fsmonitor", str(root / "watcher"))
    git(root, "config", "core.hooksPath", str(root / ".git" / "hooks"))
    (root / ".gitattributes").write_text("* filter=evil diff=evil\n")
    sha = commit(repo)
    repo.move_ref("refs/experiments/t/0001", sha, None, "test")
    repo.move_ref("refs/heads/experiments/x", sha, None, "test")
    assert "+A = 2" in repo.diff(repo.find("HEAD") or "", sha)
    repo.checked_out()
    assert not (root / "hook-ran").exists()
    assert not (root / "filter-ran").exists()


def test_the_repository_of_a_hook_that_starts_nightshift_stays_as_it_is(root, tmp_path, monkeypatch):
    before = {path: path.read_bytes() for path in (root / ".git").rglob("*") if path.is_file()}
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    monkeypatch.setenv("GIT_DIR", str(root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(root / ".git" / "index"))
    said = Grounds(fresh).nightshift_process("init").stdout
    assert f"{fresh} has all that a night needs\n  first commit" in said
    assert {path: path.read_bytes() for path in (root / ".git").rglob("*") if path.is_file()} == before


SAYS = "import subprocess; from agent import git; git.leave_surrounding_git(); git.leave_surrounding_git(); "
SAYS += "subprocess.run(['git', 'config', '--show-scope', '--list'])"
COUNTED = {
    "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "core.editor", "GIT_CONFIG_VALUE_0": "evil",
    "GIT_CONFIG_KEY_1": "Safe.Directory", "GIT_CONFIG_VALUE_1": "/it's 'so'=b", "GIT_DIR": "/nowhere",
}  # fmt: skip
ASIDE = (
    "-c",
    "safe.directory=/it's 'so'=b",
    "-c",
    "core.pager=evil",
    "-c",
    f"alias.kept=!{shlex.join(own_python(SAYS))}",
)


@pytest.mark.parametrize(
    ("line", "env", "is_safe"),
    [
        (own_python(SAYS), COUNTED, True),
        (own_python(SAYS), COUNTED | {"GIT_CONFIG_COUNT": "x"}, False),
        (["git", *ASIDE, "kept"], {}, True),
    ],
)
def test_a_folder_that_variables_call_safe_stays_so_and_no_other_setting_passes(tmp_path, line, env, is_safe):
    """As containers say it, whose home cannot be written, and as git -c hands it on to an alias."""
    done = subprocess.run(line, cwd=tmp_path, env=environment(**env), capture_output=True, text=True, check=True)
    given = [setting for setting in done.stdout.splitlines() if setting.startswith("command")]
    assert given == ["command\tsafe.directory=/it's 'so'=b"] * is_safe


@pytest.mark.parametrize("name", [b"line\nbreak", b"byte\xff"])
def test_a_path_that_git_or_mlx_cannot_name_is_refused_at_once(tmp_path, name):
    folder = tmp_path / os.fsdecode(name)
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("the disk has no such names")
    git(folder, "init", "-q")
    with pytest.raises(RepoError, match=r"cannot hold a night: its path has a line break, or is not UTF-8 .*; rename"):
        repo_around(folder)


@pytest.mark.parametrize("name", ["quo\"te's", "-dash", " blank ", "🌙", "tab\t", "$(x)`y`", "back\\slash", "%s{}*"])
def test_any_other_folder_can_hold_a_night(tmp_path, name):
    root = make_repository(tmp_path / name, unigram())
    (tmp_path / "link").symlink_to(root)
    for folder in (root, tmp_path / "link"):
        repo = Repo.containing(folder)
        assert (repo.root, repo.common_dir) == (root, root / ".git")
        assert git(root, "show", f"{commit(repo)}:train_mlx.py") == "A = 2"


def test_index_head_and_tree_stay_as_they_are_wherever_head_is(repo, root):
    sha = commit(repo)
    for place in (("checkout", "-q", "--detach"), ("checkout", "-q", "-b", "elsewhere")):
        git(root, *place)
        (root / "train_mlx.py").write_text("half an edit")
        (root / "staged.txt").write_text("staged")
        git(root, "add", "staged.txt")
        before = (root / ".git" / "HEAD").read_bytes(), (root / ".git" / "index").read_bytes()
        assert commit(repo, parent=sha) != sha
        repo.move_ref(f"refs/heads/experiments/{place[-1].strip('-')}", sha, None, "keep")
        assert ((root / ".git" / "HEAD").read_bytes(), (root / ".git" / "index").read_bytes()) == before
        assert (root / "train_mlx.py").read_text() == "half an edit"


def test_a_ref_moves_only_from_where_it_is_expected(repo, root):
    first, second = commit(repo), commit(repo, "A = 3\n")
    repo.move_ref("refs/heads/experiments/x", first, None, "create")
    with pytest.raises(RepoError, match=r"moved to .* by somebody else"):
        repo.move_ref("refs/heads/experiments/x", second, None, "create again")
    assert repo.find("refs/heads/experiments/x") == first
    repo.move_ref("refs/heads/experiments/x", second, first, "move")
    repo.move_ref("refs/heads/experiments/x", second, first, "move, again after a kill")
    assert repo.find("refs/heads/experiments/x") == second
    git(root, "branch", "-D", "experiments/x")
    repo.move_ref("refs/heads/experiments/x", first, second, "keep, on a branch that was deleted")
    assert "nightshift: keep" in git(root, "reflog", "refs/heads/experiments/x")


def test_where_no_night_can_be_the_remedy_is_named(tmp_path):
    with pytest.raises(
        RepoError, match=f"is not in a git repository; run: nightshift init {shlex.quote(str(tmp_path))}"
    ):
        Repo.containing(tmp_path)
    git(tmp_path, "init", "-q")
    with pytest.raises(RepoError, match="has no commits yet; run: git add"):
        Repo.containing(tmp_path)


def test_a_bundle_whose_commits_lack_their_files_sets_no_ref(root, tmp_path):
    """With such a ref, `git gc` would fail in the user's repository."""
    ref, head = "refs/experiments/t/0000", git(root, "rev-parse", "HEAD")
    packed = subprocess.run(
        ["git", "pack-objects", "--stdout", "-q"], input=f"{head}\n".encode(), cwd=root, capture_output=True, check=True
    )
    (tmp_path / "bundle").write_bytes(f"# v2 git bundle\n{head} {ref}\n\n".encode() + packed.stdout)
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    with pytest.raises(RepoError, match=r"rev-list failed .*(missing|bad)"):
        read_bundle(Repo(other, other / ".git"), tmp_path / "bundle", {ref: head})
    assert git(other, "for-each-ref") == ""


@pytest.mark.parametrize("tag", ["", "a b", "a/b", "..", "a..b", "-a", ".a", "a.lock", "a.", "ä", "a\nb", "x" * 65])
def test_a_tag_is_one_word_that_git_and_files_can_have(tag):
    assert not valid_tag(tag)
    assert valid_tag("nov20-2")
    assert valid_tag("A.b_c")
