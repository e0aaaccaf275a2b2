"""The live view of a night with several workers: a line for each that works, and no other change."""

import dataclasses
import io
import time

import pytest
from crews import GPUS, record_crew
from judged import scored_attempt
from nights import make_repository, unigram
from rich.cells import cell_len
from rich.console import Console
from samples import HISTORY, NIGHT, doing
from terminals import Emulator

from agent.experiment import LOCAL, Attempt, Doing, Progress, Proposal, Run, Score
from agent.proposers.briefing import Left
from agent.records.journal import Journal
from agent.records.place import Place
from agent.view.live.follow import Follower
from agent.view.live.screen import Screen

TITLE = "WARMUP_FRACTION 0.0 → 0.07105, EMBEDDING_LR 0.3 → 0.25"
HALFWAY = Progress(0.5, step=70, loss=4.25, tokens_s=1850)
LEFT = Left(31, 5 * 3600 + 12 * 60 + 30)


def idea(number: int, title: str = TITLE) -> Attempt:
    return Attempt(number, 0, Proposal("A = 1", title, "why", "search"), "2026-01-02T03:04:05Z")


def screen_on(columns: int = 80, rows: int = 24, workers: int = 1) -> tuple[Emulator, Screen]:
    terminal = Emulator(columns, rows)
    return terminal, Screen(
        Console(file=terminal, width=columns, height=rows, force_terminal=True), 300, workers=workers
    )


def busy(count: int, columns: int = 80, rows: int = 24) -> tuple[Emulator, Screen]:
    """A night whose workers train, the first but one; of the others, one tries a script and one is scored."""
    terminal, screen = screen_on(columns, rows, workers=count)
    for number, name in enumerate(GPUS[:count]):
        screen.attempt_began(idea(number + 4))
        if number == 1:
            screen.work_began(idea(number + 4), doing(Doing.REHEARSING, worker=name))
            screen.progressed(Progress(1.0), 2.0, name)
        elif number == 2:
            screen.work_began(idea(number + 4, "DEPTH 4 → 6"), doing(Doing.SCORING, worker=name))
            screen.progressed(None, 7.0, name)
        else:
            screen.work_began(idea(number + 4), doing(Doing.TRAINING, 7, name))
            screen.progressed(HALFWAY, 140, name)
    screen.night_stands(NIGHT, (scored_attempt(0, 1.5, 1.51),), (), LEFT)
    return terminal, screen


