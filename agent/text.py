"""Put counts, times and scores into words, and make the text of scripts, proposers and logs safe to show.

In a terminal, a table or a commit message, an escape sequence could erase the line that a person should read, and
invisible characters could hide in it. Both are shown as codes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from difflib import unified_diff
from functools import lru_cache
from itertools import takewhile

# printable according to Unicode, but invisible: fillers, joiners, and selectors of a letter's variant
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
ABSURD = 1e9  # no megabytes, millions, seconds, losses or speeds of a run are as many; a script may claim what it likes
SCORE_DECIMALS = 6
SAID_CHARS = 200  # characters of another program's message that a sentence of ours quotes
MOST_PAIRS = 2_000_000  # compared lines, at most: difflib would take hours for a script of many similar lines
CUT_WITH = " \t\n,;:"  # removed before an ellipsis


def harmless(line: str) -> str:
    """Replace unprintable and invisible characters of one line by codes; keep spaces and tabs."""
    if line.isascii() and line.isprintable():  # nearly all lines are
        return line
    return "".join(map(_shown, line))


def harmless_lines(text: str) -> str:
    """Make each line of a text harmless, and keep the line ends."""
    return "\n".join(map(harmless, text.split("\n")))


def plain_lines(text: str) -> str:
    """Return a text as Python reads it: each line ends with a line feed, and no byte order mark comes first."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def saved_like(text: str, other: str) -> str:
    """Return a text of plain lines as another is saved: with the line ends of most of its lines, and its mark."""
    mark = "\ufeff" if other.startswith("\ufeff") else ""
    return mark + (text.replace("\n", "\r\n") if 2 * other.count("\r\n") > other.count("\n") else text)


def one_line(text: str, most_chars: int) -> str:
    """Join a text into one harmless line of at most most_chars characters."""
    return shorten(harmless(" ".join(text.split())), most_chars)


def paragraphs(text: str, most_chars: int) -> str:
    """Strip a text and its line ends, make it harmless, and shorten it to most_chars characters."""
    return shorten("\n".join(harmless(line.rstrip()) for line in text.strip().splitlines()), most_chars)


@lru_cache(maxsize=4096)
def _shown(char: str) -> str:
    is_seen = (char.isprintable() and not INVISIBLE.match(char)) or char == "\t"
    return char if is_seen else ascii(char)[1:-1]


def shorten(text: str, most_chars: int) -> str:
    """Shorten a text to most_chars characters, at the end of a word, with an ellipsis as the last character.

    A word longer than half of most_chars is cut.
    """
    if len(text) <= most_chars:
        return text
    words = re.match(rf"(?s).{{{most_chars // 2},{most_chars - 1}}}(?=\s)", text)
    return f"{words[0].rstrip(CUT_WITH) if words else text[: most_chars - 1]}…"


def diff_lines(
    before: Sequence[str], after: Sequence[str], name: str = "", other: str = "", context: int = 3
) -> list[str]:
    """Return a unified diff; of texts that would take too long to compare, one hunk from the first change to the last.

    The time of git's own diff is bounded, too. Here the scripts need not be in any repository.
    """
    first = _alike(before, after)
    last = _alike(before[first:][::-1], after[first:][::-1])
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    counts = Counter(after)
    pairs = sum(count * counts[line] for line, count in Counter(before).items())
    if max(pairs, len(old) * len(new)) <= MOST_PAIRS:
        return list(unified_diff(before, after, name, other, n=context, lineterm=""))
    place = f"@@ -{first + 1},{len(old)} +{first + 1},{len(new)} @@"
    return [f"--- {name}", f"+++ {other}", place, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]


def _alike(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many lines two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))


def digits(value: float, decimals: int | None = SCORE_DECIMALS, sign: str = "") -> str:
    """Write a score or a gain; decimals: None for seven significant digits; sign: "+" to write it in any case."""
    return format(value, f"{sign}.7g" if decimals is None else f"{sign}.{decimals}f")


def shown_difference(score: float, other: float, decimals: int | None = SCORE_DECIMALS) -> float:
    """Return a score less another, both rounded as they are shown: a reader who subtracts them gets the same digits."""
    return float(digits(score, decimals)) - float(digits(other, decimals))


def better(lower_bpb: float, decimals: int | None = SCORE_DECIMALS) -> str:
    """Say how much better or worse a score is than another one, as in 0.143600 better."""
    amount = digits(abs(lower_bpb), decimals)
    if float(amount) == 0:
        return "no better"
    return f"{amount} {'better' if lower_bpb > 0 else 'worse'}"


TELLING_DRIFT = 0.02  # share of a machine's speed, from which it is said


def versus(
    whom: str,
    lower_bpb: float,
    sure: float | None = None,
    decimals: int | None = SCORE_DECIMALS,
    same_seeds_bpb: float | None = None,
    machine: float | None = None,
) -> str:
    """Say first the difference that a reader can check, then what it is worth; sure: the probability of a gain.

    same_seeds_bpb: the difference over the seeds that both have; it is said where it points the other way. machine: its
    speed beside that of the other's runs, where the edit cannot have changed it; from two per cent on it is said.
    """
    same_bpb = lower_bpb if same_seeds_bpb is None else same_seeds_bpb
    paired = f", but {better(same_bpb, decimals)} over the seeds that both ran" if same_bpb * lower_bpb < 0 else ""
    worth = "" if sure is None else f", {percent_sure(sure)} sure of a gain"
    drift = 0.0 if machine is None else round(machine - 1, 2)
    how = f"{abs(drift):.0%} {'faster' if drift > 0 else 'slower'}"
    speed = f", while the machine was {how}" if abs(drift) >= TELLING_DRIFT else ""
    return f"{better(lower_bpb, decimals)} than {whom}{paired}{speed}{worth}"


def two_digits(value: float) -> str:
    """Return a noise in the two digits that are known of it: it is learnt to ten per cent."""
    return f"{Decimal(f'{value:.1e}'):f}"


def percent_sure(share: float) -> str:
    """Write a probability in whole percent; one that is estimated is never called certain."""
    if share > 0.99:
        return ">99%"
    return "<1%" if share < 0.01 else f"{share:.0%}"


def is_finite(value: object) -> bool:
    """Return whether a value is a number that fits a finite float: no NaN, no inf, no huge integer."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300


def counted(number: float, noun: str) -> str:
    """Return a number with its noun, as in 1 attempt, 1,200 attempts, 0.5 hours."""
    amount = f"{number:,}" if isinstance(number, int) else f"{number:g}"  # a million experiments are not 1e+06
    return f"{amount} {noun}{'' if number == 1 else 's'}"


def plainly(number: float) -> str:
    """Write a number with all its digits, for a command that has to get the very number."""
    return str(number).removesuffix(".0")


def numbered(attempts: Iterable[int]) -> str:
    """Name attempts by their numbers, as in #3 and #12."""
    return " and ".join(f"#{number}" for number in sorted(attempts))


def duration(hours: float) -> str:
    """Return a time that something took, as in 12 s, 34 min, 5 h 06 min."""
    if hours < 59.5 / 3600:
        return f"{3600 * hours:.0f} s"
    minutes = round(60 * hours)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"


def budget(seconds: float) -> str:
    """Return the time that a run is given, as in 40 s, 5 min."""
    return f"{seconds / 60:g} min" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:g} s"


# ---- quoting text that a proposer must not obey ----------------------------------------------------------------------

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
