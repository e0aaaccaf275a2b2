"""A word to a running night: program.md and notes, whole or not at all."""

import os
import signal
import subprocess
import sys

import pytest
from nights import PROJECT

from agent.errors import NightError
from agent.night.lock import AFTER_RUN, Stop
from agent.proposers.notes import MAX_NOTES, NOTE_CHARS, NOTES, add_note, read_notes, read_program

NOW = "2026-11-21T23:00:00Z"


def test_notes_are_read_in_the_order_of_their_writing(tmp_path):
    assert read_notes(tmp_path) == ()
    for text in ("try a wider MLP", "leave\nthe tokenizer  \nalone", "red\x1b[31m \u202e\udc80"):
        add_note(tmp_path, text, NOW)
    harmless = r"red\x1b[31m \u202e\udc80"
    assert read_notes(tmp_path) == ("try a wider MLP", "leave\nthe tokenizer\nalone", harmless)


def test_a_note_waits_for_no_reader_of_a_pipe(tmp_path):
    os.mkfifo(tmp_path / NOTES)
    with pytest.raises(NightError, match="is no plain file"):
        add_note(tmp_path, "first", NOW)


def test_a_note_that_no_prompt_holds_whole_is_refused_with_its_length(tmp_path):
    add_note(tmp_path, f"{'x' * NOTE_CHARS}\n\n", NOW)
    with pytest.raises(NightError, match="the note has 2,001 characters, and 2,000 at most are told; shorten it, or"):
        add_note(tmp_path, "x" * (NOTE_CHARS + 1), NOW)
    assert [len(note) for note in read_notes(tmp_path)] == [NOTE_CHARS]


def test_of_many_notes_the_latest_are_told(tmp_path):
    for count in range(MAX_NOTES + 5):
        add_note(tmp_path, f"note {count}", NOW)
    assert read_notes(tmp_path) == tuple(f"note {count}" for count in range(5, MAX_NOTES + 5))


def test_a_line_torn_by_a_power_cut_damages_none_but_itself(tmp_path):
    add_note(tmp_path, "first", NOW)
    with (tmp_path / NOTES).open("a") as file:
        file.write('{"time": "2026-')
    add_note(tmp_path, "second", NOW)
    assert read_notes(tmp_path) == ("first", "second")


def test_people_who_write_at_once_get_a_line_each(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {str(PROJECT)!r})
from pathlib import Path
from agent.proposers.notes import add_note
for k in range(15):
    add_note(Path({str(tmp_path)!r}), sys.argv[1] * 1500 + str(k), "")
"""
    crowd = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "ab"]
    assert [process.wait() for process in crowd] == [0, 0]
    notes = read_notes(tmp_path)
    assert sorted(notes) == sorted(name * 1500 + str(k) for name in "ab" for k in range(15))


def test_a_program_holds_no_commands_to_a_terminal_and_keeps_its_lines(tmp_path):
    (tmp_path / "program.md").write_bytes(b"one\r\n\ttwo \x1b[2J\xff\n")
    assert read_program(tmp_path / "program.md") == "one\n\ttwo \\x1b[2J\n"


@pytest.mark.parametrize(("number", "ends_now"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_after_a_wish_to_stop_ctrl_c_ends_the_run_and_the_sigterm_of_a_service_does_not(tmp_path, number, ends_now):
    stop = Stop(tmp_path)
    stop.wish(AFTER_RUN)
    with stop.on_signals():
        signal.raise_signal(number)
    assert (stop.after_run, stop.now) == (True, ends_now)
