"""Read and rewrite the dials of a training script by its syntax tree, and tell scripts apart.

A dial is an UPPER_CASE constant at module level. Where a search may turn it, its range ends the line's comment:

    MATRIX_LR = 0.04  # Muon: every matrix of the blocks  [0.005, 0.2] log
    DEPTH = by_device(cpu=4, metal=6, cuda=8)  # transformer layers  {2, 4, 6, 8}

Only the end of a comment is read, and only if it looks like a range: "as in [3]" is prose. A misspelt range is an
error before a night; if an edit of the night misspells one, the search does not turn that dial.

In a script with at least one range, dials without a range stay as they are. In a script without any, each number above
zero is searched around its value, unless its name says that it serves the run itself.
"""

import ast
import hashlib
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeGuard

import msgspec

from agent.errors import ScriptError
from agent.experiment import History, Outline
from agent.lab.operations import IMPORT, OPERATIONS, unchanged
from agent.script.contract import MAX_DEPTH, parse

Value = int | float | str | bool | tuple[object, ...] | None

DIAL = re.compile(r"[A-Z][A-Z0-9_]*")
# words in the name of a dial that is not searched without a range
MACHINERY = re.compile(
    "(?:^|_)(?:SEED|LOG|EVAL|EVERY|INTERVAL|PRINT|SAVE|CHECKPOINT|WORKERS|THREADS|DEVICES?|PORT|VERSION|BUDGET|TIME"
    "|SECONDS|S|MINUTES|HOURS|TIMEOUT|LIMIT|MAX|MIN|VOCAB|SEQ|LEN|LENGTH|CONTEXT|TOKENS|QUEUED|PREFETCH|EPS|EPSILON)"
    "(?:_|$)"
)
MOST_VALUE = 10**15  # a dial's value beyond it is shown nowhere
FORMS = "[low, high]  or  [low, high] log  or  {a, b, c}"


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a numeric dial, both ends included."""

    low: float
    high: float
    log: bool


@dataclass(frozen=True, slots=True)
class Choices:
    """The values that a dial may take."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Dial:
    """A dial as it is set in a script."""

    name: str
    value: Value  # the value on this kind of device
    span: Range | Choices | None  # None: not searched


# ---- dials and their ranges ------------------------------------------------------------------------------------------


def read_dials(source: str, device_kind: str, *, strict: bool = True) -> tuple[Dial, ...]:
    """Return the dials in the order of their lines; raise ScriptError for an unreadable range or preset.

    Not strict, for a script edited at night: a dial with an unreadable range is not searched, and one with an
    unreadable preset is left out.
    """
    statements, lines = parse(source).body, source.encode().splitlines()
    skipped = () if strict else (ScriptError,)
    dials: list[Dial] = []
    for statement in statements:
        with suppress(*skipped):
            if (dial := _dial_of(statement, device_kind)) is None:
                continue
            name, _, value = dial
            line, span = statement.end_lineno or statement.lineno, None
            _, _, comment = lines[line - 1][statement.end_col_offset :].partition(b"#")  # columns are bytes
            with suppress(*skipped):
                span = _span(comment.decode(), name, value, line)
            dials.append(Dial(name, value, span))
    return tuple(dials)


