"""The best sandbox that this machine has is chosen, and its gaps are named."""

import shutil
import sys
from pathlib import Path

import pytest
from nights import bubblewrap, kernels_own, usable

from agent.sandbox import landlock, places, sandboxes
from agent.sandbox.sandboxes import choose


@pytest.fixture
def no_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("git", "rm", "chmod"):
        (programs / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(programs))


def test_without_bubblewrap_the_kernels_own_sandbox_is_taken_and_names_its_gaps(no_bubblewrap):
    usable(kernels_own())
    chosen = choose()
    assert chosen.name == f"Landlock (ABI {landlock.abi()})"
    assert chosen.uncovered == landlock.uncovered(landlock.abi())
    assert chosen.uncovered != ()


def test_without_bubblewrap_require_is_refused_with_one_sentence(no_bubblewrap, grounds):
    refused = grounds.nightshift("run", "--sandbox", "require")
    assert refused.stderr.startswith("nightshift: --sandbox require: bubblewrap does not work here (")
    assert refused.stderr.endswith("); repair that as SECURITY.md says, or choose --sandbox auto\n")
    assert refused.returncode == 1
    assert not grounds.folder("").exists()


def test_a_sandbox_in_which_mlx_cannot_be_imported_is_not_chosen(monkeypatch):
    sandbox = usable(bubblewrap())
    monkeypatch.setattr(places, "python_places", lambda hidden: (Path(sys.executable), Path(sys.base_prefix)))
    assert "No module named " in (sandboxes.why_unfit(sandbox) or "")
