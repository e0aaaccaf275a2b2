"""What the harness asks of a script, told without executing it."""

import sys
from pathlib import Path

import pytest

from agent.contract import MAX_DEPTH, MAX_SCRIPT_BYTES, check_script, fixed_files
from agent.dials import normalised, read_dials
from agent.errors import ScriptError

PROMISED = "def main(): ...\ndef load_model(path): ...\n"
PROJECT = Path(__file__).parents[1]


def complaint(source: str) -> str:
    with pytest.raises(ScriptError) as caught:
        check_script(source, "train.py")
    return str(caught.value)


def test_our_own_script_fits_with_room_to_grow():
    source = (PROJECT / "train_mlx.py").read_text()
    check_script(source, "train_mlx.py")
    assert len(source.encode()) < MAX_SCRIPT_BYTES / 4


@pytest.mark.parametrize("function", ["main", "load_model"])
def test_what_is_missing_is_named_with_what_it_is_for(function):
    source = PROMISED.replace(f"def {function}", "def other")
    assert complaint(source).startswith(f"train.py breaks the contract: define {function}(), which ")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (\n", "train.py line 1 does not parse: '(' was never closed; mend it and run again"),
        ("x = 1\0\n", "train.py does not parse: source code string cannot contain null bytes"),
        ("x = '\ud800'\n", "train.py does not parse: 'utf-8' codec can't encode character"),
        ("x = " + "(" * 5_000, "train.py line 1 does not parse: too many nested parentheses"),
    ],
)
def test_what_does_not_parse_is_quoted(source, message):
    assert message in complaint(source)


DEEP = {
    "sum": "X = " + "+".join(["1"] * 50_000),
    "sum that parses": "X = " + "+".join(["1"] * (MAX_DEPTH + 1)),
    "attributes": "X = a" + ".b" * 50_000,
    "calls": "X = a" + "()" * 50_000,
    "signs": "X = " + "-" * 50_000 + "1",
    "negations": "X = " + "not " * 5_000 + "1",
    "functions": "X = " + "lambda: " * 3_000 + "1",
    "branches": "if 1: ...\n" + "elif 1: ...\n" * 3_000,
}


@pytest.mark.parametrize("kind", DEEP)
def test_a_script_nested_too_deep_is_one_sentence(kind):
    said = f"train.py is nested more than {MAX_DEPTH} deep; split its longest expression, or its longest chain of elif"
    assert complaint(f"{DEEP[kind]}\n{PROMISED}") == said


def test_what_is_accepted_can_be_read_by_those_who_recurse():
    accepted = f"X = {'-' * (MAX_DEPTH - 5)}1  # [0, 2]\nif X: ...\n{PROMISED}"
    check_script(accepted, "train.py")
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(600)
        assert len(normalised(accepted)) == 64
        read_dials(accepted, "cpu")
    finally:
        sys.setrecursionlimit(limit)


def test_weights_do_not_fit_into_a_script():
    hidden = f"WEIGHTS = '{'é' * (MAX_SCRIPT_BYTES // 2)}'\n{PROMISED}"
    assert complaint(hidden).startswith(f"train.py has {len(hidden.encode()):,} bytes, beyond the limit of 262,144")


def test_a_fixed_file_nested_too_deep_is_named(tmp_path):
    for name in ("prepare.py", "hardware.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "deep.py").write_text(DEEP["sum"])
    with pytest.raises(ScriptError, match=r"deep\.py cannot be read \(maximum recursion depth"):
        fixed_files(tmp_path, "import deep")
