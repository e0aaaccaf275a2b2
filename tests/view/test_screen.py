"""What a person sees while a night goes on: a panel on a terminal, a plain line now and then elsewhere."""

import dataclasses
import io
import math
import os
import re
import sqlite3
import time
from contextlib import closing

import pytest
from crews import GPUS, record_crew
from judged import scored_attempt
from nights import make_repository, unigram
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from samples import NIGHT, enter
from terminals import Emulator

from agent.clock import utc_now
from agent.experiment import (
    LOCAL,
    Ask,
    Audit,
    Decision,
    Doing,
    Ending,
    Kind,
    Progress,
    Proposal,
    Run,
    Score,
    Status,
    Work,
)
from agent.judging.intervals import Interval
from agent.judging.noise import noise
from agent.proposers.briefing import Left
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.record import Record
from agent.records.summary import Scored, summary_of
from agent.view.live import Job, NightScreen, RunScreen, Screen, Standing
from agent.view.screen import print_folded, print_next, steadfast
from agent.view.words import progress_words
from agent.view.workers import load_of

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
STANDING = Standing(summary_of(Record(NIGHT, MEASURED, ASKS, noise=noise(MEASURED))))
HALFWAY = Progress(0.45, step=70, loss=4.25, tokens_s=1850)
AT_WORK = Job(f"#4 {TITLE}", "run 1, seed 7", WHY, HALFWAY, 140.0)


def on_terminal(columns: int, rows: int = 24) -> tuple[Emulator, Console]:
    terminal = Emulator(columns, rows)
    return terminal, Console(file=terminal, width=columns, height=rows, force_terminal=True)


def shown_on(columns: int, rows: int = 24, job: Job = AT_WORK) -> tuple[Emulator, Screen, Console]:
    """A night with its costs and an attempt in the middle of its run."""
    terminal, console = on_terminal(columns, rows)
    screen = Screen(console, 300)
    screen.show({LOCAL: job}, STANDING, LEFT)
    return terminal, screen, console


# ---- the panel -------------------------------------------------------------------------------------------------------


def test_the_panel_shows_each_fact_within_eight_lines_of_80_columns():
    terminal, _, _ = shown_on(80)
    margin_bpb = 1.96 * noise(MEASURED).sigma_bpb * math.sqrt(1 / 3 + 1 / 2)
    assert terminal.lines() == [
        "─" * 79,
        "#4 WARMUP_FRACTION 0.0 → 0.07105, EMBEDDING_LR 0.3 → 0.25… · run 1, seed 7",
        "The first steps are wild, and a slow start keeps the momentum from storing…",
        "━━━━━━━━━╸━━━━━━━━━━━━ 45% · 165 s left · 1,850 tokens/s · loss 4.250 · step 70",
        f"best    #1 val_bpb 1.255000 · 0.245000 ± {margin_bpb:.6f} below the baseline",
        f"so far  1 kept · 1 discarded · 1 crashed · σ {noise(MEASURED).sigma_bpb:.6f}",
        "left    31 experiments · 5 h 12 min",
        "cost    $1.25 · 12,034 tokens in (9,000 cached) · 801 out",
    ]


def test_a_wide_terminal_has_room_for_more():
    title, why, bar, best = shown_on(140)[0].lines()[1:5]
    assert title == f"#4 {TITLE} · run 1, seed 7"
    assert why == WHY
    assert bar.count("━") + bar.count("╺") + bar.count("╸") == 40
    assert best.endswith(" below the baseline · baseline 1.500000 · LR 0.1 → 0.2")


def test_a_gain_is_green_where_its_whole_interval_is_one():
    for gain_bpb, colour in ((0.2, "\x1b[32m"), (0.05, "")):
        terminal, console = on_terminal(80)
        best, gain = Scored(1, "title", 1.5 - gain_bpb, 1.0, 2.0, 1), Interval(gain_bpb, gain_bpb - 0.1, gain_bpb + 0.1)
        Screen(console, 300).show({}, Standing(dataclasses.replace(STANDING.now, best=best, gain=gain)), LEFT)
        assert f"{colour}{gain_bpb:.6f} ± 0.100000 below the baseline" in terminal.raw


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 100, 140])
def test_no_word_is_broken_on_any_terminal(columns):
    terminal, screen, _ = shown_on(columns, rows=60)
    screen.said("the night ends after this run; Ctrl-C again ends the run too, and what it found is kept")
    everything, _, _ = shown_on(400)
    whole = {*everything.screen.display, "the night ends after this run; Ctrl-C again ends the run too, and what it"}
    known = {word.rstrip(END) for line in (*whole, "found is kept", TITLE, WHY) for word in line.split()}
    lines = [line for line in terminal.lines() if not set(line) <= set("─")]
    broken = [word for line in lines for word in line.split() if word.rstrip(END) not in known | {""}]
    assert [word for word in broken if not set(word) <= set("━╸╺")] == []
    assert max(map(cell_len, lines)) <= columns


