"""Words that steer a terminal stand in all that others may write, and no command prints one of them raw."""

import fcntl
import inspect
import json
import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from unittest import mock

import pytest
from nights import Grounds, diverted, environment, exit_code, unigram

from agent.cli.main import COMMANDS, answers, command_named
from agent.experiment import packed

# each before the same word: colours, a title, a cleared screen, C1 codes, signs that move or turn, and invisible ones
SIGNS = (
    *("\x1b[35;7;5m", "\x1b]0;", "\x1b[2J", "\x1b]8;;http://x\x1b\\", "\x1bP", "\x9b31m", "\x9d0;", "\x85", "\r", "\b"),
    *("\x07", "\x0b", "\x0c", "\x7f", "\u202e", "\u2066", "\u200f", "\u200b", "\u2028", "\u3164", "\ufeff", "\u061c"),
)
WORD = "OWNED"
HOSTILE = "wider" + "".join(f"{sign}{WORD}" for sign in SIGNS)
DANGER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\u3164\ufeff]")
# colours, lines cleared, a cursor hidden and moved, and line ends, as a terminal gets them of us
OURS = re.compile("\x1b\\[(?:[0-9;]*m|2?K|[?]25[lh]|[0-9]*A)|\r(?=\r*(?:\n|\x1b\\[2?K))|(?<=[…\n])\r")
TEXTS = {
    "attempts": ("title", "hypothesis", "proposer"),
    "decisions": ("reason",),
    "runs": ("last_lines", "worker"),
    "night": (),
}
# these work for long where they are not refused
BUSY = {"run", "confirm", "try", "serve", "mcp", "sample", "doctor"}
ARGUMENTS = ("", "t", "t:1", "t:3", "shipped", "t:1 t:2", "odd")


@pytest.fixture
def hostile(trained_night, tmp_path, own_cache) -> Grounds:
    """A night whose every word is hostile, in a folder of such a name, with its record, notes, queue and ideas."""
    folder = tmp_path / f"a{HOSTILE.replace('/', '')}"[:80]
    folder.mkdir()
    grounds = Grounds(Path(shutil.copytree(trained_night, folder / "user")))
    edit = tmp_path / "edit.py"
    edit.write_text(unigram(SHARPNESS=0.8))
    for line in ("note hello", f"try --queue -m sharper --edit {edit}", "export record t"):
        assert grounds.nightshift(*line.split()).returncode == 0, line
    shipped = grounds.root / "experiments" / "shipped"
    (shipped / "t").rename(shipped / "shipped")
    for path in shipped.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".md", ".tsv", ".csv", ".patch"):
            path.write_text(_tampered(path))
    script = f"{unigram(SHARPNESS=0.9)}\n# {HOSTILE.replace(chr(13), '')}\n"
    with closing(sqlite3.connect(grounds.folder("t") / "journal.sqlite", isolation_level=None)) as database:
        for table, columns in TEXTS.items():
            for column in columns:
                database.execute(f"UPDATE {table} SET {column} = {column} || ?", (HOSTILE,))
        for fact in ("device", "protocol"):
            database.execute("UPDATE night SET value = value || ? WHERE fact = ?", (HOSTILE, fact))
        database.execute("UPDATE scripts SET packed = ?", (packed(script),))
        failed = json.dumps({"val_bpb": None, "wall_s": 1.0, "failure": HOSTILE})
        database.execute("UPDATE runs SET score = ? WHERE attempt = 2", (failed,))
    logs = [path for path in grounds.folder("t").rglob("*") if "log" in path.name and path.is_file()]
    assert logs
    for path in logs:
        path.write_text(f"Traceback (most recent call last):\n{HOSTILE}\nValueError: {HOSTILE}\n")
    for path in (grounds.root / "experiments" / "queue").glob("*.patch"):
        path.write_text(path.read_text().replace("sharper", HOSTILE.replace("\r", "")))
    (grounds.folder("t") / "notes.jsonl").write_text(json.dumps({"text": HOSTILE}) + "\n")
    (grounds.root / "program.md").write_text(HOSTILE)
    (grounds.root / "ideas").mkdir(exist_ok=True)
    (grounds.root / "ideas" / "odd.patch").write_text(f"Title: {HOSTILE}\nWhy: {HOSTILE}\n\n--- a\n+++ b\n")
    with (grounds.root / "results.tsv").open("a") as rows:
        rows.write("\t".join([HOSTILE.replace("\r", ""), "1.0", "0.1", "keep", HOSTILE.replace("\r", "")]) + "\n")
    return grounds


