"""Checksums of a night: no score is taken once a fixed file or the corpus has changed."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import NIGHT

from agent.errors import MachineError
from agent.experiment import Night
from agent.runs.fixed import pins_of, verify_pins


@pytest.fixture
def pinned(tmp_path) -> Night:
    for name in ("fixed/prepare.py", "fixed/agent/lab/data.py", "data/manifest.json", "data/validation.tokens.npy"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"the content of {name}")
    data = tmp_path / "data"
    return dataclasses.replace(NIGHT, data=str(data), pins=pins_of(tmp_path / "fixed", data))


def change(path: Path) -> None:
    path.write_text(path.read_text() + "# better")


TAMPERINGS: list[tuple[str, Callable[[Path], object]]] = [
    ("fixed/prepare.py", change),
    ("fixed/prepare.py", Path.unlink),
    ("fixed/json.py", Path.touch),  # a run would import it
    ("data/validation.tokens.npy", change),
    ("data/holdout.more", Path.touch),
]


@pytest.mark.parametrize(("name", "deed"), TAMPERINGS)
def test_what_is_not_as_it_was_is_named(pinned, tmp_path, name, deed):
    verify_pins(pinned, tmp_path / "fixed")
    deed(tmp_path / name)
    with pytest.raises(MachineError, match=rf"{tmp_path / name} is not as it was when night t opened"):
        verify_pins(pinned, tmp_path / "fixed")


def test_a_copy_beside_the_fixed_files_is_no_corpus(pinned, tmp_path):
    name = "validation.tokens.npy"
    shutil.copy(tmp_path / "data" / name, tmp_path / "fixed" / name)
    change(tmp_path / "data" / name)
    with pytest.raises(MachineError, match=name):
        verify_pins(pinned, tmp_path / "fixed")
