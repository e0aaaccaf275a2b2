"""Write docs/json.md from the records of agent/view/answer.py: python docs/write_json_page.py."""

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
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent.view.answer import ANSWERS, UNTOLD

PAGE = Path(__file__).with_name("json.md")
NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
USUAL = {  # what these keys mean in every answer
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
}
TABLE = "| key | type | meaning |\n|---|---|---|\n"


def page() -> str:
    """Return the page: its head, which is written by hand, and a section for each command and each record inside."""
    inside: dict[type, None] = {}
    commands = [_section(f"## {name}", kind, inside) for name, kind in ANSWERS.items()]
    objects, waiting = [], list(inside)
    for kind in waiting:
        more: dict[type, None] = {}
        objects.append(_section(f"### {kind.__name__}", kind, more))
        waiting += [one for one in more if one not in waiting]
    head = PAGE.read_text().partition("\n## ")[0]
    parts = [head.rstrip(), *commands, "## Objects inside the answers", *sorted(objects)]
    return "\n\n".join(parts) + "\n"


def _section(title: str, kind: type, inside: dict[type, None]) -> str:
    hints = typing.get_type_hints(kind)
    told = [field.name for field in dataclasses.fields(kind) if field.name not in UNTOLD.get(kind, ())]
    rows = [f"| `{name}` | {_type(hints[name], inside)} | {_meaning(kind, name)} |" for name in told]
    words = re.sub(r"^Hold ", "", inspect.getdoc(kind) or "")
    return f"{title}\n\n{words[:1].upper()}{words[1:]}\n\n{TABLE}" + "\n".join(rows)


def _type(hint: typing.Any, inside: dict[type, None]) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = list(dict.fromkeys(_type(one, inside) for one in args))
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


def _meaning(kind: type, name: str) -> str:
    words = next(filter(None, (_comments(base).get(name) for base in kind.__mro__[:-1])), USUAL.get(name, ""))
    return re.sub(r"\bNone\b", "null", words).replace("|", "\\|")


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
    PAGE.write_text(page())
