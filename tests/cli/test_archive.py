"""A night that is packed away in one file and comes back as it was, whatever happens in between."""

import contextlib
import gzip
import json
import os
import shutil
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import pytest
from commands import refused
from nights import Grounds, make_repository, unigram
from packings import Change, killed_at, tampered

from agent.archive.reading import read_contents
from agent.night.lock import only_night
from agent.records.place import Place


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, trained_night: Path) -> Path:
    """A repository with a night of four attempts: the baseline, two gains, a crash."""
    root = Path(shutil.copytree(trained_night, tmp_path_factory.mktemp("archive") / "user"))
    (root / "experiments/nights/t/asks/empty").mkdir(parents=True)
    (root / "experiments/nights/t/asks/späte Frage.txt").write_text("why?")
    return root


@pytest.fixture
def grounds(night: Path, tmp_path: Path) -> Grounds:
    """A copy of it, for this test alone."""
    return Grounds(Path(shutil.copytree(night, tmp_path / "user")))


def everything(grounds: Grounds, tag: str = "t") -> dict[str, Any]:
    """Path → content, time and mode of all that lies in the night's folder."""
    folder = grounds.folder(tag)
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode & 0o755)
        if path.is_file()
        else None
        for path in folder.rglob("*")
        if path.name not in ("journal.sqlite-shm", "journal.sqlite-wal")  # empty ones, made by readers
    }


def packed(grounds: Grounds) -> Path:
    return Place.of(grounds.root / "train_mlx.py").packed("t")


def done(grounds: Grounds, *words: str) -> str:
    found = grounds.nightshift(*(words or ("pack", "t", "--remove")))
    assert found.returncode == 0, found.stderr
    return found.stdout


# ---- pack and unpack -------------------------------------------------------------------------------------------------


def test_a_night_comes_back_as_it_was_with_its_commits_though_all_its_refs_are_gone(grounds):
    before, refs = everything(grounds), grounds.git("for-each-ref")
    assert "packed night t into" in done(grounds)
    assert not grounds.folder("t").exists()
    assert len(grounds.rows()) == 4  # of results.tsv
    for ref in grounds.git("for-each-ref", "--format=%(refname)", "refs/experiments", "refs/heads/experiments").split():
        grounds.git("update-ref", "-d", ref)
    grounds.git("reflog", "expire", "--all", "--expire=now")
    grounds.git("gc", "-q", "--prune=now")
    assert "unpacked night t" in done(grounds, "unpack", "t")
    assert everything(grounds) == before
    assert grounds.git("for-each-ref") == refs
    assert grounds.git("fsck") == ""
    assert not packed(grounds).exists()
    assert [path.name for path in packed(grounds).parent.iterdir() if path.name.startswith(".p")] == []


def test_a_packed_night_can_be_listed_but_goes_on_only_once_it_is_unpacked(grounds):
    done(grounds)
    for words in ("run --tag t", "status t", "sample x t:best", "best t --weights model"):
        said = refused(grounds.nightshift(*words.split()))
        assert "night t is packed away in" in said
        assert "unpack t" in said
    assert "script 3" in grounds.nightshift("results", "t").stdout  # from the rows that stayed
    assert "is packed in" in done(grounds)  # once more
    assert grounds.nightshift("report", "t").returncode == 0  # from its rows, into a folder of that name
    assert "unpacked night t" in done(grounds, "unpack", "t")
    assert len(grounds.attempts("t")) == 4


def test_any_tar_program_reads_the_file(grounds, tmp_path):
    journal = (grounds.folder("t") / "journal.sqlite").read_bytes()
    done(grounds)
    with tarfile.open(packed(grounds)) as tar:
        assert tar.getnames()[0] == "contents.json"
        assert tar.extractfile("night/journal.sqlite").read() == journal


def test_refs_that_lead_elsewhere_by_now_stay(grounds):
    done(grounds)
    grounds.git("update-ref", "refs/experiments/t/0001", "HEAD")
    assert "refs/experiments/t/0001 leads to another commit by now" in done(grounds, "unpack", "t")
    assert grounds.git("rev-parse", "refs/experiments/t/0001") == grounds.git("rev-parse", "HEAD")


