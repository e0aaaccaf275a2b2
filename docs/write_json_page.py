"""Write docs/json.md from records, and the comments beside their fields: python docs/write_json_page.py.

These are the records of a night, those of agent/view/answer.py and agent/view/study.py, and those below.
"""

import ast
import dataclasses
import enum
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent.cli.doctor import Check
from agent.cli.ideas import IdeaFacts
from agent.findings import Findings
from agent.view.answer import (
    LEFT_OUT,
    CompareAnswer,
    DiffAnswer,
    LogAnswer,
    NightsAnswer,
    ScriptAnswer,
    ScriptsCompared,
    ShowAnswer,
    StatusAnswer,
    TakeAnswer,
    TryAnswer,
)
from agent.view.study import StudyAnswer, StudyForecast

PAGE = Path(__file__).with_name("json.md")
NAMES = {str: "string", Path: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
USUAL = {  # what these keys mean in every answer
    "id": "of the try, as in t0003",
    "tag": "the night",
    "attempt": "its number",
    "number": "of the attempt",
    "title": "what it changes",
    "status": "keep, discard or crash",
    "val_bpb": "the score",
    "tokens_s": "tokens per second",
    "started": "when it began",
    "commit": "of its script",
    "device": "what it trains on",
    "seed": "of the run",
    "proposer": "who proposed it",
    "worker": "who executed it",
    "budget_s": "seconds of training in each run",
    "wall_s": "seconds by the harness's clock",
    "protocol": "scores compare only within one",
    "noise": "how far a score moves with the seed",
    "mean_bpb": "the estimate",
    "low_bpb": "the lower end of the 95 % interval",
    "high_bpb": "its upper end",
    "usd": "dollars",
    "submitted": "when it was put into the queue",
}
TABLE = "| key | type | meaning |\n|---|---|---|\n"


# ---- answers that commands put together from words and numbers -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TryStanding:
    """The state of a try without a verdict."""

    id: str
    state: str  # waiting, or running
    in_line: int  # tries before it
    title: str
    try_log: str  # what the process that works on the queue has printed
    wait_with: str  # the command that waits for its verdict
    progress: str  # where it stands, in words


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """A try that was taken out of the queue."""

    id: str
    state: str  # cancelled


@dataclass(frozen=True, slots=True)
class ResultsAnswer:
    """The rows of results.tsv, by its columns ([results.md](results.md))."""

    tag: str | None  # the night; null with --all
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ConfirmAnswer:
    """What the latest confirmation of a night has found; `confirm --show` answers the same, without a run."""

    tag: str
    state: str  # finished, or unfinished: further runs would tell more
    findings: Findings


@dataclass(frozen=True, slots=True)
class IdeasAnswer:
    """The ideas that are known here, or the one that was named."""

    applies_to: str  # the script that they were tried on
    ideas: tuple[IdeaFacts, ...]
    faults: tuple[str, ...]  # files that are no ideas, and why


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """What a language model would be told for the next idea ([ideas.md](ideas.md#what-is-a-model-told))."""

    tag: str
    system: str  # the system prompt
    user: str  # the message
    stable_chars: int  # of the message's beginning, which the next questions share until an attempt is kept


@dataclass(frozen=True, slots=True)
class PagesAnswer:
    """What a proposer who runs commands is told: without program, script, notes and task."""

    tag: str
    # what a script may call, device, text, noise, attempts, dials, edits, known ideas, in Markdown
    facts: str


@dataclass(frozen=True, slots=True)
class TagAnswer:
    """The night that was meant."""

    tag: str


@dataclass(frozen=True, slots=True)
class DoctorAnswer:
    """Whether a night can run. The exit code is 1 where an essential check fails."""

    ready: bool
    checks: tuple[Check, ...]


ANSWERS: Mapping[str, type] = {
    "try": TryAnswer,
    "try --start": TryStanding,
    "try --queue": TryStanding,
    "try --wait": TryAnswer,
    "try --cancel": CancelAnswer,
    "study": StudyAnswer,
    "study --dry": StudyForecast,
    "status": StatusAnswer,
    "nights": NightsAnswer,
    "results": ResultsAnswer,
    "show": ShowAnswer,
    "show --log": LogAnswer,
    "show --diff": DiffAnswer,
    "show --script": ScriptAnswer,
    "show A B": CompareAnswer,
    "show A B --diff": ScriptsCompared,
    "take": TakeAnswer,
    "confirm": ConfirmAnswer,
    "ideas": IdeasAnswer,
    "prompt": PromptAnswer,
    "prompt --facts": PagesAnswer,
    "note": TagAnswer,
    "stop": TagAnswer,
    "doctor": DoctorAnswer,
}


# ---- the page --------------------------------------------------------------------------------------------------------


def page() -> str:
    """Return the page: its head, which is written by hand, and a section for each command and each record inside."""
    inside: dict[type, None] = {}
    commands = [_section(f"## {name}", kind, inside) for name, kind in ANSWERS.items()]
    objects, waiting = [], list(inside)
    for kind in waiting:
        more: dict[type, None] = {}
        objects.append(_section(f"### {kind.__name__}", kind, more))
        waiting += [record for record in more if record not in waiting]
    head = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    parts = [head.rstrip(), *commands, "## Objects inside the answers", *sorted(objects)]
    return "\n\n".join(parts) + "\n"


def _section(title: str, kind: type, inside: dict[type, None]) -> str:
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.name not in LEFT_OUT.get(kind.__name__, ())]
    rows = [f"| `{name}` | {_type(hints[name], inside)} | {_meaning(kind, name, hints[name])} |" for name in names]
    return f"{title}\n\n{inspect.getdoc(kind)}\n\n{TABLE}" + "\n".join(rows)


