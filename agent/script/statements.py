"""Read a script statement by statement; one that differs from another in single lines, by those lines alone.

A night has thousands of scripts, and most differ from one read before in a few dials. To parse a whole script and walk
its tree takes tens of milliseconds, a line a tenth of a millisecond.
"""

import ast
import hashlib
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from operator import ne

from agent.errors import ScriptError
from agent.script.parsing import parse

DIAL = re.compile(r"[A-Z][A-Z0-9_]*")
MOST_KEPT = 8  # scripts that others are compared with: the latest that had to be read as a whole


@dataclass(frozen=True, slots=True)
class Statement:
    """Hold a statement at the top level of a script, as its syntax tree has it."""

    digest: bytes
    skeleton: bytes  # the digest without the value of the dial that it sets
    name: str | None = None  # of that dial; None where it sets none
    value: object = None  # on the device asked for


def statements(source: str, device_kind: str = "") -> tuple[Statement, ...]:
    """Return the statements of a script in their order; raises SyntaxError and the like where it does not parse."""
    lines = source.split("\n")
    if "\r" not in source:  # where Python ends lines that are none here
        for script in tuple(_read):  # a source of ideas reads scripts in a thread beside the driver's
            if script.device_kind == device_kind and (found := script.nearly(lines)) is not None:
                return found
    script = _ReadScript.of(source, lines, device_kind)
    _read.appendleft(script)
    return tuple(one for group in script.groups for one in group)


def assigned(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """Return name and value where a statement sets an UPPER_CASE constant."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=node):
            pass
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as node):
            pass
        case _:
            return None
    return (name, node) if DIAL.fullmatch(name) else None


def literal(node: ast.expr, name: str, device_kind: str) -> ast.expr:
    """Return the expression that holds a dial's value: itself, or this device's keyword of by_device."""
    match node:
        case ast.Call(func=ast.Name(id="by_device"), keywords=keywords):
            for keyword in keywords:
                if keyword.arg == device_kind:
                    return keyword.value
            raise ScriptError(f"line {node.lineno}: dial {name} has no value for this device; add {device_kind}=…")
    return node


@dataclass(frozen=True, slots=True)
class _ReadScript:
    """Hold a script that was parsed as a whole. A group is all statements that share lines with each other."""

    device_kind: str
    lines: Sequence[str]
    owners: Sequence[int | None]  # line → group; None: blank, or a comment
    spans: Sequence[tuple[int, int]]  # group → its lines, from 0, without the last
    groups: Sequence[tuple[Statement, ...]]

    @classmethod
    def of(cls, source: str, lines: Sequence[str], device_kind: str) -> "_ReadScript":
        spans: list[tuple[int, int]] = []
        groups: list[tuple[Statement, ...]] = []
        for node in parse(source).body:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) - 1
            last = node.end_lineno or node.lineno
            if spans and first < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
                groups[-1] += (_statement(node, device_kind),)
            else:
                spans.append((first, last))
                groups.append((_statement(node, device_kind),))
        owners: list[int | None] = [None] * len(lines)
        for group, (first, last) in enumerate(spans):
            owners[first:last] = [group] * (last - first)
        return cls(device_kind, lines, owners, spans, groups)

    def nearly(self, lines: Sequence[str]) -> tuple[Statement, ...] | None:
        """Read a script whose other lines are these very ones; None where it has to be read as a whole.

        A group of lines that parses by itself, between lines that do, is what it would be in the whole script.
        """
        if len(lines) != len(self.lines):
            return None
        touched = set(compress(self.owners, map(ne, lines, self.lines)))
        if len(touched) > len(self.groups) // 2:
            return None
        groups = list(self.groups)
        for group in touched:
            if group is None:
                return None
            first, last = self.spans[group]
            try:
                groups[group] = _of_lines("\n".join(lines[first:last]), self.device_kind)
            except (SyntaxError, ValueError):
                return None
        return tuple(one for group in groups for one in group)


_read: deque[_ReadScript] = deque(maxlen=MOST_KEPT)


@lru_cache(maxsize=10_000)
def _of_lines(text: str, device_kind: str) -> tuple[Statement, ...]:
    return tuple(_statement(node, device_kind) for node in parse(text).body)


def _statement(node: ast.stmt, device_kind: str) -> Statement:
    digest, dial = _digest(node), _dial(node, device_kind)
    if dial is None:
        return Statement(digest, digest)
    name, held = dial
    try:
        value = ast.literal_eval(held)
    except (ValueError, TypeError):
        return Statement(digest, digest)  # computed from other dials, or a set that cannot be: not one itself
    return Statement(digest, _digest(_without(node, held)), name, value)


def _dial(node: ast.stmt, device_kind: str) -> tuple[str, ast.expr] | None:
    """Name, and the expression that holds the value; None where this device has none."""
    found = assigned(node)
    try:
        return None if found is None else (found[0], literal(found[1], found[0], device_kind))
    except ScriptError:
        return None


def _without(statement: ast.stmt, held: ast.expr) -> ast.stmt:
    """Replace the value of the statement's dial by None; the caller must be the only owner."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.keyword) and node.value is held:
            node.value = ast.Constant(None)
    return statement


def _digest(node: ast.stmt) -> bytes:
    return hashlib.sha256(ast.dump(node).encode(errors="surrogatepass")).digest()


def together(digests: Iterator[bytes]) -> str:
    """Return one hash of many, in hexadecimal."""
    return hashlib.sha256(b"".join(digests)).hexdigest()
