"""A night in one file: it goes on in another repository, comes back to its own, and may be anybody's."""

import gzip
import hashlib
import json
import os
import shutil
import sqlite3
import tarfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import nothing_yet, refused
from nights import Grounds, Quiet, git, make_repository, scripted_context, unigram
from packings import Change, Members, killed_at, tampered, with_journal

from agent.archive import unpack
from agent.archive.unpack import read_contents
from agent.experiment import LOCAL, Attempt
from agent.night.lock import AFTER_RUN, Stop, only_night
from agent.night.loop import run_night
from agent.pools.node import night_folder
from agent.records.journal import Journal
from agent.records.place import Place
from agent.sandbox.box import Open

PROGRAM = "Prefer short scripts.\n"


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, trained_night: Path, tiny_data: Path) -> Grounds:
    """The repository of a night of four attempts, and beside it the file `night` that it was packed into.

    Its corpus was in a folder that is gone by then, as on another machine.
    """
    above = tmp_path_factory.mktemp("left")
    grounds = Grounds(Path(shutil.copytree(trained_night, above / "user")))
    shutil.copytree(tiny_data, above / "corpus")
    (grounds.root / "program.md").write_text(PROGRAM)
    (grounds.folder("t") / "notes.md").write_text("Try a wider one.")
    (grounds.folder("t") / "asks" / "empty").mkdir(parents=True)
    (grounds.folder("t") / "asks" / "späte Frage.txt").write_text("why?")
    folder = grounds.folder("t") / "runs" / "0001" / "seed0"
    (folder / "tmp" / "cache").mkdir(parents=True, exist_ok=True)
    (folder / "tmp" / "link").symlink_to("/etc/passwd")  # of a script; it stays behind with all that is temporary
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


def everything(root: Path) -> dict[str, bytes]:
    """Path → content of the files of a working tree, and the refs of its repository."""
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    kept = {path: content for path, content in files.items() if not path.startswith(".git/")}
    return kept | {"refs": git(root, "for-each-ref").encode()}


def of_night(grounds: Grounds) -> dict[str, Any]:
    """Path → content and mode of what lies in the night's folder, without temporary files and what readers leave."""
    folder = grounds.folder("t")
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o755) if path.is_file() else None
        for path in folder.rglob("*")
        if "tmp" not in path.parts[-3:] and path.name not in ("journal.sqlite-shm", "journal.sqlite-wal", "corpus.json")
    }


def assert_whole(grounds: Grounds, before: dict[str, Any], attempts: tuple[Attempt, ...]) -> None:
    """All is as it was before, and of the journal all that happened: an unpacked night has another id."""
    after = of_night(grounds)
    assert after.keys() == before.keys()
    assert {path for path in before if after[path] != before[path]} <= {"journal.sqlite"}
    assert grounds.attempts("t") == attempts


def put_away(grounds: Grounds) -> Path:
    """The file of a night that was packed away."""
    return Place.of(grounds.root / "train_mlx.py").packed("t")


# ---- to another repository -------------------------------------------------------------------------------------------


def test_a_night_goes_on_in_a_repository_that_shares_no_commit_with_the_one_that_it_left(left, file, other, tiny_data):
    said = done(other, "unpack", str(file))
    assert "go on with: nightshift run --tag t\n" in said
    assert f"{other.root / 'program.md'} is the night's" in said
    assert other.attempts("t") == left.attempts("t")
    ours = "refs/experiments", "refs/heads/experiments"
    assert other.git("for-each-ref", *ours) == left.git("for-each-ref", *ours)
    assert other.git("fsck", "--strict", "--no-dangling") == ""
    assert other.git("status", "--porcelain", "--untracked-files=all") == "?? program.md\n?? results.tsv"
    assert [row["attempt"] for row in other.rows()] == ["0", "1", "2", "3"]
    assert (other.root / "program.md").read_text() == PROGRAM
    assert (other.folder("t") / "notes.md").read_text() == "Try a wider one."
    with Journal.read(other.folder("t") / "journal.sqlite") as journal:
        copy = journal.night()
    assert copy.data == str(tiny_data)  # found by its hashes
    with Journal.read(left.folder("t") / "journal.sqlite") as journal:
        assert len(journal.night().id) == len(copy.id) == 16
        assert night_folder(copy) != night_folder(journal.night())  # on a node of a cluster, where both go on
    weights = [path.parts[-4] for path in other.folder("t").glob("runs/*/*/out/model.safetensors")]
    assert weights == ["0002"]  # of the best
    assert not list(other.folder("t").glob("runs/*/*/tmp"))

    done(other, "run", "--tag", "t", "--experiments", "4", "--proposer", "search")
    assert len(other.attempts("t")) == 5
    assert other.attempts("t")[4].val_bpb is not None
    assert len(left.attempts("t")) == 4  # what was packed stays as it was


