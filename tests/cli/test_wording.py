"""What the commands print of one night, word for word.

Each file of wording/ holds commands and all that they print. After a change of words, write them again and read
`git diff`: RENEW=1 uv run pytest -n 0 tests/cli/test_wording.py
"""

import os
import re
from pathlib import Path

import pytest
from nights import Grounds, make_repository, unigram
from queued import write_idea
from samples import record_night, record_workers

from agent.night.limits import Limits
from agent.night.lock import only_night
from agent.proposers.catalogue import files
from agent.records.place import Place
from agent.work import Doing

FOLDER = Path(__file__).with_name("wording")
ASKED = {
    "help": ("--help",),
    "status": ("status", "status t"),
    "results": ("results t", "results --all"),
    "nights": ("nights",),
    "show": ("show t:0", "show t:2", "show t:3", "show t:best"),
    "compare": ("show t:1 t:4", "show t:0 t:4", "show t:1 t:5", "show t:1 u:0"),
    "confirm": ("confirm t --show", "confirm u --show"),
    "ideas": ("ideas", "ideas boost"),
    "report": ("report t", "report nowhere"),
    "export": ("export tape",),
    "take": ("take t:4", "take t:confirmed", "take t:9", "take worst"),
    "steering": (
        "note --tag t no deeper",
        "try --queue -m boosted --edit ideas/boost.patch --tag t",
        "try --cancel t0001",
        "stop",
        "stop --now",
    ),
}
WORKERS = {"gpu 10": Doing.AUDITING, "gpu 2": Doing.TRAINING, "gpu 3": Doing.DRY_RUN}
VARIES = {
    r"2026-(?!01-0)\d\d-\d\d \d\d:\d\d:\d\d": "TIME",
    r" +(size|\d+\.\d kB)": r"  SIZE",
    r"pid \d+": "pid NUMBER",
}


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Grounds:
    """A night t in which everything happened, and a night u whose three workers are busy."""
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("wording") / "user", unigram()))
    place = Place.of(grounds.root / "train_mlx.py")
    record_night(place)
    record_workers(place, WORKERS, "u")
    boosted = unigram().replace("SMOOTHING =", "BOOST = 1.5  # of the logits  [1.0, 2.0]\nSMOOTHING =")
    write_idea(grounds.root / "ideas", "boost", unigram(), boosted, Title="Boost the logits", Group="architecture")
    write_idea(grounds.root / "ideas", "elsewhere", "x = 1\ny = 2\n", "x = 1\ny = 3\n", Title="Edit something else")
    (grounds.root / "ideas" / "broken.patch").write_text("Title: nothing\n")
    grounds.nightshift("results")  # a night that runs writes its results itself
    return grounds


@pytest.mark.parametrize("name", ASKED)
def test_a_command_prints_the_words_of_its_file_and_nothing_that_steers_a_terminal(grounds, monkeypatch, name):
    monkeypatch.setattr(files, "PACKAGE", grounds.root / "nowhere")
    parts = []
    with only_night(grounds.root / ".git") as tell:
        tell("u", grounds.folder("u"), Limits(9))
        for words in ASKED[name]:
            done = grounds.nightshift(*words.split())
            parts.append(f"$ nightshift {words}\n{done.stdout}{done.stderr}(exit code {done.returncode})\n")
    text = "\n".join(parts).replace(str(grounds.root), "ROOT")
    for pattern, word in VARIES.items():
        text = re.sub(pattern, word, text)
    assert text.replace("\n", "").isprintable()
    file = FOLDER / f"{name}.txt"
    if "RENEW" in os.environ:
        file.write_text(text)
    assert text == file.read_text()
