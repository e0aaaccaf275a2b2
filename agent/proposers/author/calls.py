"""List the functions that a training script may call, from the syntax trees of the fixed files.

The files are a user's, and importing them would run them. So their names, signatures and docstrings are read as text.
"""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agent.proposers.briefing import Call
from agent.text import one_line

LAB = "agent.lab."  # what is defined there counts as part of a module that imports it
MODULES = ("prepare", "agent.lab.kernels", "agent.lab.hardware")  # the last give way where a question is short
# public functions that are of no use to a training script: they prepare, score, or set up a machine
NOT_FOR_SCRIPTS = frozenset(
    {
        *("DataError", "main", "prepare", "data_dir", "load_data", "evaluation_rows", "rows_at_once", "token_losses"),
        *("checked_logits", "has_cuda_build", "installed", "keep_freed_memory", "optimised_blas", "packaged_file"),
        *("rename_symbols", "write_atomically", "cache_root", "container_memory_bytes", "known_tflops"),
        *("matmul_flops", "describe", "distributions"),
    }
)
MEANING_CHARS, SIGNATURE_CHARS = 160, 200
ARRAY = re.compile(r"\b(mx\.array|Array)\b")
Definition = ast.FunctionDef | ast.ClassDef


def read_calls(fixed: Path) -> tuple[Call, ...]:
    """Return the public functions of MODULES below a folder; of a package, those in its __all__, wherever defined.

    A module that is missing or does not parse has none.
    """
    return tuple(call for module in MODULES for call in _calls_of(fixed, module))


def _calls_of(fixed: Path, module: str) -> Iterator[Call]:
    definitions: dict[object, Definition] = {}
    exported: list[object] | None = None
    for node in _statements(fixed, module):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                definitions[node.name] = node
            case ast.ImportFrom(module=str(other), names=names) if other.startswith(LAB):
                imported = {name.name: name.asname or name.name for name in names}
                theirs = [definition for definition in _statements(fixed, other) if isinstance(definition, Definition)]
                definitions |= {
                    imported[definition.name]: definition for definition in theirs if definition.name in imported
                }
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names) | ast.Tuple(elts=names)):
                exported = [name.value for name in names if isinstance(name, ast.Constant)]
    for name in exported or [name for name in definitions if not str(name).startswith("_")]:
        if name in definitions and name not in NOT_FOR_SCRIPTS:
            definition = definitions[name]
            meaning = _meaning(definition)
            if meaning or isinstance(definition, ast.FunctionDef):
                yield Call(f"{module.removeprefix(LAB)}.{name}", _signature(definition), meaning)


def _statements(fixed: Path, module: str) -> list[ast.stmt]:
    base = fixed.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.parse(path.read_bytes()).body
    return []


def _signature(definition: Definition) -> str:
    """Write the arguments as they are passed, without types, and what is returned; of a class, its fields."""
    if isinstance(definition, ast.ClassDef):
        fields = [node.target for node in definition.body if isinstance(node, ast.AnnAssign)]
        names = [field.id for field in fields if isinstance(field, ast.Name) and not field.id.startswith("_")]
        return one_line(f"({', '.join(names)})", SIGNATURE_CHARS)
    arguments = definition.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    gives = "" if definition.returns is None else f" -> {ARRAY.sub('array', ast.unparse(definition.returns))}"
    return one_line(f"({ast.unparse(arguments)}){gives}", SIGNATURE_CHARS)


def _meaning(definition: Definition) -> str:
    """Return the first paragraph of the docstring in a line; of a function without one that is a single line, this."""
    text = (ast.get_docstring(definition) or "").partition("\n\n")[0]
    match definition.body:
        case [ast.Return(value=ast.expr() as value)]:
            text = f"Return {ast.unparse(value)}."
    return one_line(text, MEANING_CHARS)
