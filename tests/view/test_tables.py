"""Rows of attempts hold all facts, the dials as they were in each, and texts that no reader trips over."""

import csv
import json

import pyarrow.parquet as pq
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


def test_a_dial_has_a_column_of_its_values_those_of_a_parent_too_and_one_of_several_types_is_text(tmp_path):
    write("parquet", tmp_path / "t.parquet", attempts([TREE]))
    table = pq.read_table(tmp_path / "t.parquet")
    assert [str(table.schema.field(name).type) for name in ("attempt", "dial.DEPTH", "dial.LR")] == [
        "int64", "int64", "double",
    ]  # fmt: skip
    assert table["dial.LR"].to_pylist() == [0.1, 0.2, 0.05, 0.4, 0.4]
    assert table["dial.DEPTH"].to_pylist() == [4, 4, 6, 4, 8]
    assert table["dial.WINDOW"].to_pylist() == ["SL", "SL", "SL", '["L", "S"]', '["L", "S"]']


@pytest.mark.parametrize("title", ["=cmd|' /C calc'!A1", "\t=1+1", " =1+1", "\n@SUM(1)"])
def test_hostile_texts_are_texts_in_every_format(tmp_path, title):
    words = 'a "quoted", cell\nof two lines, \x1b[2J, \ud800 and 🧪'
    odd = attempt(0, Kind.KEPT, title=title, words=words, proposer="<script>", runs=[a_run(0, float("nan"))])
    rows = attempts([night(odd)])
    for name in ("csv", "jsonl", "parquet"):
        write(name, tmp_path / f"t.{name}", rows)
    (row,) = csv.DictReader((tmp_path / "t.csv").open(newline="", encoding="utf-8"))
    assert row["title"] == f"'{title}"  # no formula
    assert row["words"] == 'a "quoted", cell\nof two lines, \\x1b[2J, \\ud800 and 🧪'
    assert row["decisions"].isascii()
    line = json.loads((tmp_path / "t.jsonl").read_text())
    (packed,) = pq.read_table(tmp_path / "t.parquet").to_pylist()
    for row in (line, packed):
        assert (row["title"], row["proposer"]) == (title, "<script>")
        assert row["words"] == words.replace("\ud800", "\\ud800")
        assert row["runs"][0]["score"]["val_bpb"] is None  # JSON has no such number