@pytest.mark.parametrize("columns", [40, 80])
def test_wide_characters_are_counted_by_their_columns(columns):
    job = dataclasses.replace(AT_WORK, title="#4 " + "学習率を下げる " * 20, why="🚀 " * 100)
    title, why = shown_on(columns, job=job)[0].lines()[1:3]
    assert title.startswith("#4 学")
    assert title.endswith("… · run 1, seed 7")
    assert why.startswith("🚀")


@pytest.mark.parametrize("columns", [60, 100, 140])
def test_a_terminal_that_changes_its_size_has_one_panel(columns):
    terminal, screen, console = shown_on(80)
    terminal.screen.resize(24, columns)
    console.width = columns
    screen.show({LOCAL: dataclasses.replace(AT_WORK, doing="run 2, seed 8")}, STANDING, LEFT)
    screen.said("one more line")
    lines = terminal.lines()
    assert lines[:2] == ["one more line", "─" * (columns - 1)]
    assert [line[:4] for line in lines[2:]] == ["#4 W", "The ", "━━━━", "best", "so f", "left", "cost"]


def test_a_low_terminal_shows_as_many_lines_as_it_has():
    terminal, screen, _ = shown_on(80, rows=5)
    for number in range(30):
        screen.said(f"line {number}")
    assert terminal.lines()[0] == "line 29"
    assert len(terminal.lines()) == 5


def test_nothing_of_the_panel_is_left_when_the_night_ends():
    terminal, screen, _ = shown_on(80)
    screen.said("a verdict")
    screen.close()
    assert terminal.lines() == ["a verdict"]
    assert terminal.raw.endswith("\x1b[?25h")  # the cursor is there again
    assert terminal.screen.cursor.y == 1


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


def test_absurd_numbers_do_not_flood_the_screen():
    assert progress_words(Progress(1e299, step=1e299, loss=-1e299, tokens_s=1e299), 300) == ["100%", "0 s left"]
    assert progress_words(Progress(-1e299, step=-7, loss=2.5, tokens_s=-1), 300) == ["0%", "300 s left", "loss 2.500"]


# ---- several workers -------------------------------------------------------------------------------------------------


def busy(count: int, columns: int = 80, rows: int = 24) -> tuple[Emulator, Screen]:
    """A night whose workers train; the second tries a script, the third scores."""
    terminal, console = on_terminal(columns, rows)
    jobs = {name: dataclasses.replace(AT_WORK, title=f"#{at} {TITLE}") for at, name in enumerate(GPUS[:count], 4)}
    if count > 2:
        jobs["gpu 1"] = Job(f"#5 {TITLE}", "dry run", elapsed_s=2.0)
        jobs["gpu 2"] = Job("#6 DEPTH 4 → 6", "scoring", elapsed_s=7.0)
    screen = Screen(console, 300)
    now = summary_of(Record(NIGHT, (scored_attempt(0, 1.5, 1.51),), noise=noise(MEASURED)))
    screen.show(jobs, Standing(now, count), LEFT)
    return terminal, screen


def test_each_worker_has_a_line_of_80_columns():
    assert busy(4)[0].lines() == [
        "─" * 79,
        "gpu 0   ━━━╸━━━━  45%  #4 WARMUP_FRACTION 0.0 →… · run 1, seed 7 · loss 4.250",
        "gpu 1   ━━━━━━━━  2 s  #5 WARMUP_FRACTION 0.0 → 0.07105… · dry run",
        "gpu 2   ━━━━━━━━  7 s  #6 DEPTH 4 → 6 · scoring",
        "gpu 3   ━━━╸━━━━  45%  #7 WARMUP_FRACTION 0.0 →… · run 1, seed 7 · loss 4.250",
        "best    the baseline is measured first",
        f"so far  0 kept · 0 discarded · 0 crashed · σ {noise(MEASURED).sigma_bpb:.6f}",
        "left    31 experiments · 5 h 12 min",
        "workers 4 of 4 busy",
    ]


