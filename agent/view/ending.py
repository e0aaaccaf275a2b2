"""The end of a call of `run` on one screen: what was tried, what it brought beside the noise, and what comes next."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from agent.experiment import NOT_BELIEVED, Attempt, History
from agent.records.summary import NightSummary, gain_bpb
from agent.text import counted
from agent.view.screen import shortened, shown
from agent.view.terminal import COLOURS

MOST_SHOWN = 10  # edits: all of it has to fit on one screen
LEAST_CELLS, MOST_CELLS = 12, 32  # of a bar
LEAST_TITLE, USUAL_TITLE = 8, 24
BESIDE = 24  # columns of number, gain, zero and gaps
PIPED_COLUMNS = 100
WIDE_BPB = 10  # a script's losses may be anything
BAR, SHADE, ZERO, BEYOND = "█", "░", "│", "◂"
HEADING = "gain of each edit over its parent, bits per byte; higher is better (░ no more than luck between two runs)"


def tried_lines(history: History, smallest_bpb: float | None, columns: int | None) -> list[Text]:
    """Draw the estimated gain of each edit as a bar from zero, on a shade as wide as two single runs differ by luck.

    Of many edits, those with the largest gains are shown. columns: of the terminal; None: the output goes elsewhere.
    """
    edits = [
        (attempt, None if attempt.kind in NOT_BELIEVED else gain_bpb(attempt, _parent(attempt, history)))
        for attempt in history[1:]
        if attempt.is_idea
    ]
    if not edits:
        return []
    largest = sorted(edits, key=lambda edit: -math.inf if edit[1] is None else edit[1], reverse=True)[:MOST_SHOWN]
    rows = sorted(largest, key=lambda edit: edit[0].number)
    kinds = max(len(_kind(attempt)) for attempt, _ in rows)
    room = (columns or PIPED_COLUMNS) - kinds - BESIDE  # for bar and title
    cells = min(MOST_CELLS, max(LEAST_CELLS, room - USUAL_TITLE))
    gains_bpb = [estimated_bpb for _, estimated_bpb in rows if estimated_bpb is not None]
    scale = BarScale.of(gains_bpb, smallest_bpb or 0.0, cells)
    lines = []
    for attempt, estimated_bpb in rows:
        colour = COLOURS[attempt.status] if attempt.status else ""
        number, gain = f"#{attempt.number}", _number(estimated_bpb)
        title = shortened(shown(attempt.proposal.title), max(LEAST_TITLE, room - cells))
        line = Text.assemble(f"  {number:<6}", (f"{_kind(attempt):<{kinds}}", colour), f"  {gain:>9}  ")
        lines.append(line + scale.bar(estimated_bpb, colour) + Text(f"  {title}"))
    if len(edits) > len(rows):
        lines.append(Text(f"  and {counted(len(edits) - len(rows), 'further edit')}"))
    return lines


@dataclass(frozen=True, slots=True)
class BarScale:
    """Map gains to cells of a terminal: some to the left of zero, the others to its right."""

    left: int
    right: int
    cell_bpb: float
    smallest_bpb: float

    @classmethod
    def of(cls, gains_bpb: Sequence[float], smallest_bpb: float, cells: int) -> "BarScale":
        """Fit the gains and the shade; a loss beyond the largest gain is cut, as it would leave no room for gains."""
        largest_bpb = max([smallest_bpb, 0.0, *gains_bpb])
        worst_bpb = max([smallest_bpb, *(-gain for gain in gains_bpb)])
        above_bpb = largest_bpb or worst_bpb or 1.0
        below_bpb = min(worst_bpb, above_bpb)
        left = round(cells * below_bpb / (below_bpb + above_bpb))
        return cls(left, cells - left, above_bpb / (cells - left), smallest_bpb)

    def bar(self, gain_bpb: float | None, colour: str) -> Text:
        """Draw one gain; None: only the shade."""
        gain = gain_bpb or 0.0
        before, after = list(self._side(self.left, -gain)), list(self._side(self.right, gain))
        if before and -gain > (self.left + 1) * self.cell_bpb:
            before[-1] = BEYOND
        cells = "".join((*reversed(before), ZERO, *after))
        return Text.assemble(*((cell, colour if cell in (BAR, BEYOND) else "dim") for cell in cells))

    def _side(self, count: int, reach_bpb: float) -> Iterator[str]:
        """Yield the cells of one side, from zero outwards."""
        for at in range(count):
            middle_bpb = (at + 0.5) * self.cell_bpb
            yield BAR if middle_bpb <= reach_bpb else SHADE if middle_bpb <= self.smallest_bpb else " "


def _parent(attempt: Attempt, history: History) -> Attempt | None:
    return None if attempt.parent is None else history[attempt.parent]


def _number(gain_bpb: float | None) -> str:
    if gain_bpb is None:
        return ""
    return f"{gain_bpb:+.6f}" if abs(gain_bpb) < WIDE_BPB else f"{gain_bpb:+.0e}"


def _kind(attempt: Attempt) -> str:
    """Return how the edit ended, in a word of docs/results.md."""
    return str(attempt.kind or "unfinished")


def belief(now: NightSummary) -> str:
    """Return in one sentence whether to believe what the night has kept."""
    if now.gain is None:
        return "Believe it? Nothing was kept: the script as it stood is still the best."
    if now.dawn is not None and now.dawn.honest is not None:
        return "Believe it? By the interval of dawn above, which fresh seeds have measured."
    if now.noise is not None and now.noise.doubt is not None:
        return (
            f"Believe it? No: in {now.night.budget_s:g} s the baseline hardly trains ({now.noise.doubt}), and how far "
            f"runs come depends on what else the machine does. What helps them need not help longer ones."
        )
    if now.gain.low_bpb <= 0:
        return "Believe it? Not yet: the interval of the gain includes zero, so it may be luck."
    return (
        "Believe it? Probably: the interval is above zero. But the best of many was lucky, too: `confirm` measures it."
    )
