"""A repository in which every program that git may start is a trap: no command of nightshift sets one off."""

import shutil
import subprocess
from pathlib import Path

import pytest
from nights import Grounds, git, make_repository, unigram

from agent.cli.main import COMMANDS
from agent.git import Repo

HOOKS = (
    *("applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit"),
    *("post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update", "pre-applypatch"),
    *(
        "pre-auto-gc",
        "pre-commit",
        "pre-merge-commit",
        "pre-push",
        "pre-rebase",
        "pre-receive",
        "prepare-commit-msg",
        "proc-receive",
    ),
    *("push-to-checkout", "reference-transaction", "sendemail-validate", "update"),
)
PROGRAMS = (
    *("core.alternateRefsCommand", "core.askPass", "core.editor", "core.fsmonitor", "core.gitProxy", "core.pager"),
    *("core.sshCommand", "credential.helper", "diff.external", "diff.trap.command", "diff.trap.textconv"),
    *("filter.trap.clean", "filter.trap.smudge", "filter.trap.process", "gpg.program", "gpg.ssh.program"),
    *("gpg.x509.program", "gpg.ssh.defaultKeyCommand", "interactive.diffFilter", "merge.trap.driver", "pager.diff"),
    *("remote.origin.receivepack", "remote.origin.uploadpack", "sequence.editor", "trailer.trap.cmd"),
    *("trailer.trap.command", "uploadpack.packObjectsHook", "browser.trap.cmd", "difftool.trap.cmd", "man.trap.cmd"),
    *(f"pager.{name}" for name in ("log", "show", "config", "branch", "status")),
    *(f"alias.{name}" for name in ("rev-parse", "commit", "add", "config", "diff", "init", "cat-file", "status")),
)
SETTINGS = {
    "commit.gpgSign": "true", "tag.gpgSign": "true", "log.showSignature": "true", "filter.trap.required": "false",
    "core.untrackedCache": "true", "diff.tool": "trap", "maintenance.auto": "true", "gc.auto": "1",
    "core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
    "remote.origin.url": "ssh://nowhere.invalid/x", "protocol.allow": "always", "protocol.ext.allow": "always",
}  # fmt: skip
ATTRIBUTES = "* filter=trap diff=trap merge=trap text=auto eol=lf\n"
LINES = {
    "init": ("", "new", "new"),
    "run": ("--tag u --experiments 2 --proposer mix --budget-s 0.05 --judge greedy --sandbox off --no-report",),
    "confirm": ("--help",),
    "study": ("../plan.toml --dry",),
    "try": ("--tag t --queue -m sharper --edit ../edit.py", "--tag t --queue -m again --edit ../edit.patch"),
    "note": ("hello",),
    "stop": ("",),
    "status": ("", "--json", "t"),
    "replay": ("t --seconds 0.1",),
    "report": ("", "t --out ../page.html --png ../page.png"),
    "serve": ("--help",),
    "results": ("", "--all"),
    "show": ("", "t:0", "t:1 --diff", "t:1 --script", "t:2 --log", "t:1 t:2", "t:1 t:2 --diff"),
    "ideas": ("", "smear"),
    "prompt": ("", "--facts"),
    "take": ("t:1", "t:0"),
    "sample": ("--help",),
    "export": ("record t", "mlx-lm t --out ../model"),
    "nights": ("",),
    "pack": ("t --out ../t.tar.gz", "t --remove"),
    "unpack": ("t",),
    "doctor": ("",),
    "mcp": ("--help",),
}


def set_traps(root: Path, fired: Path, config: Path) -> None:
    """Make every program of the settings, every hook and every filter write its name into a folder."""
    fired.mkdir()
    traps = fired.with_name("traps")
    traps.mkdir()
    for name in (*HOOKS, *PROGRAMS):
        (traps / name).write_text(f'#!/bin/sh\necho "$@" >> "{fired / name}"\nexit 1\n')
        (traps / name).chmod(0o755)
    for name in PROGRAMS:
        git(root, "config", "--file", str(config), name, f"{'!' * name.startswith('alias')}{traps / name}")
    for name, value in SETTINGS.items():
        git(root, "config", "--file", str(config), name, value)
    (root / ".git" / "hooks").mkdir(exist_ok=True)
    for name in HOOKS:
        shutil.copy(traps / name, root / ".git" / "hooks" / name)


