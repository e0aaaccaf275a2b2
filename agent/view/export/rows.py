"""Lay the facts of nights out as rows: one an attempt, one a run, one a decision. Pure."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agent.script.dials import Value
from agent.view.facts.json import plain
from agent.view.facts.nouns import NightFacts

Row = dict[str, Any]
OF_NIGHT = ("device", "device_kind", "budget_s", "protocol", "sigma_bpb")  # in each row of an attempt
KEYS = ("tag", "attempt")  # in each row
PARTS = ("runs", "decisions")
DIAL = "dial."  # before the names of the columns that hold the values of dials


def settings(night: NightFacts) -> dict[int, dict[str, Value]]:
    """Return attempt → dial → value, for each dial that an attempt of the night has turned.

    An attempt has the values of its parent, apart from those that it turned. Attempt 0 has the values from which its
    descendants turned them.
    """
    found: dict[int, dict[str, Value]] = {}
    for one in night.attempts:  # a parent comes before its children
        if one.parent is None:
            found[one.number] = _first_values(night, one.number)
        else:
            found[one.number] = found.get(one.parent, {}) | {name: after for name, (_, after) in one.dials.items()}
    return found


def _first_values(night: NightFacts, first: int) -> dict[str, Value]:
    """Return the value before the first turn of each dial, on any line of descent from this attempt."""
    turned: dict[int, frozenset[str]] = {first: frozenset()}  # attempt → dials turned on the way to it
    values: dict[str, Value] = {}
    for one in night.attempts:
        above = turned.get(one.parent) if one.parent is not None else None
        if above is not None:
            values |= {name: before for name, (before, _) in one.dials.items() if name not in above | values.keys()}
            turned[one.number] = above | one.dials.keys()
    return values


def attempts(nights: Sequence[NightFacts]) -> list[Row]:
    """Return a row for each attempt: its night, all its facts, and a column for each dial that any of them turned."""
    known = [(night, settings(night)) for night in nights]
    names = sorted({name for _, values in known for dials in values.values() for name in dials})
    return [
        dict(zip(KEYS, (night.tag, one.number), strict=True))
        | {name: value for name, value in plain(one).items() if name != "number"}
        | {"is_incumbent": one.number == night.incumbent}
        | {name: plain(getattr(night, name)) for name in OF_NIGHT}
        | {f"{DIAL}{name}": plain(values[one.number].get(name)) for name in names}
        for night, values in known
        for one in night.attempts
    ]


def parts(rows: Sequence[Row], kind: str) -> Iterator[Row]:
    """Yield a row for each run, or each decision, of these attempts."""
    for row in rows:
        for part in row[kind]:
            yield {name: row[name] for name in KEYS} | part


def flat(row: Row) -> Row:
    """Return a row without the parts, which have tables of their own; lists and objects become JSON."""
    return {name: _as_text(value) for name, value in row.items() if name not in PARTS}


def _as_text(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def mapped(change: Callable[[str], str], value: Any) -> Any:
    """Return a plain value with each text in it changed."""
    match value:
        case str():
            return change(value)
        case list():
            return [mapped(change, one) for one in value]
        case Mapping():
            return {name: mapped(change, one) for name, one in value.items()}
    return value
