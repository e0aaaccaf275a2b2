"""Folders for a moment, gone also after a SIGKILL, files that are written whole, and files of a script."""

import ast
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nights import PROJECT, environment

from agent.files import (
    MOMENT_S,
    PREFIX,
    SUFFIX,
    ignore_all,
    read_end,
    read_plain,
    replaced_folder,
    sweep,
    throwaway_folder,
    write_plain,
)

MAKES_ONE = "from agent.files import *\nwith throwaway_folder() as folder: print(folder, flush=True); input()"


@pytest.fixture(autouse=True)
def own_tmpdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sweep.cache_clear()
    yield
    sweep.cache_clear()


def grow_old(path: Path) -> None:
    """Let a path be as old as one that a killed process has left."""
    os.utime(path, (time.time() - 2 * MOMENT_S,) * 2, follow_symlinks=False)


def start(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process that has made a folder and waits in it."""
    env, pipe = environment(TMPDIR=str(place)), subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES_ONE], env=env, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_is_swept_and_what_a_living_one_uses_is_not(tmp_path):
    (living, in_use), (killed, left) = start(tmp_path), start(tmp_path)
    (left / "closed").mkdir(mode=0o500)
    killed.kill()
    killed.communicate()
    assert left.is_dir()
    with throwaway_folder() as mine:
        assert {*tmp_path.iterdir()} == {mine, in_use, left}  # the maker of a new folder may not have locked it yet
    sweep.cache_clear()
    for folder in (left, in_use):
        grow_old(folder)
    with throwaway_folder() as mine:
        assert {*tmp_path.iterdir()} == {mine, in_use}
        (mine / "closed" / "part").mkdir(parents=True)
        (mine / "closed").chmod(0)
    living.communicate("\n")
    assert [*tmp_path.iterdir()] == []


def test_what_only_looks_like_one_stays(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / f"{PREFIX}file{SUFFIX}").write_text("mine")
    (tmp_path / f"{PREFIX}link{SUFFIX}").symlink_to(tmp_path / "precious")
    before = {*tmp_path.iterdir()}
    (tmp_path / f"{PREFIX}left{SUFFIX}").mkdir()
    for path in (*before, tmp_path / f"{PREFIX}left{SUFFIX}"):
        grow_old(path)
    with throwaway_folder(tmp_path) as mine:
        assert {*tmp_path.iterdir()} == {*before, mine}
    assert {*tmp_path.iterdir()} == before


def test_a_link_stays_a_link_and_its_end_is_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "results.tsv").symlink_to(tmp_path / "elsewhere" / "mine.tsv")
    write_plain(tmp_path / "results.tsv", "one\n")  # the target of a link may not exist yet
    write_plain(tmp_path / "results.tsv", "two\n")
    assert (tmp_path / "results.tsv").is_symlink()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["mine.tsv"]
    assert read_plain(tmp_path / "results.tsv") == (tmp_path / "elsewhere" / "mine.tsv").read_text() == "two\n"


def test_what_killed_writers_left_is_swept_and_living_ones_are_left_alone(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = [tmp_path / f".results.tsv.{pid}.ab12cd34" for pid in (dead.pid, os.getppid())]
    mine = [tmp_path / name for name in (".results.tsv.swp", ".results.tsv")]
    for path in (*left, *mine):
        path.touch()
    write_plain(tmp_path / "results.tsv", "text\n")
    assert [path.exists() for path in (*left, *mine)] == [False, True, True, True]


def test_a_folder_whose_replacing_fails_stays_as_it_is_without_what_a_killed_process_left(tmp_path):
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "night.json").write_text("{}")
    (tmp_path / ".record.nightshift-new").mkdir()
    with pytest.raises(OSError, match="full"), replaced_folder(tmp_path / "record"):
        raise OSError("full")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["record", "record/night.json"]


def test_a_gitignore_that_is_there_stays_even_if_it_leads_elsewhere(tmp_path):
    ignore_all(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "*\n"
    (tmp_path / ".gitignore").unlink()
    (tmp_path / ".gitignore").symlink_to(tmp_path / "missing")
    ignore_all(tmp_path)
    assert not (tmp_path / "missing").exists()


def linked(path: Path) -> None:
    path.symlink_to("plain")


@pytest.mark.parametrize("leave", [linked, os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_nothing_but_a_plain_file_is_read(tmp_path, leave):
    (tmp_path / "plain").write_text("0123456789")
    assert read_end(tmp_path, "plain", 4) == b"6789"
    (tmp_path / "linked").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        read_end(tmp_path / "linked", "plain", 4)
    leave(tmp_path / "file")
    before = len([*Path("/dev/fd").iterdir()])
    for name in ("file", "nothing"):
        with pytest.raises(OSError, match=r"is no plain file|symbolic links|No such file"):
            read_end(tmp_path, name, 10)
    assert len([*Path("/dev/fd").iterdir()]) == before  # a curve is asked for twenty times a second


TAKE_NO_MODE = ("tarfile.open", "os.open")  # modes of text


def in_the_locale(node: ast.AST) -> bool:
    """Whether a call reads or writes text in the encoding of the locale."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    names = {keyword.arg for keyword in node.keywords}
    modes = [value.value for value in (*node.args, *(word.value for word in node.keywords)) if is_text(value)]
    has_no_text = isinstance(node.func.value, ast.Name) and f"{node.func.value.id}.{node.func.attr}" in TAKE_NO_MODE
    opens = node.func.attr in ("open", "fdopen") and bool(modes) and "b" not in "".join(modes) and not has_no_text
    return "encoding" not in names and (node.func.attr in ("read_text", "write_text") or opens or "text" in names)


def is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def test_text_is_read_and_written_as_utf_8_in_every_locale():
    own = [*(PROJECT / "agent").rglob("*.py"), *(PROJECT / "benchmarks").glob("*.py"), PROJECT / "prepare.py"]
    calls = [
        (file.name, node.lineno)
        for file in own
        for node in ast.walk(ast.parse(file.read_bytes()))
        if in_the_locale(node)
    ]
    assert calls == []


def test_no_group_of_a_pattern_is_possessive():
    """Python 3.11.2, which is Debian 12's, finds no match of one; of an atomic group it does."""
    own = (PROJECT / "agent").rglob("*.py")
    assert [file.name for file in own if re.search(r"\)(?:\*|\+|\?)\+", file.read_text(encoding="utf-8"))] == []