def _constant(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """Return name and value where a statement sets an UPPER_CASE constant."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=node) if DIAL.fullmatch(name):
            return name, node
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as node) if DIAL.fullmatch(name):
            return name, node
    return None


def _literal(node: ast.expr, name: str, device_kind: str) -> ast.expr:
    """Return the expression that holds a dial's value: itself, or this device's keyword of by_device."""
    match node:
        case ast.Call(func=ast.Name(id="by_device"), keywords=keywords):
            for keyword in keywords:
                if keyword.arg == device_kind:
                    return keyword.value
            raise ScriptError(f"line {node.lineno}: dial {name} has no value for this device; add {device_kind}=…")
    return node


def _dial_of(statement: ast.stmt, device_kind: str) -> tuple[str, ast.expr, Value] | None:
    """Return name, literal and value of the dial that a statement sets; raise ScriptError without this device.

    What is no literal, as a value computed from other dials, is not a dial.
    """
    if (constant := _constant(statement)) is None:
        return None
    name, node = constant[0], _literal(constant[1], constant[0], device_kind)
    try:
        return name, node, ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


def searched(source: str, device_kind: str, *, strict: bool = True) -> tuple[Dial, ...]:
    """Return the dials that a search may turn; raise ScriptError if there is none, or if read_dials raises it."""
    every = read_dials(source, device_kind, strict=strict)
    if all(dial.span is None for dial in every):
        every = tuple(replace(dial, span=sensible(dial.name, dial.value)) for dial in every)
    dials = {dial.name: dial for dial in every if dial.span is not None}  # the last setting of a dial counts
    if not dials:
        raise ScriptError(
            "the script has no dial with a range, so there is nothing to search; end "
            "a dial's comment with one, as in: LR = 0.04  # step size  [0.005, 0.2] log; or queue edits of your own"
        )
    return tuple(dials.values())


def sensible(name: str, value: Value) -> Range | Choices | None:
    """Return a range around the value of a dial that has none; None if turning the dial could break the script."""
    if MACHINERY.search(name) or not is_number(value) or not 0 < value < math.inf:
        return None
    if isinstance(value, int):
        return Choices(tuple(dict.fromkeys((max(1, value // 2), value, 2 * value))))
    most = min(4 * value, (1 + value) / 2) if value < 1 else 4 * value  # a share stays one
    return Range(value / 4, most, log=True)


# the last bracket of a comment, if nothing but "log" follows it; it gives nothing back, as a line may be long
RANGE = re.compile(r"([\[{])([^\[\]{}]*+)([\]}]?)(\s*log\w*)?\s*$", re.IGNORECASE)


def _span(comment: str, name: str, value: Value, line: int) -> Range | Choices | None:
    """Return the range at the end of a comment; raise ScriptError where one is meant, and cannot be read.

    It is prose if it holds one number, a name or a year: [3], [Kingma, 2014].
    """
    match = RANGE.search(comment)
    if match is None:
        return None
    opening, inside, closing, log = match.groups()
    values, brackets = _literals(inside), opening + closing
    if brackets == "{}" and len(values) > 1 and not log:
        return Choices(values)
    if brackets == "[]" and len(values) == 2 and (log or "log").strip() == "log":
        low, high = values
        if is_number(low) and is_number(high) and is_number(value) and _are_bounds(low, high, value, log is not None):
            return Range(low, high, log is not None)
    if log or len(re.findall(r"(?:^|,)\s*[-+]*\.?\d", inside)) > 1 or (opening == "{" and "," in inside):
        raise ScriptError(f"line {line}: the range {match[0][:80]!r} of dial {name} cannot be read; write {FORMS}")
    return None


def _are_bounds(low: float, high: float, value: float, log: bool) -> bool:
    """Return whether a dial of this value can be searched between two numbers."""
    is_whole = isinstance(low, int) and isinstance(high, int)
    is_positive = low > 0 and value > 0
    is_span = low < high and math.isfinite(high - low)
    return is_span and (is_positive or not log) and (is_whole or not isinstance(value, int))


def _literals(text: str) -> tuple[Value, ...]:
    """Return literals that commas separate, in their order; nothing if the text is something else."""
    with suppress(SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        match parse(f"[{text}]").body:
            case [ast.Expr(value=ast.List() as display)]:
                return tuple(ast.literal_eval(display))
    return ()


# ---- turning dials ---------------------------------------------------------------------------------------------------


def set_dials(source: str, device_kind: str, values: Mapping[str, Value]) -> str:
    """Return the source with these dials set and every other character unchanged; in by_device(), set this device only.

    Raise ScriptError if the script has no such dial, or a value cannot be written.
    """
    constants = filter(None, map(_constant, parse(source).body))
    places = {name: _literal(node, name, device_kind) for name, node in constants if name in values}
    missing = sorted(set(values) - set(places))
    if missing:
        raise ScriptError(f"no dial called {missing[0]} at the top level of the script; define it as {missing[0]} = …")
    lines = source.encode().splitlines(keepends=True)  # the syntax tree counts columns in UTF-8 bytes
    # The last place comes first, so that earlier offsets stay true.
    for name, node in sorted(places.items(), key=lambda place: (place[1].lineno, place[1].col_offset), reverse=True):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        lines[first : last + 1] = [head + _written(values[name]).encode() + tail]
    return b"".join(lines).decode()


def _written(value: Value) -> str:
    """Return a value as Python source; raise ScriptError for infinity and for integers of thousands of digits."""
    try:
        text = repr(value)
        ast.literal_eval(text)
    except ValueError as error:
        raise ScriptError("a dial has a value that cannot be written as a literal") from error
    return text


def show(value: Value) -> str:
    """Return a value as Python source, floats with 4 significant digits."""
    return repr(float(f"{value:.4g}")) if isinstance(value, float) else repr(value)


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ---- telling scripts apart -------------------------------------------------------------------------------------------

COUNTED = (ast.stmt, ast.Name, ast.Attribute, ast.arg, ast.alias, ast.keyword)  # each as one
WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
MOST_WORD = 24  # characters: as many as the longest float has
DOC = "__doc__"


@lru_cache(maxsize=64)
def outline_of(script: str, device_kind: str) -> Outline:
    """Return what tells a script apart from others."""
    with suppress(ScriptError, SyntaxError, ValueError):
        dials = values_of(script, device_kind)
        return Outline(
            dials={name: value for name, value in dials.items() if plain_value(value)},
            skeleton=fingerprint(set_dials(script, device_kind, dict.fromkeys(dials))),
            fingerprint=fingerprint(script),
            code_size=_code_size(_own_code(script)),
            # Metal has no kernels of ours
            plain=tuple(name for name, is_same in _unchanged(script).items() if not is_same and device_kind != "metal"),
        )
    return Outline()


def outline_from(facts: Mapping[str, Any]) -> Outline:
    """Return an outline from JSON, where tuples are lists; it may come from elsewhere.

    A name that no dial can have is left out, and a value that none can have is None.
    """
    outline = msgspec.convert(facts, Outline)
    dials = {name: _from_json(value) for name, value in outline.dials.items() if DIAL.fullmatch(name)}
    return replace(outline, dials=dials, plain=tuple(name for name in OPERATIONS if name in outline.plain))


def _from_json(value: Any, depth: int = 0) -> Value:
    if isinstance(value, list) and depth < MAX_DEPTH:
        return tuple(_from_json(inside, depth + 1) for inside in value)
    return value if plain_value(value) else None


@lru_cache(maxsize=64)
def fingerprint(source: str) -> str:
    """Return a hash of the syntax tree, which comments, blank lines, layout and kinds of quotes do not change."""
    texts = (ast.dump(node).encode(errors="surrogatepass") for node in parse(source).body)
    return hashlib.sha256(b"".join(hashlib.sha256(text).digest() for text in texts)).hexdigest()


@lru_cache(maxsize=64)
def values_of(source: str, device_kind: str) -> Mapping[str, Value]:
    """Return the value of every dial, with or without a range; raise ScriptError if the script cannot be read."""
    return {dial.name: dial.value for dial in read_dials(source, device_kind, strict=False)}


def plain_value(value: object) -> TypeGuard[Value]:
    """Return whether a value of a dial is one that JSON has, and charts and tables have room for."""
    match value:
        case None | bool():
            return True
        case str():  # half a surrogate pair is no text
            return value.encode(errors="replace").decode() == value
        case int() | float():  # an int may have thousands of digits
            return abs(value) <= MOST_VALUE
        case tuple():
            return all(map(plain_value, value))
    return False


def first_with(wanted: str, history: History) -> int | None:
    """Return the first attempt whose script has this fingerprint, whatever its comments and layout."""
    return next((attempt.number for attempt in history if attempt.outline.fingerprint == wanted), None)


@lru_cache(maxsize=64)
def _unchanged(script: str) -> Mapping[str, bool]:
    """Return for each operation of a script, in the order of a step, whether an edit has left it its kernel."""
    return unchanged(script) if IMPORT in script else {}


def _own_code(script: str) -> ast.Module:
    """Parse a script without the operations that are as shipped: a simpler one has less code of its own."""
    same = _unchanged(script)
    own = [node for node in parse(script).body if not (isinstance(node, ast.FunctionDef) and same.get(node.name))]
    return ast.Module(own, type_ignores=[])


def _code_size(tree: ast.Module) -> int:
    """Count statements, names and constants, a text by its words and signs: it may be code that the script runs.

    Comments and layout are free, and so are docstrings, unless the script reads them.
    """
    nodes = list(ast.walk(tree))
    docs = [node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    if not any(DOC in (getattr(node, "id", ""), getattr(node, "attr", "")) for node in nodes):
        free = {id(part) for node in docs for part in (node, node.value)}
        nodes = [node for node in nodes if id(node) not in free]
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return sum(isinstance(node, COUNTED) for node in nodes) + sum(map(_parts, constants))


def _parts(value: object) -> int:
    """Count a constant as one, a text by its words and signs, and data, which nothing divides, by their bytes."""
    match value:
        case bytes():
            return _parts(value.decode("latin-1"))
        case str():
            parts = WORD_OR_SIGN.findall(value)
        case _:
            parts = [repr(value)]
    return max(1, sum(1 if len(part) <= MOST_WORD else len(part.encode(errors="replace")) for part in parts))
