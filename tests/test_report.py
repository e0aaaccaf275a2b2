"""What the morning shows: tables, verdict lines, and the picture of the progress."""

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console
from test_journal import NIGHT
from test_ledger import HISTORY, UPSTREAM

from agent import ledger, report
from agent.errors import NightError
from agent.experiment import Attempt, Decision, Ending, Status
from agent.screen import verdict


@pytest.fixture
def rows(tmp_path):
    other = dataclasses.replace(NIGHT, tag="u", protocol="another")
    ledger.write(tmp_path / "results.tsv", ledger.render(f"{UPSTREAM}\n", [(NIGHT, HISTORY), (other, HISTORY[:1])]))
    return report.read_rows(tmp_path / "results.tsv")


def shown(what: object) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(what)
    return console.export_text()


def said(attempt: Attempt, before: Attempt | None) -> str:
    return shown(verdict(attempt, before)).strip()


def test_a_table_has_a_line_for_every_row_also_for_shorter_ones(rows):
    assert len(shown(report.results_table(rows)).splitlines()) == 1 + 6


def test_a_verdict_names_score_difference_and_decision():
    assert said(HISTORY[0], None) == "#0 · baseline · val_bpb 1.500000 · keep"
    assert said(HISTORY[1], HISTORY[0]) == "#1 · LR 0.1 → 0.2 · val_bpb 1.250000 · Δ -0.250000 · keep"
    assert said(HISTORY[3], HISTORY[1]) == "#3 · title · val_bpb 1.750000 · Δ +0.500000 · discard"


def test_a_crash_says_why():
    assert said(HISTORY[2], HISTORY[1]).endswith("crash (a reason)")


def test_a_verdict_that_the_difference_would_not_give_says_why():
    for status, before in ((Status.DISCARD, HISTORY[3]), (Status.KEEP, HISTORY[1])):
        decided = dataclasses.replace(HISTORY[0], decision=Decision(status, "by the whole night"))
        assert said(decided, before).endswith(f"{status} (by the whole night)")


def test_a_keep_on_approval_says_so():
    reason = "provisional: 0.25 below its parent, 70% sure"
    provisional = dataclasses.replace(HISTORY[1], decision=Decision(Status.KEEP, reason))
    assert said(provisional, HISTORY[0]).endswith(f"keep ({reason})")


def test_brackets_in_a_title_are_no_markup():
    proposal = dataclasses.replace(HISTORY[3].proposal, title="[red]WINDOW[/] [L]")
    assert "[red]WINDOW[/] [L]" in said(dataclasses.replace(HISTORY[3], proposal=proposal), None)


def test_status_counts_and_names_the_best():
    lines = "\n".join(report.status_lines(NIGHT, HISTORY, pid=None, stopping=False))
    assert "4 attempts: 2 keep, 1 discard, 1 crash" in lines
    assert "best val_bpb 1.250000 (#1), 0.250000 below the baseline's 1.500000" in lines


def test_a_keep_that_fresh_seeds_put_above_the_baseline_is_told_as_such():
    history = (HISTORY[1], dataclasses.replace(HISTORY[0], number=1))
    lines = report.status_lines(NIGHT, history, pid=None, stopping=False)
    assert "best val_bpb 1.500000 (#1), 0.250000 above the baseline's 1.250000" in lines


def test_a_run_that_goes_on_is_not_called_lost():
    lost = dataclasses.replace(HISTORY[3].runs[0], ending=Ending.LOST, score=None)
    at_work = dataclasses.replace(HISTORY[3], runs=(lost, lost), decision=None, settled=False)
    there = shown(report.attempt_view(NIGHT, at_work, Path("runs"), running=True)).splitlines()
    gone = shown(report.attempt_view(NIGHT, at_work, Path("runs"))).splitlines()
    assert [line for line in there if "run with" in line] == [
        "run with seed 0: lost, exit code 0, 31.5 s",
        "run with seed 0: going on",
    ]
    assert sum("lost" in line for line in gone) == 2


def test_the_picture_has_a_panel_for_each_night(rows, tmp_path):
    report.plot(rows, tmp_path / "one.svg")
    picture = (tmp_path / "one.svg").read_text()
    assert picture.count('id="axes_') == 3  # another night, this one, and rows that came without
    report.plot(rows, tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_crashes_and_words_are_no_points(tmp_path):
    crash, word = "a1b2c3d\t0.000000\t0.0\tcrash\tout of memory", "a1b2c3e\tbroken\t0.0\tdiscard\ta word"
    (tmp_path / "results.tsv").write_text(f"{ledger.HEADER}\n{UPSTREAM}\n{crash}\n{word}\n")
    rows = report.read_rows(tmp_path / "results.tsv")
    assert [report._score(row) for row in rows] == [0.9979, None, None]
    report.plot(rows, tmp_path / "p.svg")
    with pytest.raises(NightError, match="no scored attempt to plot"):
        report.plot(rows[1:], tmp_path / "p.svg")


def test_a_panel_says_where_and_for_how_long_its_rows_were_trained(rows, tmp_path):
    report.plot(rows, tmp_path / "p.svg")
    picture = (tmp_path / "p.svg").read_text()
    ours, theirs = "t · a CPU · 30s · protocol pppppppppppp", "u · a CPU · 30s · protocol another"
    for title in (ours, theirs, "rows without a protocol"):
        assert f"<!-- {title} -->" in picture


def test_a_picture_of_nothing_is_refused(tmp_path):
    with pytest.raises(NightError, match="no scored attempt to plot"):
        report.plot([], tmp_path / "p.png")


def test_a_place_that_cannot_be_written_is_named(rows, tmp_path):
    with pytest.raises(NightError, match=r"p\.nope cannot be written .* name a \.png or \.svg file"):
        report.plot(rows, tmp_path / "p.nope")


def test_a_night_that_was_interrupted_says_what_is_unfinished():
    history = [HISTORY[0], dataclasses.replace(HISTORY[1], decision=None, settled=False)]
    lines = report.status_lines(NIGHT, history, pid=None, stopping=False)
    assert lines[2:] == [
        "2 attempts: 1 keep, 0 discard, 0 crash, 1 unfinished",
        "best val_bpb 1.500000 (#0), the baseline",
        "unfinished, redone on resume: #1 LR 0.1 → 0.2",
    ]
    assert report.status_lines(NIGHT, history, pid=7, stopping=False)[-1] == "at work: #1 LR 0.1 → 0.2"
