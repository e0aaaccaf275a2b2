"""Dials are read by syntax tree and rewritten with every other character unchanged."""

import ast
import io
import sys
import sysconfig
import tokenize
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import ScriptError
from agent.script.contract import parse
from agent.script.dials import (
    Choices,
    Dial,
    Range,
    fingerprint,
    legible_dials,
    read_dials,
    searched,
    sensible,
    set_dials,
    skeleton_of,
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
    assert dials()["WARMUP"].span == Range(0.0, 0.3, log=False, whole=False)
    assert dials()["MATRIX_LR"].span == Range(0.005, 0.2, log=True, whole=False)
    assert dials()["PATTERN"].span == Choices(("L", "SL", "SSSL"))


def test_choices_keep_their_order_and_int_ranges_stay_whole():
    assert dials()["DEPTH"].span == Choices((2, 4, 6, 8))
    assert dials()["HEADS"].span == Range(1, 16, log=False, whole=True)


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
    expected = SCRIPT.replace("0.04", "0.0612345").replace("metal=6", "metal=8").replace("metal=4", "metal=3")
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
    assert dial.span == Range(0.01, 1.0, log=True, whole=False)


def test_what_cannot_be_read_is_skipped_where_the_author_is_asleep():
    source = "LR = 0.1  # [0.2, 0.1]\nDECAY = 0.2  # [0.0, 0.5]\nDEPTH = by_device(cpu=1)  # {1, 2}\n"
    assert [(dial.name, dial.span is None) for dial in legible_dials(source, "cuda")] == [
        ("LR", True),
        ("DECAY", False),
    ]
    assert values_of(source, "cpu") == {"LR": 0.1, "DECAY": 0.2, "DEPTH": 1}


def test_a_preset_without_this_device_says_what_to_add():
    with pytest.raises(ScriptError, match="dial DEPTH has no value for this device; add cuda="):
        read_dials("DEPTH = by_device(cpu=1, metal=2)  # {1, 2}", "cuda")


def test_comments_layout_and_quotes_do_not_make_a_new_script():
    assert fingerprint("A = 'x'  # why\n\n\nB=1\n") == fingerprint('A = "x"\nB = 1  # because')
    assert fingerprint("A = 1") != fingerprint("A = 2")


@pytest.mark.parametrize("value", ["+".join(["1"] * 20_000), "-" * 5_000 + "1", "lambda: " * 3_000 + "1"])
def test_a_script_nested_too_deep_is_told_of(value):
    source = f"LR = 0.1  # step [0.1, 0.2]\nX = {value}\n"
    for read in (fingerprint, lambda source: read_dials(source, "cpu"), lambda source: set_dials(source, "cpu", {})):
        with pytest.raises(ScriptError, match="the script is nested too deep to be read; split its longest expression"):
            read(source)


@pytest.mark.parametrize("span", ["[" + "+".join(["1"] * 20_000) + ", 2]", "{" + "-" * 5_000 + "1, 2}"])
def test_a_range_nested_too_deep_is_quoted_in_part(span):
    with pytest.raises(ScriptError) as caught:
        read_dials(f"X = 1  # {span}\n", "cpu")
    assert f"the range {span[:80]!r} of dial X cannot be read" in str(caught.value)


def test_a_set_that_cannot_be_is_no_dial():
    assert read_dials("X = {[]}  # [1, 2]\nY = {[]: 1}\nZ = 1\n", "cpu") == (Dial("Z", 1, None, 3),)


# ---- a script without any range --------------------------------------------------------------------------------------


def test_where_one_range_is_given_the_other_dials_stay_as_they_are():
    assert [dial.name for dial in searched("LR = 0.1  # [0.01, 1.0] log\nOTHER_LR = 0.1\n", "cpu")] == ["LR"]


def test_of_a_dial_that_is_set_twice_the_last_is_searched():
    (dial,) = searched("LR = 0.1  # [0.01, 1.0] log\nLR = 0.2  # [0.01, 1.0] log\n", "cpu")
    assert (dial.value, dial.line) == (0.2, 2)


def test_without_any_range_the_sensible_ones_are_searched():
    source = "LR = 0.04\nSEED = 3\nDEPTH = by_device(cpu=4, metal=6, cuda=8)\nNAME = 'x'\nFLAG = True\n"
    assert {dial.name: dial.span for dial in searched(source, "cuda")} == {
        "LR": Range(0.005, 0.32, log=True, whole=False),
        "DEPTH": Choices((4, 8, 16)),
    }


@pytest.mark.parametrize(
    ("name", "value", "low", "high", "log"),
    [
        ("EMBEDDING_LR", 0.8, 0.1, 6.4, True),
        ("WEIGHT_DECAY", 0.2, 0.05, 0.8, True),
        ("SOFTCAP", 15.0, 3.75, 60.0, True),
        ("ADAM_BETA2", 0.96, 0.84, 0.99, False),
        ("MOMENTUM", 0.8, 0.5, 0.95, False),
        ("DROPOUT", 0.0, 0.0, 0.2, False),
        ("WARMDOWN_FRACTION", 0.5, 0.3, 0.7, False),
    ],
)
def test_a_sensible_range_lies_about_the_value(name, value, low, high, log):
    span = sensible(name, value)
    assert isinstance(span, Range)
    assert (span.low, span.high, span.log) == (pytest.approx(low), pytest.approx(high), log)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("LOG_EVERY_S", 5.0), ("MAX_SEQ_LEN", 2048), ("EVAL_TOKENS", 4096), ("ADAM_EPS", 1e-8), ("TIME_BUDGET", 300)),
        *(("GAIN", 0.0), ("OFFSET", -1.5), ("HUGE", 1e999), ("NONE", 0), ("FLAG", True), ("NAME", "x")),
    ],
)
def test_what_serves_the_run_and_what_has_no_scale_is_left_alone(name, value):
    assert sensible(name, value) is None


