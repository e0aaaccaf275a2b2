"""What a person sees while a night goes on: a panel on a terminal, a plain line for each run elsewhere."""

import io
import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from nights import environment
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text
from samples import attempt, night, record_nights
from terminals import Emulator, Terminal

from agent.clock import utc_now
from agent.experiment import Ask, Decision, Ending, Kind, Proposal, Run, Score
from agent.files import steadfast
from agent.proposers.proposer import Left
from agent.records.journal import Journal
from agent.records.place import Place, run_folder
from agent.records.summary import summary_of
from agent.sandbox.process import LOG
from agent.view.live import NightScreen, job, panel
from agent.view.run_files import before_training
from agent.view.screen import console_on, folded, print_folded, print_next
from agent.view.words import pace_words, progress_words
from agent.work import LOCAL, Doing, Progress, Work

LEFT = Left(31, 5 * 3600 + 12 * 60 + 30)
NOW = summary_of(
    night(
        attempt(0, Kind.BASELINE, 1.5, seeds=3),
        attempt(1, Kind.KEPT, 1.25, "LR 0.1 → 0.2"),
        attempt(2, Kind.CRASHED),
        asks=(Ask(1, "llm:m", "", 3.0, "m", usd=1.25),),
    )
)
HALFWAY = Progress(0.45, step=70, loss=4.25, tokens_s=1850)


def on_terminal(columns: int, rows: int = 24) -> tuple[Emulator, Console]:
    terminal = Emulator(columns, rows)
    return terminal, Console(file=terminal, width=columns, height=rows, force_terminal=True)


def drawn(columns: int, rows: int = 24, *jobs: RenderableType, left: Left = LEFT) -> list[str]:
    """The panel of a night on a terminal of this size."""
    terminal, console = on_terminal(columns, rows)
    console.print(panel(NOW, left, jobs))
    return terminal.lines()


def test_the_panel_shows_each_fact():
    training = job(["training, seed 7", "#4 WARMUP 0.0 → 0.1"], HALFWAY, progress_words(HALFWAY, 300))
    assert drawn(90, 24, training)[1:] == [
        "best    #1 val_bpb 1.250000 · gain +0.250000 [+0.240947, +0.259053] · LR 0.1 → 0.2",
        "so far  1 kept · 0 discarded · 1 crashed · $1.25",
        "left    31 experiments · 5 h 12 min",
        "training, seed 7 · #4 WARMUP 0.0 → 0.1",
        f"{'━' * 14}╸{'━' * 18} 45% · 165 s left · 1,850 tokens/s · loss 4.250 · step 70",
    ]


def test_of_a_night_without_limits_the_panel_does_not_guess_when_it_ends():
    """A confirmation, and a night that tries what is in the queue, have none and end by themselves."""
    assert [line.split()[0] for line in drawn(90, left=Left())[1:]] == ["best", "so"]


@pytest.mark.parametrize(("columns", "rows"), [(24, 12), (60, 5)])
def test_the_panel_fits_into_any_terminal(columns, rows):
    wide = job(["gpu 4", "training, seed 7", "#4 " + "学習率を下げる " * 20], HALFWAY, progress_words(HALFWAY, 300))
    assert max(map(cell_len, drawn(columns, rows, *[wide] * 16))) <= columns


def test_a_training_without_a_curve_says_whether_it_starts_or_makes_its_first_step(tmp_path):
    work = Work("local", Doing.TRAINING, 4, "2026-11-20T22:00:00.000Z", seed=7)
    folder = run_folder(tmp_path, 4, seed=7)
    folder.mkdir(parents=True)
    (folder / LOG).touch()
    assert before_training(tmp_path, work) == "start"
    (folder / LOG).write_text("MLX, 1.9 M parameters\n")
    assert before_training(tmp_path, work) == "first step"
    assert before_training(tmp_path, replace(work, doing=Doing.SCORING)) is None
    assert pace_words(None, 300, None, "first step") == ["first step"]
    assert pace_words(HALFWAY, 300, None, "first step") == progress_words(HALFWAY, 300)


def test_absurd_numbers_do_not_flood_the_screen():
    assert progress_words(Progress(1e299, step=1e299, loss=-1e299, tokens_s=1e299), 300) == ["100%", "0 s left"]


# ---- a night, by its journal -----------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path) -> Place:
    """A night whose attempt 0 is measured."""
    return record_nights(tmp_path / "repository", t=())


def screen_of(place: Place, console: Console, **more: object) -> NightScreen:
    facts = {"left": lambda ideas: LEFT, "stopping": lambda: False, "stopping_now": lambda: False} | more
    return NightScreen(console, place.folder("t"), **facts)


def begin(journal: Journal, title: str, doing: Doing = Doing.TRAINING) -> None:
    """Let attempt 1 be at work."""
    journal.add_attempt(1, 0, Proposal(title, title, "search"), utc_now())
    journal.begin(Work(LOCAL, doing, 1, utc_now("milliseconds"), 7))