@pytest.mark.parametrize(("columns", "rows"), [(24, 12), (60, 8), (80, 24)])
def test_sixteen_workers_fit_into_any_terminal(columns, rows):
    terminal, screen = busy(16, columns, rows)
    screen.said("#3 · a verdict")
    lines = terminal.lines()
    assert len(lines) <= rows
    assert max(map(cell_len, lines)) < columns
    assert lines[0] == "#3 · a verdict"
    shown = sum(line.startswith("gpu ") for line in lines)
    assert shown >= 1
    assert lines[-1].startswith("workers 16 of 16") or rows < 12
    assert shown == 16 or f"and {16 - shown} more" in lines


def test_the_panel_says_how_busy_the_workers_were_and_how_many_experiments_an_hour_that_made():
    def ran(worker: str, hours: float) -> Run:
        ended = f"2026-01-02T03:{60 * hours:02.0f}:00Z" if hours < 1 else "2026-01-02T04:00:00Z"
        return Run(0, Ending.FINISHED, 0, 1.0, None, "", Score(1.5, 0.0), worker=worker,
                   began="2026-01-02T03:00:00Z", ended=ended)  # fmt: skip

    first = dataclasses.replace(scored_attempt(0), runs=(ran("gpu 0", 1), ran("gpu 1", 0.5)))
    ideas = [dataclasses.replace(scored_attempt(number, parent=0), runs=(), started="") for number in range(1, 41)]
    record = Record(NIGHT, (first, *ideas))
    terminal, console = on_terminal(80)
    Screen(console, 300).show({}, Standing(summary_of(record), 2, load_of(record)), LEFT)
    assert "workers 0 of 2 busy · 75% of the night · 40 experiments an hour" in terminal.text()


# ---- a log -----------------------------------------------------------------------------------------------------------


def test_a_log_tells_what_begins_and_a_line_a_minute_of_how_far_it_is():
    console = Console(width=120, file=io.StringIO())
    screen = RunScreen(console, 300)
    screen.begin("#1 LR 0.1 → 0.2", "run 1, seed 0")
    for tenth in range(1200):
        screen.progressed(HALFWAY, tenth / 10)
    screen.begin("#1 LR 0.1 → 0.2", "scoring")
    screen.progressed(None, 59.0)
    screen.progressed(None, 61.0)
    assert console.file.getvalue().splitlines() == [
        "#1 LR 0.1 → 0.2 · run 1, seed 0",
        "   45% · 165 s left · 1,850 tokens/s · loss 4.250 · step 70",
        "   scoring · 61 s",
    ]


def test_a_log_names_the_worker_of_each_line():
    console = Console(width=120, file=io.StringIO())
    screen = Screen(console, 300)
    for seconds in (0.0, 61.0):
        screen.show({name: dataclasses.replace(AT_WORK, title="#4 A", elapsed_s=seconds) for name in GPUS[:2]})
    about = "45% · 165 s left · 1,850 tokens/s · loss 4.250 · step 70"
    assert console.file.getvalue().splitlines() == [
        *("gpu 0 · #4 A · run 1, seed 7", "gpu 1 · #4 A · run 1, seed 7"),
        *(f"   gpu 0 · {about}", f"   gpu 1 · {about}"),
    ]


# ---- a night, by its journal -----------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path) -> Place:
    """A night whose attempt 0 is measured."""
    found = Place.of(make_repository(tmp_path / "repository", unigram()) / "train_mlx.py")
    with Journal.create(found.journal("t"), NIGHT) as journal:
        journal.record_call(1)
        enter(journal, MEASURED[0])
    return found


def screen_of(place: Place, columns: int = 140, **more: object) -> tuple[Emulator, NightScreen]:
    terminal, console = on_terminal(columns)
    facts = {"left": lambda ideas: LEFT, "stopping": lambda: False, "stopping_now": lambda: False} | more
    return terminal, NightScreen(console, place.folder("t"), **facts)


