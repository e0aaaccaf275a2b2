"""Every function fits a screen: a limit for the harness, the kernels and the fixed part."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((*ROOT.glob("*.py"), *(ROOT / "agent").rglob("*.py")))
MOST_LINES_OF_A_FUNCTION = 60
IN_ONE_FILE = "train_mlx.py"  # by its contract: an edit sees the whole model


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of every function in a file, decorators aside."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


LIMITED = [path for path in SOURCES if path.name != IN_ONE_FILE]


@pytest.mark.parametrize("path", LIMITED, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_is_long(path):
    assert {name: lines for name, lines in functions(path) if lines > MOST_LINES_OF_A_FUNCTION} == {}


def test_no_two_files_of_tests_share_a_name():
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if "cheats" not in path.parts]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_no_helper_of_the_tests_has_the_name_of_a_benchmark():
    # tests of benchmarks put both folders on the path, and would import whichever comes first
    helpers, benchmarks = ({path.name for path in (ROOT / folder).glob("*.py")} for folder in ("tests", "benchmarks"))
    assert helpers & benchmarks == set()
