"""Steer a night while it runs, by program.md and by the notes of `nightshift note`.

Both are read before every proposal, so a note left at midnight counts from the next idea on.
"""

import json
import os
from pathlib import Path

from agent.errors import NightError
from agent.files import read_end
from agent.invocation import typed
from agent.text import harmless_lines, paragraphs

NOTES = "notes.jsonl"
NOTE_CHARS, MAX_NOTES = 2000, 50  # of one, and the latest so many: all of them have to fit into a prompt
NOTES_BYTES = 4 * MAX_NOTES * NOTE_CHARS
PROGRAM_BYTES = 64 << 10


def add_note(folder: Path, text: str, now: str) -> None:
    """Append a note to those of the night in this folder; raise NightError for one that says nothing.

    It is on disk when this returns. Each note begins with a line break, so that a line torn by a power cut does not
    damage the next one.
    """
    note = paragraphs(text, NOTE_CHARS)
    if not note:
        raise NightError(f"the note is empty; say something, as in: {typed('note', 'leave the tokenizer alone')}")
    line = "\n" + json.dumps({"time": now, "text": note}) + "\n"
    file = os.open(folder / NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        os.write(file, line.encode())  # one call: two people who write at once get a line each
        os.fsync(file)
    finally:
        os.close(file)


def read_notes(folder: Path) -> tuple[str, ...]:
    """Return the latest notes in their order; skip lines that are not notes."""
    try:
        lines = read_end(folder, NOTES, NOTES_BYTES).splitlines()
    except OSError:
        return ()
    notes = [note for line in lines if (note := _note(line)) is not None]
    return tuple(notes[-MAX_NOTES:])


def _note(line: bytes) -> str | None:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
    return paragraphs(text, NOTE_CHARS) or None if isinstance(text, str) else None


def read_program(path: Path) -> str:
    """Read program.md; return an empty text where it is missing, cannot be read, or is no plain file."""
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as file:
            content = file.read(PROGRAM_BYTES + 1)
    except OSError:
        return ""
    text = harmless_lines(content[:PROGRAM_BYTES].decode(errors="ignore").replace("\r\n", "\n"))
    return (
        text
        if len(content) <= PROGRAM_BYTES
        else f"{text}\n[the rest, beyond {PROGRAM_BYTES >> 10} KiB, is left out]\n"
    )
