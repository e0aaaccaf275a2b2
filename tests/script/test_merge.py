"""Edits taken out of a script that was edited further."""

from dawns import SHARPER, START
from judged import scored_attempt
from nights import unigram

from agent.experiment import Status, halves_of
from agent.script.merge import dials_of, undone, without_edits

DIALS = unigram()


def test_a_dial_is_turned_back_though_its_neighbours_were_turned_later():
    after = unigram(SMOOTHING=2.0)
    script = unigram(SMOOTHING=2.0, SHARE=0.5, SHARPNESS=0.9)
    assert undone(script, DIALS, after, "cpu") == unigram(SHARE=0.5, SHARPNESS=0.9)


def test_a_dial_that_was_turned_again_is_no_longer_the_edits():
    assert undone(unigram(SMOOTHING=3.0), DIALS, unigram(SMOOTHING=2.0), "cpu") is None
    both = unigram(SMOOTHING=2.0, SHARE=0.5)
    assert undone(unigram(SMOOTHING=2.0, SHARE=1.0), DIALS, both, "cpu") is None


def test_lines_are_taken_back_around_later_edits():
    after = DIALS.replace("time.sleep(0.02)", "time.sleep(0.03)")
    script = after.replace("SHARE = 0.25", "SHARE = 0.5").replace("# (V,)", "# (V,), float32")
    expected = script.replace("time.sleep(0.03)", "time.sleep(0.02)")
    assert undone(script, DIALS, after, "cpu") == expected


def test_lines_that_a_later_edit_has_changed_cannot_be_taken_back():
    after = DIALS.replace("time.sleep(0.02)", "time.sleep(0.03)")
    script = after.replace("time.sleep(0.03)", "time.sleep(0.03 + 0.01)")
    assert undone(script, DIALS, after, "cpu") is None


def test_what_would_not_parse_any_more_is_not_taken_back():
    after = DIALS.replace("    jitter = JITTER", "    if True:\n        pass\n    jitter = JITTER")
    script = after.replace("        pass\n    jitter", "        pass\n    else:\n        pass\n    jitter")
    assert undone(script, DIALS, after, "cpu") is None


def test_several_edits_are_taken_out_of_the_champion_the_latest_first():
    faster = SHARPER.replace("time.sleep(0.02)", "time.sleep(0.03)")
    slower = faster.replace("time.sleep(0.03)", "time.sleep(0.04)")
    chain = [
        scored_attempt(number, 1.0, parent=number - 1 if number else None, status=Status.KEEP, script=script)
        for number, script in enumerate((START, SHARPER, faster, slower))
    ]
    assert without_edits(chain, chain[3], (2, 3), "cpu") == SHARPER
    assert without_edits(chain, chain[3], (2,), "cpu") is None
    assert without_edits(chain, chain[3], (1,), "cpu") == slower.replace("SHARPNESS = 0.6", "SHARPNESS = 0.5")


def test_half_of_an_edits_dials_are_set_back_where_no_later_edit_has_turned_them():
    before, turned = unigram(SHARPNESS=0.5), {"SHARPNESS": 0.9, "SMOOTHING": 2.0, "SHARE": 0.5, "JITTER": 0.1}
    many, later = unigram(**turned), unigram(**turned | {"SHARE": 0.7})
    chain = [
        scored_attempt(number, 1.0, parent=number - 1 if number else None, status=Status.KEEP, script=script)
        for number, script in enumerate((before, many, later))
    ]
    assert list(dials_of(chain, 1, "cpu")) == list(turned)
    first, second = halves_of(1)
    assert [list(dials_of(chain, half, "cpu")) for half in (first, second)] == [list(turned)[:2], list(turned)[2:]]
    assert without_edits(chain, chain[2], (first,), "cpu") == unigram(SHARPNESS=0.5, SHARE=0.7, JITTER=0.1)
    assert without_edits(chain, chain[2], (second,), "cpu") == unigram(SHARPNESS=0.9, SMOOTHING=2.0, SHARE=0.7)
    assert without_edits(chain, chain[2], (second, 2), "cpu") == unigram(SHARPNESS=0.9, SMOOTHING=2.0)


def test_half_of_an_edits_dials_are_set_back_to_the_last_digit():
    written = ("A = 0.123456789\n", "B = 1e999\n", "C = (-1e999, 0.123456789)\n", "D = 1\n")
    turned = ("A = 0.2\n", "B = 0.5\n", "C = (1.0, 2.0)\n", "D = 2\n", "E = (1,)\n", "F = 2\n")
    before = "".join((*written, "E = (0.123456789,)\n", "F = 1\n"))
    chain = [
        scored_attempt(number, 1.0, parent=number - 1 if number else None, status=Status.KEEP, script=script)
        for number, script in enumerate((before, "".join(turned)))
    ]
    first, _ = halves_of(1)
    assert without_edits(chain, chain[1], (first,), "cpu") == "".join((*written[:3], *turned[3:]))
    assert without_edits(chain, chain[1], halves_of(1), "cpu") == before


def test_a_half_whose_dials_were_all_turned_again_cannot_be_set_back():
    chain = [
        scored_attempt(number, 1.0, parent=number - 1 if number else None, status=Status.KEEP, script=script)
        for number, script in enumerate((DIALS, unigram(SHARE=0.5, SMOOTHING=2.0), unigram(SHARE=0.7, SMOOTHING=3.0)))
    ]
    assert [without_edits(chain, chain[2], (half,), "cpu") for half in halves_of(1)] == [None, None]


def test_an_edit_of_code_has_no_halves():
    chain = [
        scored_attempt(number, 1.0, parent=number - 1 if number else None, status=Status.KEEP, script=script)
        for number, script in enumerate((START, SHARPER, SHARPER.replace("time.sleep(0.02)", "time.sleep(0.03)")))
    ]
    assert list(dials_of(chain, 1, "cpu")) == ["SHARPNESS"]
    assert [list(dials_of(chain, number, "cpu")) for number in (0, 2)] == [[], []]
