"""Check that a training script keeps its contract, and find the files that it imports, without executing it."""

import ast
import codecs
import io
import sys
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from threading import Lock

from agent.errors import ScriptError
from agent.invocation import command_to_begin
from agent.text import harmless, plain_lines

MAX_SCRIPT_BYTES = 256 << 10  # ours has 31 KiB; weights hidden in a script are no experiment
MAX_DEPTH = 100  # levels of the syntax tree, which is read recursively; the standard library's deepest tree has 33
MOST_EXCERPT = 200  # characters of a line that is shown
MAX_PACKAGE_BYTES = 256 << 20  # bytes; every run gets a copy
PREPARE = "prepare.py"  # imported by the scorer and the probe, which call these
CALLED = ("TIME_BUDGET_S", "prepare", "ensure_data", "load_data", "rows_at_once", "token_losses", "checked_logits")
PROGRAM = "agent"  # nightshift itself brings the part of this package that a run may import: agent/runs/fixed.py
BROUGHT = {"mlx", "numpy"}  # folders of these names beside a script are others
ALLOWED = frozenset({"mlx", "numpy", "prepare", "__main__", *sys.stdlib_module_names})
MAY_IMPORT = "mlx, numpy, the standard library, prepare and agent.lab"
IMPORTERS = ("__import__", "import_module")  # functions that import what their first argument names
TOO_DEEP = f"a script is nested more than {MAX_DEPTH} deep; split its longest expression, or its longest chain of elif"
PROMISES = {
    "main": "trains for --budget-s and writes summary.json, metrics.jsonl and model.safetensors to --out",
    "load_model": "returns the model for a file of weights",
}

# A source is asked for an idea while the driver reads scripts. CPython 3.11 counts the depth of the tree that it makes
# in one place for all threads, and raises SystemError when two disagree: github.com/python/cpython/issues/106905
_one_at_a_time = Lock()


