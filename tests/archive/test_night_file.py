"""A night in one file: it goes on in another repository, comes back to its own, and may be anybody's."""

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import socket
import sqlite3
import tarfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import pytest
from commands import refused
from nights import Grounds, git, make_repository, mounted, unigram

from agent import archive
from agent.archive import read_contents
from agent.errors import NightError
from agent.experiment import Ending
from agent.lab import hardware
from agent.night.lock import only_night
from agent.proposers.notes import NOTES, add_note, read_notes
from agent.records.journal import Journal
from agent.records.place import Place
from agent.sandbox.sandboxes import Open

PROGRAM = "Prefer short scripts.\n"
Members = Mapping[str, bytes | tarfile.TarInfo]  # name → the text of a plain file, or another member


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, trained_night: Path, tiny_data: Path) -> Grounds:
    """The repository of a night of four attempts, and beside it the file `night` that it was packed into.

    Its corpus was in a folder that is gone by then, as on another machine.
    """
    above = tmp_path_factory.mktemp("left")
    grounds = Grounds(Path(shutil.copytree(trained_night, above / "user")))
    shutil.copytree(tiny_data, above / "corpus")
    (grounds.root / "program.md").write_text(PROGRAM)
    add_note(grounds.folder("t"), "Try a wider one.", "2026-01-01T00:00:00Z")
    (grounds.folder("t") / "asks" / "empty").mkdir(parents=True)
    (grounds.folder("t") / "asks" / "späte Frage.txt").write_text("why?")
    folder = grounds.folder("t") / "runs" / "0001" / "seed0"
    (folder / "tmp" / "cache").mkdir(parents=True, exist_ok=True)
    (folder / "tmp" / "link").symlink_to("/etc/passwd")  # a script's link stays behind with everything temporary
    with Journal.resume(grounds.folder("t") / "journal.sqlite") as journal:
        journal.record_facts(data=str(above / "corpus"))
    assert "it stays here, too" in done(grounds, "pack", "--out", str(above / "night"))
    shutil.rmtree(above / "corpus")
    return grounds


@pytest.fixture
def file(left: Grounds, tmp_path: Path) -> Path:
    """A copy of the file, for this test alone."""
    return Path(shutil.copyfile(left.root.parent / "night", tmp_path / "night.tgz"))


@pytest.fixture
def other(tmp_path: Path, own_cache: None) -> Grounds:
    """A repository that shares no commit with the one that the night leaves."""
    grounds = Grounds(make_repository(tmp_path / "other", unigram(SHARPNESS=0.3)))
    (grounds.root / "program.md").unlink(missing_ok=True)
    return grounds


@pytest.fixture
def grounds(left: Grounds, tmp_path: Path) -> Grounds:
    """A copy of the repository with the night, for this test alone."""
    return Grounds(Path(shutil.copytree(left.root, tmp_path / "user", symlinks=True)))