def test_a_night_whose_corpus_is_elsewhere_says_how_to_bring_it(file, other, monkeypatch):
    monkeypatch.delenv("NIGHTSHIFT_DATA")
    said = done(other, "unpack", str(file))
    assert "the corpus of night t is not on this machine: prepare it from the same text with" in said
    assert "library.txt --scale test, or copy " in said
    said = refused(other.nightshift("run", "--tag", "t", "--experiments", "4"))
    assert "the corpus of night t is not on this machine" in said
    assert "give the same command" in said


def test_a_corpus_of_other_text_is_not_taken_for_the_nights(file, other, monkeypatch, tmp_path, tiny_data):
    shutil.copytree(tiny_data, tmp_path / "another")
    manifest = json.loads((tmp_path / "another" / "manifest.json").read_text())
    manifest["files"]["train.tokens.npy"]["sha256"] = "0" * 64
    (tmp_path / "another" / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tmp_path / "another"))
    assert "is not on this machine" in done(other, "unpack", str(file))


def test_another_program_stays_and_the_nights_lies_in_its_folder(file, other):
    (other.root / "program.md").write_text("Prefer long scripts.\n")
    assert f"the night's is {other.folder('t') / 'program.md'}" in done(other, "unpack", str(file))
    assert (other.root / "program.md").read_text() == "Prefer long scripts.\n"
    assert (other.folder("t") / "program.md").read_text() == PROGRAM


def test_all_weights_come_along_where_they_are_asked_for(left, tmp_path):
    done(left, "pack", "t", "--weights", "all", "--out", str(tmp_path / "all"))
    with tarfile.open(tmp_path / "all") as tar:
        names = {name for name in tar.getnames() if name.endswith("model.safetensors")}
    assert {f"night/runs/{number}/seed0/out/model.safetensors" for number in ("0000", "0002")} <= names


