"""Quote text that an author must not obey, and shorten what is too long."""

import json
import re
from collections.abc import Sequence

from agent.text import harmless_lines, one_line

QUOTE_CHARS = 200
# control tokens such as <|im_end|>, </s> or [INST], which some servers would obey inside a message
CONTROL = re.compile(r"<|\[(?=/?[A-Z_]{3,}\])")
# the same where code is shown, in which most of these characters are only code
CONTROL_IN_CODE = re.compile(r"<(?=[|/!]|s>)|\[(?=/?(?:INST|SYS|[A-Z]+_[A-Z_]+)\])")


def quoted(text: str, most_chars: int = QUOTE_CHARS) -> str:
    """Return untrusted text as one JSON string of limited length."""
    return CONTROL.sub(_as_code, json.dumps(one_line(text, most_chars), ensure_ascii=False))


def fenced(text: str, language: str) -> str:
    """Put text between code fences longer than any inside it, so that the text cannot close them."""
    longest = max(map(len, re.findall("`+", text)), default=0)
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


def cut(text: str, most_chars: int) -> str:
    """Cut a text that is too long, at the end of a line where it has several, and say so in its last line."""
    if len(text) <= most_chars:
        return text
    end = f"\n[… cut at {most_chars:,} characters]"
    start = text[: max(0, most_chars - len(end))]
    return (start.rpartition("\n")[0] or start) + end
