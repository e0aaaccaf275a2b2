"""The page about JSON answers as something that an answer can be held against."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from nights import PROJECT

PAGE = PROJECT / "docs" / "json.md"
ROW = re.compile(r"\| `([^`]+)` \| (.+?) \| .* ?\|")
HEAD = "What does `--json` answer?"
KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "list": (list,), "map": (dict,), "any": (object,),
}  # fmt: skip


@cache
def tables() -> dict[str, dict[str, str]]:
    """Return the keys of each section of the page, with their types."""
    tables: dict[str, dict[str, str]] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
            tables[section] = {}
        elif row := ROW.fullmatch(line):
            tables[section][row[1]] = row[2]
    return tables


def named(kind: str) -> str | None:
    """Return the section that a type leads to."""
    link = re.fullmatch(r"\[([^\]]+)\]\(#[^)]+\)", kind)
    return link[1] if link else None


def faults(section: str, answer: Any) -> list[str]:
    """Return what an answer of a command and its section do not say alike."""
    return _of_object(answer, tables()[HEAD] | tables()[section], section)


def _of_object(value: Any, keys: dict[str, str], path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path} is {value!r}, no object"]
    strange = [f"{path}.{name} is in one of both alone" for name in value.keys() ^ keys.keys()]
    return strange + _of_each({name: (value[name], keys[name]) for name in value.keys() & keys.keys()}, path)


def _of_each(values: Mapping[Any, tuple[Any, str]], path: str) -> list[str]:
    """Return the faults of values with their types."""
    return [fault for name, (value, kind) in values.items() for fault in _of_value(value, kind, f"{path}.{name}")]


def _of_value(value: Any, kind: str, path: str) -> list[str]:
    if " or " in kind:
        return min((_of_value(value, choice, path) for choice in kind.split(" or ")), key=len)
    if section := named(kind):
        return _of_object(value, tables()[section], path)
    outer, _, inner = kind.partition(" of ")
    if inner and isinstance(value, KINDS[outer]):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return _of_each({name: (item, inner) for name, item in pairs}, path)
    is_other = not isinstance(value, KINDS[outer]) or (isinstance(value, bool) and outer not in ("boolean", "any"))
    return [f"{path} is {value!r}, no {kind}"] if is_other else []