def test_without_the_commit_that_the_night_began_from_all_but_its_commits_comes_back(grounds, tmp_path):
    done(grounds)
    other = Grounds(make_repository(tmp_path / "other", unigram(SHARPNESS=0.3)))
    other.folder("t").parent.mkdir(parents=True)
    shutil.move(packed(grounds), other.folder("t").parent)
    assert "its commits could not be brought back" in done(other, "unpack", "t")
    assert other.attempts("t")[1].proposal.script == unigram(SHARPNESS=0.7)


def test_what_reaches_out_of_an_unpacked_night_is_named(grounds):
    with contextlib.closing(sqlite3.connect(grounds.folder("t") / "journal.sqlite")) as journal:
        (text,) = journal.execute("SELECT value FROM night WHERE fact = 'terms'").fetchone()
        terms = json.loads(text) | {"agent": "sh -c 'evil'", "llm": "openai:m@http://127.0.0.1:9/v1\x1b[2J"}
        journal.execute("UPDATE night SET value = ? WHERE fact = 'terms'", [json.dumps(terms)])
        journal.commit()
    done(grounds)
    said = done(grounds, "unpack", "t")
    assert "it goes on with --command 'sh -c '\"'\"'evil'\"'\"'' --llm 'openai:m@http://127.0.0.1:9/v1\\x1b[2J'" in said
    assert "where the file is somebody else's, look at that first" in said


# ---- killed ----------------------------------------------------------------------------------------------------------


