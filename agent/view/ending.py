"""The end of a call of `run` on one screen: what was tried, what it brought, and whether to believe it."""

import math

from agent.experiment import NOT_BELIEVED, Attempt, History
from agent.records.summary import NightSummary, gain_bpb
from agent.text import counted, percent_sure
from agent.view.screen import Column, table_lines
from agent.view.words import score

MOST_SHOWN = 10  # edits: all of it has to fit on one screen
COLUMNS = (
    Column("#", right=True),
    Column("verdict"),
    Column("gain (+ good)", right=True),
    Column("sure", right=True, rank=1),
    Column("edit", least=24),
)


def tried_lines(history: History, width: int | None) -> list[str]:
    """Return a table of the edits with the largest gains over their parents, in their order."""

    def gain(attempt: Attempt) -> float | None:
        parent = None if attempt.parent is None else history[attempt.parent]
        return None if attempt.kind in NOT_BELIEVED else gain_bpb(attempt, parent)

    edits = [(attempt, gain(attempt)) for attempt in history[1:] if attempt.is_idea]
    largest = sorted(edits, key=lambda edit: -math.inf if edit[1] is None else edit[1], reverse=True)[:MOST_SHOWN]
    rows = [
        (
            str(attempt.number),
            attempt.kind or "not decided",
            score(gained_bpb, "+"),
            "" if attempt.sure is None else percent_sure(attempt.sure),
            attempt.title,
        )
        for attempt, gained_bpb in sorted(largest, key=lambda edit: edit[0].number)
    ]
    lines = table_lines(COLUMNS, rows, width) if rows else []
    return [*lines, *([f"and {counted(len(edits) - len(rows), 'further edit')}"] if len(edits) > len(rows) else [])]


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
