"""Line ends, and a byte order mark, are no part of an edit: the user's file keeps its own, whoever edits it."""

import json
from pathlib import Path

import pytest
from commands import refused
from nights import PROJECT, Grounds, make_repository, unigram
from queued import patch

from agent.cli.trying import try_edit
from agent.records.place import Place, committed, read_script

MINE, BETTER = unigram(), unigram(SHARPNESS=0.9)
SAVED = {
    "carriage returns and line feeds": lambda text: text.replace("\n", "\r\n"),
    "carriage returns": lambda text: text.replace("\n", "\r"),
    "both": lambda text: text.replace("\n", "\r\n", 40),
    "a byte order mark": lambda text: f"\ufeff{text}",
    "no line end at the end": lambda text: text.rstrip("\n"),
}
every_form = pytest.mark.parametrize("form", SAVED)


def saved(path: Path, text: str, form: str) -> Path:
    path.write_bytes(SAVED[form](text).encode())
    return path


@pytest.fixture
def here(tmp_path: Path, own_cache: None, request: pytest.FixtureRequest) -> Grounds:
    """A repository whose committed script has these line ends."""
    grounds = Grounds(make_repository(tmp_path / "user", MINE))
    saved(grounds.root / "train_mlx.py", MINE, request.param)
    grounds.git("-c", "core.autocrlf=false", "-c", "user.name=t", "-c", "user.email=t@x.org", "commit", "-qam", "saved")
    return grounds


@every_form
@pytest.mark.parametrize("here", SAVED, indirect=True)
def test_a_script_is_read_and_edited_whatever_its_line_ends_are(here, form, tmp_path):
    place = Place.of(here.root / "train_mlx.py")
    assert read_script(place).rstrip("\n") == MINE.rstrip("\n") == committed(place).rstrip("\n")
    edits = {"idea.patch": patch(MINE, BETTER), "idea.py": BETTER, "same.py": f"# a word\n{MINE}"}
    files = [saved(tmp_path / name, text, form) for name, text in edits.items()]
    first, again, same = (here.nightshift("try", "--queue", "--edit", str(file), "-m", "sharper") for file in files)
    assert first.returncode == 0, first.stderr
    assert "waits already (sharper)" in refused(again)
    assert "changes nothing that runs" in refused(same)


def test_a_script_that_a_tool_passes_on_is_read_so_too(grounds, monkeypatch):
    monkeypatch.chdir(grounds.root)
    try_edit(text=BETTER.replace("\n", "\r\n"), message="sharper", only_queue=True)
    (entry,) = (grounds.root / "experiments" / "queue").glob("*.patch")
    assert BETTER in entry.read_bytes().decode()


@pytest.mark.slow
@pytest.mark.parametrize("here", ["carriage returns and line feeds"], indirect=True)
def test_a_night_keeps_the_line_ends_of_the_file_in_commits_and_none_in_its_edits(here):
    here.try_scripts("t", [BETTER.replace("\n", "\r\n")])
    assert [attempt.proposal.script for attempt in here.attempts("t")] == [MINE, BETTER]
    assert here.git("diff", "HEAD", "refs/experiments/t/0000") == ""
    shown = here.nightshift("show", "t:1", "--diff").stdout.splitlines()
    assert [line[:10] for line in shown if line.startswith(("+", "-"))][2:] == ["-SHARPNESS", "+SHARPNESS"]


def test_the_catalogue_applies_to_our_script_whatever_its_line_ends_are(tmp_path, own_cache):
    applying = set()
    for form in ("no line end at the end", "carriage returns and line feeds", "carriage returns"):
        grounds = Grounds(make_repository(tmp_path / form.replace(" ", "-"), MINE))
        saved(grounds.root / "train_mlx.py", (PROJECT / "train_mlx.py").read_text(encoding="utf-8"), form)
        ideas = json.loads(grounds.nightshift("ideas", "--json").stdout)["ideas"]
        applying.add(sum(idea["state"] == "yes" for idea in ideas))
    (count,) = applying
    assert count > 50
