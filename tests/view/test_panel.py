"""The live panel on an emulated terminal: every fact, no broken word, nothing left over."""

import dataclasses
import math
import re

import pytest
from judged import scored_attempt
from rich.cells import cell_len
from rich.console import Console
from samples import NIGHT, doing
from terminals import Emulator

from agent.experiment import Ask, Attempt, Doing, Progress, Proposal, Status
from agent.judging.intervals import Interval
from agent.judging.noise import noise
from agent.proposers.briefing import Left
from agent.records.record import Record
from agent.records.summary import Scored, summary_of
from agent.view.live.panel import Standing, countdown
from agent.view.live.screen import Screen

TITLE = "WARMUP_FRACTION 0.0 → 0.07105, EMBEDDING_LR 0.3 → 0.25, MATRIX_LR 0.02 → 0.035, and the rest as it was"
WHY = "The first steps are wild, and a slow start keeps the momentum from storing their directions for long."
END = "…,"
ASKS = (
    Ask(1, "llm:m", "", 3.0, "m", 12_000, 801, 0.25, tokens_cached=9_000),
    Ask(2, "llm:m", "", 3.0, "m", 34, None, 1.0),
    Ask(3, "command", "", 60.0),
)
LEFT = Left(31, 5 * 3600 + 12 * 60 + 30)
MEASURED = (
    scored_attempt(0, 1.5, 1.51, 1.49, status=Status.KEEP, title="baseline"),
    scored_attempt(1, 1.25, 1.26, parent=0, status=Status.KEEP, title="LR 0.1 → 0.2"),
    scored_attempt(2, parent=1, status=Status.CRASH, title="all at once"),
    scored_attempt(3, 1.75, parent=1, title="LR 0.2 → 0.9"),
)


def proposed(title: str, why: str = WHY, number: int = 4) -> Attempt:
    return Attempt(number, 1, Proposal("A = 1", title, why, "search"), "2026-01-02T03:04:05Z")


def shown_on(columns: int, rows: int = 24, title: str = TITLE, why: str = WHY) -> tuple[Emulator, Screen, Console]:
    """A night with four verdicts, its costs and a fifth attempt in the middle of its run."""
    terminal = Emulator(columns, rows)
    console = Console(file=terminal, width=columns, height=rows, force_terminal=True)
    screen = Screen(console, 300)
    for attempt in MEASURED:
        screen.attempt_settled(attempt, None if attempt.parent is None else MEASURED[attempt.parent])
    screen.night_stands(NIGHT, MEASURED, ASKS, LEFT)
    attempt = proposed(title, why)
    screen.attempt_began(attempt)
    screen.work_began(attempt, doing(Doing.TRAINING, 7))
    screen.progressed(Progress(0.45, step=70, loss=4.25, tokens_s=1850), 140)
    return terminal, screen, console


def test_the_panel_shows_each_fact_within_eight_lines_of_80_columns():
    terminal, _, _ = shown_on(80)
    found = noise(MEASURED)
    margin_bpb = 1.96 * found.sigma_bpb * math.sqrt(1 / 3 + 1 / 2)
    assert terminal.lines()[4:] == [
        "─" * 79,
        "#4 WARMUP_FRACTION 0.0 → 0.07105, EMBEDDING_LR 0.3 → 0.25… · run 1, seed 7",
        "The first steps are wild, and a slow start keeps the momentum from storing…",
        "━━━━━━━━━╸━━━━━━━━━━━━ 45% · 165 s left · 1,850 tokens/s · loss 4.250 · step 70",
        f"best   #1 val_bpb 1.255000 · 0.245000 ± {margin_bpb:.6f} below the baseline",
        f"so far 1 kept · 1 discarded · 1 crashed · σ {found.sigma_bpb:.6f}",
        "left   31 experiments · 5 h 12 min",
        "cost   $1.25 · 12,034 tokens in (9,000 cached) · 801 out",
    ]


def test_a_gain_is_green_where_its_whole_interval_is_one():
    for gain_bpb, colour in ((0.2, "\x1b[32m"), (0.05, "")):
        terminal, screen, _ = shown_on(80)
        best = Scored(1, "title", 1.5 - gain_bpb, 1.0, 2.0, 1)
        gain = Interval(gain_bpb, gain_bpb - 0.1, gain_bpb + 0.1)
        now = summary_of(Record(NIGHT, tuple(MEASURED), ASKS, noise=noise(MEASURED)))
        screen.stands(Standing.of(dataclasses.replace(now, best=best, gain=gain), LEFT))
        assert f"{colour}{gain_bpb:.6f} ± 0.100000 below the baseline" in terminal.raw
        assert ("\x1b[32m" in terminal.raw.rpartition("best")[2].partition("\n")[0]) == bool(colour)


def test_a_wide_terminal_has_room_for_more():
    title, why, bar, best = shown_on(140)[0].lines()[5:9]
    assert title == f"#4 {TITLE} · run 1, seed 7"
    assert why == WHY
    assert bar.count("━") + bar.count("╺") + bar.count("╸") == 40
    assert best.endswith(" below the baseline · baseline 1.500000 · LR 0.1 → 0.2")


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 100, 140])
def test_no_word_is_broken_on_any_terminal(columns):
    terminal, screen, _ = shown_on(columns, rows=60)
    screen.said("the night ends after this run; Ctrl-C again ends the run too, and what it found is kept")
    everything, _, _ = shown_on(400)
    whole = set(everything.screen.display) | {
        "the night ends after this run; Ctrl-C again ends the run too, and what it"
    }
    known = {word.rstrip(END) for line in (*whole, "found is kept", TITLE, WHY) for word in line.split()}
    lines = [line for line in terminal.lines() if not set(line) <= set("─")]
    broken = [word for line in lines for word in line.split() if word.rstrip(END) not in known | {""}]
    assert [word for word in broken if not set(word) <= set("━╸╺")] == []
    assert max(map(cell_len, lines)) <= columns