class StopsAtFirstIdea(Quiet):
    """Wishes the night to end after the current run as soon as attempt 1 is scored."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self.stop = stop

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        if attempt.number == 1:
            self.stop.wish(AFTER_RUN)


def test_a_night_that_was_stopped_goes_on_elsewhere_without_any_weights(tmp_path, tiny_data, own_cache, other):
    here = Grounds(make_repository(tmp_path / "here", unigram()))
    with scripted_context(here.root, "t", [unigram(SHARPNESS=0.7)], confirm=1) as context:
        run_night(replace(context, watcher=StopsAtFirstIdea(context.stop)))
    waiting = here.attempts("t")[1]
    assert not waiting.settled  # it earned a further run
    done(here, "pack", "--weights", "none", "--out", str(tmp_path / "light"))
    with tarfile.open(tmp_path / "light") as tar:
        assert not [name for name in tar.getnames() if name.endswith((".safetensors", ".f32"))]

    done(other, "unpack", str(tmp_path / "light"))
    done(other, "run", "--tag", "t", "--experiments", "1")
    settled = other.attempts("t")[1]
    assert settled.settled
    assert settled.runs[0] == waiting.runs[0]  # nothing was trained twice
    assert [run.seed for run in settled.runs] == [0, 1]


def test_weights_that_the_next_step_needs_are_not_left_behind(grounds, tmp_path):
    with closing(sqlite3.connect(grounds.folder("t") / "journal.sqlite")) as journal, journal:
        journal.execute(
            "UPDATE runs SET score = json_remove(score, '$.audit') WHERE attempt = 2"
        )  # as a kill before the audit leaves it
    said = refused(grounds.nightshift("pack", "t", "--weights", "none", "--out", str(tmp_path / "light")))
    assert "attempt 2 of night t needs its weights until it is audited" in said
    assert not (tmp_path / "light").exists()


# ---- packed away and back --------------------------------------------------------------------------------------------


def test_a_night_comes_back_as_it_was_with_its_commits_though_all_its_refs_are_gone(grounds):
    before, attempts, refs = of_night(grounds), grounds.attempts("t"), grounds.git("for-each-ref")
    assert "packed night t into" in done(grounds, "pack", "t", "--remove")
    assert not grounds.folder("t").exists()
    assert len(grounds.rows()) == 4  # of results.tsv
    for ref in grounds.git("for-each-ref", "--format=%(refname)", "refs/experiments", "refs/heads/experiments").split():
        grounds.git("update-ref", "-d", ref)
    grounds.git("reflog", "expire", "--all", "--expire=now")
    grounds.git("gc", "-q", "--prune=now")
    assert "unpacked night t" in done(grounds, "unpack", "t")
    assert_whole(grounds, before, attempts)
    assert grounds.git("for-each-ref") == refs
    assert grounds.git("fsck") == ""
    assert not put_away(grounds).exists()
    assert [path.name for path in put_away(grounds).parent.iterdir() if path.name.startswith(".p")] == []


def test_a_packed_night_can_be_listed_but_goes_on_only_once_it_is_unpacked(grounds):
    done(grounds, "pack", "t", "--remove")
    for words in ("run --tag t", "status t", "sample x t:best", "best t --weights model"):
        said = refused(grounds.nightshift(*words.split()))
        assert "night t is packed away in" in said
        assert "unpack t" in said
    assert "the nights here are packed away; see them with: " in nothing_yet(grounds.nightshift("status"))
    assert "script 3" in done(grounds, "results", "t")  # from the rows that stayed
    assert "is packed in" in done(grounds, "pack", "t", "--remove")  # once more
    done(grounds, "report", "t")  # from its rows, into a folder of that name
    assert "unpacked night t" in done(grounds, "unpack", "t")
    assert len(grounds.attempts("t")) == 4


def test_any_tar_program_reads_the_file_and_finds_no_name_of_the_user_in_it(grounds):
    journal = (grounds.folder("t") / "journal.sqlite").read_bytes()
    done(grounds, "pack", "t", "--remove")
    with tarfile.open(put_away(grounds)) as tar:
        assert tar.getnames()[0] == "contents.json"
        assert tar.extractfile("night/journal.sqlite").read() == journal
        assert {(one.uid, one.gid, one.uname, one.gname) for one in tar} == {(0, 0, "", "")}


def test_refs_that_lead_elsewhere_by_now_stay(grounds):
    done(grounds, "pack", "t", "--remove")
    grounds.git("update-ref", "refs/experiments/t/0001", "HEAD")
    assert "refs/experiments/t/0001 leads to another commit by now" in done(grounds, "unpack", "t")
    assert grounds.git("rev-parse", "refs/experiments/t/0001") == grounds.git("rev-parse", "HEAD")


def test_without_the_commit_that_the_night_began_from_all_but_its_commits_comes_back(grounds, other):
    done(grounds, "pack", "t", "--remove")
    other.folder("t").parent.mkdir(parents=True)
    shutil.move(put_away(grounds), other.folder("t").parent)
    assert "its commits could not be brought back" in done(other, "unpack", "t")
    assert other.attempts("t")[1].proposal.script == unigram(SHARPNESS=0.7)


def test_refs_that_are_the_users_own_are_not_packed(grounds):
    grounds.git("update-ref", "refs/experiments/t/mine/draft", "HEAD")
    done(grounds, "pack", "t", "--remove")
    assert "refs/experiments/t/mine/draft" not in read_contents(put_away(grounds)).refs
    assert "unpacked night t" in done(grounds, "unpack", "t")


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_night_with_odd_files_in_it_is_not_packed(grounds, kind):
    odd = grounds.folder("t") / "runs" / "0001" / "seed0" / "odd"
    odd.symlink_to("/etc/passwd") if kind == "link" else os.mkfifo(odd)
    before = of_night(grounds).keys()
    assert f"{odd} is a {kind}" in refused(grounds.nightshift("pack", "t", "--remove"))
    assert of_night(grounds).keys() == before
    assert not put_away(grounds).exists()


# ---- nothing is overwritten ------------------------------------------------------------------------------------------


def the_night(other: Grounds, file: Path) -> None:
    done(other, "unpack", str(file))


def a_ref(other: Grounds, file: Path) -> None:
    other.git("update-ref", "refs/experiments/t/0001", "HEAD")


def a_branch(other: Grounds, file: Path) -> None:
    other.git("branch", "experiments/0.05s-t")


def a_packed_one(other: Grounds, file: Path) -> None:
    other.folder("t").parent.mkdir(parents=True)
    shutil.copyfile(file, other.folder("t").parent / "t.tar.gz")


def a_folder(other: Grounds, file: Path) -> None:
    other.folder("t").mkdir(parents=True)
    (other.folder("t") / "mine.txt").write_text("mine")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (the_night, "holds this night already"),
        (a_ref, "refs/experiments/t/0001 leads to"),
        (a_branch, "refs/heads/experiments/0.05s-t leads to"),
        (a_packed_one, "is packed away in"),
        (a_folder, "holds no journal"),
    ],
)
def test_a_night_is_not_unpacked_over_what_is_there(file, other, there, said):
    there(other, file)
    before = everything(other.root)
    assert said in refused(other.nightshift("unpack", str(file)))
    assert everything(other.root) == before


def test_a_file_that_is_there_is_not_written_over(left, tmp_path):
    (tmp_path / "mine").write_text("mine")
    assert "is there already" in refused(left.nightshift("pack", "--out", str(tmp_path / "mine")))
    assert "there is no folder" in refused(left.nightshift("pack", "--out", str(tmp_path / "no" / "folder")))
    assert (tmp_path / "mine").read_text() == "mine"


def test_nothing_is_packed_or_unpacked_while_a_night_runs(left, file, tmp_path):
    with only_night(left.root / ".git") as tell:
        tell("t", left.folder("t"))
        for words in (("pack", "--out", str(tmp_path / "new")), ("pack", "t", "--remove"), ("unpack", str(file))):
            assert "night t (pid" in refused(left.nightshift(*words))
    assert not (tmp_path / "new").exists()


def test_what_is_no_night_is_named(left, tmp_path):
    assert "night x has no journal here; there are: t" in refused(left.nightshift("pack", "x", "--remove"))
    assert "night ../t has no journal here" in refused(left.nightshift("pack", "../t", "--remove"))
    assert "night t is here, and not packed" in refused(left.nightshift("unpack", "t"))
    assert "there is no file u.tgz, and no night of that name is packed" in refused(left.nightshift("unpack", "u.tgz"))
    assert "there is no ../t" in refused(left.nightshift("unpack", "../t"))
    assert "--remove packs a night that is named" in refused(left.nightshift("pack", "--remove"))
    (tmp_path / "empty").mkdir()
    empty = Grounds(tmp_path / "empty")
    assert f"{empty.root} is not in a git repository; run: " in refused(empty.nightshift("unpack", "../night"))
    git(empty.root, "init", "-q")
    assert f"{empty.root} has no commits yet; run: " in refused(empty.nightshift("unpack", "../night"))


# ---- nothing that came in the file runs outside of a sandbox ---------------------------------------------------------


def other_prepare(marker: Path) -> Change:
    """Have the file bring another prepare.py, which leaves a mark where it runs, and a journal that vouches for it."""

    def change(said: dict[str, Any], members: Members) -> None:
        member, content = members["night/fixed/prepare.py"]
        members["night/fixed/prepare.py"] = member, content + f"\nopen({str(marker)!r}, 'w')\n".encode()
        pin = "json_set(value, '$.fixed.\"prepare.py\"', '" + "0" * 64 + "')"
        with_journal(f"UPDATE night SET value = {pin} WHERE fact = 'pins'")(said, members)

    return change


def test_fixed_files_that_differ_from_those_installed_here_never_run(file, other, tmp_path):
    marker = tmp_path / "marker"
    tampered(file, other_prepare(marker))
    said = done(other, "unpack", str(file))
    assert "can be read here, and not go on: its prepare.py is another than the one installed here" in said
    assert "go on with" not in said
    said = refused(other.nightshift("run", "--tag", "t", "--experiments", "4"))
    assert "fixed/prepare.py was changed after night t had opened, so scores would not compare" in said
    assert "script 3" in done(other, "results", "t")
    done(other, "replay", "t:2")  # with the files that are here
    assert not marker.exists()
    assert "marker" in (other.folder("t") / "fixed-unlike-here" / "prepare.py").read_text()  # to be looked at


def test_fixed_files_are_those_installed_here_whatever_the_file_brings(file, other):
    def change(said: dict[str, Any], members: Members) -> None:
        member, _ = members["night/fixed/prepare.py"]
        members["night/fixed/prepare.py"] = member, b"raise SystemExit"

    tampered(file, change)
    done(other, "unpack", str(file))
    assert (other.folder("t") / "fixed/prepare.py").read_bytes() == (other.root / "prepare.py").read_bytes()


def beside_fixed(marker: Path) -> Change:
    """Have the file bring a module where the fixed files are gathered, and a journal that vouches for it."""

    def change(said: dict[str, Any], members: Members) -> None:
        content = f"open({str(marker)!r}, 'w')\n".encode()
        members["fixed/numpy.py"] = tarfile.TarInfo("fixed/numpy.py"), content
        pin = f"json_set(value, '$.fixed.\"numpy.py\"', '{hashlib.sha256(content).hexdigest()}')"
        with_journal(f"UPDATE night SET value = {pin} WHERE fact = 'pins'")(said, members)

    return change


def test_a_module_beside_the_night_in_the_file_never_runs(file, other, tmp_path):
    marker = tmp_path / "marker"
    tampered(file, beside_fixed(marker))
    assert "'fixed/numpy.py' in it is no part of a night" in refused(other.nightshift("unpack", str(file)))
    assert not other.folder("t").exists()
    assert not marker.exists()


def test_programs_and_servers_that_a_night_names_are_asked_for_again(file, other):
    named = """'$.agent', 'sh -c evil', '$.llm', 'openai:m', '$.pool', 'ray', '$.ray_address', 'far:1',
        '$.llm_url', 'http://127.0.0.1:9/v1' || char(27) || '[2J'"""
    tampered(file, with_journal(f"UPDATE night SET value = json_set(value, {named}) WHERE fact = 'terms'"))
    said = done(other, "unpack", str(file))
    assert "give the programs and servers that it names again, if the file is not somebody else's" in said
    asked = "--command 'sh -c evil' --llm openai:m --llm-url $'http://127.0.0.1:9/v1\\x1b[2J'"
    assert f"go on with: nightshift run --tag t {asked} --pool ray --ray-address far:1\n" in said
    with Journal.read(other.folder("t") / "journal.sqlite") as journal:
        terms = journal.night().terms
    assert (terms.agent, terms.llm, terms.llm_url, terms.pool, terms.ray_address) == (None, None, None, "local", None)
    assert terms.sandbox == "auto"  # it was off


def test_where_no_sandbox_works_a_night_from_a_file_does_not_go_on(file, other, monkeypatch):
    monkeypatch.setattr(unpack, "choose", lambda mode: Open("none is installed"))
    assert "can be read here, and not go on: there is no sandbox: none is installed" in done(other, "unpack", str(file))
    with Journal.read(other.folder("t") / "journal.sqlite") as journal:
        assert journal.night().terms.sandbox == "require"


def test_a_night_of_another_device_can_be_read(file, other):
    tampered(file, with_journal("UPDATE night SET value = 'a GPU' || char(27) || '[2K' WHERE fact = 'device'"))
    assert "can be read here, and not go on: it ran on a GPU\\x1b[2K, and this is" in done(other, "unpack", str(file))


# ---- damaged and hostile files ---------------------------------------------------------------------------------------


def with_member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> Change:
    def change(said: dict[str, Any], members: Members) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        members[name] = member, b""

    return change


def with_fact(name: str, value: object) -> Change:
    def change(said: dict[str, Any], members: Members) -> None:
        said[name] = value

    return change


def with_ref(ref: str, sha: str | None = None) -> Change:
    def change(said: dict[str, Any], members: Members) -> None:
        said["refs"][ref] = sha or next(iter(said["refs"].values()))

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_member("night/../../../../evil"), "outside the destination"),
        (with_member("night/a/../../../u/journal.sqlite"), "outside the destination"),
        (with_member("night/link", tarfile.SYMTYPE, "/etc/passwd"), "is no plain file"),
        (with_member("night/link", tarfile.LNKTYPE, "night/journal.sqlite"), "is no plain file"),
        (with_member("night/null", tarfile.CHRTYPE), "is no plain file"),
        (with_member("night/holes", tarfile.GNUTYPE_SPARSE), "is no plain file"),
        (with_member("nightly/notes.md"), "is no part of a night"),
        (with_member("fixed/numpy/__init__.py"), "is no part of a night"),
        (with_ref("refs/heads/main"), "is not the night's"),
        (with_ref("refs/experiments/u/0000"), "is not the night's"),
        (with_ref("refs/experiments/t/../../../../../precious"), "is not the night's"),
        (with_ref("refs/experiments/t/0001", "HEAD\0"), "is not the night's"),
        (with_fact("started", 7), "Expected `str`"),
        (with_fact("started", "2020-01-01T00:00:00Z"), "is that of another night"),
        (with_fact("tag", "../u"), "whose tag is '../u'"),
        (with_fact("format", 1), "its format is 1"),
        (with_journal("CREATE VIEW more AS SELECT 1"), "other tables than a night's"),
        (with_journal("UPDATE runs SET score = json_set(score, '$.val_bpb', 1e300)"), "has 1e+300 as val_bpb"),
    ],
)
def test_a_hostile_file_puts_nothing_anywhere(file, other, change, said):
    tampered(file, change)
    (other.root.parent / "precious.lock").touch()  # git's lock of a ref that a hostile file names, if it is believed
    before = everything(other.root), sorted(other.root.parent.glob("*"))
    assert said in refused(other.nightshift("unpack", str(file)))
    assert (everything(other.root), sorted(other.root.parent.glob("*"))) == before


@pytest.mark.parametrize("nonsense", [b"[" * 100_000, b'{"cores": 1e999, "memory_bytes": 1}', b"[]", b"\xff"])
def test_nonsense_in_its_files_ends_no_command(file, other, monkeypatch, nonsense):
    def change(said: dict[str, Any], members: Members) -> None:
        for name in ("corpus.json", "machine.json", "notes.md", "phases.json", "replays/2-1/replay.json"):
            members[f"night/{name}"] = tarfile.TarInfo(f"night/{name}"), nonsense

    tampered(file, change)
    monkeypatch.delenv("NIGHTSHIFT_DATA")
    assert "the corpus of night t is not on this machine" in done(other, "unpack", str(file))
    for words in ("prompt t", "best t", "show t:2", "report t", "replay t:9"):
        assert other.nightshift(*words.split()).returncode == (2 if "replay" in words else 0)


def test_a_file_for_which_there_is_no_room_is_not_unpacked(file, other, monkeypatch):
    free = shutil.disk_usage(file)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    assert "holds more than the 0.00 GB that are free here" in refused(other.nightshift("unpack", str(file)))
    assert not other.folder("t").exists()


def test_a_file_that_is_damaged_cut_short_or_claims_gigabytes_of_headers_is_named(file, other):
    whole = file.read_bytes()
    middle = len(whole) // 2
    for content in (whole[:middle], whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        file.write_bytes(content)
        assert "is damaged, or no packed night" in refused(other.nightshift("unpack", str(file)))
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 33
    file.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16)))
    assert "claims 8589934592 bytes" in refused(other.nightshift("unpack", str(file)))
    shutil.copyfile(file, put_away(other))
    assert "t is damaged: " in other.nightshift("nights").stdout


@pytest.mark.parametrize(("fact", "value"), [("val_bpb", 10**400), ("val_bpb", "1.2"), ("kept", 0.5), ("honest", 3)])
def test_a_summary_that_no_night_writes_is_listed_as_damaged(file, other, fact, value):
    def change(said: dict[str, Any], members: Members) -> None:
        said["summary"][fact] = value

    tampered(file, change)
    other.folder("t").parent.mkdir(parents=True)
    shutil.copyfile(file, put_away(other))
    assert "t is damaged: " in done(other, "nights")


# ---- killed ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_packing_away_that_is_killed_at_any_step_loses_nothing_and_the_next_call_ends_it(grounds):
    def is_step(event: str, arguments: tuple[Any, ...]) -> bool:
        """Whether it is about to rename or delete one of the nights, or to ask rm to."""
        is_rm = event == "subprocess.Popen" and arguments[0] == "rm"
        return is_rm or (event in ("os.rename", "os.remove") and "nights" in str(arguments[0]))

    before, attempts, step, kills = of_night(grounds), grounds.attempts("t"), 0, 0
    while True:
        step += 1
        kills_before = kills
        kills += killed_at(step, is_step, grounds, "pack", "t", "--remove")
        if grounds.folder("t").exists():
            assert_whole(grounds, before, attempts)
        else:
            assert read_contents(put_away(grounds)).tag == "t"
        done(grounds, "pack", "t", "--remove")
        assert not grounds.folder("t").exists()
        kills += killed_at(step, is_step, grounds, "unpack", "t")
        if put_away(grounds).exists():
            done(grounds, "unpack", "t")
        assert_whole(grounds, before, attempts)
        if kills == kills_before:
            break
    assert kills >= 6


@pytest.mark.slow
def test_an_unpacking_that_is_killed_at_any_step_is_done_by_the_next_call(file, other):
    def is_step(event: str, arguments: tuple[Any, ...]) -> bool:
        """Whether it is about to change a name in the repository, or to call another program."""
        return event == "subprocess.Popen" or (event in ("os.rename", "os.remove") and "other" in str(arguments))

    fresh = Path(shutil.copytree(other.root, other.root.with_name("fresh")))
    step = 1
    while killed_at(step, is_step, other, "unpack", str(file)):
        ended = other.nightshift("unpack", str(file))
        assert ended.returncode == 0 or "holds this night already" in refused(ended)
        assert not (other.folder("t").parent / ".packing").exists()
        assert [row["attempt"] for row in other.rows()] == ["0", "1", "2", "3"]
        assert len(other.attempts("t")) == 4
        assert (other.root / "program.md").read_text() == PROGRAM
        assert other.git("fsck", "--strict", "--no-dangling") == ""
        shutil.rmtree(other.root)
        shutil.copytree(fresh, other.root)
        step += 1
    assert step > 10
