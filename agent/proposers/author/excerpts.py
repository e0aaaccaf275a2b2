"""Write text for an author: quote what it must not obey, shorten what is too long, and fill the templates of prompts.

prompts/ holds one template each, in Jinja2's form, for people to read and change.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent.text import counted, harmless_lines, one_line

if TYPE_CHECKING:
    from jinja2 import Environment

QUOTE_CHARS, SENTENCE_CHARS = 200, 160
# control tokens such as <|im_end|>, </s> or [INST], which some servers would obey inside a message
CONTROL = re.compile(r"<|\[(?=/?[A-Z_]{3,}\])")
# the same where code is shown, in which most of these characters are only code
CONTROL_IN_CODE = re.compile(r"<(?=[|/!]|s>)|\[(?=/?(?:INST|SYS|[A-Z]+_[A-Z_]+)\])")


def quoted(text: str, most_chars: int = QUOTE_CHARS) -> str:
    """Return untrusted text as one JSON string of limited length."""
    line = json.dumps(one_line(text, most_chars), ensure_ascii=False)
    return CONTROL.sub(_as_code, line)


def quoted_sentence(text: str) -> str:
    """Quote the first sentence of an untrusted text; return an empty string for an empty one."""
    words = one_line(text, 4 * SENTENCE_CHARS)
    return quoted(re.split(r"(?<=[.!?])\s", words, maxsplit=1)[0], SENTENCE_CHARS) if words else ""


def fenced(text: str, language: str) -> str:
    """Put text between code fences longer than any inside it, so that the text cannot close them."""
    if not text:
        return ""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def harmless_code(text: str) -> str:
    """Make code fit to be read, not to be copied: codes in place of odd characters and of a template's tokens."""
    return CONTROL_IN_CODE.sub(_as_code, harmless_lines(text))


def _as_code(sign: re.Match[str]) -> str:
    return f"\\u{ord(sign[0]):04x}"


def newest(lines: Sequence[str], most_chars: int) -> list[str]:
    """Return as many of the last lines as fit, in their order."""
    shown: list[str] = []
    for line in reversed(lines):
        most_chars -= len(line) + 1
        if most_chars < 0:
            break
        shown.append(line)
    return shown[::-1]


def first(lines: Sequence[str], most_chars: int) -> list[str]:
    """Return as many of the first lines as fit."""
    return newest(lines[::-1], most_chars)[::-1]


def cut(text: str, most_chars: int) -> str:
    """Cut a text, and say so in its last line."""
    if len(text) <= most_chars:
        return text
    end = f"\n[… cut at {most_chars:,} characters]"
    return f"{text[: max(0, most_chars - len(end))]}{end}"


def written(name: str, **facts: object) -> str:
    """Return the template prompts/NAME.md with these facts; raise jinja2.UndefinedError for one that is missing."""
    return _templates().get_template(f"{name}.md").render(facts).strip()


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # most commands write no prompt

    folder = FileSystemLoader(Path(__file__).parents[1] / "prompts")
    # plain text for a model, no page
    templates = Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    templates.filters |= {"one_line": one_line, "counted": counted, "quoted": quoted}
    return templates