def is_step(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether it is about to rename or delete one of the nights, or to ask rm to."""
    is_rm = event == "subprocess.Popen" and arguments[0] == "rm"
    return is_rm or (event in ("os.rename", "os.remove") and "nights" in str(arguments[0]))


@pytest.mark.slow
def test_a_call_that_is_killed_at_any_step_loses_nothing_and_the_next_one_ends_it(grounds):
    before, step, kills = everything(grounds), 0, 0
    while True:
        step += 1
        kills_before = kills
        kills += killed_at(step, is_step, grounds, "pack", "t", "--remove")
        if grounds.folder("t").exists():
            assert everything(grounds) == before
        else:
            assert len(read_contents(packed(grounds)).files) == len([one for one in before.values() if one])
        done(grounds)
        assert not grounds.folder("t").exists()
        kills += killed_at(step, is_step, grounds, "unpack", "t")
        if packed(grounds).exists():
            done(grounds, "unpack", "t")
        assert everything(grounds) == before
        if kills == kills_before:
            break
    assert kills >= 6
    assert done(grounds)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_night_with_odd_files_in_it_is_not_packed(grounds, kind):
    odd = grounds.folder("t") / "runs" / "0001" / "seed0" / "odd"
    odd.symlink_to("/etc/passwd") if kind == "link" else os.mkfifo(odd)
    before = everything(grounds)
    assert f"{odd} is a {kind}" in refused(grounds.nightshift("pack", "t", "--remove"))
    assert everything(grounds) == before
    assert not packed(grounds).exists()


def test_nothing_is_packed_while_a_night_runs(grounds):
    place = Place.of(grounds.root / "train_mlx.py")
    with only_night(place.repo.common_dir) as tell:
        tell("t", grounds.folder("t"))
        assert "night t (pid" in refused(grounds.nightshift("pack", "t", "--remove"))


def test_what_is_no_night_is_named(grounds):
    assert "night x has no journal here; there are: t" in refused(grounds.nightshift("pack", "x", "--remove"))
    assert "night t has no attempt 7; there are: 0 to 3" in refused(grounds.nightshift("show", "7"))
    assert "night t is here, and not packed" in refused(grounds.nightshift("unpack", "t"))
    assert "there is no ../t" in refused(grounds.nightshift("unpack", "../t"))
    assert "'../t' is no tag" in refused(grounds.nightshift("pack", "../t", "--remove"))


def renamed(to: str) -> Change:
    def change(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        at = next(at for at, (one, _) in enumerate(members) if one.name.endswith("log.txt"))
        path = members[at][0].name.removeprefix("night/")
        said["files"][to] = said["files"].pop(path)
        members[at][0].name = f"night/{to}"

    return change


def linked(kind: bytes) -> Change:
    def change(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        at = next(at for at, (one, _) in enumerate(members) if one.name.endswith("log.txt"))
        link = tarfile.TarInfo(members[at][0].name)
        link.type, link.linkname = kind, "/etc/passwd"
        members[at] = link, b""

    return change


def altered(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    at = next(at for at, (one, _) in enumerate(members) if one.name.endswith("notes.txt") or one.size > 100)
    content = bytes([members[at][1][0] ^ 1]) + members[at][1][1:]
    members[at] = members[at][0], content


def extra(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.append((tarfile.TarInfo("night/extra"), b""))


def huge(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    said["files"]["journal.sqlite"]["bytes"] = 10**18


def foreign_ref(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    said["refs"]["refs/heads/main"] = next(iter(said["refs"].values()))


def ref_above(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    said["refs"]["refs/experiments/t/../../../../../precious"] = next(iter(said["refs"].values()))


def no_commit(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    said["refs"]["refs/experiments/t/0001"] = "HEAD\0"


def no_time(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    said["started"] = 7


def other_tag(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    said["tag"] = "../../elsewhere"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (renamed("../../../../evil"), "is no path inside"),
        (renamed("/tmp/evil"), "is no path inside"),
        (renamed("a/../../evil"), "is no path inside"),
        (renamed("journal.sqlite/evil"), "lies inside a file"),
        (linked(tarfile.SYMTYPE), "is no plain file"),
        (linked(tarfile.LNKTYPE), "is no plain file"),
        (linked(tarfile.CHRTYPE), "is no plain file"),
        (altered, "not as it was"),
        (extra, "which it does not name"),
        (huge, "are free here"),
        (foreign_ref, "is not the night's"),
        (no_time, "Expected `str`"),
        (ref_above, "is not the night's"),
        (no_commit, "a ref of it leads to no commit"),
        (other_tag, "holds night ../../elsewhere"),
    ],
)
def test_a_hostile_file_puts_nothing_anywhere(packed_night, change, said):
    grounds, file = packed_night
    tampered(file, change)
    (grounds.root.parent / "precious.lock").touch()  # git's lock of a ref that a hostile file names, if it is believed
    before = sorted(path for path in grounds.root.parent.rglob("*") if ".git" not in path.parts)
    refs = grounds.git("for-each-ref")
    assert said in refused(grounds.nightshift("unpack", "t"))
    assert sorted(path for path in grounds.root.parent.rglob("*") if ".git" not in path.parts) == before
    assert grounds.git("for-each-ref") == refs


@pytest.fixture(scope="module")
def packed_once(night: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Grounds, bytes]:
    grounds = Grounds(Path(shutil.copytree(night, tmp_path_factory.mktemp("packed") / "user")))
    done(grounds)
    return grounds, packed(grounds).read_bytes()


@pytest.fixture
def packed_night(packed_once: tuple[Grounds, bytes]) -> tuple[Grounds, Path]:
    """The same repository for several tests, none of which unpacks the night."""
    grounds, content = packed_once
    packed(grounds).write_bytes(content)
    return grounds, packed(grounds)


def test_commits_that_would_fill_the_disk_are_not_unpacked(packed_night, monkeypatch):
    grounds, file = packed_night
    all_bytes = read_contents(file).all_bytes
    free = shutil.disk_usage(file)._replace(free=all_bytes + 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    assert "its commits take more than is free" in refused(grounds.nightshift("unpack", "t"))
    assert file.exists()
    assert not grounds.folder("t").exists()


def test_refs_that_are_the_users_own_are_not_packed(grounds):
    grounds.git("update-ref", "refs/experiments/t/mine/draft", "HEAD")
    done(grounds)
    assert "refs/experiments/t/mine/draft" not in read_contents(packed(grounds)).refs
    assert "unpacked night t" in done(grounds, "unpack", "t")


def test_a_file_that_is_cut_short_or_claims_gigabytes_of_headers_is_named(packed_night):
    grounds, file = packed_night
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert "is damaged, or no packed night" in refused(grounds.nightshift("unpack", "t"))
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 33
    file.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16)))
    assert "claims 8589934592 bytes" in refused(grounds.nightshift("unpack", "t"))
    assert "damaged" in grounds.nightshift("nights").stdout


@pytest.mark.parametrize(("fact", "value"), [("val_bpb", 10**400), ("val_bpb", "1.2"), ("kept", 0.5), ("honest", 3)])
def test_a_summary_that_no_night_writes_is_listed_as_damaged(packed_night, fact, value):
    def change(said: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        said["summary"][fact] = value

    grounds, file = packed_night
    tampered(file, change)
    done = grounds.nightshift("nights")
    assert (done.returncode, done.stderr) == (0, "")
    assert "t is damaged: " in done.stdout
