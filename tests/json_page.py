"""The page about JSON answers as something that an answer can be held against."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from nights import PROJECT

PAGE = PROJECT / "docs" / "json.md"
ROW = re.compile(r"\| `([^`]+)` \| (.+?) \| .* ?\|")
HEAD, ALL = "What does `--json` answer?", "..."
KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "list": (list,), "any": (object,),
}  # fmt: skip


@cache
def tables() -> dict[str, dict[str, str]]:
    """The keys of each section of the page, with their types."""
    found: dict[str, dict[str, str]] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
            found[section] = {}
        elif row := ROW.fullmatch(line):
            assert row[1] not in found[section], f"{section}: {row[1]} stands twice"
            found[section][row[1]] = row[2]
    return found


def keys_of(section: str) -> dict[str, str]:
    """The keys of a section, with all those that it takes from another."""
    own = dict(tables()[section])
    other = named(own.pop(ALL, ""))
    return (keys_of(other) if other else {}) | own


def named(kind: str) -> str | None:
    """The section that a type leads to."""
    link = re.fullmatch(r"\[([^\]]+)\]\(#[^)]+\)", kind)
    return link[1] if link else None


def faults(section: str, answer: Any) -> list[str]:
    """What an answer of a command and its section do not say alike."""
    return list(_of_object(answer, keys_of(HEAD) | keys_of(section), section))


def _of_object(value: Any, keys: dict[str, str], path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path} is {value!r}, no object"
        return
    yield from (f"{path}.{name} is not on the page" for name in value if name not in keys)
    yield from (f"{path}.{name} is on the page only" for name in keys if name not in value)
    for name in keys.keys() & value.keys():
        yield from _of_value(value[name], keys[name], f"{path}.{name}")


def _of_value(value: Any, kind: str, path: str) -> list[str]:
    found = [list(_of_one(value, one, path)) for one in kind.split(" or ")]
    return min(found, key=len)


def _of_one(value: Any, kind: str, path: str) -> Iterator[str]:
    section, (start, _, rest) = named(kind), kind.partition(" of ")
    if section is not None:
        yield from _of_object(value, keys_of(section), path)
    elif rest and isinstance(value, list if start == "list" else dict):
        pairs = enumerate(value) if start == "list" else value.items()
        for name, one in pairs:
            yield from _of_value(one, rest, f"{path}.{name}")
    elif rest or not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind not in ("boolean", "any")):
        yield f"{path} is {value!r}, no {kind}"
