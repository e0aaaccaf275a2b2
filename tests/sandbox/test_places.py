"""A box shows the right places of the machine for any layout of Python, the user's home and the repository."""

import json
import sys
from pathlib import Path

import pytest
from nights import bubblewrap, usable

from agent.sandbox import places
from agent.sandbox.box import Box, Landlock
from agent.sandbox.places import View, python_places


@pytest.fixture
def box(request: pytest.FixtureRequest) -> Box:
    return usable(bubblewrap())


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a /usr with a library, a source tree, the user's repository inside, and links to it."""
    usr = tmp_path / "usr"
    for folder in ("lib", "src/linux", "src/app/.git", "src/app/run"):
        (usr / folder).mkdir(parents=True)
    (usr / "app").symlink_to("src/app")
    (usr / "usr").symlink_to(".")
    monkeypatch.setattr(places, "SYSTEM", (str(usr),))
    monkeypatch.setattr("agent.sandbox.box.READABLE", (str(usr),))
    return usr


def view(usr: Path) -> View:
    return View(usr / "src/app/run", (usr / "src/app/data",), hidden=(usr / "app", Path("/nowhere")))


# ---- around what is hidden -------------------------------------------------------------------------------------------


def test_landlock_opens_all_of_a_place_but_what_is_hidden_in_it(system):
    wrapped = Landlock(7).wrap(["true"], view(system))
    seen = [path for path in json.loads(wrapped[-2])["read"] if path.startswith(str(system))]
    assert seen == [str(system / path) for path in ("lib", "src/linux", "src/app/data")]


def test_bubblewrap_too_and_it_makes_the_links(system):
    mounts = usable(bubblewrap()).wrap(["true"], view(system))
    seen = [word for word in dict.fromkeys(mounts) if word.startswith(str(system))]
    assert seen == [str(system / path) for path in ("app", "lib", "src/linux", "usr", "src/app/data", "src/app/run")]
    assert mounts[mounts.index("src/app") - 1] == "--symlink"


def test_a_python_in_what_is_hidden_is_shown_all_the_same(system, monkeypatch):
    environment = system / "src/app/.venv"
    (environment / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(environment))
    assert str(environment) in json.loads(Landlock(7).wrap(["true"], view(system))[-2])["read"]
    assert str(environment) in usable(bubblewrap()).wrap(["true"], view(system))


# ---- where Python is -------------------------------------------------------------------------------------------------


def test_home_is_never_shown_however_odd_the_prefix(tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / "python").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for odd in (home, tmp_path, "/", home / "python" / ".."):
        monkeypatch.setattr(sys, "prefix", str(odd))
        assert not [place for place in python_places() if home.is_relative_to(place.resolve())]
    monkeypatch.setattr(sys, "prefix", str(home / "python"))
    assert home / "python" in python_places()
