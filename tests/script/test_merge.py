"""Edits made in a script that was edited further, and taken out of it; and what an edited script was made from."""

import pytest
from judged import scored_attempt
from nights import unigram

from agent.errors import ScriptError
from agent.experiment import Attempt, Status
from agent.script.merge import basis_of, merge_texts, merged, with_edit, without_edits

DIALS = unigram()
START = unigram(JITTER=0.05, SHARPNESS=0.5)
SHARPER = unigram(JITTER=0.05, SHARPNESS=0.6)


def test_a_dial_is_turned_back_though_its_neighbours_were_turned_later():
    after = unigram(SMOOTHING=2.0)
    script = unigram(SMOOTHING=2.0, SHARE=0.5, SHARPNESS=0.9)
    assert merged(script, after, DIALS, "cpu") == unigram(SHARE=0.5, SHARPNESS=0.9)


def test_a_dial_that_was_turned_again_is_no_longer_the_edits():
    assert merged(unigram(SMOOTHING=3.0), unigram(SMOOTHING=2.0), DIALS, "cpu") is None
    both = unigram(SMOOTHING=2.0, SHARE=0.5)
    assert merged(unigram(SMOOTHING=2.0, SHARE=1.0), both, DIALS, "cpu") is None


def test_lines_are_taken_back_around_later_edits():
    after = DIALS.replace("time.sleep(0.02)", "time.sleep(0.03)")
    script = after.replace("SHARE = 0.25", "SHARE = 0.5").replace("# (V,)", "# (V,), float32")
    expected = script.replace("time.sleep(0.03)", "time.sleep(0.02)")
    assert merged(script, after, DIALS, "cpu") == expected


def test_lines_that_a_later_edit_has_changed_cannot_be_taken_back():
    after = DIALS.replace("time.sleep(0.02)", "time.sleep(0.03)")
    script = after.replace("time.sleep(0.03)", "time.sleep(0.03 + 0.01)")
    assert merged(script, after, DIALS, "cpu") is None


def test_several_edits_are_taken_out_of_the_best_script_the_latest_first():
    faster = SHARPER.replace("time.sleep(0.02)", "time.sleep(0.03)")
    slower = faster.replace("time.sleep(0.03)", "time.sleep(0.04)")
    chain = [
        scored_attempt(number, 1.0, parent=number - 1 if number else None, status=Status.KEEP, script=script)
        for number, script in enumerate((START, SHARPER, faster, slower))
    ]
    assert without_edits(chain, chain[3], (2, 3), "cpu") == SHARPER
    assert without_edits(chain, chain[3], (2,), "cpu") is None
    assert without_edits(chain, chain[3], (1,), "cpu") == slower.replace("SHARPNESS = 0.6", "SHARPNESS = 0.5")


# ---- lines -----------------------------------------------------------------------------------------------------------

PROMISED = "def main(): ...\ndef load_model(path): ...\n"
LINES = PROMISED + "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n"


def edit(**lines: str) -> str:
    """Return the base with other lines in the place of `a = 1` and so on."""
    text = LINES
    for name, new in lines.items():
        old = next(line for line in LINES.splitlines() if line.startswith(f"{name} ="))
        text = text.replace(f"{old}\n", new)
    return text


def test_two_insertions_at_one_place_are_ours_and_then_theirs():
    ours, theirs = edit(c="c = 3\nours = 1\n"), edit(c="c = 3\ntheirs = 1\n")
    assert merge_texts(ours, LINES, theirs) == edit(c="c = 3\nours = 1\ntheirs = 1\n")


def test_an_insertion_beside_a_changed_line_is_united_with_it():
    for inserted in ("c = 3\nnew = 1\n", "new = 1\nc = 3\n"):
        changed = inserted.replace("c = 3", "c = 30")
        assert merge_texts(edit(c=inserted), LINES, edit(c="c = 30\n")) == edit(c=changed)
        assert merge_texts(edit(c="c = 30\n"), LINES, edit(c=inserted)) == edit(c=changed)


def test_what_is_carried_over_can_be_taken_out_again_alone():
    script, edited = edit(a="a = 1\nshared = 1\n"), edit(a="a = 1\nshared = 1\n", e="e = 50\n")
    assert with_edit(edit(c="c = 30\n"), LINES, edited, "cpu") == edit(
        a="a = 1\nshared = 1\n", c="c = 30\n", e="e = 50\n"
    )
    with pytest.raises(ScriptError, match="could not be taken out alone"):
        with_edit(script, LINES, edited, "cpu")


def test_changes_of_neighbouring_lines_are_united():
    assert merge_texts(edit(b="b = 20\n"), LINES, edit(c="c = 30\n")) == edit(b="b = 20\n", c="c = 30\n")


def test_two_changes_of_one_line_conflict():
    ours = edit(a="first = 1\na = 1\n", c="c = 30\nc += 1\n", e="e = 50\n")
    assert merge_texts(ours, LINES, edit(c="c = 31\n", e="e = 51\n")) is None
    assert merge_texts(edit(c="c = 30\n"), LINES, edit(c="")) is None


def test_thousands_of_edits_on_both_sides_are_merged_in_a_moment():
    """Each compared with each, they would take minutes, in which the night stands still."""
    lines = [f"x = {number}\n" for number in range(6000)]
    ours, theirs, both = (
        PROMISED
        + "".join(f"x = {-number - 1}\n" if number % 3 in turned else line for number, line in enumerate(lines))
        for turned in ((0,), (1,), (0, 1))
    )
    assert merge_texts(ours, PROMISED + "".join(lines), theirs) == both


# ---- what an edited script was made from -----------------------------------------------------------------------------


def night(*scripts: str) -> list[Attempt]:
    """A night that has kept each of these, one after another."""
    return [
        scored_attempt(at, 1.0 - at / 10, parent=at - 1 if at else None, status=Status.KEEP, script=script)
        for at, script in enumerate(scripts)
    ]


KEPT = night(START, SHARPER, SHARPER.replace("time.sleep(0.02)", "time.sleep(0.03)"))


def basis(script: str, history: list[Attempt], committed: str = START) -> tuple[int | None, list[int]]:
    result = basis_of(script, history, committed)
    return result.number, [attempt.number for attempt in result.missing]


def test_a_script_is_made_from_the_nearest_kept_one_and_lacks_what_was_kept_after_it():
    for at, attempt in enumerate(KEPT):
        edited = attempt.proposal.script.replace("JITTER = 0.0", "JITTER = 0.1")
        assert edited != attempt.proposal.script
        assert basis(edited, KEPT) == (at, [attempt.number for attempt in KEPT[at + 1 :]])
        assert basis(edited.replace("\n\n", "\n# a comment\n\n"), KEPT)[0] == at


def test_the_committed_script_may_be_none_of_the_attempts():
    committed = START + "\n\ndef unused():\n    return 1\n"
    assert basis(committed.replace("SMOOTHING = 1.0", "SMOOTHING = 3.0"), KEPT, committed) == (None, [1, 2])
