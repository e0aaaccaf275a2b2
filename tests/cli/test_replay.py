"""`nightshift replay`: a shipped record is drawn as its night was, on a terminal and in a pipe."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
from commands import refused, wait_until
from nights import PROJECT, Grounds, command, make_repository, unigram
from terminals import Terminal

from agent.records.place import run_folder
from agent.records.shipped import of_folder

SHIPPED = PROJECT / "experiments" / "shipped"
RECORD = of_folder(SHIPPED / "five")
END = ("Measured again on fresh seeds, #12 gains +0.033047", "next:", "take five:confirmed")


@pytest.fixture
def clone(tmp_path: Path) -> Grounds:
    """A repository with records of two nights alone, of which five is the newer one."""
    root = make_repository(tmp_path / "user", unigram())
    for tag in ("five", "nov22-cpu-mix-0"):
        shutil.copytree(SHIPPED / tag, root / "experiments" / "shipped" / tag)
    return Grounds(root)


def test_piped_each_training_and_each_verdict_of_the_night_is_a_line_in_the_recorded_order(clone):
    done = clone.nightshift("replay", "--seconds", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "night five as it was from 2026-11-26 11:18:58 UTC to 2026-11-26 14:37:08 UTC\n" in done.stdout
    verdicts = re.findall(r"^(\d\d:\d\d) · #(\d+) · .*val_bpb", done.stdout, re.MULTILINE)
    last = sorted((attempt.decisions[-1].id, attempt.decisions[-1].at, attempt.number) for attempt in RECORD.attempts)
    assert verdicts == [(at[11:16], str(number)) for _, at, number in last]
    assert "11:18 · #0 baseline · training, seed 0\n" in done.stdout
    assert (
        len(re.findall(r"· gpu \d · #12 .* · training, seed 100\d of the confirmation$", done.stdout, re.MULTILINE))
        == 4
    )
    assert all(words in done.stdout for words in END)


def test_an_older_night_whose_runs_have_no_end_is_drawn_by_its_tag(clone):
    done = clone.nightshift("replay", "nov22-cpu-mix-0", "--seconds", "1")
    assert (done.returncode, done.stderr) == (0, "")
    record = of_folder(SHIPPED / "nov22-cpu-mix-0")
    verdicts = re.findall(r"^\d\d:\d\d · #(\d+) · ", done.stdout, re.MULTILINE)
    assert sorted(map(int, verdicts)) == [each.number for each in record.attempts if each.kind != "question"]


def test_a_terminal_shows_the_panel_with_the_recorded_clock_and_then_the_end_of_a_night(clone):
    with Terminal.of(command("replay", "five", "--seconds", "6"), clone.root, columns=80, rows=24) as terminal:
        assert terminal.to_the_end() == 0
    assert terminal.has_shown("── 11:", "best    the baseline is measured first", "training, seed 0 · #0 baseline")
    assert terminal.has_shown(
        "best    #3 val_bpb 0.536146 · gain +0.029621 [", "so far  1 kept", "gpu 3 · ", " s left · "
    )
    lines = terminal.lines()
    assert max(map(len, lines)) <= 80
    assert not any(re.fullmatch(r"─+ \d\d:\d\d ─+", line) for line in lines)  # the panel is gone
    assert all(words in "\n".join(lines) for words in END)


def test_the_files_of_runs_that_ended_long_ago_are_not_read(clone):
    for attempt in RECORD.attempts:
        for run in attempt.runs:
            out = run_folder(clone.folder("five"), attempt.number, run.seed) / "out"
            out.mkdir(parents=True)
            (out / "metrics.jsonl").write_text('{"progress": 1.0, "loss": 3.0, "step": 9, "tokens_s": 123456789}\n')
    with Terminal.of(command("replay", "five", "--seconds", "6"), clone.root, columns=100, rows=24) as terminal:
        assert terminal.to_the_end() == 0
    assert terminal.has_shown("training, seed 0 · #0 baseline", " s left · ")
    assert not terminal.has_shown("123,456,789 tokens/s")


def test_ctrl_c_ends_it_quietly(clone):
    with Terminal.of(command("replay"), clone.root, columns=80, rows=24) as terminal:
        wait_until(lambda: terminal.has_shown("#0 baseline"), 60)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.to_the_end() == 130
    last = "nightshift: interrupted; go on with: nightshift replay"
    assert [line for line in terminal.lines() if line and not line.startswith("night five as it was")] == [last]


def test_what_cannot_be_drawn_is_one_sentence(clone):
    assert "no night six is here; known nights: " in refused(clone.nightshift("replay", "six"))
    file = clone.root / "experiments" / "shipped" / "five" / "attempts.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for fact, time in (("started", "at dusk"), ("at", "2026-11-26"), ("began", "2026-11-26T11:18:58")):
        changed = (re.sub(f'"{fact}": "[^"]+"', f'"{fact}": "{time}"', json.dumps(line)) + "\n" for line in lines)
        file.write_text("".join(changed))
        said = refused(clone.nightshift("replay", "five"))
        assert said.startswith("the record of night five has a time that is none: ")
