"""Write facts as plain values that JSON has, and leave out what its reader may not know. Pure.

The reader of an answer to a program may be an author of scripts: it sees no words of processes that score.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from agent.view.facts.nouns import NightFacts

UNSHOWN = "its scoring or its audit failed (the words of that process are not shown: it has read the validation text)"


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


def without_scoring_words(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an attempt without words that a scoring process may have written.

    It has read the validation text. A script could print that text there for the next script to memorise. The last
    lines of a run may quote a scoring process, too, where the machine spoilt it: the log has those of the training.
    """
    runs = [{name: _hidden(value) for name, value in run.items() if name != "last_lines"} for run in attempt["runs"]]
    if all(run.items() <= before.items() for run, before in zip(runs, attempt["runs"], strict=True)):
        return {**attempt, "runs": runs}
    decisions = [one | {"words": UNSHOWN} for one in attempt["decisions"]]
    return {**attempt, "runs": runs, "decisions": decisions, "words": UNSHOWN}


def _hidden(value: Any) -> Any:
    """Return a value of a run without the words of why a score, or an audit in it, failed."""
    if not isinstance(value, dict):
        return value
    return {name: UNSHOWN if name == "failure" and words else _hidden(words) for name, words in value.items()}