def parse(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a source; raise ScriptError if it is nested too deep, else what ast.parse raises.

    Raise ValueError where Python refuses to write an integer that long.
    """
    try:
        with _one_at_a_time:
            tree = ast.parse(source)
    except (RecursionError, MemoryError) as error:  # MemoryError: the parser's own stack is full
        raise ScriptError(TOO_DEEP) from error
    _check_tree(tree)
    return tree


@lru_cache(maxsize=8)  # an idea is checked when it comes and when it is entered
def check_script(source: str, name: str, beside: frozenset[str] | None = frozenset()) -> None:
    """Raise ScriptError unless a script can be edited and keeps the contract.

    It must not be too large, must be the same text to Python as to people, must parse, must define the functions of the
    contract, and must import what it may. beside: modules of the user's own that it may import as well; None for a
    script that reports its own score, which keeps no contract.
    """
    size = len(source.encode(errors="surrogatepass"))
    if size > MAX_SCRIPT_BYTES:
        raise ScriptError(f"{name} has {size:,} bytes, beyond the limit of {MAX_SCRIPT_BYTES:,}: take data out of it")
    if "\r" in source.replace("\r\n", ""):  # Python takes it for an end of the line; git, diff and terminals do not
        raise ScriptError(f"{name} has a carriage return inside of a line; save it with plain line ends")
    _check_encoding(source, name)
    try:
        tree = parse(source)
    except (SyntaxError, ValueError) as error:
        raise _unparsed(name, error if isinstance(error, SyntaxError) else SyntaxError(str(error))) from error
    if beside is None:
        return
    defined = _functions(tree)
    for function, promise in PROMISES.items():
        if function not in defined:
            raise ScriptError(
                f"{name} breaks the contract: define {function}(), which {promise}; see program.md; or name a number "
                f"that the script prints itself, as in --metric val_loss"
            )
    check_imports(tree, name, beside)


def _functions(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def imports_of_edits(base: str) -> frozenset[str] | None:
    """Return the modules that an edit of a script may import; None, any of them, where the script keeps no contract."""
    return imports(base) if PROMISES.keys() <= _functions(parse(base)) else None


def check_imports(tree: ast.Module, name: str, beside: frozenset[str] = frozenset()) -> None:
    """Raise ScriptError for the first import of a module that a script may not import, wherever in it that stands."""
    for line, module in sorted(_imported(tree)):
        top = module.partition(".")[0]
        is_of_lab = module == PROGRAM or f"{module}.".startswith(f"{PROGRAM}.lab.")
        if not (is_of_lab if top == PROGRAM else top in ALLOWED or top in beside):
            shown = module if top in ("", PROGRAM) else top
            raise ScriptError(
                f"{name} line {line} imports {shown}; do without it: a script may import {MAY_IMPORT} alone"
            )


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of all that a script imports; of a name from a package, as if it were a module.

    A relative import begins with a dot, as in `from . import x`.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=package, names=names, level=level):
                start = "." * level + (f"{package}." if package else "")
                yield from ((node.lineno, (start + alias.name).removesuffix(".*")) for alias in names)
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function)) if function in IMPORTERS:
                values = (*node.args[:1], *(word.value for word in node.keywords if word.arg == "name"))
                constants = (value.value for value in values if isinstance(value, ast.Constant))
                yield from ((node.lineno, module) for module in constants if isinstance(module, str))


def _unparsed(name: str, error: SyntaxError) -> ScriptError:
    """Return the error for a script that is no Python: the line with a mark below the place, as Python shows it."""
    line = f" line {error.lineno}" if error.lineno else ""
    sentence = f"{name}{line} does not parse: {error.msg}; correct it and run again"
    text = (error.text or "").rstrip()
    code = text.lstrip()
    if not 0 < len(code) <= MOST_EXCERPT:
        return ScriptError(sentence)
    blanks = " " * ((error.offset or 1) - 1 - len(text) + len(code))
    return ScriptError(sentence, excerpt=f"    {harmless(code)}\n    {blanks}^")


def decoded(content: bytes, name: str) -> str:
    """Return the text of a script or a patch as Python reads it, in plain lines; raise ScriptError if it is not UTF-8.

    Line ends are no part of an edit: those of the user's own file come back where a script is committed or taken.
    """
    try:
        return plain_lines(content.decode())
    except UnicodeDecodeError as error:
        raise ScriptError(f"{name} cannot be read as a UTF-8 text file: {error}; save it as UTF-8") from error


def _check_encoding(source: str, name: str) -> None:
    """Refuse an encoding line such as unicode_escape, with which Python runs another text than people read."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source.encode(errors="replace")).readline)
        fault = f"its first lines say that it is {encoding}"
        if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
            return
    except SyntaxError as error:
        fault = str(error.msg)
    raise ScriptError(
        f"{name} cannot be read as a UTF-8 text file: {fault}; save it as UTF-8, without another 'coding' line"
    )


def _check_tree(tree: ast.AST) -> None:
    """Refuse what other functions could not read: a journal from elsewhere may hold any script."""
    depth, level = 0, [tree]
    while level:
        for node in level:
            if isinstance(node, ast.Constant):
                repr(node.value)  # hashes and dials write every constant, too
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
        if depth > MAX_DEPTH:
            raise ScriptError(TOO_DEEP)


def fixed_files(folder: Path, source: str, *, is_scored: bool = True) -> tuple[str, ...]:
    """Return the files beside the script that it and the scorer import, directly or not: the fixed part of every run.

    A package is included whole, with its subfolders and data files. Paths are relative to the folder. Raise ScriptError
    if a required file is missing or does not parse. is_scored: by us, which takes our prepare.py.
    """
    read: set[str] = set()
    wanted = {*([PREPARE] if is_scored else []), *_siblings(folder, source)}
    while wanted - read:
        name = min(wanted - read)
        try:
            if name.endswith(".py"):
                wanted |= _siblings(folder, (folder / name).read_bytes())  # bytes: these may have any encoding
        except FileNotFoundError as error:
            raise ScriptError(
                f"{folder / name} is missing, and every run needs it; add nightshift's own with: "
                f"{command_to_begin(folder)}"
            ) from error
        except (OSError, SyntaxError, ValueError, ScriptError) as error:
            raise ScriptError(f"{folder / name} cannot be read ({error}); copy nightshift's own there") from error
        read.add(name)
    if is_scored:
        _check_prepare(folder / PREPARE)
    return tuple(sorted(read))


def _check_prepare(path: Path) -> None:
    """Raise ScriptError for another project's prepare.py, such as that of karpathy/autoresearch."""
    content = path.read_bytes()
    missing = min((name for name in CALLED if name.encode() not in content), default=None)
    if missing is not None:
        raise ScriptError(
            f"{path} is not nightshift's, which every run needs: it has no {missing}; rename it, and add nightshift's "
            f"own with: {command_to_begin(path.parent)}"
        )


def _siblings(folder: Path, source: str | bytes) -> set[str]:
    files: set[str] = set()
    for module in imports(source) - BROUGHT:
        if (folder / f"{module}.py").is_file():
            files.add(f"{module}.py")
        elif (folder / module / "__init__.py").is_file():
            files |= {path.relative_to(folder).as_posix() for path in _package(folder, folder / module)}
    return files


def _package(folder: Path, package: Path) -> list[Path]:
    """Return every file of a package; raise ScriptError for a link out of the folder, or if it is too large."""
    files: list[Path] = []
    for path in package.rglob("*"):  # rglob follows no link to a folder
        inside = path.relative_to(package).parts
        if "__pycache__" in inside or any(part.startswith(".") for part in inside):
            continue
        if path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(folder.resolve())):
            raise ScriptError(f"{path} is a link that leads out of its package; replace it by a copy")
        files += [path] if path.is_file() else []
    if sum(path.stat().st_size for path in files) > MAX_PACKAGE_BYTES:
        raise ScriptError(
            f"{package} holds more than {MAX_PACKAGE_BYTES >> 20} MiB; every run gets a copy: take data out of it"
        )
    return files