def _type(hint: typing.Any, inside: dict[type, None]) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = list(dict.fromkeys(_type(arg, inside) for arg in args))
        return "number" if set(kinds) == {"integer", "number"} else " or ".join(kinds)
    if origin is typing.Literal:
        return NAMES[type(args[0])]
    if dataclasses.is_dataclass(hint):
        inside[typing.cast(type, hint)] = None
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum | str):
        return "string"
    if origin in (tuple, list, Sequence) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        several = len(args) == 2 and args[1] is ...
        return f"list of {_type(args[0], inside)}" if several or len(args) == 1 else "list"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"map of {_type(args[1], inside)}"
    return NAMES.get(hint, "any")


def _meaning(kind: type, name: str, hint: typing.Any) -> str:
    """Return what a key means, and the words that it takes where it has a few and the comment names none of them."""
    words = next(filter(None, (_comments(base).get(name) for base in kind.__mro__[:-1])), USUAL.get(name, ""))
    values = [value for one in (hint, *typing.get_args(hint)) for value in _values(one)]
    if values and not any(value in words for value in values):
        words = f"{words}: {', '.join(values)}".removeprefix(": ")
    return re.sub(r"\bNone\b", "null", words).replace("|", "\\|")


def _values(hint: typing.Any) -> list[str]:
    """Return the words of an enumeration; none for any other type."""
    return [str(one.value) for one in hint] if isinstance(hint, type) and issubclass(hint, enum.StrEnum) else []


@cache
def _comments(kind: type) -> dict[str, str]:
    """Return field → the comment behind it, or the lines of comment above it."""
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    found, above = {}, list[str]()
    fields = {node.lineno: node for node in ast.parse("\n".join(lines)).body[0].body if isinstance(node, ast.AnnAssign)}  # type: ignore[attr-defined]
    for at, line in enumerate(lines, 1):
        node = fields.get(at)
        if node is None:
            above = [*above, line.strip()[1:].strip()] if line.strip().startswith("#") else []
            continue
        end = lines[(node.end_lineno or at) - 1][node.end_col_offset :]
        comment = re.sub(r"^[^#]*#", "", end) if "#" in end else " ".join(above)
        found[node.target.id] = re.sub(r"^\s*noqa[^,]*,?\s*", "", comment).strip()  # type: ignore[union-attr]
        above = []
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