def test_what_a_night_does_is_shown_as_its_journal_has_it(place):
    terminal, console = on_terminal(140)
    screen = screen_of(place, console)
    screen.refresh()
    assert "#1 asking for an idea" in terminal.text()
    with Journal.resume(place.journal("t")) as journal:
        begin(journal, "LR 0.1 → 0.2")
        run_id = journal.start_run(1, 7)
        for _ in range(2):  # on a slow machine, the first picture may come late
            time.sleep(0.6)  # a picture stays as long
            screen.progressed(HALFWAY)
        assert "training, seed 7 · #1 LR 0.1 → 0.2" in terminal.text()
        assert "45% · " in terminal.text()
        journal.end_run(run_id, Run(7, Ending.FINISHED, 0, 300.0, None, "", Score(1.25, 30.0)))
        journal.rest(LOCAL)
        journal.record_decision(1, Decision(Kind.KEPT, "0.25 below", 0.25, 0.99))
        screen.refresh()
    screen.close()
    assert terminal.lines() == ["#1 · LR 0.1 → 0.2 · val_bpb 1.250000 · 0.250000 better · kept (99% sure of a gain)"]


def test_a_file_gets_colours_where_they_are_forced_and_never_the_panel(place, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with (tmp_path / "log").open("w") as file, Journal.resume(place.journal("t")) as journal:
        screen = screen_of(place, console_on(file))
        begin(journal, "LR")
        screen.progressed(HALFWAY)
        screen.close()
    assert (tmp_path / "log").read_text() == "#1 LR · training, seed 7\n"


def test_a_pipe_and_a_terminal_without_cursor_get_a_line_for_each_run_that_begins(place, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    piped, (dumb, console) = io.StringIO(), on_terminal(140)
    screens = screen_of(place, Console(width=120, file=piped)), screen_of(place, console)
    with Journal.resume(place.journal("t")) as journal:
        begin(journal, "LR")
        for screen in screens * 9:
            screen.progressed(HALFWAY)
        journal.begin(Work(LOCAL, Doing.SCORING, 1, utc_now("milliseconds"), 7))
        for screen in screens * 9:
            screen.progressed(HALFWAY)
    assert piped.getvalue() == dumb.raw == "#1 LR · training, seed 7\n"


@pytest.mark.parametrize("title", ["\x1b[2J\x1b[1;1Hgone", "[red]markup[/red] [/]", "a\tb\nc\rd", "x" * 10_000])
def test_a_hostile_title_leaves_the_panel_where_it_is(place, title):
    terminal, console = on_terminal(80)
    screen = screen_of(place, console)
    with Journal.resume(place.journal("t")) as journal:
        begin(journal, title)
        screen.refresh()
    assert [line[:3] for line in terminal.lines()[1:5]] == ["bes", "so ", "lef", "tra"]


def test_a_wish_to_stop_is_acknowledged_once(place):
    terminal, console = on_terminal(140)
    screen = screen_of(place, console, stopping=lambda: True)
    for _ in range(3):
        screen.progressed(None)
    assert terminal.text().count("the night ends after what runs now; Ctrl-C again ends it at once") == 1


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
    print_folded([line, "no score (\x1b[2J\x07)"])
    assert capsys.readouterr().out == f"{line}\nno score (\\x1b[2J\\x07)\n"
    monkeypatch.setenv("FORCE_COLOR", "1")  # counts as a terminal
    monkeypatch.setenv("TERM", "xterm")
    print_folded([line, "short"], re.compile("night [^:]+"))
    first, second, third, short = capsys.readouterr().out.splitlines()
    assert "\x1b[1m" in first
    assert (second[:6], third[:6], short) == ("  word", "  word", "short")
    assert len(folded(Text("word" + " " * 100_000), 80)) == 1  # the blanks take no time


def test_what_a_command_is_for_is_folded_beside_it_and_the_command_stays_whole(monkeypatch, capsys):
    commands = {f"nightshift run {'-' * 30}": "a real night, five minutes a run", "nightshift stop": "the end"}
    whole = [f"  {command:<45}  {purpose}" for command, purpose in commands.items()]
    print_next(commands)
    assert capsys.readouterr().out.splitlines() == ["next:", *whole]
    for name, value in (("COLUMNS", "70"), ("FORCE_COLOR", "1"), ("TERM", "xterm")):  # counts as a terminal
        monkeypatch.setenv(name, value)
    print_next(commands)
    lines = Text.from_ansi(capsys.readouterr().out).plain.splitlines()
    first = whole[0].removesuffix(" minutes a run")
    assert lines == ["next:", first, f"{'':<51}minutes a run", whole[1]]


WAITS = """
import sys, time
from contextlib import redirect_stdout
from agent.view.screen import at_work
with redirect_stdout(sys.stderr if "--json" in sys.argv else sys.stdout), at_work("looking at the data"):
    time.sleep(1)
print("done")
"""


def test_what_is_waited_for_stands_on_a_terminal_until_it_is_done_and_nowhere_else(tmp_path):
    for words, is_shown in (((), True), (("--json",), False)):
        with Terminal.of([sys.executable, "-c", WAITS, *words], tmp_path, 80, 24) as terminal:
            assert terminal.to_the_end() == 0
        assert terminal.has_shown("looking at the data …") == is_shown
        assert [line for line in terminal.lines() if line] == ["done"]
    piped = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, check=True, env=environment())
    assert piped.stdout == "done\n"
