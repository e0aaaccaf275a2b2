"""Dials are read by syntax tree and rewritten with every other character unchanged."""

import pytest

from agent.errors import ScriptError
from agent.experiment import UNREAD
from agent.script.dials import (
    Choices,
    Dial,
    Range,
    fingerprint,
    outline_of,
    read_dials,
    searched,
    sensible,
    set_dials,
    values_of,
)

SCRIPT = '''\
"""A script."""
import math

DEPTH = by_device(cpu=4, metal=6, cuda=8)  # layers; more is slower  {2, 4, 6, 8}
MATRIX_LR = 0.04  # Muon: "every" matrix — yes  [0.005, 0.2] log
WARMUP: float = 0.0   # share of the budget  [0.0, 0.3]
HEADS = by_device(
    cpu=2,
    metal=4,
    cuda=8,
)  # per layer  [1, 16]
PATTERN = 'SSSL'  # S local, L full  {"L", "SL", "SSSL"}
NEGATIVE = -1.5; OTHER = True  # two on a line  {True, False}
BETAS = (0.8, 0.95)  # no range: not searched
WIDTH = 64 * 4  # computed [see above]
lower = 1  # [0, 2]


def main():
    LOCAL = 1  # [0, 2]
'''


def dials(device: str = "cpu") -> dict[str, Dial]:
    return {dial.name: dial for dial in read_dials(SCRIPT, device)}


def test_the_three_forms_of_a_range():
    assert dials()["WARMUP"].span == Range(0.0, 0.3, log=False)
    assert dials()["MATRIX_LR"].span == Range(0.005, 0.2, log=True)
    assert dials()["PATTERN"].span == Choices(("L", "SL", "SSSL"))


def test_choices_keep_their_order_and_int_ranges_stay_whole():
    assert dials()["DEPTH"].span == Choices((2, 4, 6, 8))
    assert dials()["HEADS"].span == Range(1, 16, log=False)


def test_only_upper_case_literals_at_module_level_are_dials():
    assert list(dials()) == ["DEPTH", "MATRIX_LR", "WARMUP", "HEADS", "PATTERN", "NEGATIVE", "OTHER", "BETAS"]


@pytest.mark.parametrize(("device", "depth"), [("cpu", 4), ("metal", 6), ("cuda", 8)])
def test_by_device_reads_this_device(device, depth):
    assert dials(device)["DEPTH"].value == depth


def test_setting_touches_the_value_and_nothing_else():
    after = set_dials(SCRIPT, "metal", {"MATRIX_LR": 0.0612345, "DEPTH": 8, "HEADS": 3, "PATTERN": "L", "NEGATIVE": 2})
    expected = SCRIPT.replace("0.04", "0.0612345").replace("metal=6", "metal=8").replace("metal=4", "metal=3")
    assert after == expected.replace("'SSSL'", "'L'").replace("-1.5", "2")


def test_line_ends_and_a_missing_last_newline_survive():
    assert set_dials("A = 1\r\nB = 'é'; C = 3", "cpu", {"C": 4, "A": 2, "B": "long"}) == "A = 2\r\nB = 'long'; C = 4"


def test_two_dials_of_one_line_are_each_set_where_they_stand():
    assert set_dials("LR = 0.1; DEPTH = 4\n", "cpu", {"LR": 0.12345, "DEPTH": 16}) == "LR = 0.12345; DEPTH = 16\n"


def test_setting_an_unknown_dial_names_it():
    with pytest.raises(ScriptError, match="no dial called DEPHT"):
        set_dials(SCRIPT, "cpu", {"DEPHT": 1})


@pytest.mark.parametrize(
    "line",
    [
        "LR = 0.1  # step [0.1, 0.2",
        "LR = 0.1  # step [0.2, 0.1]",
        "LR = 0.1  # step [0.0, 0.2] log",
        "LR = 0.0  # step [0.1, 0.2] log",
        "LR = 0.1  # step [0.1, 1e999]",
        "LR = 0.1  # step [0.1, 0.2] logarithmic",
        "LR = 0.1  # step [low, high] log",
        "LR = 0.1  # step [0.1, 0.2, 0.3]",
        "LR = 0.1  # step {a, b}",
        "LR = 'x'  # step [0.1, 0.2]",
        "LR = 1  # step [0.5, 2]",
    ],
)
def test_an_unreadable_range_names_dial_line_text_and_forms(line):
    with pytest.raises(ScriptError) as caught:
        read_dials(f"import x\n{line}\n", "cpu")
    text = line[max(line.rfind("["), line.rfind("{")) :]
    assert str(caught.value).startswith(f"line 2: the range {text!r} of dial LR cannot be read; write [low, high]")