@lru_cache(maxsize=64)  # reading all files beside our script takes 50 ms
def imports(source: str | bytes) -> frozenset[str]:
    """Return the top-level modules that a script imports, without nightshift's own; raise what parse() raises."""
    return frozenset(module.partition(".")[0] for _, module in _imported(parse(source))) - {PROGRAM, ""}


def modules_beside(folder: Path) -> frozenset[str]:
    """Return the modules in the folder of a script: what it imports of them is fixed for a night."""
    packages = (path.parent for path in folder.glob("*/__init__.py"))
    return frozenset(path.stem for path in (*folder.glob("*.py"), *packages))


def no_script(path: Path) -> ScriptError:
    """Return the error for a missing script, with the remedies."""
    return ScriptError(
        f"{path} does not exist; run from the folder of your script, pass --script PATH, or begin with nightshift's "
        f"own: {command_to_begin(path.parent)}"
    )


def read_text(path: Path) -> str:
    """Return the text of a script or a patch; raise ScriptError, with the remedy, if it cannot be read."""
    try:
        with path.open("rb") as file:  # the file may be a pipe of the shell, or a device without an end
            content = file.read(MAX_SCRIPT_BYTES + 1)
    except FileNotFoundError:
        raise ScriptError(f"{path} does not exist; check its name") from None
    except IsADirectoryError:
        raise ScriptError(f"{path} is a folder; name a file") from None
    except OSError as error:
        raise ScriptError(f"{path} cannot be read: {error.strerror}; check its name and permissions") from error
    if len(content) > MAX_SCRIPT_BYTES:
        raise ScriptError(f"{path} has more bytes than the limit of {MAX_SCRIPT_BYTES:,}; take data out of it")
    return decoded(content, str(path))