# ---- whatever the script ---------------------------------------------------------------------------------------------

DEVICES = ("cpu", "metal", "cuda")
NAMES = ("A", "LR", "DEPTH_2", "Ω_IS_NO_DIAL", "lower")
LAYOUTS = ("{}", "(\n    {}\n)", "{} ; pass", "\\\n  {}")
OTHERS = (
    *("", "# Ω [not, a range", "def f():\n    A = 1  # inner", "x = '''A = 1\n# no comment'''", "\f", "if 1: LR = 2"),
    *("LR += 1", "A, LR = 1, 2", "    # indented", "class LR:\n    A = 1  # {1, 2}"),
)
words = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12)
floats = st.floats(-1e9, 1e9).map(lambda value: float(f"{value:.4g}"))  # as they are written
numbers = st.integers(-(10**9), 10**9) | floats
literals = st.recursive(numbers | words | st.booleans() | st.none(), lambda some: st.tuples(some, some), max_leaves=4)
comments = st.just("") | words.map(lambda text: f"  # {text.replace('[', '').replace('{', '')}")


@st.composite
def lines(draw):
    """Draw a constant in one of its layouts, for one or all devices, with a comment."""
    values = [repr(draw(literals)) for _ in DEVICES]
    value = f"by_device({', '.join(map('='.join, zip(DEVICES, values, strict=True)))})"
    value = values[0] if draw(st.booleans()) else value
    sign = draw(st.sampled_from((" = ", ": object = ", "=")))
    return draw(st.sampled_from(NAMES)) + sign + draw(st.sampled_from(LAYOUTS)).format(value) + draw(comments)


@st.composite
def sources(draw):
    parts = draw(st.lists(lines() | st.sampled_from(OTHERS), max_size=8))
    source = "\n".join(parts) + draw(st.sampled_from(("", "\n")))
    return source.replace("\n", "\r\n") if draw(st.booleans()) else source


def comments_of(source: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def written(source: str, device: str) -> dict[str, str]:
    return {dial.name: repr(dial.value) for dial in read_dials(source, device)}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(sources(), st.sampled_from(DEVICES), st.data())
def test_a_rewrite_turns_the_dials_asked_for_and_nothing_else(source, device, data):
    before = read_dials(source, device)
    turned = {dial.name: data.draw(literals) for dial in before if data.draw(st.booleans())}
    after = set_dials(source, device, turned)
    assert written(after, device) == written(source, device) | {name: repr(value) for name, value in turned.items()}
    assert comments_of(after) == comments_of(source)
    for other in set(DEVICES) - {device}:
        alone = {name: value for name, value in written(source, other).items() if name not in turned}
        assert alone.items() <= written(after, other).items()
    back = set_dials(after, device, {dial.name: dial.value for dial in before if dial.name in turned})
    assert fingerprint(back) == fingerprint(source)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sources(), st.sampled_from(DEVICES))