def test_what_a_night_does_is_shown_as_its_journal_has_it(place):
    terminal, screen = screen_of(place)
    screen.look()
    assert "#1 asking for an idea" in terminal.text()
    with Journal.resume(place.journal("t")) as journal:
        journal.add_attempt(1, 0, Proposal("A = 1", "LR 0.1 → 0.2", WHY, "search"), utc_now())
        screen.look()
        assert "#1 LR 0.1 → 0.2" in terminal.text()
        journal.begin(Work(LOCAL, Doing.REHEARSING, 1, utc_now("milliseconds")))
        screen.look()
        assert "#1 LR 0.1 → 0.2 · dry run" in terminal.text()
        run_id = journal.start_run(1, 7)
        journal.begin(Work(LOCAL, Doing.TRAINING, 1, utc_now("milliseconds"), 7))
        screen.look()
        screen.progressed(HALFWAY, 140)
        time.sleep(0.3)  # as long as a picture stays
        screen.look()
        assert "#1 LR 0.1 → 0.2 · run 1, seed 7" in terminal.text()
        assert "45% · " in terminal.text()
        audit = Audit(4, 0, 0.0, 0.0, 20.0)
        journal.end_run(run_id, Run(7, Ending.FINISHED, 0, 300.0, None, "", Score(1.25, 30.0, audit=audit)))
        journal.begin(Work(LOCAL, Doing.AUDITING, 1, utc_now("milliseconds"), 7))
        screen.look()
        assert " of about 20 s" in terminal.text()
        journal.rest(LOCAL)
        journal.record_decision(1, Decision(Kind.KEPT, "0.25 below", 0.25, 0.99))
        screen.look()
    screen.close()
    assert terminal.lines() == ["#1 · LR 0.1 → 0.2 · val_bpb 1.250000 · gain +0.250000 · keep"]


def test_the_asking_for_an_idea_is_not_counted_from_a_verdict_of_an_earlier_call(place):
    with closing(sqlite3.connect(place.journal("t"))) as journal, journal:
        journal.execute("UPDATE decisions SET at = '2026-01-01T00:00:00.000Z'")
    terminal, screen = screen_of(place)
    screen.look()
    asked = next(line for line in terminal.lines() if "━" in line)
    screen.close()
    assert float(asked.rpartition("━ ")[2].removesuffix(" s")) < 600


def test_runs_are_told_apart_in_the_calibration_and_at_dawn(place):
    terminal, screen = screen_of(place)
    with Journal.resume(place.journal("t")) as journal:
        journal.add_attempt(1, 0, Proposal("A = 1", "first", WHY, "search"), utc_now())
        journal.start_run(1, 0)
        journal.begin(Work(LOCAL, Doing.TRAINING, 1, utc_now("milliseconds"), 0))
        screen.look()
        assert "#1 first · run 1, seed 0" in terminal.text()
        for seed in (1000, 1001):
            run_id = journal.start_run(0, seed, dawn=1)
            journal.begin(Work(LOCAL, Doing.TRAINING, 0, utc_now("milliseconds"), seed, dawn=1))
            screen.look()
            journal.end_run(run_id, Run(seed, Ending.FINISHED, 0, 300.0, None, "", Score(1.5, 3.0), dawn=1))
        assert "#0 baseline · dawn run 2, seed 1001" in terminal.text()
    for seed in (0, 1):
        other = dataclasses.replace(NIGHT, tag="u")
        if seed == 0:
            Journal.create(place.journal("u"), other).__exit__()
        with Journal.resume(place.journal("u")) as journal:
            if seed == 0:
                journal.add_attempt(0, None, Proposal("A = 1", "baseline", "", "you"), utc_now())
            journal.begin(Work(LOCAL, Doing.TRAINING, 0, utc_now("milliseconds"), seed))
            terminal, console = on_terminal(140)
            screen = NightScreen(console, place.folder("u"), lambda ideas: LEFT, lambda: False, lambda: False)
            screen.look()  # the driver says what begins, and records the run next
            assert f"calibration run {seed + 1} of 3, seed {seed}" in terminal.text()
            run_id = journal.start_run(0, seed)
            screen.look()
            assert f"calibration run {seed + 1} of 3, seed {seed}" in terminal.text()
            journal.end_run(run_id, Run(seed, Ending.FINISHED, 0, 300.0, None, "", Score(1.5, 3.0)))


