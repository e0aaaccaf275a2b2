"""Rows of attempts hold all facts, the dials as they were in each, and texts that no reader trips over."""

import csv
import json

import pytest
from samples import a_run, attempt, night

from agent.experiment import Kind
from agent.view.tables import attempts, write

TREE = night(
    *(attempt(number, Kind.KEPT, 1.0, parent=parent) for number, parent in enumerate((None, 0, 0, 1, 3))),
    turned={
        1: {"LR": (0.1, 0.2)}, 2: {"LR": (0.1, 0.05), "DEPTH": (4, 6)},
        3: {"LR": (0.2, 0.4), "WINDOW": ("SL", ("L", "S"))}, 4: {"DEPTH": (4, 8)},
    },
)  # fmt: skip


def test_a_dial_has_a_column_of_its_values_those_of_a_parent_too():
    rows = attempts([TREE])
    assert [row["dial.LR"] for row in rows] == [0.1, 0.2, 0.05, 0.4, 0.4]
    assert [row["dial.DEPTH"] for row in rows] == [4, 4, 6, 4, 8]
    assert [row["dial.WINDOW"] for row in rows] == ["SL", "SL", "SL", ["L", "S"], ["L", "S"]]


@pytest.mark.parametrize("title", ["=cmd|' /C calc'!A1", "\t=1+1", " =1+1", "\n@SUM(1)"])
def test_hostile_texts_are_texts_in_every_format(tmp_path, title):
    words = 'a "quoted", cell\nof two lines, \x1b[2J, \ud800 and 🧪'
    odd = attempt(0, Kind.KEPT, title=title, words=words, proposer="<script>", runs=[a_run(0, float("nan"))])
    rows = attempts([night(odd)])
    for name in ("csv", "jsonl"):
        write(name, tmp_path / f"t.{name}", rows)
    (row,) = csv.DictReader((tmp_path / "t.csv").open(newline="", encoding="utf-8"))
    assert row["title"] == f"'{title}"  # no formula
    assert row["words"] == 'a "quoted", cell\nof two lines, \\x1b[2J, \\ud800 and 🧪'
    assert row["decisions"].isascii()
    line = json.loads((tmp_path / "t.jsonl").read_text())
    assert (line["title"], line["proposer"]) == (title, "<script>")
    assert line["words"] == words.replace("\ud800", "\\ud800")
    assert line["runs"][0]["score"]["val_bpb"] is None  # JSON has no such number
