"""What the harness needs of a script and of the files beside it. Told from syntax trees: nothing is executed."""

import ast
from collections.abc import Iterator
from pathlib import Path

from agent.errors import ScriptError

MAX_SCRIPT_BYTES = 256 << 10  # ours has 31 KiB; weights hidden in a script are no experiment
MAX_DEPTH = 100  # of the syntax tree, whose other readers recurse; the standard library's deepest has 33
ROOTS = ("prepare.py", "hardware.py")  # what the scorer and the probe import
PROMISES = {
    "main": "trains for --budget-s and writes summary.json, metrics.jsonl and model.safetensors to --out",
    "load_model": "returns the model for a file of weights",
}


def check_script(source: str, name: str) -> None:
    """Raises ScriptError for a script that is too large, does not parse, or does not define what the contract asks."""
    size = len(source.encode(errors="surrogatepass"))
    if size > MAX_SCRIPT_BYTES:
        raise ScriptError(f"{name} has {size:,} bytes, beyond the limit of {MAX_SCRIPT_BYTES:,}: take data out of it")
    tree = _parse(source, name)
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for function, promise in PROMISES.items():
        if function not in defined:
            raise ScriptError(f"{name} breaks the contract: define {function}(), which {promise}; see program.md")


def _parse(source: str, name: str) -> ast.Module:
    try:
        tree = ast.parse(source)
        _check_depth(tree)
    except (SyntaxError, ValueError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        message = error.msg if isinstance(error, SyntaxError) else error
        raise ScriptError(f"{name}{line} does not parse: {message}; mend it and run again") from error
    except (RecursionError, MemoryError) as error:  # MemoryError: the parser's own stack is full
        raise ScriptError(
            f"{name} is nested more than {MAX_DEPTH} deep; split its longest expression, or its longest chain of elif"
        ) from error
    return tree


def _check_depth(tree: ast.AST) -> None:
    depth, level = 0, [tree]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
        if depth > MAX_DEPTH:
            raise RecursionError


def fixed_files(folder: Path, source: str) -> tuple[str, ...]:
    """The files beside the script that it and the scorer import, directly or not: the fixed part of every run.

    A package is taken whole, with files of other kinds that its modules read. The paths are relative to the folder.
    Raises ScriptError when one that must be there is not, or does not parse.
    """
    found: set[str] = set()
    wanted = {*ROOTS, *_siblings(folder, source)}
    while wanted - found:
        name = min(wanted - found)
        try:
            if name.endswith(".py"):
                wanted |= _siblings(folder, (folder / name).read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ScriptError(f"{folder / name} cannot be read ({error}); copy nightshift's own there") from error
        found.add(name)
    return tuple(sorted(found))


def _siblings(folder: Path, source: str) -> set[str]:
    found: set[str] = set()
    for module in set(_imports(source)):
        if (folder / f"{module}.py").is_file():
            found.add(f"{module}.py")
        elif (folder / module / "__init__.py").is_file():
            files = (path for path in (folder / module).iterdir() if path.is_file() and not path.name.startswith("."))
            found |= {path.relative_to(folder).as_posix() for path in files}
    return found


def _imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
