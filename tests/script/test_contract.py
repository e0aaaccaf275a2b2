"""The contract of a script is checked without executing it."""

from pathlib import Path

import pytest

from agent.errors import ScriptError
from agent.script.contract import MAX_DEPTH, MAX_SCRIPT_BYTES, check_script, fixed_files

PROMISED = "def main(): ...\ndef load_model(path): ...\n"


def complaint(source: str) -> str:
    with pytest.raises(ScriptError) as caught:
        check_script(source, "train.py")
    return str(caught.value)


@pytest.mark.parametrize("function", ["main", "load_model"])
def test_what_is_missing_is_named_with_what_it_is_for(function):
    source = PROMISED.replace(f"def {function}", "def other")
    assert complaint(source).startswith(f"train.py breaks the contract: define {function}(), which ")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (\n", "train.py line 1 does not parse: '(' was never closed; correct it and run again"),
        ("x = 1\0\n", "train.py does not parse: source code string cannot contain null bytes"),
        ("x = '\ud800'\n", "train.py does not parse: 'utf-8' codec can't encode character"),
        ("x = " + "(" * 5_000, "train.py line 1 does not parse: too many nested parentheses"),
    ],
)
def test_what_does_not_parse_is_quoted(source, message):
    assert message in complaint(source)


# ---- what Python would read as another text --------------------------------------------------------------------------

HIDDEN = PROMISED + "#\\nprint('a program of its own')\n"


@pytest.mark.parametrize("lines", ["# -*- coding: {} -*-\n", "#!/usr/bin/python\n# vim: set fileencoding={} :\n"])
@pytest.mark.parametrize("encoding", ["unicode_escape", "latin-1", "utf-7", "rot13", "ascii"])
def test_a_cookie_that_has_python_read_another_text_is_named(lines, encoding):
    result = complaint(lines.format(encoding) + HIDDEN)
    assert result.startswith("train.py cannot be read as a UTF-8 text file: ")
    assert encoding.replace("latin-1", "iso-8859-1") in result


@pytest.mark.parametrize("source", ["# a\r# coding: utf-7\n", "\r# coding: utf-7\n", "x = 1\rx = 2\n", "\r\r\n"])
def test_carriage_returns_that_only_python_takes_for_line_ends_are_refused(source):
    assert "carriage return" in complaint(source + PROMISED)


DEEP = {
    "sum that parses": "X = " + "+".join(["1"] * (MAX_DEPTH + 1)),
    "attributes": "X = a" + ".b" * 50_000,
    "signs": "X = " + "-" * 50_000 + "1",
    "branches": "if 1: ...\n" + "elif 1: ...\n" * 3_000,
}


@pytest.mark.parametrize("kind", DEEP)
def test_a_script_nested_too_deep_is_one_sentence(kind):
    said = f"a script is nested more than {MAX_DEPTH} deep; split its longest expression, or its longest chain of elif"
    assert complaint(f"{DEEP[kind]}\n{PROMISED}") == said


def test_weights_do_not_fit_into_a_script():
    hidden = f"WEIGHTS = '{'é' * (MAX_SCRIPT_BYTES // 2)}'\n{PROMISED}"
    assert complaint(hidden).startswith(f"train.py has {len(hidden.encode()):,} bytes, beyond the limit of 262,144")


# ---- packages beside the script --------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Make a package with a subpackage, beside a script."""
    (tmp_path / "prepare.py").write_text("")
    (tmp_path / "helper.py").write_text("import late\n")
    (tmp_path / "late.py").write_bytes("# coding: latin-1\n# é\n".encode("latin-1"))
    inner = tmp_path / "models" / "blocks" / "attention"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent, inner.parent.parent):
        (folder / "__init__.py").write_bytes(b"\xef\xbb\xbfimport helper\n")
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "x.pyc").write_text("")
        (folder / ".hidden").mkdir()
        (folder / ".hidden" / "x.py").write_text("")
    (inner / "table.bin").write_bytes(b"\0")
    return tmp_path / "models"


def test_a_package_is_taken_whole_with_what_it_imports(package):
    result = set(fixed_files(package.parent, "from models.blocks import attention"))
    inits = {"models/__init__.py", "models/blocks/__init__.py", "models/blocks/attention/__init__.py"}
    beside = {"prepare.py", "helper.py", "late.py"}
    assert result == {*beside, *inits, "models/blocks/attention/table.bin"}


@pytest.mark.parametrize("name", ["weights", "weights.bin"])
def test_a_package_leads_nowhere_else(package, tmp_path_factory, name):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "weights.bin").write_text("")
    (package / "blocks" / name).symlink_to(elsewhere / name if "." in name else elsewhere)
    with pytest.raises(ScriptError, match=rf"blocks/{name} is a link that leads out of .*; replace it by a copy"):
        fixed_files(package.parent, "import models")
