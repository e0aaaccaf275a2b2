"""What a person sees while a night goes on: a bar on a terminal, a plain line now and then elsewhere."""

import dataclasses
import io
import os
import re

import pytest
from rich.console import Console
from samples import HISTORY, doing

from agent.experiment import Doing, Progress
from agent.view.live.screen import Screen
from agent.view.live.verdicts import describe
from agent.view.screen import print_folded, steadfast

HALFWAY = Progress(fraction=0.5, step=70, loss=4.25, tokens_s=1850)


def watched(*, terminal: bool) -> str:
    """The screen of one attempt whose run tells its progress ten times a second for two minutes."""
    console = Console(width=120, file=io.StringIO(), force_terminal=terminal)
    screen = Screen(console, budget_s=300)
    screen.attempt_began(dataclasses.replace(HISTORY[1], runs=(), decision=None, settled=False))
    screen.work_began(HISTORY[1], doing(Doing.TRAINING, 0))
    screen.progressed(None, 0.5)
    for tenth in range(1200):
        screen.progressed(HALFWAY, tenth / 10)
    screen.work_began(HISTORY[1], doing(Doing.SCORING))
    screen.progressed(None, 59.0)
    screen.progressed(None, 61.0)
    screen.attempt_settled(HISTORY[1], HISTORY[0])
    screen.close()
    return console.file.getvalue()


def test_a_log_gets_a_plain_line_a_minute():
    assert watched(terminal=False).splitlines() == [
        "#1 LR 0.1 → 0.2",
        "   50% · step 70 · loss 4.250 · 1,850 tokens/s · 150 s left",
        "   scoring · 61 s",
        "#1 · LR 0.1 → 0.2 · val_bpb 1.250000 · gain +0.250000 · keep",
    ]


def test_a_log_says_each_minute_that_an_author_is_asked_and_that_a_run_starts():
    console = Console(width=120, file=io.StringIO())
    screen = Screen(console, budget_s=300)
    screen.work_began(HISTORY[0], doing(Doing.SCORING))
    screen.progressed(None, 90.0)
    screen.asking_began(1)
    screen.progressed(None, 60.0)
    screen.work_began(dataclasses.replace(HISTORY[1], runs=()), doing(Doing.TRAINING, 0))
    screen.progressed(None, 75.0)
    assert console.file.getvalue().splitlines() == [
        "   scoring · 90 s",
        "   #1 asking for an idea · 60 s",
        "   run 1, seed 0 · 75 s",
    ]


def test_a_terminal_gets_a_bar_that_goes_away_and_a_verdict_that_stays():
    shown = watched(terminal=True)
    assert "━" in shown
    assert shown.index("\r\x1b[J") < shown.index("val_bpb 1.250000")
    assert "━" not in shown[shown.index("val_bpb 1.250000") :]


def test_a_reader_that_goes_away_is_no_error():
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    os.close(reading)
    console = Console(file=steadfast(stream))
    for _ in range(3):
        console.print("unheard")
    stream.close()


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        (1, "the night ends after this run; Ctrl-C again ends the run too"),
        (2, "the night ends after the runs in flight; Ctrl-C again ends them too"),
    ],
)
def test_a_wish_to_stop_is_acknowledged_once(workers, sentence):
    console = Console(width=120, file=io.StringIO())
    screen = Screen(console, budget_s=300, stopping=lambda: True, workers=workers)
    screen.work_began(HISTORY[1], doing(Doing.TRAINING, 0))
    for second in range(5):
        screen.progressed(HALFWAY, second)
    assert console.file.getvalue().count(sentence) == 1


def test_a_wish_to_stop_at_once_is_not_said_to_wait_for_the_run():
    console = Console(width=120, file=io.StringIO())
    screen = Screen(console, budget_s=300, stopping=lambda: True, stopping_now=lambda: True)
    screen.progressed(HALFWAY, 1.0)
    assert console.file.getvalue() == "the night ends now; what it was at is done again when it goes on\n"


def test_an_attempt_that_is_measured_again_is_told_from_a_new_one():
    console = Console(width=120, file=io.StringIO())
    Screen(console, budget_s=300).attempt_began(HISTORY[1])
    assert console.file.getvalue() == "#1 LR 0.1 → 0.2, another seed\n"


def test_a_log_tells_the_runs_of_one_attempt_apart():
    console = Console(width=120, file=io.StringIO())
    at_work = dataclasses.replace(HISTORY[0], decision=None, settled=False)
    Screen(console, budget_s=300).work_began(dataclasses.replace(at_work, runs=()), doing(Doing.TRAINING, 0))
    Screen(console, budget_s=300).work_began(at_work, doing(Doing.TRAINING, 1))
    assert console.file.getvalue() == "   run 2, seed 1\n"


def test_absurd_numbers_do_not_flood_the_screen():
    assert describe(Progress(1e299, step=1e299, loss=-1e299, tokens_s=1e299), 300) == "100% · 0 s left"
    assert describe(Progress(-1e299, step=-7, loss=2.5, tokens_s=-1), 300) == "0% · loss 2.500 · 300 s left"
    console = Console(width=120, file=io.StringIO(), force_terminal=True)
    screen = Screen(console, budget_s=300)
    screen.attempt_began(HISTORY[1])
    screen.progressed(Progress(-1e299, step=10**299), 1.0)
    screen.close()
    assert "0" * 20 not in console.file.getvalue()


def test_scoring_is_not_called_starting():
    console = Console(width=120, file=io.StringIO(), force_terminal=True)
    screen = Screen(console, budget_s=300)
    screen.attempt_began(HISTORY[1])
    screen.work_began(HISTORY[1], doing(Doing.TRAINING, 0))
    screen.work_began(HISTORY[1], doing(Doing.SCORING))
    screen.progressed(None, 12.0)
    screen.close()
    drawn = console.file.getvalue().rpartition("scoring")[2]
    assert " 12 s" in drawn
    assert "seed 0" not in drawn


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