@pytest.mark.parametrize("columns", [40, 80])
def test_wide_characters_are_counted_by_their_columns(columns):
    terminal, _, _ = shown_on(columns, title="学習率を下げる " * 20, why="🚀 " * 100)
    lines = terminal.lines()
    title, why = lines[lines.index("─" * (columns - 1)) + 1 :][:2]
    assert title.startswith("#4 学")
    assert title.endswith("… · run 1, seed 7")
    assert why.startswith("🚀")
    assert [line[:4] for line in lines[-4:]] == ["best", "so f", "left", "cost"]


@pytest.mark.parametrize(
    "title",
    ["\x1b[2J\x1b[1;1Hgone", "[red]markup[/red] [/]", "a\tb\nc\rd", "\u202eright to left", "x" * 10_000, "[" * 50],
)
def test_a_hostile_title_is_text(title):
    terminal, screen, _ = shown_on(80, title=title, why=title)
    lines = terminal.lines()
    assert lines[0] == "#0 · baseline · val_bpb 1.500000 · keep"
    assert lines[-1] == "cost   $1.25 · 12,034 tokens in (9,000 cached) · 801 out"
    assert len(lines) in (11, 12)  # the reason is left out where the title says it
    assert lines[5].startswith("#4 ")
    screen.attempt_settled(dataclasses.replace(MEASURED[3], number=4, proposal=Proposal.of("", title)), None)
    assert "#4 · " in " ".join(terminal.lines())


@pytest.mark.parametrize("columns", [60, 100, 140])
def test_a_terminal_that_changes_its_size_has_one_panel(columns):
    terminal, screen, console = shown_on(80)
    terminal.screen.resize(24, columns)
    console.width = columns
    screen.night_stands(NIGHT, MEASURED, ASKS, LEFT)
    screen.said("one more line")
    lines = terminal.lines()
    assert lines[4] == "one more line"
    assert lines[5] == "─" * (columns - 1)
    assert [line[:4] for line in lines[6:]] == ["#4 W", "The ", "━━━━", "best", "so f", "left", "cost"]


def test_a_low_terminal_shows_as_many_lines_as_it_has():
    terminal, screen, _ = shown_on(80, rows=5)
    for number in range(30):
        screen.said(f"line {number}")
    assert terminal.lines()[0] == "line 29"
    assert len(terminal.lines()) == 5


def test_nothing_of_the_panel_is_left_when_the_night_ends():
    terminal, screen, _ = shown_on(80)
    screen.close()
    assert len(terminal.lines()) == 4
    assert terminal.raw.endswith("\x1b[?25h")  # the cursor is there again
    assert terminal.screen.cursor.y == 4


def test_colours_are_left_out_where_the_user_wants_none(monkeypatch):
    assert "\x1b[32m" in shown_on(80)[0].raw
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown_on(80)[0]
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m|\x1b\[[0-9;]*9[0-9]m", plain.raw)
    assert "━━━━━━━━━╸ " in plain.text()


def test_a_terminal_without_cursor_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    terminal, _, _ = shown_on(80)
    assert "\x1b" not in terminal.raw
    assert f"#4 {TITLE[:20]}" in terminal.text()


def test_runs_are_told_apart_in_the_calibration_and_at_dawn():
    terminal, screen, console = shown_on(140)
    first = dataclasses.replace(MEASURED[0], decision=None, settled=False, runs=MEASURED[0].runs[:1])
    calibrating = Screen(console, 300, calibration=3)
    calibrating.work_began(first, doing(Doing.TRAINING, 1))
    assert "calibration run 2 of 3, seed 1" in terminal.text()
    narrow, _, on_it = shown_on(60)
    Screen(on_it, 300, calibration=3).work_began(first, doing(Doing.TRAINING, 1))
    assert "calibration run 2 of 3, seed 1" in narrow.text(), "its title leaves the room"
    screen.dawn_began(8)
    for seed in (1000, 1001):
        screen.work_began(MEASURED[1], doing(Doing.TRAINING, seed))
    assert "#1 LR 0.1 → 0.2 · dawn run 2 of up to 8, seed 1001" in terminal.text()


def test_the_bar_of_a_scoring_goes_by_the_one_before():
    terminal, screen, _ = shown_on(80)
    for took_s in (20.0, 5.0):
        screen.work_began(proposed("A 1 → 2"), doing(Doing.SCORING))
        screen.progressed(None, took_s)
    assert "5 s of about 20 s" in terminal.text()
    screen.work_began(proposed("A 1 → 2"), doing(Doing.SCORING))
    screen.progressed(None, 7.0)
    assert "7 s of about 7 s" in terminal.text()


def test_a_dry_run_shows_no_progress_of_the_second_that_it_trains():
    terminal, screen, _ = shown_on(80)
    screen.work_began(proposed("A 1 → 2"), doing(Doing.REHEARSING))
    screen.progressed(Progress(1.0), 3.0)
    assert "dry run" in terminal.text()
    assert "100%" not in terminal.text()
    assert " 3 s" in terminal.text()


def test_durations_are_told_in_their_two_largest_units():
    assert [countdown(seconds) for seconds in (0.4, 59.9, 60, 3599, 3600, 90_000)] == [
        *("0 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "25 h 0 min"),
    ]