def done(grounds: Grounds, *words: str) -> str:
    ended = grounds.nightshift(*words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def texts(folder: Path) -> dict[str, bytes]:
    """Path → content of all files in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def everything(root: Path) -> dict[str, bytes]:
    """The files of a working tree, and the refs of its repository."""
    kept = {path: text for path, text in texts(root).items() if not path.startswith(".git/")}
    return kept | {"refs": git(root, "for-each-ref").encode()}


def put_away(grounds: Grounds) -> Path:
    """The file of a night that was packed away."""
    return Place.of(grounds.root / "train_mlx.py").packed("t")


def tamper(file: Path, *, ref: str = "", journal: str = "", members: Members = MappingProxyType({}), **facts: object):
    """Write the file again, with one more ref, a changed journal, other members, and other facts of its contents."""
    with tarfile.open(file) as tar:
        inside = {member.name: (member, tar.extractfile(member).read() if member.isreg() else b"") for member in tar}
    first, text = inside.pop("contents.json")
    contents = json.loads(text) | facts
    contents["refs"] |= {ref: next(iter(contents["refs"].values()))} if ref else {}
    if journal:
        member, content = inside["night/journal.sqlite"]
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.deserialize(content.replace(b"\x02\x02", b"\x01\x01", 1))  # a WAL cannot be in memory
            database.execute(journal)
            inside["night/journal.sqlite"] = member, database.serialize()
    inside |= {name: (tarfile.TarInfo(name), text) for name, text in members.items() if isinstance(text, bytes)}
    inside |= {name: (member, b"") for name, member in members.items() if isinstance(member, tarfile.TarInfo)}
    with tarfile.open(file, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for member, content in [(first, json.dumps(contents).encode()), *inside.values()]:
            if member.isreg():
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


# ---- to another repository -------------------------------------------------------------------------------------------


def test_a_night_arrives_in_a_repository_that_shares_no_commit_with_the_one_that_it_left(left, file, other, tiny_data):
    said = done(other, "unpack", str(file))
    assert "go on with: nightshift run --tag t\n" in said
    assert f"{other.folder('t') / 'program.md'} is the night's" in said
    assert other.attempts("t") == left.attempts("t")
    ours = "refs/experiments", "refs/heads/experiments"
    assert other.git("for-each-ref", *ours) == left.git("for-each-ref", *ours)
    assert other.git("fsck", "--strict", "--no-dangling") == ""
    assert other.git("status", "--porcelain", "--untracked-files=all") == "?? results.tsv"
    assert [row["attempt"] for row in other.rows()] == ["0", "1", "2", "3"]
    assert (other.folder("t") / "program.md").read_text() == PROGRAM
    assert read_notes(other.folder("t")) == ("Try a wider one.",)
    assert f"{other.folder('t') / NOTES} is told to all who propose edits" in said  # perhaps another person's words
    with Journal.read(other.folder("t") / "journal.sqlite") as journal:
        assert journal.night().data == str(tiny_data)  # found by its hashes
    weights = [path.parts[-4] for path in other.folder("t").glob("runs/*/*/out/model.safetensors")]
    assert weights == ["0002"]  # the best attempt's


def test_a_program_that_is_here_already_is_not_mentioned(file, other):
    (other.root / "program.md").write_text(PROGRAM)
    assert "program.md" not in done(other, "unpack", str(file))


def test_a_night_whose_corpus_is_elsewhere_says_how_to_bring_it_and_takes_no_other(
    file, other, monkeypatch, tmp_path, tiny_data
):
    shutil.copytree(tiny_data, tmp_path / "another")
    manifest = tmp_path / "another" / "manifest.json"
    manifest.write_text(re.sub('"sha256": "[^"]+"', f'"sha256": "{"0" * 64}"', manifest.read_text()))
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tmp_path / "another"))
    said = done(other, "unpack", str(file))
    assert "the corpus of night t is not on this machine: prepare it from the same text with" in said
    assert re.search(r"library\.txt'? --scale test --use nowhere, or copy ", said)
    said = refused(other.nightshift("run", "--tag", "t", "--experiments", "4"), 1)
    assert "the corpus of night t is not on this machine" in said


@pytest.mark.slow
def test_a_night_goes_on_elsewhere_without_any_weights_and_with_that_machines_own_code(
    left, other, tmp_path, monkeypatch
):
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "new machine"))  # nothing was compiled on that machine yet
    light = tmp_path / "light"
    done(left, "pack", "--weights", "none", "--out", str(light))
    with tarfile.open(light) as tar:
        assert not [name for name in tar.getnames() if name.endswith((".safetensors", ".f32")) or "/warm" in name]

    tamper(light, members={"night/warm/cache/blas/libblas.so": b"computes what it likes"})
    done(other, "unpack", str(light))
    assert not (other.folder("t") / "warm").exists()
    done(other, "run", "--tag", "t", "--experiments", "4", "--proposer", "search")
    assert other.attempts("t")[4].val_bpb is not None
    assert len(left.attempts("t")) == 4  # the night that was packed stays as it was
    of_this_machine = {path.name for path in (hardware.cache_root() / "kernels").iterdir()}
    assert of_this_machine  # each run would compile again without them
    assert of_this_machine <= {path.name for path in (other.folder("t") / "warm" / "cache" / "kernels").iterdir()}


def test_a_run_that_was_cut_off_where_a_night_came_from_is_lost_and_no_machine_is_said_to_have_gone_down(file, other):
    tamper(file, journal="UPDATE runs SET ending = 'running', boot = 'of another machine' WHERE attempt = 3")
    done(other, "unpack", str(file))
    done(other, "run", "--tag", "t", "--experiments", "1")
    assert [run.ending for run in other.attempts("t")[3].runs] == [Ending.LOST]


def test_weights_of_an_attempt_without_a_verdict_come_along_only_while_a_score_of_it_lacks_its_audit(grounds, tmp_path):
    def packed_weights(name: str, sql: str) -> list[str]:
        with closing(sqlite3.connect(grounds.folder("t") / "journal.sqlite")) as journal, journal:
            journal.execute(sql)
        done(grounds, "pack", "--weights", "none", "--out", str(tmp_path / name))
        with tarfile.open(tmp_path / name) as tar:
            return [member for member in tar.getnames() if member.endswith(".safetensors")]

    assert packed_weights("audited", "DELETE FROM decisions WHERE attempt = 0") == []
    without_audit = "UPDATE runs SET score = json_set(score, '$.audit', NULL) WHERE attempt = 0"
    assert packed_weights("not-audited", without_audit) == ["night/runs/0000/seed0/out/model.safetensors"]


@pytest.mark.slow
def test_a_confirmation_that_was_ended_early_brings_along_the_weights_alone_whose_scores_it_has_not_audited(
    grounds, tmp_path, tiny_data, monkeypatch
):
    def packed_weights(name: str) -> list[str]:
        done(grounds, "pack", "--weights", "none", "--out", str(tmp_path / name))
        with tarfile.open(tmp_path / name) as tar:
            return [Path(member).parts[2] for member in tar.getnames() if member.endswith(".safetensors")]

    def change(sql: str) -> None:
        with closing(sqlite3.connect(grounds.folder("t") / "journal.sqlite")) as journal, journal:
            journal.execute(sql)

    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    done(grounds, "confirm", "t", "--runs", "2")
    change("UPDATE confirmations SET ended = NULL")
    assert packed_weights("audited") == []
    change("UPDATE runs SET holdout = json_set(holdout, '$.audit', NULL) WHERE confirmation AND attempt = 2")
    assert set(packed_weights("not audited")) == {"0002"}


# ---- packed away and back --------------------------------------------------------------------------------------------


def test_a_night_comes_back_as_it_was_with_its_commits_though_all_its_refs_are_gone(grounds):
    grounds.git("update-ref", "refs/experiments/t/mine/draft", "HEAD")  # the user's own
    before, attempts, refs = texts(grounds.folder("t")), grounds.attempts("t"), grounds.git("for-each-ref")
    assert "packed night t into" in done(grounds, "pack", "t", "--remove")
    assert not grounds.folder("t").exists()
    assert len(grounds.rows()) == 4  # rows of results.tsv
    with tarfile.open(put_away(grounds)) as tar:  # any tar program reads it, and finds no name of the user in it
        assert tar.getnames()[0] == "contents.json"
        assert {(member.uid, member.gid, member.uname, member.gname) for member in tar} == {(0, 0, "", "")}
    for ref in read_contents(put_away(grounds)).refs:
        grounds.git("update-ref", "-d", ref)
    grounds.git("reflog", "expire", "--all", "--expire=now")
    grounds.git("gc", "-q", "--prune=now")
    assert "unpacked night t" in done(grounds, "unpack", "t")
    after = texts(grounds.folder("t"))
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert {path for path in changed if "/tmp/" not in path} == {"journal.sqlite", "program.md", "unpacked"}  # a new id
    assert grounds.attempts("t") == attempts
    assert grounds.git("for-each-ref") == refs
    assert grounds.git("fsck") == ""


def test_a_night_that_was_packed_without_history_says_elsewhere_that_it_cannot_go_on_and_why(grounds, other):
    done(grounds, "pack", "t", "--remove")
    missing = f"commit {grounds.git('rev-parse', '--short=7', 'HEAD')}, from which it began, is not in this repository"
    said = done(other, "unpack", str(put_away(grounds)))
    assert "Repository lacks these prerequisite commits" in said
    assert f"night t can be read here, and not go on: {missing}" in said
    before = everything(other.root)
    assert f"night t cannot go on: {missing}" in refused(other.nightshift("run", "--tag", "t"))
    assert everything(other.root) == before


def test_a_packed_night_can_be_listed_but_goes_on_only_once_it_is_unpacked(grounds):
    odd = grounds.folder("t") / "runs" / "0001" / "seed0" / "odd"
    odd.symlink_to("/etc/passwd")
    assert f"{odd} is no plain file" in refused(grounds.nightshift("pack", "t", "--remove"))
    odd.unlink()
    done(grounds, "pack", "t", "--remove")
    for words in ("run --tag t", "report t"):
        assert "night t is packed away in" in refused(grounds.nightshift(*words.split()))
    assert "script 3" in done(grounds, "results", "t")  # the rows of results.tsv have stayed
    assert "unpacked night t" in done(grounds, "unpack", "t")
    done(grounds, "pack", "t", "--remove")  # replaces the file that has stayed


# ---- nothing is overwritten ------------------------------------------------------------------------------------------


def test_a_night_is_not_unpacked_over_what_is_there(file, other):
    def refused_as_it_is() -> str:
        before = everything(other.root)
        said = refused(other.nightshift("unpack", str(file)))
        assert everything(other.root) == before
        return said

    folder, ref, branch = other.folder("t"), "refs/experiments/t/0001", "refs/heads/experiments/0.05s-t"
    for name in (ref, branch):
        other.git("update-ref", name, "HEAD")
        assert f"{name} leads to" in (said := refused_as_it_is())
        assert "unpack it in another clone" in said  # a night that went on in two places has many
        other.git("update-ref", "-d", name)
    tracked = "experiments/nights/t/notes.jsonl"  # a clone may bring such a file
    other.git("update-index", "--add", "--cacheinfo", f"100644,{other.git('rev-parse', 'HEAD:train_mlx.py')},{tracked}")
    assert "git tracks experiments/nights/t" in refused_as_it_is()
    other.git("update-index", "--force-remove", tracked)
    folder.parent.mkdir(parents=True, exist_ok=True)
    away = Path(shutil.copyfile(file, folder.parent / "t.tar.gz"))
    assert "is packed away in" in refused_as_it_is()
    away.unlink()
    done(other, "unpack", str(file))
    assert "is there already" in refused_as_it_is()


def test_what_a_killed_pack_left_beside_its_file_is_gone_after_the_next(left, tmp_path):
    half = tmp_path / ".night.tgz.nightshift-work" / "refs.bundle.lock"
    half.parent.mkdir()
    half.write_bytes(b"half")
    done(left, "pack", "--out", str(tmp_path / "night.tgz"))
    assert [path.name for path in tmp_path.iterdir()] == ["night.tgz"]
    half.parent.mkdir()
    half.write_bytes(b"half")
    assert "is there already" in refused(left.nightshift("pack", "--out", str(tmp_path / "night.tgz")))
    assert [path.name for path in tmp_path.iterdir()] == ["night.tgz"]


def test_nothing_is_packed_over_another_file_or_while_a_night_runs(left, file, tmp_path):
    (tmp_path / "mine").write_text("mine")
    assert "is there already" in refused(left.nightshift("pack", "--out", str(tmp_path / "mine")))
    assert "there is no file u.tgz" in refused(left.nightshift("unpack", "u.tgz"))
    with only_night(left.root / ".git") as tell:
        tell("t", left.folder("t"))
        for words in (("pack", "--out", str(tmp_path / "new")), ("pack", "t", "--remove"), ("unpack", str(file))):
            assert "night t (pid" in refused(left.nightshift(*words))
    assert not (tmp_path / "new").exists()


# ---- nothing that came in the file runs outside of a sandbox ---------------------------------------------------------


def test_fixed_files_that_differ_from_those_installed_here_never_run(file, other, tmp_path):
    marker = tmp_path / "marker"
    pin = "json_set(value, '$.fixed.\"prepare.py\"', '" + "0" * 64 + "')"  # the journal vouches for it
    vouches = f"UPDATE night SET value = {pin} WHERE fact = 'pins'"
    tamper(file, members={"night/fixed/prepare.py": f"open({str(marker)!r}, 'w')\n".encode()}, journal=vouches)
    said = done(other, "unpack", str(file))
    assert "can be read here, and not go on: its prepare.py is another than the one installed here" in said
    assert "go on with" not in said
    said = refused(other.nightshift("run", "--tag", "t", "--experiments", "4"), 1)
    assert "fixed/prepare.py is not as it was when night t opened, so scores would not compare" in said
    assert "script 3" in done(other, "results", "t")
    assert not marker.exists()
    assert (other.folder("t") / "fixed" / "prepare.py").read_bytes() == (other.root / "prepare.py").read_bytes()


def test_programs_and_servers_that_a_night_names_are_asked_for_again(file, other):
    named = """'$.agent', 'sh -c evil', '$.llm', 'openai:m@http://127.0.0.1:9/v1' || char(27) || '[2J',
        '$.pool', 'ray', '$.ray_address', 'far:1'"""
    tamper(file, journal=f"UPDATE night SET value = json_set(value, {named}) WHERE fact = 'options'")
    said = done(other, "unpack", str(file))
    assert "give the programs and servers that it names again, if the file is not somebody else's" in said
    asked = "--command 'sh -c evil' --llm 'openai:m@http://127.0.0.1:9/v1\\x1b[2J'"
    assert f"go on with: nightshift run --tag t {asked} --pool ray --ray-address far:1\n" in said
    with Journal.read(other.folder("t") / "journal.sqlite") as journal:
        options = journal.night().options
    assert (options.agent, options.llm, options.pool, options.ray_address) == (None, None, "local", None)
    assert options.sandbox == "auto"  # the packed night had "off"


def test_where_no_sandbox_works_a_night_from_a_file_does_not_go_on(file, other, monkeypatch):
    monkeypatch.setattr(archive, "choose", lambda: Open("none is installed"))
    assert "can be read here, and not go on: there is no sandbox: none is installed" in done(other, "unpack", str(file))
    with Journal.read(other.folder("t") / "journal.sqlite") as journal:
        assert journal.night().options.sandbox == "require"


# ---- damaged and hostile files ---------------------------------------------------------------------------------------


def odd_member(kind: bytes, target: str = "") -> Members:
    member = tarfile.TarInfo("night/odd")
    member.type, member.linkname = kind, target
    return {"night/odd": member}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"members": {"night/../../../../evil": b""}}, "outside the destination"),
        ({"members": odd_member(tarfile.SYMTYPE, "/etc/passwd")}, "is no plain file"),
        ({"members": odd_member(tarfile.CHRTYPE)}, "is no plain file"),
        ({"members": odd_member(tarfile.GNUTYPE_SPARSE)}, "is no plain file"),
        ({"members": {"fixed/numpy/__init__.py": b""}}, "is no part of a night"),
        ({"ref": "refs/heads/main"}, "is not the night's"),
        ({"ref": "refs/experiments/t/../../../../../precious"}, "is not the night's"),
        ({"refs": {"refs/experiments/t/0001": "--stdin"}}, "is not the night's"),
        ({"started": 7}, "Expected `str`"),
        ({"started": "2020-01-01T00:00:00Z"}, "is that of another night"),
        ({"tag": "../u"}, "whose tag is '../u'"),
        ({"format": 1}, "its format is 1"),
        ({"journal": "CREATE VIEW more AS SELECT 1"}, "other tables than a night's"),
        ({"journal": "UPDATE runs SET score = json_set(score, '$.val_bpb', 1e300)"}, "has 1e+300 as val_bpb"),
    ],
)
def test_a_hostile_file_puts_nothing_anywhere(file, other, change, words):
    tamper(file, **change)
    (other.root.parent / "precious.lock").touch()  # git's lock of a ref that a hostile file names, if it is believed
    before = everything(other.root), sorted(other.root.parent.glob("*"))
    assert words in refused(other.nightshift("unpack", str(file)))
    assert (everything(other.root), sorted(other.root.parent.glob("*"))) == before


def test_nonsense_in_its_files_ends_no_command(file, other, monkeypatch):
    names = ("corpus.json", NOTES)
    tamper(file, members={f"night/{name}": b"[" * 100_000 for name in names})
    monkeypatch.delenv("NIGHTSHIFT_DATA")
    assert "the corpus of night t is not on this machine" in done(other, "unpack", str(file))
    for words in ("prompt t", "show t:2", "report t"):
        assert other.nightshift(*words.split()).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_a_disk_that_fills_while_a_night_is_packed_or_unpacked_keeps_no_half_of_it(left, file, other, tmp_path):
    def leave_free(kilobytes: int) -> None:
        (disk / "full").unlink(missing_ok=True)
        (disk / "full").write_bytes(bytes(shutil.disk_usage(disk).free - (kilobytes << 10)))

    with mounted(tmp_path / "disk", "size=4m") as disk:
        small = Grounds(Path(shutil.copytree(other.root, disk / "user")))
        before = small.git("for-each-ref")
        leave_free(300)
        assert "the disk is full" in refused(small.nightshift("unpack", str(file)), 1)
        assert texts(small.root / "experiments") == {}
        assert small.git("for-each-ref") == before
        leave_free(80)
        assert "the disk is full" in refused(left.nightshift("pack", "--out", str(disk / "night.tgz")), 1)
        assert {path.name for path in disk.iterdir()} == {"user", "full"}


def test_a_file_for_which_there_is_no_room_is_not_unpacked(file, other, monkeypatch):
    free = shutil.disk_usage(file)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    assert "holds more than the 0.00 GB that are free here" in refused(other.nightshift("unpack", str(file)))
    assert not other.folder("t").exists()


def test_a_file_that_is_damaged_cut_short_or_claims_gigabytes_of_headers_is_named(file, other):
    whole = file.read_bytes()
    checksum = len(whole) - 8  # the checksum's own bits may change: the content unpacks to the same
    for content in (whole[: len(whole) // 2], whole[:checksum] + bytes([whole[checksum] ^ 1]) + whole[checksum + 1 :]):
        file.write_bytes(content)
        assert "is damaged, or no packed night" in refused(other.nightshift("unpack", str(file)))
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 33
    file.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16)))
    assert "claims 8589934592 bytes" in refused(other.nightshift("unpack", str(file)))
    shutil.copyfile(file, put_away(other))
    assert "t is damaged: " in done(other, "nights")


def leave_a_hole(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def leave_a_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:  # the whole path may be too long
        server.bind(path.name)


@pytest.mark.parametrize(
    "leave", [leave_a_hole, leave_a_socket, os.mkfifo, lambda path: path.symlink_to("/etc/passwd")]
)
def test_what_a_script_has_left_in_place_of_results_holds_up_no_command_and_is_not_packed(grounds, leave):
    folder = grounds.folder("t") / "runs" / "0002" / "seed0"
    for name in ("log.txt", "out/metrics.jsonl", "out/summary.json", "out/model.safetensors"):
        (folder / name).unlink(missing_ok=True)
        leave(folder / name)
    for command in ("nights", "show 2", "show 2 --json", "report", "export record", "results"):
        assert "root:" not in done(grounds, *command.split())
    assert "TB" not in done(grounds, "nights")
    assert f'"log": "{folder}' not in done(grounds, "show", "2", "--json") or leave is leave_a_hole
    for command in ("show 2 --log", "export mlx-lm", "sample To"):
        assert "root:" not in grounds.nightshift(*command.split()).stdout
    said = refused(grounds.nightshift("pack", "--out", str(grounds.root / "packed")))
    assert f"{folder}/log.txt" in said
    assert "a script left it" in said
    assert not (grounds.root / "packed").exists()


def test_the_name_of_what_a_script_has_left_stays_on_its_line(grounds):
    os.mkfifo(grounds.folder("t") / "runs" / "0002" / "seed0" / "\x1b[2J\nnightshift: \u202e")
    assert "\\x1b[2J\\nnightshift: \\u202e is no plain file" in refused(grounds.nightshift("pack"))


def test_a_pipe_is_no_packed_night_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "night")
    with pytest.raises(NightError, match="is no plain file"):
        read_contents(tmp_path / "night")
