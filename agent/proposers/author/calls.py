"""List the functions that a training script may call, from the syntax trees of the fixed files.

The files are a user's, and importing them would run them. So their names, signatures and docstrings are read as text.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agent.proposers.author.excerpts import first
from agent.proposers.briefing import Briefing, Call
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
    return tuple(call for module in MODULES for call in _of_module(fixed, module))


def _of_module(fixed: Path, module: str) -> Iterator[Call]:
    known = _definitions(fixed, module)
    for name in _exported(_parsed(fixed, module)) or [name for name in known if not name.startswith("_")]:
        definition = known.get(name)
        if definition is None or name in NOT_FOR_SCRIPTS:
            continue
        meaning = _meaning(definition)
        if meaning or isinstance(definition, ast.FunctionDef):
            yield Call(f"{module.removeprefix(LAB)}.{name}", _signature(definition), meaning)


def _parsed(fixed: Path, module: str) -> ast.Module:
    base = fixed.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        try:
            return ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return ast.Module([], [])


def _definitions(fixed: Path, module: str) -> Mapping[str, Definition]:
    """Return the functions and classes of a module by name, with those that it imports from agent.lab."""
    found: dict[str, Definition] = {}
    for node in _parsed(fixed, module).body:
        match node:
            case ast.ImportFrom(module=str(other), names=names) if other.startswith(LAB):
                theirs = {one.name: one for one in _parsed(fixed, other).body if isinstance(one, Definition)}
                found |= {alias.asname or alias.name: theirs[alias.name] for alias in names if alias.name in theirs}
            case ast.FunctionDef() | ast.ClassDef():
                found[node.name] = node
    return found


def _exported(tree: ast.Module) -> Sequence[str]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names) | ast.Tuple(elts=names)):
                return [name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)]
    return ()


def _signature(definition: Definition) -> str:
    """Write the arguments as they are passed, without types, and what is returned; of a class, its fields."""
    if isinstance(definition, ast.ClassDef):
        fields = [node.target.id for node in definition.body if _is_field(node)]  # type: ignore[attr-defined]
        return one_line(f"({', '.join(fields)})", SIGNATURE_CHARS)
    arguments = definition.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    gives = "" if definition.returns is None else f" -> {ARRAY.sub('array', ast.unparse(definition.returns))}"
    return one_line(f"({ast.unparse(arguments)}){gives}", SIGNATURE_CHARS)


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_")


def _meaning(definition: Definition) -> str:
    """Return the first paragraph of the docstring in a line; of a function without one that is a single line, this."""
    if said := ast.get_docstring(definition):
        return one_line(said.partition("\n\n")[0], MEANING_CHARS)
    match definition.body:
        case [ast.Return(value=ast.expr() as value)]:
            return one_line(f"Return {ast.unparse(value)}.", MEANING_CHARS)
    return ""


def calls(briefing: Briefing, most_chars: int) -> str:
    """List what may be called, as many functions as fit."""
    known = briefing.setting.calls if briefing.setting is not None else ()
    return "\n".join(first([call_line(call) for call in known], most_chars))


def call_line(call: Call) -> str:
    return f"- `{call.name}{call.signature}` {call.meaning}".rstrip()
