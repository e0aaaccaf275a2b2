"""Number the halves of an edit, so that one tuple of numbers names whole edits and halves.

A kept edit has the number of its attempt, n. The two halves of its dials, in the order of the script, have the numbers
-2n and -2n - 1. No edit has the number 0, since attempt 0 edits nothing. So a question in the journal and the findings
of a dawn can name edits and halves alike, in the format that they had before there were halves.
"""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def halves_of(edit: int) -> tuple[int, int]:
    """Return the numbers of an edit's first and second half."""
    return -2 * edit, -2 * edit - 1


def edit_of(number: int) -> int:
    """Return the number of an edit from its own number or a half's."""
    return number if number >= 0 else -number // 2


def is_half(number: int) -> bool:
    """Return whether a number names a half of an edit."""
    return number < 0


def part_of(number: int, whole: Sequence[Item]) -> Sequence[Item]:
    """Return the items of an edit's dials that a number names: all, or those of a half."""
    if not is_half(number):
        return whole
    middle = (len(whole) + 1) // 2
    return whole[:middle] if number == halves_of(edit_of(number))[0] else whole[middle:]


def named(number: int) -> str:
    """Return the words for an edit or a half: #3, or the first half of #3."""
    edit = edit_of(number)
    if not is_half(number):
        return f"#{edit}"
    return f"the {'first' if number == halves_of(edit)[0] else 'second'} half of #{edit}"
