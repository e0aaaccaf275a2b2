"""The contract of a script is checked without executing it."""

from pathlib import Path

import pytest

from agent.errors import ScriptError
from agent.script.contract import CALLED, MAX_DEPTH, MAX_SCRIPT_BYTES, check_script, fixed_files, modules_beside

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


# ---- imports ---------------------------------------------------------------------------------------------------------

MAY = """
import argparse, os.path, xml.etree.ElementTree as tree, __main__
import mlx.core as mx, mlx.nn, numpy, numpy.random
import agent, agent.lab.kernels.plain
from __future__ import annotations
from collections.abc import Sequence
from mlx.utils import tree_map
from numpy import *
from agent import lab
from agent.lab import corpus, hardware, kernels
from agent.lab.hardware import by_device
from agent.lab.kernels import norm, plain
import prepare
__import__("json"), importlib.import_module("mlx.nn"), __import__(name), load("torch")
"""
MAY_NOT = {
    "import requests": "requests",
    "import os, torch.nn as nn": "torch",
    "from requests import x as y": "requests",
    "import mlx_lm": "mlx_lm",
    "import numpy_financial": "numpy_financial",
    "from . import helper": ".helper",
    "from ..up import x": "..up.x",
    "import agent.git": "agent.git",
    "from agent import errors": "agent.errors",
    "from agent import lab, git": "agent.git",
    "import agent.laboratory": "agent.laboratory",
    "from agent.records.journal import Journal": "agent.records.journal.Journal",
    "def late():\n    import scipy.stats": "scipy",
    "try:\n    import torch\nexcept ImportError:\n    torch = None": "torch",
    "x = [__import__('torch')]": "torch",
    "x = importlib.import_module('torch.nn', package=None)": "torch",
    "x = import_module(name='agent.git')": "agent.git",
}


@pytest.mark.parametrize("line", MAY.strip().splitlines())
def test_what_program_md_allows_may_be_imported(line):
    check_script(f"{line}\n{PROMISED}", "train.py")


@pytest.mark.parametrize("code", MAY_NOT)
def test_an_import_of_anything_else_is_named_with_its_line(code):
    number = 2 + code.count("\n", 0, code.index("import"))
    assert complaint(f"# one\n{code}\n{PROMISED}").startswith(f"train.py line {number} imports {MAY_NOT[code]}; do ")


def test_a_module_of_the_users_own_may_be_imported_from_beside_the_script(package):
    beside = modules_beside(package.parent)
    assert beside == {"prepare", "helper", "late", "models"}
    check_script(f"import helper\nfrom models.blocks import attention\n{PROMISED}", "train.py", beside)
    with pytest.raises(ScriptError, match="imports torch"):
        check_script(f"import helper, torch\n{PROMISED}", "train.py", beside)


# ---- packages beside the script --------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Make a package with a subpackage, beside a script."""
    (tmp_path / "prepare.py").write_text("".join(f"{name} = None\n" for name in CALLED))
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
