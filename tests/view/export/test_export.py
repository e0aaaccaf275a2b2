"""Rows of attempts hold all facts, the dials as they were in each, and texts that no reader trips over."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from facts import a_night, a_run, an_attempt
from nights import environment
from terminals import Terminal

from agent.errors import NightError
from agent.view.export.folder import replaced
from agent.view.export.rows import attempts, settings
from agent.view.export.tables import write_csv, write_jsonl, write_parquet

TREE = a_night(
    an_attempt(a_run(0, 1.2), number=0),
    an_attempt(number=1, dials={"LR": (0.1, 0.2)}),
    an_attempt(number=2, dials={"LR": (0.1, 0.05), "DEPTH": (4, 6)}),
    an_attempt(number=3, parent=1, dials={"LR": (0.2, 0.4), "WINDOW": ("SL", ("L", "S"))}),
    an_attempt(number=4, parent=3, dials={"DEPTH": (4, 8)}),
)


def test_each_attempt_has_the_dials_of_its_parent_apart_from_those_that_it_turned():
    assert settings(TREE) == {
        0: {"LR": 0.1, "DEPTH": 4, "WINDOW": "SL"},
        1: {"LR": 0.2, "DEPTH": 4, "WINDOW": "SL"},
        2: {"LR": 0.05, "DEPTH": 6, "WINDOW": "SL"},
        3: {"LR": 0.4, "DEPTH": 4, "WINDOW": ("L", "S")},
        4: {"LR": 0.4, "DEPTH": 8, "WINDOW": ("L", "S")},
    }


def test_columns_of_parquet_have_the_types_of_the_facts_also_where_nothing_is_known(tmp_path):
    write_parquet(tmp_path / "t.parquet", attempts([TREE]))
    schema = pq.read_schema(tmp_path / "t.parquet")
    types = {name: str(schema.field(name).type) for name in schema.names}
    assert {name: types[name] for name in ("tag", "attempt", "usd", "commit", "is_incumbent", "sigma_bpb")} == {
        "tag": "string", "attempt": "int64", "usd": "double", "commit": "string", "is_incumbent": "bool",
        "sigma_bpb": "double",
    }  # fmt: skip
    assert {name: kind for name, kind in types.items() if name.startswith("dial.")} == {
        "dial.DEPTH": "int64", "dial.LR": "double", "dial.WINDOW": "string",
    }  # fmt: skip
    windows = pq.read_table(tmp_path / "t.parquet")["dial.WINDOW"].to_pylist()
    assert windows == ["SL", "SL", "SL", '["L", "S"]', '["L", "S"]']


HOSTILE = "=cmd|' /C calc'!A1"
WORDS = 'a "quoted", cell\nof two lines, \x1b[2J, \ud800 and 🧪'


def test_hostile_texts_are_texts_in_every_format(tmp_path):
    night = a_night(an_attempt(a_run(0, float("nan")), number=0, title=HOSTILE, words=WORDS, source="<script>"))
    rows = attempts([night])
    write_csv(tmp_path / "t.csv", rows)
    write_jsonl(tmp_path / "t.jsonl", rows)
    write_parquet(tmp_path / "t.parquet", rows)
    (row,) = csv.DictReader((tmp_path / "t.csv").open(newline="", encoding="utf-8"))
    assert row["title"] == f"'{HOSTILE}"  # no formula
    assert row["words"] == 'a "quoted", cell\nof two lines, \\x1b[2J, \\ud800 and 🧪'
    line = json.loads((tmp_path / "t.jsonl").read_text())
    (packed,) = pq.read_table(tmp_path / "t.parquet").to_pylist()
    for found in (line, packed):
        assert (found["title"], found["source"]) == (HOSTILE, "<script>")
        assert found["words"] == WORDS.replace("\ud800", "\\ud800")
        assert found["runs"][0]["val_bpb"] is None  # JSON has no such number


@pytest.mark.parametrize("title", ["\t=1+1", " =1+1", "\n@SUM(1)"])
def test_a_formula_behind_a_blank_is_a_text_too(tmp_path, title):
    write_csv(tmp_path / "t.csv", attempts([a_night(an_attempt(number=0, title=title))]))
    (row,) = csv.DictReader((tmp_path / "t.csv").open(newline="", encoding="utf-8"))
    assert row["title"] == f"'{title}"


def interrupted(there: Path) -> None:
    with replaced(there, "tensorboard", ["t"]) as aside:
        (aside / "second").touch()
        raise KeyboardInterrupt


def test_a_folder_takes_the_place_of_an_earlier_export_only_when_it_is_whole(tmp_path):
    there = tmp_path / "t"
    with replaced(there, "tensorboard", ["t"]) as aside:
        (aside / "first").touch()
    with pytest.raises(KeyboardInterrupt):
        interrupted(there)
    assert sorted(path.name for path in there.iterdir()) == ["first", "nightshift-export.json"]
    with pytest.raises(NightError, match="other than an export for trackio"), replaced(there, "trackio", ["t"]):
        pass
    with replaced(there, "tensorboard", ["t"]) as aside:
        (aside / "third").touch()
    assert sorted(path.name for path in there.iterdir()) == ["nightshift-export.json", "third"]
    assert list(tmp_path.iterdir()) == [there]


SLOWLY = """
import time
from agent.view.export.bar import tracked
for _ in tracked([0.0, 2.1, 0.5], "counting"):
    time.sleep(_)
print("done")
"""


@pytest.mark.slow
def test_a_bar_appears_on_a_terminal_after_two_seconds_and_leaves_nothing(tmp_path):
    with Terminal([sys.executable, "-c", SLOWLY], tmp_path, 80) as terminal:
        terminal.until(lambda: terminal.has_shown("counting", "67%"))
        assert terminal.to_the_end() == 0
        assert terminal.text().strip() == "done"
    piped = subprocess.run(
        [sys.executable, "-c", SLOWLY], env=environment(), capture_output=True, text=True, check=True
    )
    assert (piped.stdout, piped.stderr) == ("done\n", "")


def test_a_users_folder_with_a_name_like_that_of_a_half_written_export_stays(tmp_path):
    for name in (".there.new", ".there.old"):
        (tmp_path / name).mkdir()
    with replaced(tmp_path / "there", "tensorboard", ["t"]):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"there", ".there.new", ".there.old"}
