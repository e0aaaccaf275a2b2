"""Is a script simpler than the one it was made from? Then it may be kept for no gain, within a bound. Pure.

Sizes are what the harness counts: the code by its syntax tree, the parameters by the header of the saved weights. What
keeps for simplicity may cost is bounded over all of them, against the last attempt that was kept for a measured gain.
"""

import ast

from agent.experiment import Attempt, History, Kind
from agent.judging.noise import Knowledge
from agent.script.cached import remembered
from agent.script.parsing import parse

TIE = 0.25  # sigma: the largest expected cost of all simpler scripts together
FEWER = 0.99  # of the parameters: less than a per cent is rounding
COUNTED = (ast.stmt, ast.Constant, ast.Name, ast.Attribute, ast.arg, ast.alias, ast.keyword)
WORD = 16  # characters: a longer text is no word but data, or a program …
CHARS = 4  # … of which so many count as one constant
BITS = 8  # of a number, as one character
RUNS_TEXT = frozenset({"exec", "eval", "compile", "__import__"})
# modules that lead to them, or read programs out of bytes, files and docstrings
READS_PROGRAMS = frozenset(
    {"builtins", "code", "codeop", "ctypes", "doctest", "importlib", "inspect", "linecache", "marshal", "pickle",
     "pkgutil", "runpy", "subprocess", "timeit", "tokenize", "zipimport"}
)  # fmt: skip
# what a class defines or calls; all others lead to a text that was not counted, or to what runs it
USUAL = frozenset(
    {"__init__", "__call__", "__name__", "__file__", "__version__", "__post_init__", "__setitem__", "__getitem__",
     "__len__", "__iter__", "__next__", "__enter__", "__exit__", "__repr__", "__eq__", "__hash__"}
)  # fmt: skip
LINE = 80  # characters: a script that is longer by more has not become simpler, whatever was moved where


def simpler(attempt: Attempt, parent: Attempt) -> str | None:
    """Say in what: less code or fewer parameters, and not more of the other; None where it is not, or not known."""
    code, code_before = (code_size(one.proposal.script) for one in (attempt, parent))
    if code is None or code_before is None or attempt.weights is None or parent.weights is None:
        return None
    if len(attempt.proposal.script) > len(parent.proposal.script) + LINE:
        return None
    now, before = attempt.weights, parent.weights
    # packing several numbers into one is fewer elements of as many bytes, and code besides
    if code > code_before or now.params > before.params or now.data_bytes > before.data_bytes:
        return None
    if code < code_before:
        return f"{code_before - code:,} fewer statements, names and constants"
    if now.params < FEWER * before.params:
        return f"{before.params - now.params:,} fewer parameters"
    return None


def price_of(attempt: Attempt, history: History, known: Knowledge, price: float) -> float:
    """Return what keeping it costs if it brings no gain, in sigma; simplicity is worth something within a bound.

    Where the noise is doubted, a quarter of sigma may be more than any edit brings: no tie is kept then.
    """
    assert attempt.parent is not None
    if known.doubt is not None or simpler(attempt, history[attempt.parent]) is None:
        return price
    return -TIE if known.drift(_last_gain(attempt, history).number, attempt.number) <= TIE else price


def _last_gain(attempt: Attempt, history: History) -> Attempt:
    """Return the nearest ancestor that was kept for a gain, or attempt 0."""
    while attempt.parent is not None:
        attempt = history[attempt.parent]
        if attempt.kind is not Kind.SIMPLER:
            break
    return attempt


@remembered
def code_size(script: str) -> int | None:
    """Count statements, names and constants; None if the text is no Python, or runs other texts as code.

    Docstrings, comments and layout are free.
    """
    try:
        nodes = list(ast.walk(parse(script)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if any(map(_may_run_text, nodes)):
        return None
    texts = [node for node in nodes if isinstance(node, ast.Expr) and _is_text(node.value)]  # docstrings, or as such
    return sum(map(_weight, nodes)) - sum(_weight(node) + _weight(node.value) for node in texts)


def _may_run_text(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name):
            return name in RUNS_TEXT or _is_unusual(name)
        case ast.Attribute(attr=name):  # mx.compile and mx.eval are no Python's
            return name == "exec" or _is_unusual(name)
        case ast.Import(names=names):
            return any(alias.name.partition(".")[0] in READS_PROGRAMS for alias in names)
        case ast.ImportFrom(module=str(module)):
            return module.partition(".")[0] in READS_PROGRAMS
    return False


def _is_unusual(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in USUAL


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _weight(node: ast.AST) -> int:
    match node:
        case ast.Constant(value=str(text) | bytes(text)):
            return _of_chars(len(text))
        case ast.Constant(value=int(number)):
            return _of_chars(number.bit_length() // BITS)
    return int(isinstance(node, COUNTED))


def _of_chars(count: int) -> int:
    return 1 if count <= WORD else count // CHARS
