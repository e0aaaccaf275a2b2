"""Write facts as plain values that JSON has. Pure."""

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from agent.view.facts.nouns import NightFacts


def as_json(facts: NightFacts) -> dict[str, Any]:
    """Return all facts by the names of their fields; numbers that JSON lacks become None."""
    found: dict[str, Any] = plain(facts)
    return found


def plain(value: Any) -> Any:
    """Return a value as JSON has it: records as objects, tuples as lists, and None for what is no finite number."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return _encodable(str(value))  # of an enum, too
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(name): plain(one) for name, one in value.items()}
        case tuple() | list():
            return [plain(one) for one in value]
    return {name: plain(getattr(value, name)) for name in _names(value.__class__)}


def _encodable(text: str) -> str:
    """Replace halves of surrogate pairs, which UTF-8 does not have, by codes."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
