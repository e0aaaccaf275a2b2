"""Checksums of a night: no score is taken once a fixed file or the corpus has changed."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nights import Grounds, Quiet, make_repository, scripted_context, unigram

from agent.errors import MachineError
from agent.experiment import LOCAL, Night
from agent.night.loop import run_night
from agent.records.journal import Journal
from agent.runs.fixed import verify_pins


@dataclasses.dataclass(frozen=True)
class Pinned:
    """Hold an open night, and a corpus that only this night reads."""

    grounds: Grounds
    data: Path

    @property
    def fixed(self) -> Path:
        return self.grounds.folder("t") / "fixed"

    @property
    def night(self) -> Night:
        with Journal.read(self.grounds.folder("t") / "journal.sqlite") as journal:
            return journal.night()


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Pinned]:
    root = tmp_path_factory.mktemp("pinned")
    shutil.copytree(tiny_data, root / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(root / "data"))
        grounds = Grounds(make_repository(root / "user", unigram()))
        with scripted_context(grounds.root, "t", []):
            pass
        yield Pinned(grounds, root / "data")


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")


TAMPERINGS: list[tuple[str, Callable[[Path], object], str]] = [
    ("fixed/prepare.py", change, "was changed"),
    ("fixed/prepare.py", Path.unlink, "is gone"),
    ("fixed/json.py", Path.touch, "came"),  # a run would import it
    ("data/validation.tokens.npy", change, "was changed"),
    ("data/holdout.more", Path.touch, "came"),
]


@pytest.mark.parametrize(("name", "deed", "sentence"), TAMPERINGS)
def test_what_is_not_as_it_was_is_named(pinned, tmp_path, name, deed, sentence):
    path = (pinned.fixed.parent if name.startswith("fixed") else pinned.data.parent) / name
    verify_pins(pinned.night, pinned.fixed)
    if path.exists():
        shutil.copy(path, tmp_path / "aside")
    deed(path)
    with pytest.raises(MachineError, match=rf"{path} {sentence} after night t had opened"):
        pinned.grounds.try_scripts("t", [])
    path.unlink(missing_ok=True)
    if (tmp_path / "aside").exists():
        shutil.copy(tmp_path / "aside", path)
    verify_pins(pinned.night, pinned.fixed)


def test_a_copy_beside_the_fixed_files_is_no_corpus(pinned):
    name = "validation.tokens.npy"
    content = (pinned.data / name).read_bytes()
    (pinned.fixed / name).write_bytes(content)
    change(pinned.data / name)
    with pytest.raises(MachineError, match=name):
        verify_pins(pinned.night, pinned.fixed)
    (pinned.fixed / name).unlink()
    (pinned.data / name).write_bytes(content)


class Tamperer(Quiet):
    """Edit a fixed file while attempt 0 trains."""

    path: Path

    def run_began(self, attempt, seed, worker=LOCAL):
        self.path.write_text(self.path.read_text() + "# better")


def test_an_edit_in_the_middle_of_a_night_ends_it_and_undone_it_goes_on(pinned):
    path = pinned.fixed / "prepare.py"
    before = path.read_text()
    with scripted_context(pinned.grounds.root, "t", []) as context:
        watcher = Tamperer()
        watcher.path = path
        with pytest.raises(MachineError, match=rf"{path} was changed .* undo that and resume the night"):
            run_night(dataclasses.replace(context, watcher=watcher))
    assert [run.score for run in pinned.grounds.attempts("t")[0].runs] == [None]
    path.write_text(before)
    pinned.grounds.try_scripts("t", [])
    (attempt,) = pinned.grounds.attempts("t")
    assert attempt.status == "keep"
    assert len(attempt.done_runs) == 1
