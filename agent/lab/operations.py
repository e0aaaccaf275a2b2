"""Tell which operations of a script are still those that their kernels were written for, with all that they read.

Both texts, the script's and that of kernels/plain.py, are compared as syntax trees that the same Python has made, so
that nothing depends on its version. Comments, docstrings and layout are free. What cannot be followed counts as a
change.
"""

import ast
import symtable
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

OPERATIONS = (  # operations that have kernels, in the order of a step
    "embedding", "linear", "linear_add", "residual_norm", "mix_norm", "gated_add", "rotary_qkv", "attend",
    "relu_squared", "softcap", "cross_entropy", "softcapped_cross_entropy", "adamw", "nesterov", "cautious_step",
)  # fmt: skip
REFERENCE = Path(__file__).with_name("kernels") / "plain.py"
DECORATOR, IMPORT = "fast", "from agent.lab.kernels import fast"

Definitions = dict[str, list[ast.stmt]]  # name of a module → the statements that may set it, or change what it holds
ANYTHING = "*"  # the name of what may be set by a statement that cannot be followed
UNFOLLOWED = {"eval", "exec", "globals", "locals", "vars"}
UNFOLLOWED_ATTRIBUTES = {"__dict__", "__globals__", "f_globals", "__setattr__"}
BODIES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def unchanged(script: str | bytes) -> dict[str, bool]:
    """Return for each operation that the script defines whether it is the one that its kernel was written for.

    It is if it has the decorator @fast alone, and its statements equal those of plain.py, as do those of every
    module-level name that it reads, all the way down. Raise SyntaxError or ValueError if the script cannot be parsed.
    """
    here, (there, read) = definitions(script), reference()

    @cache
    def is_same(name: str) -> bool:
        return texts(here.get(name, [])) == texts(there.get(name, []))

    is_followed = ANYTHING not in here and is_imported(here.get(DECORATOR, []))
    return {
        name: is_followed and is_marked(here[name][0]) and all(map(is_same, closure(name, read)))
        for name in OPERATIONS
        if name in here
    }


def reference() -> tuple[Definitions, dict[str, set[str]]]:
    """Return what plain.py defines, and which names each function, class and constant there reads."""
    text = REFERENCE.read_bytes()
    there = definitions(text)
    return there, reads(text, there)


def is_imported(nodes: list[ast.stmt]) -> bool:
    """Return whether the decorator is ours, and nothing else sets its name."""
    match nodes:
        case [ast.ImportFrom(module="agent.lab.kernels", names=names, level=0)]:
            return any(alias.name == DECORATOR and alias.asname is None for alias in names)
    return False


def is_marked(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and [ast.unparse(mark) for mark in node.decorator_list] == [DECORATOR]


def texts(nodes: list[ast.stmt]) -> list[str]:
    """Return the statements as text, without docstrings and without the decorator."""
    return [ast.dump(bare(node)) for node in nodes]


def bare(node: ast.stmt) -> ast.stmt:
    for inside in ast.walk(node):
        if isinstance(inside, BODIES) and ast.get_docstring(inside, clean=False) is not None:
            inside.body = inside.body[1:]
    if isinstance(node, ast.FunctionDef) and is_marked(node):
        return ast.FunctionDef(**{**dict(ast.iter_fields(node)), "decorator_list": []})
    return node


# ---- what a function reads -------------------------------------------------------------------------------------------


def closure(name: str, read: dict[str, set[str]]) -> set[str]:
    """Return the name, and every name that is read to compute it."""
    seen, ahead = set[str](), {name}
    while ahead:
        seen |= ahead
        ahead = {inside for each in ahead for inside in read.get(each, ())} - seen
    return seen


def reads(text: bytes, defined: Definitions) -> dict[str, set[str]]:
    """Return for each function, class and constant of a module the names outside of it that it reads."""
    found: dict[str, set[str]] = defaultdict(set)
    for table in symtable.symtable(text.decode(), "reference", "exec").get_children():
        found[table.get_name()] |= set(outer_names(table))
    for name, nodes in defined.items():  # defaults, annotations and values are outside of functions
        for node in nodes:
            outside = node.args if isinstance(node, ast.FunctionDef) else node
            found[name] |= {inside.id for inside in ast.walk(outside) if isinstance(inside, ast.Name)}
    return found


def outer_names(table: symtable.SymbolTable) -> Iterator[str]:
    yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
    for inside in table.get_children():
        yield from outer_names(inside)


# ---- what a statement sets -------------------------------------------------------------------------------------------


def definitions(text: str | bytes) -> Definitions:
    """Return for each name of a module the statements that may set it, in their order."""
    found: Definitions = defaultdict(list)
    for node in ast.parse(text).body:
        for name in set_by(node):
            found[name].append(node)
    return dict(found)


def set_by(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module may set there, or change an attribute or an item of."""
    bound, elsewhere, changed = set[str](), set[str](), set[str]()
    for inside in ast.walk(node):
        match inside:
            case ast.Load() | ast.Constant():
                pass
            case ast.Name(id=name) if name in UNFOLLOWED:
                elsewhere.add(ANYTHING)
            case ast.Attribute(attr=name) if name in UNFOLLOWED_ATTRIBUTES:
                elsewhere.add(ANYTHING)
            case ast.Global(names=names):
                elsewhere |= set(names)
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                changed |= owner(inside)
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[what, *_]):
                changed |= owner(what)
            case _:
                bound.update(bound_by(inside))
    if isinstance(node, BODIES):  # names bound inside of a function are its own
        return {node.name} | elsewhere | (changed - bound)
    return bound | elsewhere | changed


def bound_by(node: ast.AST) -> Iterable[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.alias(name=name, asname=other):
            return (other or name.partition(".")[0],)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return (name,)
        case ast.MatchMapping(rest=str(name)):
            return (name,)
    return ()


def owner(target: ast.expr) -> set[str]:
    """Return the name in which this attribute or item is, however deep."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return {target.id} if isinstance(target, ast.Name) else set()
