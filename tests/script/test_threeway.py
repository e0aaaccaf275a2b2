"""Two edits of one text are merged; insertions beside each other are united, contradictions are told by their lines."""

import pytest

from agent.script.threeway import Conflict, merge_texts

PROMISED = "def main(): ...\ndef load_model(path): ...\n"
BASE = PROMISED + "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n"


def edit(**lines: str) -> str:
    """Return the base with other lines in the place of `a = 1` and so on."""
    text = BASE
    for name, new in lines.items():
        old = next(line for line in BASE.splitlines() if line.startswith(f"{name} ="))
        text = text.replace(f"{old}\n", new)
    return text


def test_two_insertions_at_one_place_are_ours_and_then_theirs():
    ours, theirs = edit(c="c = 3\nours = 1\n"), edit(c="c = 3\ntheirs = 1\n")
    assert merge_texts(ours, BASE, theirs) == edit(c="c = 3\nours = 1\ntheirs = 1\n")


def test_an_insertion_beside_a_changed_line_is_united_with_it():
    for inserted in ("c = 3\nnew = 1\n", "new = 1\nc = 3\n"):
        changed = inserted.replace("c = 3", "c = 30")
        assert merge_texts(edit(c=inserted), BASE, edit(c="c = 30\n")) == edit(c=changed)
        assert merge_texts(edit(c="c = 30\n"), BASE, edit(c=inserted)) == edit(c=changed)


def test_changes_of_neighbouring_lines_are_united():
    assert merge_texts(edit(b="b = 20\n"), BASE, edit(c="c = 30\n")) == edit(b="b = 20\n", c="c = 30\n")


def test_lines_are_taken_back_between_what_was_inserted_around_them():
    base = edit(c="c = 3\nold = 1\nold = 2\n")
    ours = edit(c="c = 3\nbefore = 1\nold = 1\nold = 2\nafter = 1\n")
    assert merge_texts(ours, base, BASE) == edit(c="c = 3\nbefore = 1\nafter = 1\n")


def test_lines_are_taken_back_beside_lines_that_were_deleted_since():
    base = edit(c="c = 3\nold = 1\n")
    assert merge_texts(base.replace("d = 4\n", ""), base, BASE) == edit(d="")


def test_two_changes_of_one_line_conflict_and_the_lines_of_ours_are_told():
    ours = edit(a="first = 1\na = 1\n", c="c = 30\nc += 1\n", e="e = 50\n")
    with pytest.raises(Conflict, match=r"lines 6 to 7, 9$") as caught:
        merge_texts(ours, BASE, edit(c="c = 31\n", e="e = 51\n"))
    assert caught.value.lines == ((6, 7), (9, 9))
    with pytest.raises(Conflict, match=r"^line 5$"):
        merge_texts(edit(c="c = 30\n"), BASE, edit(c=""))


def test_insertions_that_parse_in_one_order_only_conflict():
    base = PROMISED + "if a:\n    pass\nb = 1\n"
    ours = base.replace("    pass\n", "    pass\nelse:\n    pass\n")
    theirs = base.replace("    pass\n", "    pass\nc = 1\n")
    with pytest.raises(Conflict, match="lines 5 to 6"):
        merge_texts(ours, base, theirs)


def test_lines_that_look_like_conflicts_are_text():
    marks = "'''\n<<<<<<< ours\n|||||||\n=======\n>>>>>>> theirs\n'''\n"
    assert merge_texts(edit(a=marks), BASE, edit(e="e = 50\n")) == edit(a=marks, e="e = 50\n")


def test_a_text_without_a_last_line_end_keeps_its_lines():
    bare = BASE.removesuffix("\n")
    assert merge_texts(edit(a="a = 10\n"), BASE, bare) == edit(a="a = 10\n").removesuffix("\n")