def test_layout_and_comments_change_no_hash_and_values_do(source, device):
    assert fingerprint(ast.unparse(ast.parse(source))) == fingerprint(source)
    assert fingerprint(f"# first\n\n{source}\n\n# last") == fingerprint(source)
    for dial in read_dials(source, device):
        assert fingerprint(set_dials(source, device, {dial.name: "another value"})) != fingerprint(source)


@pytest.mark.parametrize("name", ["zipfile", "zipfile/__init__", "tarfile", "calendar", "plistlib", "token"])
def test_scripts_by_others_survive_with_their_dials_turned(name):
    path = Path(sysconfig.get_path("stdlib")) / f"{name}.py"
    if not path.exists():
        pytest.skip(f"this Python has no {name}.py")
    source = path.read_text()
    turned = {dial.name: 7 for dial in read_dials(source, "cpu")}
    after = set_dials(source, "cpu", turned)
    assert turned
    assert written(after, "cpu").items() >= dict.fromkeys(turned, "7").items()
    assert comments_of(after) == comments_of(source)


# ---- scripts told apart ----------------------------------------------------------------------------------------------

WHOLE = '''"""What it does.

In more words.
"""
import os

A = 1  # a dial  [0, 2]
B = by_device(cpu=2, metal=3); C = "c"
D = (
    4,
    5,
)


@decorated
def run(x):
    # a remark
    text = """
E = 6
"""
    if x:
        return text
    return None


F = A + 1
'''
EDITS = [
    ("A = 1", "A = 7"), ("A = 1", "A = 7; G = 8"), ("A = 1", "# A = 7"), ("metal=3", "metal=9"), ("cpu=2", "cpu=9"),
    ('C = "c"', 'C = """c"""'), ("    5,", "    6,"), ("    5,", "    5, E := 6,"), ("E = 6", "E = 7"),
    ("    # a remark", "    y = 1"), ("import os", "import sys"), ("F = A + 1", "F = B + 1"), ("A = 1", "b = 1"),
    ("        return text", "        return x"), ("import os\n\n", "import os\nG = 9\n"), ("@decorated", "@other"),
    ("F = A + 1", "F = (A +\\\n 1)"), ("A = 1", "A = 1 \\"), ("\n\n\nF = A", "\nelse:\n    pass\nF = A"),
    ('"""What it does.', '"""What it"'), ("    return None", "return None"), ("F = A + 1", " F = A + 1"),
    ("A = 1", "A = 1\x0c"), ("A = 1", "A = 1\r"), ("D = (\n", "D = (\n" + 99 * "G,\n"),
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: repr(edit)[:60])
def test_a_script_that_shares_its_blocks_with_another_is_read_as_it_is_as_a_whole(edit):
    fingerprint(WHOLE)
    edited = WHOLE.replace(*edit)
    assert edited != WHOLE
    try:
        tree = ast.parse(edited)
    except SyntaxError:
        with pytest.raises(SyntaxError):
            fingerprint(edited)
    else:
        assert fingerprint(edited) == fingerprint(ast.unparse(tree))
        assert values_of(edited, "cpu") == {dial.name: dial.value for dial in read_dials(edited, "cpu")}


def test_layout_and_remarks_change_no_fingerprint_and_a_dial_no_skeleton():
    laid_out = WHOLE.replace("A = 1  # a dial", "A  =  1  # one")
    laid_out = laid_out.replace('"c"', "'c'").replace("# a remark", "# another")
    turned = WHOLE.replace("A = 1", "A = 7").replace("cpu=2", "cpu=9")
    assert fingerprint(laid_out) == fingerprint(WHOLE) != fingerprint(turned)
    assert skeleton_of(turned, "cpu") == skeleton_of(WHOLE, "cpu")
    assert skeleton_of(turned, "metal") != skeleton_of(WHOLE, "metal")
    assert skeleton_of(WHOLE.replace("A + 1", "A + 2"), "cpu") != skeleton_of(WHOLE, "cpu")
    assert values_of(turned, "metal")["B"] == 3


def test_two_threads_may_read_scripts_at_once():
    """CPython 3.11 raises SystemError where two threads parse at once."""

    def read_many(first: int) -> list[int]:
        return [len(parse("x = 1\n" * (1 + (first + at) % 40)).body) for at in range(1500)]

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            for lengths, first in zip(threads.map(read_many, (0, 20)), (0, 20), strict=True):
                assert lengths == [1 + (first + at) % 40 for at in range(1500)]
    finally:
        sys.setswitchinterval(usual_s)
