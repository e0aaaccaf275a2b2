"""A night that is packed in one repository, unpacked in another one, and goes on there."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from commands import refused
from nights import Grounds, Quiet, git, make_repository, scripted_context, unigram
from packings import killed_at, tampered

from agent.archive.reading import read_contents
from agent.experiment import LOCAL, Attempt
from agent.night.lock import AFTER_RUN, Stop, only_night
from agent.night.loop import run_night
from agent.pools.cluster.node import night_folder
from agent.records.journal import Journal

PROGRAM = "Prefer short scripts.\n"


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, trained_night: Path, tiny_data: Path) -> Grounds:
    """The repository that a night leaves, and beside it the file `night` that it was packed into.

    Its corpus was in a folder that is gone by then, as on another machine.
    """
    above = tmp_path_factory.mktemp("left")
    grounds = Grounds(Path(shutil.copytree(trained_night, above / "user")))
    shutil.copytree(tiny_data, above / "corpus")
    (grounds.root / "program.md").write_text(PROGRAM)
    (grounds.folder("t") / "notes.md").write_text("Try a wider one.")
    folder = grounds.folder("t") / "runs" / "0001" / "seed0"
    (folder / "tmp" / "cache").mkdir(parents=True, exist_ok=True)
    (folder / "tmp" / "link").symlink_to("/etc/passwd")  # of a script; it stays behind with all that is temporary
    with Journal.resume(grounds.folder("t") / "journal.sqlite") as journal:
        journal.record_facts(data=str(above / "corpus"))
    done = grounds.nightshift("pack", "--out", str(above / "night"))
    assert done.returncode == 0, done.stderr
    assert "it stays here, too" in done.stdout
    shutil.rmtree(above / "corpus")
    return grounds


@pytest.fixture
def file(left: Grounds) -> Path:
    return left.root.parent / "night"


@pytest.fixture
def other(tmp_path: Path, own_cache: None) -> Grounds:
    """A repository that shares no commit with the one that the night leaves."""
    grounds = Grounds(make_repository(tmp_path / "other", unigram(SHARPNESS=0.3)))
    (grounds.root / "program.md").unlink(missing_ok=True)
    return grounds


def everything(root: Path) -> dict[str, bytes]:
    """Path → content of the files of a working tree, and the refs of its repository."""
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    kept = {path: content for path, content in files.items() if not path.startswith(".git/")}
    return kept | {"refs": git(root, "for-each-ref").encode()}


def test_a_night_goes_on_in_a_repository_that_shares_no_commit_with_the_one_that_it_left(left, file, other, tiny_data):
    done = other.nightshift("unpack", str(file))
    assert done.returncode == 0, done.stderr
    assert "go on with: nightshift run --tag t" in done.stdout
    assert "where the file is somebody else's, look at" in done.stdout
    assert other.attempts("t") == left.attempts("t")
    ours = "refs/experiments", "refs/heads/experiments"
    assert other.git("for-each-ref", *ours) == left.git("for-each-ref", *ours)
    assert other.git("fsck", "--strict", "--no-dangling") == ""
    assert other.git("status", "--porcelain", "--untracked-files=all") == "?? program.md\n?? results.tsv"
    assert [row["attempt"] for row in other.rows()] == ["0", "1", "2", "3"]
    assert (other.root / "program.md").read_text() == PROGRAM
    assert (other.folder("t") / "notes.md").read_text() == "Try a wider one."
    with Journal.read(other.folder("t") / "journal.sqlite") as journal:
        assert journal.night().data == str(tiny_data)  # found by its hashes
        copy = journal.night()
    with Journal.read(left.folder("t") / "journal.sqlite") as journal:
        assert len(journal.night().id) == len(copy.id) == 16
        assert night_folder(copy) != night_folder(journal.night())  # on a node of a cluster, where both go on
    weights = [path.parts[-4] for path in other.folder("t").glob("runs/*/*/out/model.safetensors")]
    assert weights == ["0002"]  # of the best
    assert not list(other.folder("t").glob("runs/*/*/tmp"))

    done = other.nightshift("run", "--tag", "t", "--experiments", "4", "--proposer", "search")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(other.attempts("t")) == 5
    assert other.attempts("t")[4].val_bpb is not None
    assert len(left.attempts("t")) == 4  # what was packed stays as it was


def test_a_night_whose_corpus_is_elsewhere_says_how_to_bring_it(file, other, monkeypatch):
    monkeypatch.delenv("NIGHTSHIFT_DATA")
    done = other.nightshift("unpack", str(file))
    assert done.returncode == 0, done.stderr
    assert "the corpus of night t is not on this machine: prepare it from the same text with" in done.stdout
    assert "library.txt --scale test, or copy " in done.stdout
    said = refused(other.nightshift("run", "--tag", "t", "--experiments", "4"))
    assert "the corpus of night t is not on this machine" in said
    assert "give the same command" in said


def test_a_corpus_of_other_text_is_not_taken_for_the_nights(file, other, monkeypatch, tmp_path, tiny_data):
    shutil.copytree(tiny_data, tmp_path / "another")
    manifest = json.loads((tmp_path / "another" / "manifest.json").read_text())
    manifest["files"]["train.tokens.npy"]["sha256"] = "0" * 64
    (tmp_path / "another" / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tmp_path / "another"))
    assert "is not on this machine" in other.nightshift("unpack", str(file)).stdout


def test_another_program_stays_and_the_nights_lies_in_its_folder(file, other):
    (other.root / "program.md").write_text("Prefer long scripts.\n")
    done = other.nightshift("unpack", str(file))
    assert f"the night's is {other.folder('t') / 'program.md'}" in done.stdout
    assert (other.root / "program.md").read_text() == "Prefer long scripts.\n"
    assert (other.folder("t") / "program.md").read_text() == PROGRAM


def test_all_weights_come_along_where_they_are_asked_for(left, tmp_path):
    assert left.nightshift("pack", "t", "--weights", "all", "--out", str(tmp_path / "all")).returncode == 0
    names = {path for path in read_contents(tmp_path / "all").files if path.endswith("model.safetensors")}
    assert {"runs/0000/seed0/out/model.safetensors", "runs/0002/seed0/out/model.safetensors"} <= names


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
    assert here.nightshift("pack", "--weights", "none", "--out", str(tmp_path / "light")).returncode == 0
    brought = read_contents(tmp_path / "light").files
    assert not [path for path in brought if path.endswith((".safetensors", ".f32"))]

    assert other.nightshift("unpack", str(tmp_path / "light")).returncode == 0
    done = other.nightshift("run", "--tag", "t", "--experiments", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    settled = other.attempts("t")[1]
    assert settled.settled
    assert settled.runs[0] == waiting.runs[0]  # nothing was trained twice
    assert [run.seed for run in settled.runs] == [0, 1]


def test_weights_that_the_next_step_needs_are_not_left_behind(left, tmp_path):
    copy = Grounds(Path(shutil.copytree(left.root, tmp_path / "user", symlinks=True)))
    with closing(sqlite3.connect(copy.folder("t") / "journal.sqlite")) as journal, journal:
        journal.execute(
            "UPDATE runs SET score = json_remove(score, '$.audit') WHERE attempt = 2"
        )  # as a kill before the audit leaves it
    said = refused(copy.nightshift("pack", "t", "--weights", "none", "--out", str(tmp_path / "light")))
    assert "attempt 2 of night t needs its weights until it is audited" in said
    assert not (tmp_path / "light").exists()


# ---- nothing is overwritten ------------------------------------------------------------------------------------------


def the_night(other: Grounds, file: Path) -> None:
    assert other.nightshift("unpack", str(file)).returncode == 0


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
        assert "night t (pid" in refused(left.nightshift("pack", "--out", str(tmp_path / "new")))
        assert "night t (pid" in refused(left.nightshift("unpack", str(file)))
    assert not (tmp_path / "new").exists()


# ---- hostile files ---------------------------------------------------------------------------------------------------


def test_a_folder_without_a_repository_misses_that_and_no_script(tmp_path):
    (tmp_path / "empty").mkdir()
    grounds = Grounds(tmp_path / "empty")
    assert f"{grounds.root} is not in a git repository; run: " in refused(grounds.nightshift("unpack", "../night"))
    git(grounds.root, "init", "-q")
    assert f"{grounds.root} has no commits yet; run: " in refused(grounds.nightshift("unpack", "../night"))


def foreign_ref(said: dict[str, Any], members: list[Any]) -> None:
    said["refs"]["refs/heads/main"] = next(iter(said["refs"].values()))


def ref_of_another_night(said: dict[str, Any], members: list[Any]) -> None:
    said["refs"]["refs/experiments/u/0000"] = next(iter(said["refs"].values()))


def path_above(said: dict[str, Any], members: list[Any]) -> None:
    said["files"]["../u/journal.sqlite"] = said["files"].pop("notes.md")


def other_device(said: dict[str, Any], members: list[Any]) -> None:
    at = next(at for at, (one, _) in enumerate(members) if one.name == "night/journal.sqlite")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.deserialize(members[at][1].replace(b"\x02\x02", b"\x01\x01", 1))  # a WAL cannot be in memory
        database.execute("UPDATE night SET value = 'a GPU\x1b[2K' WHERE fact = 'device'")
        content = database.serialize()
    members[at][0].size, members[at] = len(content), (members[at][0], content)
    said["files"]["journal.sqlite"] |= {"bytes": len(content), "sha256": sha256(content).hexdigest()}


def tag_above(said: dict[str, Any], members: list[Any]) -> None:
    said["tag"] = "../u"


def other_bytes(said: dict[str, Any], members: list[Any]) -> None:
    at = next(at for at, (one, _) in enumerate(members) if one.name == "night/notes.md")
    members[at] = members[at][0], bytes(len(members[at][1]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (foreign_ref, "is not the night's"),
        (ref_of_another_night, "is not the night's"),
        (path_above, "is no path inside"),
        (tag_above, "whose tag is '../u'"),
        (other_bytes, "not as it was"),
    ],
)
def test_a_hostile_file_puts_nothing_anywhere(file, other, tmp_path, change, said):
    shutil.copyfile(file, tmp_path / "hostile")
    tampered(tmp_path / "hostile", change)
    before = everything(other.root)
    assert said in refused(other.nightshift("unpack", str(tmp_path / "hostile")))
    assert everything(other.root) == before


def test_programs_in_a_file_are_named_also_where_its_night_cannot_go_on(file, other, tmp_path):
    """`replay` runs them on any device."""
    shutil.copyfile(file, tmp_path / "hostile")
    tampered(tmp_path / "hostile", other_device)
    said = other.nightshift("unpack", str(tmp_path / "hostile")).stdout
    assert "night t ran on a GPU\\x1b[2K, this is" in said
    assert "run and replay execute programs that are in the file, and with --sandbox off, outside of" in said
    assert f"{other.root / 'program.md'} is the night's" in said


# ---- killed ----------------------------------------------------------------------------------------------------------


def is_step(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether it is about to change a name in the repository, or to call another program."""
    return event == "subprocess.Popen" or (event in ("os.rename", "os.remove") and "other" in str(arguments))


@pytest.mark.slow
def test_an_unpacking_that_is_killed_at_any_step_is_done_by_the_next_call(file, other):
    fresh = Path(shutil.copytree(other.root, other.root.with_name("fresh")))
    step = 1
    while killed_at(step, is_step, other, "unpack", str(file)):
        done = other.nightshift("unpack", str(file))
        assert done.returncode == 0 or "holds this night already" in refused(done)
        assert not (other.folder("t").parent / ".packing").exists()
        assert [row["attempt"] for row in other.rows()] == ["0", "1", "2", "3"]
        assert len(other.attempts("t")) == 4
        assert (other.root / "program.md").read_text() == PROGRAM
        assert other.git("fsck", "--strict", "--no-dangling") == ""
        shutil.rmtree(other.root)
        shutil.copytree(fresh, other.root)
        step += 1
    assert step > 10
