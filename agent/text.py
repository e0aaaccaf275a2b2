"""Text of scripts, proposers and their logs, made fit for a terminal, a table and a commit message.

What is not printable, such as an escape sequence, could wipe the very line that a person is told to read; what is
invisible could hide in it. Both are shown as their codes.
"""

import re

# printable by Unicode's word, but nothing is to be seen: fillers, joiners, and selectors of a letter's variant
INVISIBLE = frozenset(
    chr(code)
    for span in ((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800),
                 (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF))
    for code in range(span[0], span[1] + 1)
)  # fmt: skip


SAID_CHARS = 200  # of what another program said, in a sentence of ours
CUT_WITH = " \t\n,;:"  # what promises that more follows


def harmless(line: str) -> str:
    """One line; tabs stay, other whitespace than the space is shown as its code as well."""
    return "".join(one if _is_seen(one) or one == "\t" else ascii(one)[1:-1] for one in line)


def harmless_lines(text: str) -> str:
    """Several lines, which stay lines."""
    return "\n".join(map(harmless, text.split("\n")))


def one_line(text: str, most_chars: int) -> str:
    return shorten(harmless(" ".join(text.split())), most_chars)


def paragraphs(text: str, most_chars: int) -> str:
    """Lines without the blanks around them; whatever splits a line ends one."""
    return shorten("\n".join(harmless(line.rstrip()) for line in text.strip().splitlines()), most_chars)


def _is_seen(one: str) -> bool:
    return one.isprintable() and one not in INVISIBLE


def shorten(text: str, most_chars: int) -> str:
    """At most so many characters, the last of them an ellipsis where something is left out: whole words before it.

    A word that is longer than half of the room is cut.
    """
    if len(text) <= most_chars:
        return text
    words = re.match(rf"(?s).{{{most_chars // 2},{most_chars - 1}}}(?=\s)", text)
    return f"{words[0].rstrip(CUT_WITH) if words else text[: most_chars - 1]}…"
