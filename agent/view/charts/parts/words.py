"""Write the words of a chart: make titles harmless, fit them to a width, and name marks."""

import unicodedata

from agent.text import one_line, percent_sure, shorten
from agent.view.charts.parts.palette import Colour, Spec
from agent.view.facts.nouns import AttemptFacts, NightFacts

FONT_PX, TITLE_PX = 11.0, 13.0
BOLD = 1.08  # how much wider bold letters are
TITLE_CHARS = 60  # of a title in the label of a mark
# widths in Arial and its metric twins, as shares of the font's height
NARROW, CAPITAL, WIDE, USUAL = 0.3, 0.7, 1.05, 0.56
NARROW_ONES = frozenset(" !'(),-./:;[]fijlrt|·I")
AS_WIDE_AS_HIGH = frozenset("WF")  # Unicode's classes of width


def text_px(text: str, font_px: float = FONT_PX) -> float:
    """Estimate the width of a text in a font without serifs; the estimate is rather too wide."""
    return font_px * sum(map(_ems, text))


def _ems(one: str) -> float:
    if one in NARROW_ONES:
        return NARROW
    if not one.isascii():
        return WIDE if unicodedata.east_asian_width(one) in AS_WIDE_AS_HIGH or one == "→" else CAPITAL
    return CAPITAL if one.isupper() or one in "_%&+<=>@~mw" else USUAL


def fitting(text: str, most_px: float, font_px: float = FONT_PX) -> str:
    """Make a text one harmless line and shorten it to a width."""
    line = one_line(text, max(1, int(most_px / (NARROW * font_px))))
    while len(line) > 1 and text_px(line, font_px) > most_px:
        line = shorten(line, len(line) - 1)
    return line


def wrapped(words: list[str], most_px: float, font_px: float = FONT_PX) -> list[str]:
    """Break a list of phrases into lines of a width, between phrases."""
    lines: list[str] = []
    for phrase in words:
        longer = f"{lines[-1]} · {phrase}" if lines else phrase
        if lines and text_px(longer, font_px) <= most_px:
            lines[-1] = longer
        else:
            lines.append(fitting(phrase, most_px, font_px))
    return lines


def anchor(night: NightFacts, number: int, *, several: bool) -> str:
    """Return the link to an attempt in the page: with the night's tag where the page shows several nights."""
    return f"#attempt-{one_line(night.tag, TITLE_CHARS)}-{number}" if several else f"#attempt-{number}"


def mark_label(attempt: AttemptFacts, *more: str) -> str:
    """Name an attempt for a tooltip and a screen reader."""
    score = [] if attempt.val_bpb is None else [f"{attempt.val_bpb:.6f} bpb"]
    gain = [] if attempt.gain_bpb is None else [f"gain {attempt.gain_bpb:+.6f}"]
    sure = [] if attempt.sure is None else [f"{percent_sure(attempt.sure)} sure"]
    merges = [] if attempt.merges is None else [f"merges attempt {attempt.merges}"]
    merges += [] if attempt.merged_as is None else [f"merged as attempt {attempt.merged_as}"]
    words = [f"attempt {attempt.number}: {one_line(attempt.title, TITLE_CHARS)}", *more, *merges, *score, *gain, *sure]
    return ", ".join(words)


def heading(title: str, words: list[str], width_px: float, title_px: float = TITLE_PX) -> Spec:
    """Return a chart's title with its line of words, or one of both, at the left edge."""
    lines = wrapped(words, width_px)
    place = {"anchor": "start", "frame": "group", "offset": 8}
    if not title:
        return place | {"text": lines, "color": Colour.FAINT, "fontSize": FONT_PX, "fontWeight": "normal"}
    text = fitting(title, width_px, BOLD * title_px)
    head = place | {"text": text, "color": Colour.INK, "fontSize": title_px, "fontWeight": "bold"}
    below = {"subtitle": lines, "subtitleColor": Colour.FAINT, "subtitleFontSize": FONT_PX, "subtitlePadding": 4}
    return head | below if lines else head