def _tampered(path: Path) -> str:
    text = path.read_text()
    if path.suffix != ".json":
        return text.replace("script", HOSTILE.replace("\r", ""))
    return text.replace("might be better", f"might be {json.dumps(HOSTILE)[1:-1]}").replace(
        '"script ', f'"{json.dumps(HOSTILE)[1:-1]}'
    )


def lines_of(name: str) -> Iterator[tuple[str, ...]]:
    """Every option of a command that has no value, with arguments that it may take; and words that none has."""
    command = command_named(name)
    yield from ((HOSTILE,), (f"--{HOSTILE}",), ("--tag", HOSTILE), ("--script", HOSTILE), ("--out", HOSTILE))
    if name in BUSY:
        return
    flags = [
        f"--{parameter.name.replace('_', '-')}"
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.annotation in (bool, "bool")
    ]
    for flag in ("", *(flag for flag in flags if flag not in ("--follow", "--open", "--remove"))):
        for arguments in ARGUMENTS:
            yield (*arguments.split(), *filter(None, [flag]), *(["--seconds", "0.2"] if name == "replay" else []))
        if answers(command):
            yield ("t:1", *filter(None, [flag]), "--json")


def on_terminal(grounds: Grounds, *arguments: str) -> str:
    """What a command in this process writes to a pseudo-terminal."""
    outer, inner = os.openpty()
    pieces: list[bytes] = []

    def read() -> None:
        with suppress(OSError):
            while piece := os.read(outer, 1 << 16):
                pieces.append(piece)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    env = environment(TERM="xterm-256color", COLUMNS="100")
    with os.fdopen(inner, "w") as there, mock.patch.dict(os.environ, env), diverted("stdout", there):
        before = Path.cwd()
        os.chdir(grounds.root)
        try:
            with diverted("stderr", there):
                exit_code(arguments)
        finally:
            os.chdir(before)
    reader.join(10)
    os.close(outer)
    return b"".join(pieces).decode(errors="backslashreplace")


def raw(printed: str) -> list[str]:
    """The lines of an output in which a sign is left that steers a terminal, or that nobody sees."""
    steered = any(f"{sign}{WORD}" in printed for sign in SIGNS)
    lines = OURS.sub("", OURS.sub("", printed)).split("\n")  # a code may stand between a line end and the next
    return [line for line in lines if DANGER.search(line)] or [printed] * steered


@pytest.mark.slow
def test_no_command_prints_a_word_that_steers_a_terminal(hostile):
    shown, steering = 0, dict[str, list[str]]()
    for name in COMMANDS:
        for words in lines_of(name):
            on_a_terminal = on_terminal(hostile, name, *words)
            shown += WORD in on_a_terminal
            done = hostile.nightshift(name, *words)
            is_a_file = name == "prompt" or ("--script" in words and "--json" not in words)
            piped = done.stderr if is_a_file else done.stdout + done.stderr
            if left := raw(on_a_terminal) + raw(piped):
                steering[f"{name} {words}"] = left
    assert steering == {}
    assert shown > 50


def test_the_screen_of_a_night_that_runs_shows_none_either(hostile):
    who = {"pid": os.getpid(), "tag": "t", "since": "2026-01-01T00:00:00Z", "folder": str(hostile.folder("t"))}
    limits = {"hours": None, "experiments": None, "began_s": 0.0}
    (hostile.root / ".git" / "nightshift.json").write_text(json.dumps(who | limits))
    with closing(sqlite3.connect(hostile.folder("t") / "journal.sqlite", isolation_level=None)) as database:
        database.execute("INSERT INTO work VALUES (?, 'training', 1, 0, 0, '2026-01-01T00:00:00Z')", (HOSTILE,))
    lock = (hostile.root / ".git" / "nightshift.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    end = threading.Timer(3.0, lock.close)
    end.start()
    try:
        shown = on_terminal(hostile, "status", "--follow")
    finally:
        end.join()
    assert WORD in shown
    assert list(map(repr, raw(shown))) == []


def test_a_script_that_is_piped_comes_as_it_is(hostile):
    script = hostile.attempts("t")[1].proposal.script
    assert raw(script)
    assert hostile.nightshift("show", "t:1", "--script").stdout == script
