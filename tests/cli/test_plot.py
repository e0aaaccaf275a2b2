"""nightshift plot draws the chosen nights into a file."""

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

from samples import FOREIGN, UPSTREAM

from agent.cli.reading.plot import width_px
from agent.records.results import COLUMNS, HEADER

HERE = Path(__file__).parents[2]
SHIPPED = "nov22-cpu-mix-1"


def bring(grounds, tag):
    shutil.copytree(HERE / "experiments/shipped" / tag, grounds.root / "experiments/shipped" / tag)


def test_the_latest_night_is_drawn_unless_others_are_named(grounds):
    grounds.try_scripts("t", [])
    bring(grounds, SHIPPED)
    (grounds.root / "results.tsv").write_text(f"{HEADER}\n{FOREIGN}\n{UPSTREAM}\n")
    for options, drawn in (
        ([], "t"),
        (["--tag", "old-night"], "old-night"),
        (["--tag", "t", "--tag", SHIPPED, "--tag", "t"], f"t, {SHIPPED}"),
    ):
        done = grounds.nightshift("plot", "--out", "p.svg", *options)
        assert (done.returncode, done.stdout) == (0, f"wrote p.svg: {drawn}\n")
    done = grounds.nightshift("plot", "--out", "p.svg", "--all")
    assert set(done.stdout.removeprefix("wrote p.svg: ").strip().split(", ")) == {"t", "old-night", SHIPPED}
    assert grounds.nightshift("plot", "--out", "p.svg", "--all", "--tag", "t").returncode == 2


def test_a_drawing_stands_by_itself_and_a_picture_is_one(grounds):
    bring(grounds, SHIPPED)
    assert grounds.nightshift("plot", "--out", "p.svg").returncode == 0
    drawn = (grounds.root / "p.svg").read_text()
    assert "honest gain" in "".join(ET.fromstring(drawn).itertext())
    assert "var(" not in drawn
    assert grounds.nightshift("plot", "--tag", SHIPPED, "--out", "P.PNG").returncode == 0
    assert (grounds.root / "P.PNG").read_bytes().startswith(b"\x89PNG")


def test_where_no_night_ran_the_latest_is_told_by_the_rows(grounds):
    times = {"early": "2026-01-01T00:00:00Z", "later": "2026-03-01T00:00:00Z", "other": "2026-02-01T00:00:00Z"}
    at = COLUMNS.index("started")
    rows = []
    for tag, started in times.items():
        cells = FOREIGN.replace("old-night", tag).split("\t")
        rows.append("\t".join([*cells[:at], started, *cells[at + 1 :]]))
    (grounds.root / "results.tsv").write_text("\n".join([HEADER, *rows, ""]))
    assert grounds.nightshift("plot", "--out", "p.svg").stdout == "wrote p.svg: later\n"


def test_many_nights_lie_beside_each_other():
    assert width_px(1) == width_px(3)
    assert 440 * 2 <= width_px(4) < 440 * 3 <= width_px(16)


def test_what_cannot_be_drawn_or_written_is_named(grounds):
    bring(grounds, SHIPPED)
    for options, words in (
        (["--out", "p.jpeg"], "--out must end in .png or .svg, and p.jpeg does not"),
        (["--out", "nowhere/p.svg"], "nowhere/p.svg cannot be written"),
        (["--tag", "v", "--out", "p.svg"], "no night v is known here; there are: "),
    ):
        done = grounds.nightshift("plot", *options)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
