"""A night on a disk that is full, or cannot be written: it is read as on any other, and what writes says why not."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from commands import refused
from nights import Grounds, command, environment, mounted, unigram

from agent.night.lock import only_night

pytestmark = pytest.mark.usefixtures("own_cache")

READS = (
    *("status", "status --json", "results", "results --all", "nights", "nights --json", "ideas", "prompt --facts"),
    *("show", "show 0 --json", "show 1 --diff", "show 1 --script", "show 1 --log", "show 1 2", "show 1 2 --diff"),
)  # fmt: skip
ELSEWHERE = ("report --out {}/page.html", "export record --out {}/record")
WRITES = ("report", "note hello", "take 1", "try --queue -m longer --edit {}/edit.py")
NO_OVERRIDE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")  # root, as one who may not write everywhere


@contextmanager
def disk_with(night: Path, at: Path) -> Iterator[Grounds]:
    with mounted(at, "size=60m") as disk:
        yield Grounds(Path(shutil.copytree(night, disk / "user", symlinks=True)))


def leave_log(grounds: Grounds, *suffixes: str) -> None:
    """Have the last write stand in the log alone, as a night leaves it that was killed; beside it lie these files."""
    journal = grounds.folder("t") / "journal.sqlite"
    aside = Path(shutil.copytree(journal.parent, journal.parent.with_name("aside")))
    with closing(sqlite3.connect(aside / journal.name, isolation_level=None)) as database:
        database.execute("UPDATE attempts SET title = 'in the log' WHERE number = 1")
        for suffix in ("", *suffixes):
            shutil.copyfile(f"{aside / journal.name}{suffix}", f"{journal}{suffix}")
    shutil.rmtree(aside)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "fill").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def close(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def answers(grounds: Grounds, lines: tuple[str, ...], out: Path) -> dict[str, tuple[int, str, str]]:
    done = {line: grounds.nightshift(*line.format(out).split()) for line in lines}
    return {line: (end.returncode, end.stdout, end.stderr) for line, end in done.items()}


@pytest.mark.parametrize("left", [(), ("-wal", "-shm"), ("-wal",)], ids=["ended", "killed", "killed, and copied"])
@pytest.mark.parametrize("damage", [fill, close])
def test_a_night_is_read_from_a_disk_that_cannot_be_written(trained_night, tmp_path, damage, left):
    with disk_with(trained_night, tmp_path / "disk") as grounds:
        if left:
            leave_log(grounds, *left)
        as_usual = answers(Grounds(Path(shutil.copytree(grounds.root, tmp_path / "usual"))), READS, tmp_path)
        damage(tmp_path / "disk")
        now = answers(grounds, (*READS, *ELSEWHERE), tmp_path)
        (tmp_path / "edit.py").write_text(unigram(SHARPNESS=0.8))
        refusals = answers(grounds, WRITES, tmp_path) if damage is fill and not left else {}
    here, there = str(grounds.root), str(tmp_path / "usual")
    assert {code for code, _, _ in now.values()} == {0}, now
    for line in READS:
        if not line.startswith(("nights", "show 0")):  # these name sizes and folders
            assert now[line][1].replace(here, there) == as_usual[line][1], line
    assert ("in the log" in now["results"][1]) == bool(left)
    assert "damaged" not in now["nights"][1]
    for code, out, said in refusals.values():
        assert refused(subprocess.CompletedProcess("", code, out, said), 1).startswith("the disk is full"), said
        assert here in said


@pytest.mark.parametrize("damage", [fill, close])
def test_a_night_is_packed_away_from_a_disk_that_cannot_be_written(trained_night, tmp_path, damage):
    with disk_with(trained_night, tmp_path / "disk") as grounds:
        damage(tmp_path / "disk")
        done = grounds.nightshift("pack", "t", "--out", str(tmp_path / "night.tgz"))
        assert done.returncode == 0, done.stderr
        if damage is close:
            return
        assert grounds.nightshift("pack", "t", "--out", str(tmp_path / "disk/full.tgz")).returncode == 1
        assert list((tmp_path / "disk").iterdir()) == [tmp_path / "disk/fill", grounds.root]


def test_a_night_that_runs_is_seen_through_a_mount_that_cannot_be_written(trained, tmp_path):
    journal = trained.folder("t") / "journal.sqlite"
    with mounted(tmp_path / "view", "size=1m"):
        pair = str(trained.root), str(tmp_path / "view")
        subprocess.run(["mount", "--bind", *pair], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", pair[1]], check=True)
            view = Grounds(tmp_path / "view")
            with only_night(trained.root / ".git") as tell, closing(sqlite3.connect(journal)) as database:
                tell("t", trained.folder("t"))
                database.execute("UPDATE attempts SET title = 'written just now' WHERE number = 1")
                database.commit()
                assert "written just now" in view.nightshift("show", "1").stdout
                assert f"pid {os.getpid()}" in view.nightshift("status").stdout
                file = str(tmp_path / "night.tgz")
                assert f"pid {os.getpid()}" in refused(view.nightshift("pack", "t", "--out", file))
            assert f"pid {os.getpid()}" not in view.nightshift("status").stdout
        finally:
            subprocess.run(["umount", pair[1]], check=True)


@pytest.mark.slow
def test_one_who_may_not_write_to_a_night_reads_it(trained, tmp_path):
    subprocess.run(["chmod", "-R", "a-w", str(trained.root)], check=True)
    as_user = () if os.geteuid() else NO_OVERRIDE
    if as_user and subprocess.run([*as_user, "true"], check=False).returncode:
        pytest.skip("setpriv does not work here")
    try:
        for line in ("status", "show best", "results", "nights", f"report --out {tmp_path}/page.html", "note hello"):
            ends = subprocess.run(
                [*as_user, *command(*line.split())], cwd=trained.root, env=environment(), capture_output=True, text=True
            )
            if line == "note hello":
                assert "notes.jsonl: Permission denied" in refused(ends)
            else:
                assert (ends.returncode, ends.stderr, "damaged" in ends.stdout) == (0, "", False), line
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(trained.root)], check=True)
