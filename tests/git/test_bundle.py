"""Bundles of commits: one whose commits lack files brings no ref."""

import subprocess

import pytest
from nights import git

from agent.errors import RepoError
from agent.git.bundle import read_bundle
from agent.git.repo import Repo

REF = "refs/experiments/t/0000"


def test_a_bundle_whose_commits_lack_their_files_sets_no_ref(tmp_path):
    """With such a ref, `git gc` would fail in the user's repository."""
    root = tmp_path / "user"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "file").write_text("text")
    git(root, "add", ".")
    git(root, "-c", "user.name=Someone", "-c", "user.email=someone@example.org", "commit", "-q", "-m", "start")
    head = git(root, "rev-parse", "HEAD")
    packed = subprocess.run(
        ["git", "pack-objects", "--stdout", "-q"], input=f"{head}\n".encode(), cwd=root, capture_output=True, check=True
    )
    (tmp_path / "bundle").write_bytes(f"# v2 git bundle\n{head} {REF}\n\n".encode() + packed.stdout)
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    with pytest.raises(RepoError, match=r"rev-list failed .*(missing|bad)"):
        read_bundle(Repo(other), tmp_path / "bundle", {REF: head})
    assert git(other, "for-each-ref") == ""