@pytest.fixture
def trapped(trained_night, tmp_path, own_cache, monkeypatch):
    """A night among traps that its own settings set, and the user's, and files that these include."""
    root = Path(shutil.copytree(trained_night, tmp_path / "user"))
    (tmp_path / "edit.py").write_text(unigram(SHARPNESS=0.8))
    (tmp_path / "edit.patch").write_text(
        "--- a/train_mlx.py\n+++ b/train_mlx.py\n@@ -1 +1 @@\n"
        + "".join(f"{sign}SHARPNESS = {value}\n" for sign, value in (("-", 0.9), ("+", 0.85)))
    )
    arms = '[[arm]]\nname = "as_it_is"\n[[arm]]\nname = "sharper"\nscript = "edit.py"\n'
    (tmp_path / "plan.toml").write_text(f'question = "Is it better?"\nmargin = 0.01\n{arms}')
    included = tmp_path / "included"
    set_traps(root, tmp_path / "fired", included)
    (tmp_path / "attributes").write_text(ATTRIBUTES)
    everywhere = tmp_path / "gitconfig"
    everywhere.write_text(
        f'[includeIf "gitdir:/"]\n\tpath = {included}\n[include]\n\tpath = {included}\n'
        f"[user]\n\tname = A\n\temail = a@b\n[core]\n\tattributesFile = {tmp_path / 'attributes'}\n"
    )
    (root / ".git" / "config").open("a").write(everywhere.read_text())
    (root / ".gitattributes").write_text(ATTRIBUTES)
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "attributes").write_text(ATTRIBUTES)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(everywhere))
    (root / "train_mlx.py").touch()  # a new time makes git read the file
    return Grounds(root)


def fired(grounds: Grounds) -> list[str]:
    return sorted(path.name for path in (grounds.root.parent / "fired").iterdir())


def test_the_traps_are_set(trapped):
    (trapped.root / "train_mlx.py").write_text("A = 1\n")
    for arguments in (
        ("add", "train_mlx.py"),
        ("commit", "--no-gpg-sign", "--allow-empty", "-qm", "x"),
        ("diff",),
        ("fetch",),
    ):
        line = ("git", "-C", str(trapped.root), *arguments)
        subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    assert {"filter.trap.process", "core.sshCommand", "core.fsmonitor"} <= set(fired(trapped))


def test_a_commit_that_a_partial_clone_lacks_is_not_fetched(trapped):
    repo = Repo.containing(trapped.root)
    assert repo.find("0123456789" * 4) is None
    assert repo.text("0123456789" * 4) is None
    assert fired(trapped) == []


@pytest.mark.slow
def test_no_command_sets_off_a_program_that_the_settings_of_git_name(trapped):
    assert LINES.keys() == COMMANDS.keys()
    for name, lines in LINES.items():
        for line in lines:
            done = trapped.nightshift(name, *line.split())
            assert fired(trapped) == [], f"{name} {line}: {done.stderr}"
            assert done.returncode == (3 if name == "stop" else 0), f"{name} {line}: {done.stderr}"


def test_a_first_commit_runs_no_filter_and_leaves_the_index_as_git_would(tmp_path, monkeypatch, own_cache):
    begun = make_repository(tmp_path / "other", unigram())
    set_traps(begun, tmp_path / "fired", tmp_path / "gitconfig")
    (tmp_path / "attributes").write_text(ATTRIBUTES)
    git(begun, "config", "--file", str(tmp_path / "gitconfig"), "core.attributesFile", str(tmp_path / "attributes"))
    with monkeypatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
        done = Grounds(tmp_path).nightshift("init", "new")
    assert done.returncode == 0, done.stderr
    assert fired(Grounds(tmp_path / "new")) == []
    assert git(tmp_path / "new", "status", "--porcelain") == ""
    assert git(tmp_path / "new", "fsck", "--strict") == ""
    assert git(tmp_path / "new", "log", "--format=%s %an") == "Begin with the script of nightshift nightshift"
    assert "commit (initial)" in git(tmp_path / "new", "reflog")