@pytest.mark.parametrize(
    "comment",
    [
        *("as in [3]", "[Kingma, 2014]", "see [1, 2] for why", "[see above]", "found best {by hand}", "[0.1]", "{0.1}"),
        *("rows [0, 8) of [sic]", "a[i] {x}", "[", "]", "{}", "[]", "one of [0.1, 0.2], by trial", "[3, Table 2]"),
    ],
)
def test_what_a_comment_quotes_is_no_range(comment):
    (dial,) = read_dials(f"LR = 0.1  # {comment}\n", "cpu")
    assert dial.span is None


def test_a_range_counts_at_the_end_of_whatever_the_comment_quotes():
    (dial,) = read_dials("LR = 0.1  # as in [3], {sic}  [0.01, 1.0] log\n", "cpu")
    assert dial.span == Range(0.01, 1.0, log=True)


def test_what_cannot_be_read_is_skipped_where_the_owner_is_asleep():
    source = "LR = 0.1  # [0.2, 0.1]\nDECAY = 0.2  # [0.0, 0.5]\nDEPTH = by_device(cpu=1)  # {1, 2}\n"
    assert [(dial.name, dial.span is None) for dial in read_dials(source, "cuda", strict=False)] == [
        ("LR", True),
        ("DECAY", False),
    ]
    assert values_of(source, "cpu") == {"LR": 0.1, "DECAY": 0.2, "DEPTH": 1}


def test_a_long_comment_is_read_at_once():
    comment = f"[{' ' * 200_000}]x"  # half an hour, if each blank is tried as an end
    (dial,) = read_dials(f"LR = 0.1  # {comment}\n", "cpu", strict=False)
    assert dial.span is None


@pytest.mark.parametrize("code", ["if 1: ...\n" + "elif 1: ...\n" * 900, "X = a" + ".b" * 1500])
def test_of_a_script_from_elsewhere_that_is_nested_too_deep_nothing_is_read(code):
    assert outline_of(f"LR = 0.1\n{code}", "cpu") == UNREAD


def test_a_preset_without_this_device_says_what_to_add():
    with pytest.raises(ScriptError, match="dial DEPTH has no value for this device; add cuda="):
        read_dials("DEPTH = by_device(cpu=1, metal=2)  # {1, 2}", "cuda")


def test_comments_layout_and_quotes_do_not_make_a_new_script():
    assert fingerprint("A = 'x'  # why\n\n\nB=1\n") == fingerprint('A = "x"\nB = 1  # because')
    assert fingerprint("A = 1") != fingerprint("A = 2")


# ---- a script without any range --------------------------------------------------------------------------------------


def test_where_one_range_is_given_the_other_dials_stay_as_they_are():
    assert [dial.name for dial in searched("LR = 0.1  # [0.01, 1.0] log\nOTHER_LR = 0.1\n", "cpu")] == ["LR"]


def test_of_a_dial_that_is_set_twice_the_last_is_searched():
    (dial,) = searched("LR = 0.1  # [0.01, 1.0] log\nLR = 0.2  # [0.01, 1.0] log\n", "cpu")
    assert dial.value == 0.2


def test_without_any_range_numbers_are_searched_around_their_values():
    source = "LR = 0.04\nBETA = 0.9\nDEPTH = 4\nOFF = 0\nSEED = 1\nTIED = True\n"
    assert [dial.name for dial in searched(source, "cpu")] == ["LR", "BETA", "DEPTH"]
    assert sensible("LR", 0.04) == Range(0.01, 0.16, log=True)
    assert sensible("BETA", 0.9) == Range(0.225, 0.95, log=True)
    assert sensible("DEPTH", 4) == Choices((2, 4, 8))