@pytest.mark.parametrize(
    "title",
    ["\x1b[2J\x1b[1;1Hgone", "[red]markup[/red] [/]", "a\tb\nc\rd", "\u202eright to left", "x" * 10_000, "[" * 50],
)
def test_a_hostile_title_is_text(place, title):
    terminal, screen = screen_of(place, 80)
    with Journal.resume(place.journal("t")) as journal:
        journal.add_attempt(1, 0, Proposal.of("A = 1", title, title, "search"), utc_now())
        journal.start_run(1, 0)
        journal.begin(Work(LOCAL, Doing.TRAINING, 1, utc_now("milliseconds"), 0))
        screen.look()
        lines = terminal.lines()
        assert lines[1].startswith("#1 ")
        assert [line[:4] for line in lines[-3:]] == ["best", "so f", "left"]
        journal.record_decision(1, Decision(Kind.WORSE, "why"))
        screen.look()
    assert "#1 · " in terminal.text()


def test_earlier_verdicts_are_shown_to_who_begins_to_follow_and_not_to_who_goes_on(place):
    with Journal.resume(place.journal("t")) as journal:
        for attempt in MEASURED[1:]:
            enter(journal, attempt)
    for is_own, numbers in ((True, []), (False, ["#1", "#2", "#3"])):
        terminal, screen = screen_of(place, is_own=is_own)
        screen.look()
        screen.close()
        assert [line.split()[0] for line in terminal.lines()] == numbers


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (False, "the night ends after this run; Ctrl-C again ends the run too"),
        (True, "the night ends now; what it was at is done again when it goes on"),
    ],
)
def test_a_wish_to_stop_is_acknowledged_once(place, now, sentence):
    terminal, screen = screen_of(place, stopping=lambda: True, stopping_now=lambda: now)
    for second in range(3):
        screen.progressed(None, second)
    assert terminal.text().count(sentence) == 1


def test_each_worker_is_shown_from_the_journal(tmp_path):
    place = Place.of(make_repository(tmp_path / "repository", unigram()) / "train_mlx.py")
    record_crew(place, GPUS[:4], 3, jobs=4, began_s=time.time() - 1500)
    terminal, screen = screen_of(place, 100)
    screen.look()
    panel = terminal.lines()[terminal.lines().index("─" * 99) + 1 :]
    assert [line[:8].strip() for line in panel] == [*GPUS[:4], "best", "so far", "left", "workers"]
    assert "#4 WARMUP_FRACTION" in panel[0]
    assert panel[0].endswith("run 1, seed 0")
    assert panel[2].endswith("auditing")
    assert panel[3].endswith("scoring")
    assert panel[-1].startswith("workers 4 of 4 busy · ")


# ---- other lines -----------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_is_no_error():
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    os.close(reading)
    console = Console(file=steadfast(stream))
    for _ in range(3):
        console.print("unheard")
    stream.close()


def test_a_sentence_is_folded_on_a_narrow_terminal_and_stays_a_line_in_a_pipe(monkeypatch, capsys):
    line = "night t: " + "word " * 30
    monkeypatch.setenv("COLUMNS", "80")
    print_folded([line, ""])
    assert capsys.readouterr().out == f"{line}\n\n"
    monkeypatch.setenv("FORCE_COLOR", "1")  # counts as a terminal
    print_folded([line, "", "short"])
    *folded, blank, short = capsys.readouterr().out.splitlines()
    assert (blank, short) == ("", "short")
    assert max(map(len, folded)) <= 80
    assert all(one.startswith("  word") for one in folded[1:])
    assert " ".join(" ".join(folded).split()) == line.strip()
    monkeypatch.setenv("TERM", "xterm")
    print_folded([line, "short"], re.compile("night [^:]+"))
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("\x1b[1mnight t\x1b[0m: word")
    assert last == "short"


COMMANDS = {"nightshift show t:2": "the best edit, and how it was judged", "nightshift run": "a real night"}


def test_what_a_command_is_for_stands_beside_it_or_below_and_the_command_stays_whole(monkeypatch, capsys):
    beside = (
        "next:\n  cd t\n  nightshift show t:2  the best edit, and how it was judged\n"
        "  nightshift run       a real night\n"
    )
    print_next(COMMANDS, ["cd t"])
    assert capsys.readouterr().out == beside
    monkeypatch.setenv("FORCE_COLOR", "1")  # counts as a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    print_next(COMMANDS, ["cd t"])
    assert Text.from_ansi(capsys.readouterr().out).plain == beside
    monkeypatch.setenv("COLUMNS", "40")
    print_next(COMMANDS)
    assert Text.from_ansi(capsys.readouterr().out).plain.splitlines() == [
        *("next:", "  nightshift show t:2", "      the best edit, and how it was", "        judged"),
        *("  nightshift run", "      a real night"),
    ]