def test_each_worker_has_a_line_of_80_columns():
    terminal, _ = busy(4)
    assert terminal.lines() == [
        "─" * 79,
        "gpu 0   ━━━━╺━━━  50%  #4 WARMUP_FRACTION 0.0 →… · run 1, seed 7 · loss 4.250",
        "gpu 1   ━━━━━━━━  2 s  #5 WARMUP_FRACTION 0.0 → 0.07105… · dry run",
        "gpu 2   ━━━━━━━━  7 s  #6 DEPTH 4 → 6 · scoring",
        "gpu 3   ━━━━╺━━━  50%  #7 WARMUP_FRACTION 0.0 →… · run 1, seed 7 · loss 4.250",
        "best    the baseline is measured first",
        "so far  0 kept · 0 discarded · 0 crashed · σ 0.007402",
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


def test_a_worker_that_rests_has_no_line():
    terminal, screen = busy(4)
    screen.worker_rests("gpu 1")
    screen.asking_began(9)
    screen.progressed(None, 12.0)
    assert "gpu 1" not in terminal.text()
    assert "workers 3 of 4 busy" in terminal.text()
    assert "ideas   #9 asking for an idea · 12 s" in terminal.text()
    for name in GPUS[:4]:
        screen.worker_rests(name)
    assert "gpu" not in terminal.text()
    assert "workers 0 of 4 busy" in terminal.text()
    screen.close()
    assert terminal.lines() == []


def test_workers_are_shown_as_soon_as_there_are_two():
    terminal, screen = screen_on()
    screen.work_began(idea(1), doing(Doing.TRAINING, 7, "gpu 10"))
    screen.progressed(HALFWAY, 100, "gpu 10")
    assert "gpu" not in terminal.text()
    screen.work_began(idea(2), doing(Doing.TRAINING, 7, "gpu 9"))
    assert [line[:8].strip() for line in terminal.lines()[1:3]] == ["gpu 9", "gpu 10"]


def test_one_worker_has_the_screen_that_it_always_had():
    named, unnamed = screen_on(), screen_on()
    for (terminal, screen), worker in ((named, {"worker": LOCAL}), (unnamed, {})):
        screen.attempt_began(idea(1))
        screen.work_began(idea(1), doing(Doing.REHEARSING))
        screen.work_began(idea(1), doing(Doing.TRAINING, 7))
        screen.progressed(HALFWAY, 100, **worker)
        screen.night_stands(NIGHT, HISTORY, (), Left(31))
        screen.worker_rests(LOCAL)
        assert "workers" not in terminal.text()
    assert named[0].lines() == unnamed[0].lines()


def test_the_runs_of_a_calibration_that_go_on_beside_each_other_are_counted():
    terminal, screen = screen_on(140, workers=3)
    first = dataclasses.replace(HISTORY[0], decision=None, settled=False)
    for seed, name in enumerate(GPUS[:3], 1):
        screen.work_began(first, doing(Doing.TRAINING, seed, name))
    shown = [line.rpartition(" · ")[2] for line in terminal.lines() if line.startswith("gpu")]
    assert shown == [f"calibration run {seed + 1} of 4, seed {seed}" for seed in (1, 2, 3)]


def test_a_log_names_the_worker_of_each_line_and_tells_of_a_run_once_a_minute():
    console = Console(width=120, file=io.StringIO())
    screen = Screen(console, 300, workers=2)
    for number, name in enumerate(GPUS[:2]):
        screen.attempt_began(idea(number, f"A {number}"))
        screen.work_began(idea(number), doing(Doing.TRAINING, 0, name))
    for tenth in range(1250):
        for name in GPUS[:2]:
            screen.progressed(HALFWAY, tenth / 10, name)
    screen.work_began(
        dataclasses.replace(idea(1), runs=(Run(0, "finished", 0, 1.0, None, ""),)), doing(Doing.TRAINING, 1, "gpu 1")
    )
    about = "50% · step 70 · loss 4.250 · 1,850 tokens/s · 150 s left"
    assert console.file.getvalue().splitlines() == [
        "#0 A 0",
        "#1 A 1",
        *(f"   gpu 0 · #0 · {about}", f"   gpu 1 · #1 · {about}") * 2,
        "   gpu 1 · #1 · run 2, seed 1",
    ]


def test_the_panel_says_how_busy_the_workers_were_and_how_many_experiments_an_hour_that_made():
    terminal, screen = busy(2)
    began_s = time.time() - 3600
    runs = [
        Run(
            0,
            "finished",
            0,
            1.0,
            None,
            "",
            Score(1.5, 0.0),
            worker=name,
            began=iso(began_s),
            ended=iso(began_s + length_s),
        )
        for name, length_s in (("gpu 0", 3600), ("gpu 1", 1800))
    ]
    first = dataclasses.replace(scored_attempt(0), runs=tuple(runs))
    ideas = [dataclasses.replace(scored_attempt(number, parent=0), runs=()) for number in range(1, 41)]
    screen.night_stands(NIGHT, (first, *ideas), (), LEFT)
    assert "workers 2 of 2 busy · 75% of the night · 40 experiments an hour" in terminal.text()


def iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_watch_shows_each_worker_from_the_journal(tmp_path):
    place = Place.of(make_repository(tmp_path / "repository", unigram()) / "train_mlx.py")
    record_crew(place, GPUS[:4], 3, jobs=4, began_s=time.time() - 1500)
    terminal, screen = screen_on(100)
    with Journal.read(place.journal("t")) as journal:
        follower = Follower(place.folder("t"), journal, screen)
        for _ in range(2):
            follower.look(lambda ideas: LEFT)
    panel = terminal.lines()[terminal.lines().index("─" * 99) + 1 :]
    assert [line[:8].strip() for line in panel] == [*GPUS[:4], "best", "so far", "left", "workers"]
    assert "#4 WARMUP_FRACTION" in panel[0]
    assert panel[0].endswith("run 1, seed 0")
    assert panel[2].endswith("auditing")
    assert panel[3].endswith("scoring")
    assert panel[-1].startswith("workers 4 of 4 busy · ")
