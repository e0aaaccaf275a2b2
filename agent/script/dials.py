"""Read and rewrite the dials of a training script by its syntax tree.

A dial is an UPPER_CASE constant at module level. Where a search may turn it, its range ends the line's comment:

    MATRIX_LR = 0.04  # Muon: every matrix of the blocks  [0.005, 0.2] log
    DEPTH = by_device(cpu=4, metal=6, cuda=8)  # transformer layers  {2, 4, 6, 8}

Only the end of a comment is read, and only what looks like a range: "as in [3]" is prose. A misspelt range is told to
its author before a night; where an edit of the night misspells one, the search leaves that dial alone.

Whoever writes one range has spoken: dials without one stay as they are. In a script without any range, those are
searched for which a sensible one can be told from name and value.
"""

import ast
import hashlib
import io
import math
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from agent.errors import ScriptError
from agent.script.cached import remembered

Value = int | float | str | bool | tuple[object, ...] | None


def _words(*words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|_)(?:{'|'.join(words)})(?:_|$)")


# What the name of a dial without a range says: how the run is made, which is no question of taste, …
MACHINERY = _words(
    *("SEED", "LOG", "EVAL", "EVERY", "INTERVAL", "PRINT", "SAVE", "CHECKPOINT", "WORKERS", "THREADS", "DEVICES?"),
    *("PORT", "VERSION", "BUDGET", "TIME", "SECONDS", "S", "MINUTES", "HOURS", "TIMEOUT", "LIMIT", "MAX", "MIN"),
    *("VOCAB", "SEQ", "LEN", "LENGTH", "CONTEXT", "TOKENS", "QUEUED", "PREFETCH", "EPS", "EPSILON"),
)
# … or what it measures
MEMORY = _words("BETA[12S]?", "MOMENTUM", "EMA", "DECAY")
SHARE = _words("DROPOUT", "FRACTION", "FRAC", "SHARE", "PROB", "PROBABILITY", "SMOOTHING", "WARMUP", "WARMDOWN")
LEARNING_RATE = _words("LR", "RATE")
FORMS = "[low, high]  or  [low, high] log  or  {a, b, c}"


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float
    log: bool
    whole: bool  # integers only


@dataclass(frozen=True, slots=True)
class Choices:
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Dial:
    name: str
    value: Value  # on the device asked for
    span: Range | Choices | None  # None: not searched
    line: int


@contextmanager
def _depth_is_told() -> Iterator[None]:
    try:
        yield
    except (RecursionError, MemoryError) as error:  # MemoryError: the parser's own stack is full
        raise ScriptError(
            "the script is nested too deep to be read; split its longest expression, or its longest chain of elif"
        ) from error


@_depth_is_told()
def read_dials(source: str, device_kind: str) -> tuple[Dial, ...]:
    """The dials in the order of their lines; raises ScriptError for a range or a preset that cannot be read."""
    return tuple(_read(source, device_kind, strict=True))


@_depth_is_told()
def legible_dials(source: str, device_kind: str) -> tuple[Dial, ...]:
    """The same for a script that somebody edited at night: what cannot be read is not searched, or is no dial."""
    return tuple(_read(source, device_kind, strict=False))


def _read(source: str, device_kind: str, *, strict: bool) -> Iterator[Dial]:
    comments = _comments(source)
    for name, node, value in _literals(source, device_kind, strict=strict):
        line = node.end_lineno or node.lineno
        try:
            span = _span(comments.get(line, ""), name, value, line)
        except ScriptError:
            if strict:
                raise
            span = None
        yield Dial(name, value, span, line)


def searched(
    source: str, device_kind: str, read: Callable[[str, str], tuple[Dial, ...]] = read_dials
) -> tuple[Dial, ...]:
    """The dials that a search may turn; raises ScriptError when there is none, and where read does."""
    dials = read(source, device_kind)
    if all(dial.span is None for dial in dials):
        dials = tuple(replace(dial, span=sensible(dial.name, dial.value)) for dial in dials)
    dials = tuple({dial.name: dial for dial in dials if dial.span is not None}.values())  # of one set twice, the last
    if not dials:
        raise ScriptError(
            "the script has no dial with a range, so there is nothing to search; end "
            "a dial's comment with one, as in: LR = 0.04  # step size  [0.005, 0.2] log"
        )
    return dials


