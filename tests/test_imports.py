"""The training script and prepare.py import the fixed part alone; import-linter holds the order within agent/."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"mlx", "numpy", "filelock"}  # filelock: prepare.py alone, where it writes


def imported(path: Path) -> set[str]:
    """Return the full names of what a file imports, wherever in it."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    return imported


@pytest.mark.parametrize(("name", "more"), [("train_mlx.py", {"prepare"}), ("prepare.py", set())])
def test_what_a_run_starts_with_imports_of_this_project_the_fixed_part_alone(name, more):
    others = {module for module in imported(ROOT / name) if f"{module}.".partition("agent.lab.")[0]}
    assert {module.partition(".")[0] for module in others} - sys.stdlib_module_names <= PACKAGES | more
