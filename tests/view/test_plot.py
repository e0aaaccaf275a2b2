"""The plot shows the chosen nights, with kept and crashed attempts."""

import dataclasses

import pytest
from samples import FOREIGN, HISTORY, NIGHT, UPSTREAM, attempt

from agent.errors import NightError
from agent.experiment import Status
from agent.files import write_plain
from agent.records import ledger
from agent.view import plot

LATER = dataclasses.replace(NIGHT, tag="u", protocol="another")


@pytest.fixture
def rows(tmp_path):
    write_plain(tmp_path / "results.tsv", ledger.render(f"{UPSTREAM}\n", [(NIGHT, HISTORY), (LATER, HISTORY[:1])]))
    return ledger.read_rows(tmp_path / "results.tsv")


def tags(rows: list[ledger.Row]) -> set[str]:
    return {row["tag"] for row in rows}


def test_the_latest_night_is_drawn_unless_others_are_named(rows):
    assert tags(plot.chosen(rows, [], "u", everything=False)) == {"u"}
    assert tags(plot.chosen(rows, ["t"], "u", everything=False)) == {"t"}
    assert tags(plot.chosen(rows, ["u", "t"], "u", everything=False)) == {"t", "u"}
    assert plot.chosen(rows, [], "u", everything=True) == rows


def test_where_no_night_ran_here_the_latest_is_told_by_the_rows(rows):
    later = [row | {"started": "2027-01-01T00:00:00Z"} if row["tag"] == "t" else row for row in rows]
    for latest in (None, "a night without a row"):
        assert tags(plot.chosen(later, [], latest, everything=False)) == {"t"}
    assert plot.chosen([], [], None, everything=False) == []


def test_a_night_that_is_not_there_is_named_with_those_that_are(rows):
    with pytest.raises(NightError, match=r"results\.tsv has no night v; there are: t, u"):
        plot.chosen(rows, ["v"], "u", everything=False)


def test_a_crash_is_marked_and_in_the_legend(rows, tmp_path):
    plot.plot(plot.chosen(rows, ["t"], None, everything=False), tmp_path / "p.svg")
    assert "<!-- crashed -->" in (tmp_path / "p.svg").read_text()
    plot.plot(plot.chosen(rows, ["u"], None, everything=False), tmp_path / "p.svg")
    assert "<!-- crashed -->" not in (tmp_path / "p.svg").read_text()


def test_a_run_that_was_stopped_early_is_no_crash(rows, tmp_path):
    stopped = [row | {"status": "discard"} if row["status"] == "crash" else row for row in rows]
    plot.plot(stopped, tmp_path / "p.svg")
    assert "<!-- no score -->" in (tmp_path / "p.svg").read_text()
    assert "<!-- crashed -->" not in (tmp_path / "p.svg").read_text()


def test_a_question_of_dawn_is_no_idea(tmp_path):
    asked = attempt(4, 1.1, Status.DISCARD)
    asked = dataclasses.replace(asked, proposal=dataclasses.replace(asked.proposal, source="dawn", without=(1,)))
    write_plain(tmp_path / "results.tsv", ledger.render("", [(NIGHT, (*HISTORY, asked))]))
    (members,) = plot._panels(ledger.read_rows(tmp_path / "results.tsv"))
    assert [row["attempt"] for row in members] == ["0", "1", "2", "3"]


def test_the_picture_has_a_panel_for_each_night(rows, tmp_path):
    plot.plot(rows, tmp_path / "one.svg")
    picture = (tmp_path / "one.svg").read_text()
    assert picture.count('id="axes_') == 3  # another night, this one, and rows that came without
    plot.plot(rows, tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_crashes_and_words_are_no_points(tmp_path):
    crash, word = "a1b2c3d\t0.000000\t0.0\tcrash\tout of memory", "a1b2c3e\tbroken\t0.0\tdiscard\ta word"
    (tmp_path / "results.tsv").write_text(f"{ledger.HEADER}\n{UPSTREAM}\n{crash}\n{word}\n")
    rows = ledger.read_rows(tmp_path / "results.tsv")
    assert [plot._score(row) for row in rows] == [0.9979, None, None]
    plot.plot(rows, tmp_path / "p.svg")
    with pytest.raises(NightError, match="no scored attempt to plot"):
        plot.plot(rows[1:], tmp_path / "p.svg")


def test_a_panel_says_where_and_for_how_long_its_rows_were_trained(rows, tmp_path):
    plot.plot(rows, tmp_path / "p.svg")
    picture = (tmp_path / "p.svg").read_text()
    ours, theirs = "t · a CPU · 30s · protocol pppppppppppp", "u · a CPU · 30s · protocol another"
    for title in (ours, theirs, "rows without a protocol"):
        assert f"<!-- {title} -->" in picture


def test_a_picture_of_nothing_is_refused(tmp_path):
    with pytest.raises(NightError, match="no scored attempt to plot"):
        plot.plot([], tmp_path / "p.png")


def test_a_place_that_cannot_be_written_is_named(rows, tmp_path):
    with pytest.raises(NightError, match=r"p\.nope cannot be written .* name a \.png or \.svg file"):
        plot.plot(rows, tmp_path / "p.nope")


def test_the_command_draws_the_latest_night_and_says_which(grounds):
    grounds.try_scripts("t", [])
    there = f"{ledger.HEADER}\n{FOREIGN}\n"
    (grounds.root / "results.tsv").write_text(there)  # the rows of this night are rendered from its journal
    for options, drawn in (([], "t"), (["--tag", "old-night"], "old-night"), (["--all"], "old-night, t")):
        done = grounds.nightshift("plot", "--out", "p.svg", *options)
        assert (done.returncode, done.stdout) == (0, f"wrote p.svg: {drawn}\n")
    assert grounds.nightshift("plot", "--out", "p.svg", "--all", "--tag", "t").returncode == 2


@pytest.mark.parametrize("title", [r"a rate of $\nope{x}$", "$1 less than $_"])
def test_a_title_is_no_formula(rows, tmp_path, title):
    named = [row | {"description": title} for row in rows]
    plot.plot(named, tmp_path / "p.svg")
    assert title in (tmp_path / "p.svg").read_text()
