"""Dials are read by syntax tree and rewritten with every other character left alone."""

import pytest

from agent.dials import Choices, Dial, Interval, normalised, read_dials, set_dials
from agent.errors import ScriptError

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
    assert dials()["WARMUP"].span == Interval(0.0, 0.3, log=False, whole=False)
    assert dials()["MATRIX_LR"].span == Interval(0.005, 0.2, log=True, whole=False)
    assert dials()["PATTERN"].span == Choices(("L", "SL", "SSSL"))


def test_choices_keep_their_order_and_int_ranges_stay_whole():
    assert dials()["DEPTH"].span == Choices((2, 4, 6, 8))
    assert dials()["HEADS"].span == Interval(1, 16, log=False, whole=True)


def test_only_upper_case_literals_at_module_level_are_dials():
    assert list(dials()) == ["DEPTH", "MATRIX_LR", "WARMUP", "HEADS", "PATTERN", "NEGATIVE", "OTHER", "BETAS"]


def test_a_dial_without_a_range_is_not_searched():
    assert dials()["BETAS"].span is None


@pytest.mark.parametrize(("device", "depth"), [("cpu", 4), ("metal", 6), ("cuda", 8)])
def test_by_device_reads_this_device(device, depth):
    assert dials(device)["DEPTH"].value == depth


def test_setting_nothing_changes_nothing():
    assert set_dials(SCRIPT, "cpu", {}) == SCRIPT


def test_setting_touches_the_value_and_nothing_else():
    after = set_dials(SCRIPT, "metal", {"MATRIX_LR": 0.0612345, "DEPTH": 8, "HEADS": 3, "PATTERN": "L", "NEGATIVE": 2})
    expected = SCRIPT.replace("0.04", "0.06123").replace("metal=6", "metal=8").replace("metal=4", "metal=3")
    assert after == expected.replace("'SSSL'", "'L'").replace("-1.5", "2")


def test_a_value_over_several_lines_is_replaced_whole():
    source = "SHAPE = (\n    1,\n    2,\n)  # é\nB = 2\n"
    assert set_dials(source, "cpu", {"SHAPE": (3,), "B": 4}) == "SHAPE = (3,)  # é\nB = 4\n"


def test_line_ends_and_a_missing_last_newline_survive():
    assert set_dials("A = 1\r\nB = 'é'; C = 3", "cpu", {"C": 4, "A": 2}) == "A = 2\r\nB = 'é'; C = 4"


def test_setting_an_unknown_dial_names_it():
    with pytest.raises(ScriptError, match="no dial called DEPHT"):
        set_dials(SCRIPT, "cpu", {"DEPHT": 1})


@pytest.mark.parametrize(
    "line",
    [
        "LR = 0.1  # step [0.1, high]",
        "LR = 0.1  # step [0.1]",
        "LR = 0.1  # step [0.1, 0.2",
        "LR = 0.1  # step [0.2, 0.1]",
        "LR = 0.1  # step [0.0, 0.2] log",
        "LR = 0.0  # step [0.1, 0.2] log",
        "LR = 0.1  # step [0.1, 1e999]",
        "LR = 0.1  # step [0.1, 0.2] logarithmic",
        "LR = 0.1  # step {0.1}",
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


def test_a_preset_without_this_device_says_what_to_add():
    with pytest.raises(ScriptError, match="dial DEPTH has no value for this device; add cuda="):
        read_dials("DEPTH = by_device(cpu=1, metal=2)  # {1, 2}", "cuda")


def test_comments_layout_and_quotes_do_not_make_a_new_script():
    assert normalised("A = 'x'  # why\n\n\nB=1\n") == normalised('A = "x"\nB = 1  # because')
    assert normalised("A = 1") != normalised("A = 2")


@pytest.mark.parametrize("value", ["+".join(["1"] * 20_000), "-" * 5_000 + "1", "lambda: " * 3_000 + "1"])
def test_a_script_nested_too_deep_is_told_of(value):
    source = f"LR = 0.1  # step [0.1, 0.2]\nX = {value}\n"
    for read in (normalised, lambda source: read_dials(source, "cpu"), lambda source: set_dials(source, "cpu", {})):
        with pytest.raises(ScriptError, match="the script is nested too deep to be read; split its longest expression"):
            read(source)


@pytest.mark.parametrize("span", ["[" + "+".join(["1"] * 20_000) + ", 2]", "{" + "-" * 5_000 + "1, 2}"])
def test_a_range_nested_too_deep_is_quoted_in_part(span):
    with pytest.raises(ScriptError) as caught:
        read_dials(f"X = 1  # {span}\n", "cpu")
    assert f"the range {span[:80]!r} of dial X cannot be read" in str(caught.value)


def test_a_set_that_cannot_be_is_no_dial():
    assert read_dials("X = {[]}  # [1, 2]\nY = {[]: 1}\nZ = 1\n", "cpu") == (Dial("Z", 1, None, 3),)
