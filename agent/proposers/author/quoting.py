"""Quote text that an author must not obey: titles, log lines and code that other programs wrote."""

import json
import re

from agent.text import harmless_lines, one_line

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
