"""Steer a night while it runs, by program.md and by the notes of `nightshift note`.

Both are read before every proposal, so a note left at midnight counts from the next idea on.
"""

import errno
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from agent.errors import NightError
from agent.files import check_plain, naming, read_end
from agent.invocation import typed
from agent.proposers.keys import check_without_keys
from agent.text import harmless_lines, paragraphs

NOTES = "notes.jsonl"
NOTE_CHARS, MAX_NOTES = 2000, 50  # characters of a note; number of latest notes: all of them have to fit into a prompt
NOTES_BYTES = 4 * MAX_NOTES * NOTE_CHARS
PROGRAM_CHARS = 64 << 10


def add_note(folder: Path, text: str, now: str) -> None:
    """Append a note to those of the night in this folder; raise NightError for one that is empty, too long, or a key.

    It is on disk when this returns. Each note begins with a line break, so that a line torn by a power cut does not
    damage the next one.
    """
    note = paragraphs(text, sys.maxsize)
    if len(note) > NOTE_CHARS:
        raise NightError(
            f"the note has {len(note):,} characters, and {NOTE_CHARS:,} at most are told; shorten it, or write it into "
            f"program.md"
        )
    if not note:
        raise NightError(f"the note is empty; say something, as in: {typed('note', 'leave the tokenizer alone')}")
    check_without_keys("the note", text)
    check_plain(folder / NOTES)
    line = "\n" + json.dumps({"time": now, "text": note}) + "\n"
    with naming(folder / NOTES):
        file = os.open(folder / NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            # one call: two people who write at once get a line each
            if os.write(file, content := line.encode()) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)


class Note(msgspec.Struct, frozen=True):
    """The part of a line of notes.jsonl that is read."""

    text: str


def read_notes(folder: Path) -> tuple[str, ...]:
    """Return the latest notes in their order; skip lines that are not notes."""
    lines, notes = list[bytes](), list[str]()
    with suppress(OSError):
        lines = read_end(folder, NOTES, NOTES_BYTES).splitlines()
    for line in lines:
        with suppress(msgspec.MsgspecError, ValueError, RecursionError):
            notes.append(paragraphs(msgspec.json.decode(line, type=Note).text, NOTE_CHARS))
    return tuple(filter(None, notes))[-MAX_NOTES:]


def read_program(path: Path) -> str:
    """Return the beginning of program.md; an empty text where it is missing, cannot be read, or is no plain file."""
    if path.is_file():
        with suppress(OSError), path.open(encoding="utf-8", errors="ignore") as file:
            return harmless_lines(file.read(PROGRAM_CHARS))
    return ""
