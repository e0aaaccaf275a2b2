"""Paths that a user names by ~, a cache that cannot be written, and a user without a home."""

import os
import subprocess
import sys

import pytest
from commands import refused
from nights import PROJECT, environment

AWAY = "~nobodyhere/x"
NAMED = ("init AWAY", "run --dataset AWAY", "run --script AWAY", "unpack AWAY", "pack --out AWAY", "report --out AWAY")
NAMED += ("report --png AWAY", "export record --out AWAY", "try --edit AWAY -m m", "doctor --script AWAY")


@pytest.mark.parametrize("words", NAMED)
def test_a_home_that_is_not_there_is_named(grounds, words):
    said = refused(grounds.nightshift(*words.replace("AWAY", AWAY).split()))
    assert AWAY in said
    assert "there is no such home folder" in said
    assert not list(grounds.root.glob("~*"))


def test_a_home_stands_for_itself_in_every_path(grounds, tmp_path):
    (tmp_path / "edit.py").write_text("def main(:")
    assert f"{tmp_path}/edit.py" in refused(
        grounds.nightshift("try", "--edit", "~/edit.py", "-m", "m", HOME=str(tmp_path))
    )
    assert grounds.nightshift("init", "~/night", HOME=str(tmp_path)).returncode == 0
    assert (tmp_path / "night" / "train_mlx.py").is_file()


@pytest.mark.parametrize("cache", [AWAY, "prepare.py", "/proc/none"])
def test_a_cache_that_cannot_be_used_is_named_with_its_variable(grounds, cache):
    env = {"NIGHTSHIFT_CACHE": cache, "NIGHTSHIFT_DATA": ""}
    said = refused(grounds.nightshift("run", **env), 1)
    assert "set NIGHTSHIFT_CACHE to a folder that can be written" in said
    assert cache in said
    line = [sys.executable, PROJECT / "prepare.py"]
    prepared = subprocess.run(
        line, cwd=grounds.root, env=environment(**env), capture_output=True, text=True, check=False
    )
    assert (prepared.returncode, len(prepared.stderr.splitlines())) == (2, 1)
    assert cache in prepared.stderr


@pytest.mark.slow
def test_a_user_whom_the_system_does_not_know_has_a_night_and_a_doctor(grounds, tmp_path):
    """As in a container that is run by a number: there is no home, unless a cache is named."""
    unknown = ["unshare", "-U", "--map-user=12345", "--map-group=12345", "env", "-u", "HOME"]
    if subprocess.run([*unknown, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no user namespaces here")
    own = [sys.executable, "-P", "-m", "agent"]

    def call(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        line = [*unknown, *own, *words]
        return subprocess.run(
            line, cwd=grounds.root, env=environment(**env), capture_output=True, text=True, check=False
        )

    homeless = call("doctor", NIGHTSHIFT_CACHE="", XDG_CACHE_HOME="", NIGHTSHIFT_DATA="")
    assert homeless.returncode == 1
    assert "set NIGHTSHIFT_CACHE to a folder" in homeless.stdout
    assert "install it" not in homeless.stdout
    names = "NIGHTSHIFT_CACHE", "NIGHTSHIFT_DATA"
    near = {name: os.path.relpath(os.environ[name], grounds.root) for name in names}  # relative paths
    done = call("run", "--tag", "t", "--budget-s", "0.05", "--judge", "greedy", "--experiments", "1", **near)
    assert done.returncode == 0, done.stderr
    assert grounds.attempts("t")[0].settled