def sensible(name: str, value: Value) -> Range | Choices | None:
    """A range for a dial whose author gave none, about its value; None where turning it may break what it serves."""
    if not is_number(value) or MACHINERY.search(name):
        return None
    assert isinstance(value, int | float)
    if isinstance(value, int):
        return Choices(tuple(dict.fromkeys((max(1, value // 2), value, 2 * value)))) if value > 0 else None
    if not math.isfinite(value) or value < 0:
        return None
    if MEMORY.search(name) and 0.5 <= value < 1:  # of a running mean: what counts is how far it is from 1
        return Range(max(0.5, 1 - 4 * (1 - value)), 1 - (1 - value) / 4, log=False, whole=False)
    if SHARE.search(name) and value < 1:
        return Range(max(0.0, value - 0.2), min(0.95, value + 0.2), log=False, whole=False)
    factor = 8 if LEARNING_RATE.search(name) else 4
    return Range(value / factor, value * factor, log=True, whole=False) if value > 0 else None


@_depth_is_told()
def set_dials(source: str, device_kind: str, values: Mapping[str, Value]) -> str:
    """The source with these dials turned and every other character as it was; by_device keeps its other devices."""
    places = {name: _literal(node, name, device_kind) for name, node in _assignments(source) if name in values}
    missing = sorted(set(values) - set(places))
    if missing:
        raise ScriptError(f"no dial called {missing[0]} at the top level of the script; define it as {missing[0]} = …")
    lines = source.encode().splitlines(keepends=True)
    # from the last place to the first, so that earlier offsets stay true
    for name, node in sorted(places.items(), key=lambda place: (place[1].lineno, place[1].col_offset), reverse=True):
        _replace(lines, node, show(values[name]))
    return b"".join(lines).decode()


@_depth_is_told()
def values_of(source: str, device_kind: str) -> dict[str, Value]:
    """Dial → value, whatever the comments say; raises ScriptError for a script that cannot be read."""
    return {name: value for name, _, value in _literals(source, device_kind, strict=False)}


def only_dials_differ(before: str, after: str, device_kind: str) -> bool:
    """Whether one script is the other with some dials turned; False also where either cannot be read."""
    try:
        old, new = values_of(before, device_kind), values_of(after, device_kind)
        turned = {name: value for name, value in new.items() if name in old and old[name] != value}
        return normalised(set_dials(before, device_kind, turned)) == normalised(after)
    except (ScriptError, SyntaxError):
        return False


def show(value: Value) -> str:
    """The value as it is written into a script: floats to 4 significant digits."""
    return repr(float(f"{value:.4g}")) if isinstance(value, float) else repr(value)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@_depth_is_told()
def normalised(source: str) -> str:
    """A hash that comments, blank lines, layout and the kind of quotes do not change: equal means a duplicate."""
    return hashlib.sha256(ast.dump(ast.parse(source)).encode()).hexdigest()


def _assignments(source: str) -> Iterator[tuple[str, ast.expr]]:
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=node):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as node):
                pass
            case _:
                continue
        if re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            yield name, node


def _literals(source: str, device_kind: str, *, strict: bool) -> Iterator[tuple[str, ast.expr, Value]]:
    """Name, node and value of every dial; where a preset lacks this device, raises ScriptError or skips it."""
    for name, node in _assignments(source):
        try:
            yield name, node, ast.literal_eval(_literal(node, name, device_kind))
        except (ValueError, TypeError):
            continue  # computed from other dials, or a set that cannot be: not one itself
        except ScriptError:
            if strict:
                raise


def _literal(node: ast.expr, name: str, device_kind: str) -> ast.expr:
    """The expression that holds the value: itself, or this device's keyword of by_device."""
    match node:
        case ast.Call(func=ast.Name(id="by_device"), keywords=keywords):
            for keyword in keywords:
                if keyword.arg == device_kind:
                    return keyword.value
            raise ScriptError(f"line {node.lineno}: dial {name} has no value for this device; add {device_kind}=…")
    return node


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def _span(comment: str, name: str, value: Value, line: int) -> Range | Choices | None:
    opening = max(comment.rfind("["), comment.rfind("{"))
    if opening < 0:
        return None
    text = comment[opening:].strip()
    span = _choices(text) if text[0] == "{" else _interval(text, value)
    if span is None and _looks_like_a_range(text):
        raise ScriptError(f"line {line}: the range {text[:80]!r} of dial {name} cannot be read; write {FORMS}")
    return span


def _looks_like_a_range(text: str) -> bool:
    """Whether somebody meant one: two numbers in brackets, several things in braces, or a logarithm at the end.

    Prose is what goes on after its brackets, and what quotes a number, a name or a year: [3], [Kingma, 2014].
    """
    inside, closed, after = re.fullmatch(r"[\[{]([^\]}]*)([\]}]?)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    log = after.strip().lower().startswith("log")
    if closed and after.strip() and not log:
        return False
    parts = [part.strip() for part in inside.split(",")]
    numbers = sum(re.match(r"[-+]*\.?\d", part) is not None for part in parts)
    return log or numbers > 1 or (text[0] == "{" and len(parts) > 1)


def _interval(text: str, value: Value) -> Range | None:
    match = re.fullmatch(r"(\[[^\]]*\])(\s+log)?", text)
    bounds = _elements(match[1]) if match else None
    if match is None or bounds is None or len(bounds) != 2 or not is_number(value):
        return None
    low, high = bounds
    log, whole = match[2] is not None, isinstance(value, int)
    if not (is_number(low) and is_number(high)) or not low < high:  # type: ignore[operator]
        return None
    if not math.isfinite(high - low) or (log and min(low, value) <= 0):  # type: ignore[operator, type-var]
        return None
    if whole and not (isinstance(low, int) and isinstance(high, int)):
        return None
    return Range(low, high, log, whole)  # type: ignore[arg-type]


def _choices(text: str) -> Choices | None:
    values = _elements(text)
    return Choices(values) if values and len(values) > 1 else None


def _elements(text: str) -> tuple[Value, ...] | None:
    """The literals of a list or set display in the order written."""
    try:
        tree = ast.parse(text, mode="eval").body
        if isinstance(tree, ast.List | ast.Set):
            return tuple(ast.literal_eval(element) for element in tree.elts)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    return None


def _replace(lines: list[bytes], node: ast.expr, text: str) -> None:
    """Put text in the node's place; the syntax tree counts columns in UTF-8 bytes."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    lines[first : last + 1] = [head + text.encode() + tail]


fingerprint = remembered(normalised)
