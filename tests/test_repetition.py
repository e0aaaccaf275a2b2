"""No six lines of code stand twice: where the logic is the same, one piece of code serves."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SAME = 6  # lines
# Each of these is a whole training script, which has to stand by itself; the twin is train_mlx.py in PyTorch.
SCRIPTS = ("train_mlx.py", "benchmarks/twin/", "tests/cheats/base.py", "tests/scripts/")
FOLDERS = ("agent", "benchmarks", "tests")


def sources() -> Iterator[Path]:
    for path in (*ROOT.glob("*.py"), *(path for name in FOLDERS for path in sorted((ROOT / name).rglob("*.py")))):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(SCRIPTS):
            yield path


def passed_over(tree: ast.AST) -> set[int]:
    """Return the lines of imports, signatures and texts: an interface has the same words as whatever keeps it."""
    found: set[int] = set()
    statements = [tree]
    for node in statements:
        statements += (part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr))
        if isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.Expr) and _is_text(node.value)):
            found |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.FunctionDef):
            found |= set(range(node.lineno, node.body[0].lineno))
            if all(isinstance(part, ast.Expr) for part in node.body) and _is_text(node.body[-1]):  # of a protocol
                found |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return found


def _is_text(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else node
    return isinstance(value, ast.Constant) and (isinstance(value.value, str) or value.value is ...)


def code_lines(path: Path) -> list[tuple[int, str]]:
    """Return numbers and texts of the lines that say something: not blank, no comment, no lone punctuation."""
    text = path.read_text(encoding="utf-8")
    skipped = passed_over(ast.parse(text))
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if number not in skipped)
    return [(number, line) for number, line in lines if any(map(str.isalnum, line)) and not line.startswith("#")]


def repeated() -> Iterator[str]:
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path in sources():
        lines = code_lines(path)
        for at in range(len(lines) - SAME + 1):
            window = lines[at : at + SAME]
            places[tuple(line for _, line in window)].append((path, window[0][0]))
    for found in places.values():
        if len(found) > 1:
            yield " ~ ".join(f"{path.relative_to(ROOT)}:{number}" for path, number in found)


def test_no_six_lines_stand_twice():
    assert list(repeated()) == []
