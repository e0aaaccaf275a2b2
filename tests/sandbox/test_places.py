"""A sandbox shows the right places of the machine for any layout of Python, the user's home and the repository."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nights import bubblewrap, usable

from agent.errors import NightError
from agent.sandbox import places
from agent.sandbox.places import View, check_shown, files_around, places_of, python_places
from agent.sandbox.sandboxes import Landlock, Sandbox


@pytest.fixture
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
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
    monkeypatch.setattr("agent.sandbox.sandboxes.READABLE", (str(usr),))
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
    programs = system / "src/app/.venv/bin"
    programs.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(programs.parent))
    assert str(programs) in json.loads(Landlock(7).wrap(["true"], view(system))[-2])["read"]
    assert str(programs) in usable(bubblewrap()).wrap(["true"], view(system))


# ---- where Python is -------------------------------------------------------------------------------------------------


def test_home_is_never_shown_however_odd_the_prefix(tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / "python" / "bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for odd in (home, tmp_path, "/", home / "python" / ".."):
        monkeypatch.setattr(sys, "prefix", str(odd))
        python_places.cache_clear()
        assert not [place for place in python_places() if home.is_relative_to(place.resolve())]
    monkeypatch.setattr(sys, "prefix", str(home / "python"))
    python_places.cache_clear()
    assert home / "python" / "bin" in python_places()


# ---- few files -------------------------------------------------------------------------------------------------------


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder of libraries as on Debian, with the folders of a compiler and of another program."""
    for name in ("lib/gcc/12", "lib/aarch64-linux-gnu", "lib/jvm/jre", "lib/modules/6.1"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(places, "LIBRARIES", (str(tmp_path / "lib"),))
    return tmp_path / "lib"


def test_of_the_systems_libraries_only_those_are_shown_that_runs_ask_for(libraries):
    of_libraries = {place for place in places.files_around(()) if place.is_relative_to(libraries)}
    assert of_libraries == {libraries / "gcc", libraries / "aarch64-linux-gnu"}


def test_a_folder_with_libraries_directly_in_it_is_shown_without_the_kernels_modules(libraries):
    (libraries / "libm.so.6").touch()
    assert libraries in places.files_around(())
    assert [path for path in places.unasked() if path.is_relative_to(libraries)] == [libraries / "modules"]


def test_every_library_of_the_system_that_the_linker_knows_is_shown():
    """One of CUDA may stand in a folder of its own."""
    linker = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if linker is None:
        pytest.skip("this system has no list of libraries")
    listed = subprocess.run([linker, "-p"], capture_output=True, text=True).stdout
    found = {Path(line.split(" => ")[1]).parent.resolve() for line in listed.splitlines() if " => /usr/" in line}
    shown = [place.resolve() for place in files_around(())]
    assert [folder for folder in found if not any(folder.is_relative_to(place) for place in shown)] == []


def test_another_interpreter_is_shown_with_its_packages_and_without_what_is_hidden(tmp_path):
    shown = places_of(sys.executable, (tmp_path,))
    assert Path(json.__file__).parent.parent in {*shown, *(path for place in shown for path in place.rglob("python*"))}
    assert any(Path(sys.executable).is_relative_to(place) for place in (*shown, *python_places((tmp_path,))))
    assert not any(tmp_path.is_relative_to(place) for place in shown)
    assert Path(sys.prefix) not in places_of(sys.executable, (Path(sys.prefix) / "bin",))


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/false", "/bin/true"])
def test_what_is_no_interpreter_is_one_sentence(program):
    with pytest.raises(NightError, match=f"--python {program} does not run"):
        places_of(program)


def test_a_path_that_would_show_a_hidden_folder_or_is_not_there_is_refused(tmp_path):
    (tmp_path / "data").mkdir()
    check_shown([tmp_path / "data"], [tmp_path])
    for place in (tmp_path, tmp_path.parent):
        with pytest.raises(NightError, match="would show all of"):
            check_shown([place], [tmp_path])
    with pytest.raises(NightError, match="names nothing that is there"):
        check_shown([tmp_path / "nothing"], [tmp_path])
