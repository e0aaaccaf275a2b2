"""Merge two edits of one text by git, and unite insertions that stand beside each other.

git calls two changes a conflict where they touch. Two insertions at one place are no contradiction, and neither is an
insertion beside lines that the other side takes back: so an idea can be undone after another was inserted next to it.
"""

import re
from dataclasses import dataclass

from agent.errors import ScriptError
from agent.files import throwaway_folder
from agent.git import detached_git
from agent.script.contract import check_script

MARK = 64  # characters of git's conflict markers: no line of a script begins with so many of one kind
NAMES = ("ours", "base", "theirs")
Lines = tuple[str, ...]


class Conflict(ScriptError):
    """Say which lines of ours cannot be merged; `lines` counts them from 1, first and last included."""

    def __init__(self, lines: tuple[tuple[int, int], ...]) -> None:
        shown = ", ".join(f"{first}" if first >= last else f"{first} to {last}" for first, last in lines)
        super().__init__(f"line{'s' if lines[1:] or lines[0][0] < lines[0][1] else ''} {shown}")
        self.lines = lines


@dataclass(frozen=True, slots=True)
class Region:
    """Hold the three versions of lines that both sides have changed."""

    ours: Lines
    base: Lines
    theirs: Lines

    def united(self, *, ours_first: bool = True) -> Lines | None:
        """Return both changes; None if one side has changed lines that the other has changed, too."""
        one, other = (self.ours, self.theirs) if ours_first else (self.theirs, self.ours)
        ways = (way(*pair, self.base) for way in (_one_after_other, _around) for pair in ((one, other), (other, one)))
        return next((lines for lines in ways if lines is not None), None)


def merge_texts(ours: str, base: str, theirs: str) -> str:
    """Return ours with the changes from base to theirs; raise Conflict where they contradict each other.

    The lines of two insertions at one place are ours and then theirs, if a script with either order keeps the contract.
    """
    pieces = _merged(ours, base, theirs)
    regions = [piece for piece in pieces if isinstance(piece, Region)]
    orders = ["".join(line for piece in pieces for line in _resolved(piece, first)) for first in (True, False)]
    if regions and any(region.united() is None for region in regions):
        raise Conflict(_places(pieces))
    for text in dict.fromkeys(orders if regions else ()):
        try:
            check_script(text, "script")
        except ScriptError:
            raise Conflict(_places(pieces, every=True)) from None
    return orders[0]


def merge_lines(ours: str, base: str, theirs: str) -> str | None:
    """Return ours with the changes from base to theirs; None where the changes conflict."""
    try:
        return merge_texts(ours, base, theirs)
    except Conflict:
        return None


def _resolved(piece: Region | str, ours_first: bool) -> Lines:
    return (piece,) if isinstance(piece, str) else piece.united(ours_first=ours_first) or ()


def _one_after_other(before: Lines, after: Lines, base: Lines) -> Lines | None:
    """Return both changes of the base if one ends where the other begins, or earlier; None if they overlap."""
    (_, end), (start, _) = _changed(base, before), _changed(base, after)
    return before[: end + len(before) - len(base)] + base[end:start] + after[start:] if end <= start else None


def _changed(base: Lines, edited: Lines) -> tuple[int, int]:
    """Return where the changed lines of the base begin and end."""
    same = [one == other for one, other in zip(base, edited, strict=False)]
    start = same.index(False) if False in same else len(same)
    rest = len(same) - start  # lines that may be equal at the end
    end = next((at for at in range(rest) if base[-1 - at] != edited[-1 - at]), rest)
    return start, len(base) - end


def _around(inserted: Lines, changed: Lines, base: Lines) -> Lines | None:
    """Return the changed lines between what the other side has inserted before and after them; None if it did more."""
    places = [at for at in range(len(inserted) - len(base) + 1) if inserted[at : at + len(base)] == base]
    if len(places) != 1:
        return None
    return inserted[: places[0]] + changed + inserted[places[0] + len(base) :]


def _places(pieces: list[Region | str], *, every: bool = False) -> tuple[tuple[int, int], ...]:
    """Return the first and the last line in ours of every conflict; of every region if all could be united."""
    found: list[tuple[int, int]] = []
    line = 1
    for piece in pieces:
        if isinstance(piece, str):
            line += 1
            continue
        if every or piece.united() is None:
            found.append((line, line + max(1, len(piece.ours)) - 1))
        line += len(piece.ours)
    return tuple(found)


def _merged(ours: str, base: str, theirs: str) -> list[Region | str]:
    """Return the merged lines, and a region for every conflict, as git sees them."""
    with throwaway_folder() as folder:
        for name, text in zip(NAMES, (ours, base, theirs), strict=True):
            (folder / name).write_bytes(text.encode())
        done = detached_git(folder, "merge-file", "-p", "-q", "--diff3", f"--marker-size={MARK}", *NAMES)
    if not 0 <= done.returncode < 128:
        raise Conflict(((1, ours.count("\n") + 1),))
    return _pieces(re.split(r"(?<=\n)", done.stdout.decode()))


def _pieces(lines: list[str]) -> list[Region | str]:
    marker = re.compile(rf"([<|=>])\1{{{MARK - 1}}}(?: \w+)?\r?\n?")
    found: list[Region | str] = []
    sides: dict[str, list[str]] = {}
    side: str | None = None
    for line in lines:
        match = marker.fullmatch(line)
        if match is None and side is None:
            found.append(line)
        elif match is None:
            sides[side].append(line)  # type: ignore[index]
        elif match[1] == ">":
            found.append(Region(*(tuple(sides[mark]) for mark in "<|=")))
            side = None
        else:
            side = match[1]
            sides[side] = []
    return found
