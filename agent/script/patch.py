"""Apply a unified diff of the script. A patch of an earlier best script is carried over by a three-way merge.

What paths a patch names is read to tell what it is about, and nothing is written there: its hunks edit a text.
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from agent.errors import ScriptError
from agent.script.merge import merge_lines
from agent.text import SAID_CHARS, one_line

EDITED = re.compile(r"^--- (?:[abciow]/)?([^\t\r\n]++).*\n\+\+\+ (?:[abciow]/)?([^\t\r\n]++).*\n(?=@@ )", re.MULTILINE)
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@.*\n((?:[ +\\-].*\n|\r?\n)*)", re.MULTILINE)
MORE_THAN_AN_EDIT = re.compile(r"^(old mode|new mode|new file|deleted file|rename|copy|GIT binary) ", re.MULTILINE)


def is_patch(text: str) -> bool:
    """Return whether a text holds a unified diff."""
    return EDITED.search(text) is not None


def check_patch(patch: str, script: str) -> None:
    """Raise ScriptError if a patch does more than edit the script, which it names by its path or alone."""
    names = dict.fromkeys(name for pair in EDITED.findall(patch) for name in pair)
    own = {script, PurePosixPath(script).name}
    said = "it cannot be read" if HUNK.search(f"{patch}\n") is None else ""
    if not names or not own.issuperset(names):
        said = f"this one is about {one_line(', '.join(names), SAID_CHARS) or 'nothing'}"
    if MORE_THAN_AN_EDIT.search(patch):
        said = "this one makes, removes or renames files"
    if said or len(EDITED.findall(patch)) > 1:
        raise ScriptError(f"a patch may edit {script} and nothing else ({said or 'once'}); make it again")


def patched(patch: str, script: str) -> str | None:
    """Return the script with a patch's hunks, each where its lines stand nearest to its number; None if one does not.

    Line ends count only where the script has those of Windows: an editor may have changed the patch's. In Python, since
    git takes ten milliseconds for a patch, and there may be a hundred.
    """
    patch = patch if "\r\n" in script else patch.replace("\r\n", "\n")
    lines = script.split("\n")
    done, grown = 0, 0  # lines that earlier hunks have settled, and by how many the script has grown
    for hunk in HUNK.finditer(f"{patch}\n"):
        old, new = _sides(hunk)
        expected = int(hunk[1]) - 1 + grown
        places = [at for at in range(done, len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
        if not old or not places:
            return None
        at = min(places, key=lambda place: abs(place - expected))
        lines[at : at + len(old)] = new
        done, grown = at + len(new), at - int(hunk[1]) + 1 + len(new) - len(old)
    return "\n".join(lines)


def _sides(hunk: re.Match[str]) -> tuple[list[str], list[str]]:
    """Return the old and the new lines of a hunk, as many as its head says: a mail's signature may follow."""
    most_old, most_new = (1 if count is None else int(count) for count in hunk.group(2, 3))
    old: list[str] = []
    new: list[str] = []
    for line in hunk[4].split("\n"):
        if len(old) < most_old and line[:1] in (" ", "-", ""):
            old.append(line[1:])
        if len(new) < most_new and line[:1] in (" ", "+", ""):
            new.append(line[1:])
    return old, new


def apply_patch(patch: str, script: str, bases: Sequence[tuple[int, str]]) -> str:
    """Return the first base with the patch's edit; bases are attempts and their scripts, the one to be edited first.

    If the patch fits only a later base, the changes between the two are merged. Raise ScriptError if it fits no base,
    or if the two edits touch the same lines.
    """
    check_patch(patch, script)
    (best, ours), *_ = bases
    for number, base in bases:
        edited = patched(patch, base)
        if edited is None:
            continue
        text = edited if number == best else merge_lines(ours, base, edited)
        if text is None:
            conflict = f"the patch conflicts with edits kept since attempt {number}"
            raise ScriptError(f"{conflict}; make it again, of the best script so far")
        return text
    raise ScriptError(f"the patch does not apply to attempt {best}, the best script so far; make it again")
