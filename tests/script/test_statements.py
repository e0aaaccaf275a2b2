"""Scripts read by the lines in which they differ from another one, and as a whole: the same statements."""

import ast
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.script import statements as reading
from agent.script.dials import normalised, skeleton_of, values_of

SCRIPT = '''"""What it does."""
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


@pytest.fixture(autouse=True)
def _nothing_was_read() -> Iterator[None]:
    reading._read.clear()
    yield
    reading._read.clear()


def read(source: str) -> tuple[reading.Statement, ...]:
    return reading.statements(source, "cpu")


def test_a_statement_that_sets_a_dial_has_its_name_and_value_on_this_device():
    found = {one.name: one.value for one in read(SCRIPT) if one.name}
    assert found == {"A": 1, "B": 2, "C": "c", "D": (4, 5)}
    assert len(read(SCRIPT)) == len(ast.parse(SCRIPT).body)


EDITS = [
    ("A = 1", "A = 7"), ("A = 1", "A = 7; G = 8"), ("A = 1", "# A = 7"), ("metal=3", "metal=9"), ("cpu=2", "cpu=9"),
    ('C = "c"', 'C = """c"""'), ("    5,", "    6,"), ("    5,", "    5, E := 6,"), ("E = 6", "E = 7"),
    ("    # a remark", "    y = 1"), ("import os", "import sys"), ("F = A + 1", "F = B + 1"), ("A = 1", "b = 1"),
    ("        return text", "        return x"), ("import os\n\n", "import os\nG = 9\n"), ("@decorated", "@other"),
    ("F = A + 1", "F = (A +\\\n 1)"), ("A = 1", "A = 1 \\"), ("\n\n\nF = A", "\nelse:\n    pass\nF = A"),
    ('"""What it does."""', '"""What it'), ("    return None", "return None"), ("F = A + 1", " F = A + 1"),
    ("A = 1", "A = 1\x0c"), ("A = 1", "A = 1\r"),
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS, ids=repr)
def test_an_edited_script_is_what_it_is_as_a_whole(edit):
    edited = SCRIPT.replace(*edit)
    assert edited != SCRIPT
    try:
        whole = read(edited)
    except SyntaxError:
        whole = None
    reading._read.clear()
    read(SCRIPT)
    if whole is None:
        with pytest.raises(SyntaxError):
            read(edited)
    else:
        assert read(edited) == whole


def test_a_turned_dial_is_read_by_its_line_alone():
    read(SCRIPT)
    read(SCRIPT.replace("A = 1", "A = 7").replace("    5,", "    6,"))
    assert len(reading._read) == 1


def test_layout_and_remarks_change_no_fingerprint_and_a_dial_no_skeleton():
    laid_out = SCRIPT.replace("A = 1  # a dial", "A  =  1  # one")
    laid_out = laid_out.replace('"c"', "'c'").replace("# a remark", "# another")
    turned = SCRIPT.replace("A = 1", "A = 7").replace("cpu=2", "cpu=9")
    assert normalised(laid_out) == normalised(SCRIPT) != normalised(turned)
    assert skeleton_of(turned, "cpu") == skeleton_of(SCRIPT, "cpu")
    assert skeleton_of(turned, "metal") != skeleton_of(SCRIPT, "metal")
    assert skeleton_of(SCRIPT.replace("A + 1", "A + 2"), "cpu") != skeleton_of(SCRIPT, "cpu")
    assert values_of(turned, "metal")["B"] == 3


def test_two_threads_may_read_scripts_at_once():
    def read_many(first: int) -> list[int]:
        return [len(read("x = 1\n" * (1 + (first + at) % 40))) for at in range(1500)]

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            for found, first in zip(threads.map(read_many, (0, 20)), (0, 20), strict=True):
                assert found == [1 + (first + at) % 40 for at in range(1500)]
    finally:
        sys.setswitchinterval(usual_s)
