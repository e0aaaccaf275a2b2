"""Put training curves side by side: the incumbent's, that of the keep before it, and those of the latest losers."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from agent.experiment import Attempt, Ending, History, Status, kept
from agent.proposers.author.attempts import AttemptRow, rows
from agent.proposers.briefing import Briefing, Curve

POINTS, LOSERS = 10, 3
ABSURD = 1e4  # no loss is as large
HALF = 0.5  # of the budget: later, learning rates fall with the time, and losses at equal tokens mislead
ABOUT = """\
Mean training loss of each tenth of the training time, one run each; speed against the incumbent's; and how far the loss
is above the incumbent's after as many tokens, at half of the slower one's time. Below zero, the attempt learns more
from each token: where it is behind at equal time, its speed is the reason."""


def compared(history: History, best: Attempt) -> tuple[Attempt, ...]:
    """Return the attempts whose curves are worth a look: the incumbent, the keep before it, the latest losers."""
    before = [one for one in kept(history) if one.number != best.number]
    lost = [one for one in history if one.status is Status.DISCARD and one.is_idea and has_curve(one)]
    return (best, *before[-1:], *lost[: -LOSERS - 1 : -1])


def has_curve(attempt: Attempt) -> bool:
    return any(run.ending in (Ending.FINISHED, Ending.HOPELESS) for run in attempt.done_runs)


def thinned(points: Sequence[tuple[float, float]]) -> Curve:
    """Return the mean loss of each tenth of the budget that has a point, at the end of that tenth."""
    means: list[tuple[float, float]] = []
    marks = [fraction for fraction, _ in points]
    for tenth in range(1, POINTS + 1):
        begin = 0 if tenth == 1 else bisect_left(marks, (tenth - 1) / POINTS)
        end = len(points) if tenth == POINTS else bisect_left(marks, tenth / POINTS)
        losses = [loss for _, loss in points[begin:end]]
        if losses:
            means.append((tenth / POINTS, sum(losses) / len(losses)))
    return tuple(means)


def curves(briefing: Briefing, most_chars: int) -> str:
    """Write the table of curves; without the last columns where it would be too long."""
    known = briefing.setting.curves if briefing.setting is not None else {}
    by_number = {row.attempt.number: row for row in rows(briefing)}
    numbers = [one.number for one in compared(briefing.history, briefing.parent) if known.get(one.number)]
    for count in range(len(numbers), 1, -1):
        shown = numbers[:count]
        table = _table([by_number[number] for number in shown], [known[number] for number in shown])
        text = "\n".join([ABOUT, "", *table])
        if len(text) <= most_chars:
            return text
    return ""


def _table(chosen: Sequence[AttemptRow], drawn: Sequence[Curve]) -> list[str]:
    best = drawn[0]
    columns = [["time", *(f"{tenth / POINTS:.0%}" for tenth in range(1, POINTS + 1)), "tokens/s", "equal tokens"]]
    for at, (row, curve) in enumerate(zip(chosen, drawn, strict=True)):
        found = {round(fraction * POINTS): _shown(loss) for fraction, loss in curve}
        title = f"#{row.attempt.number} {'incumbent' if at == 0 else row.verdict}"
        speed = "" if row.speed is None or at == 0 else f"{row.speed - 1:+.0%}"
        ahead = None if row.speed is None or at == 0 else _at_equal_tokens(curve, best, row.speed)
        losses = [found.get(tenth, "") for tenth in range(1, POINTS + 1)]
        columns.append([title, *losses, speed, "" if ahead is None else _shown(ahead, "+")])
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _shown(loss: float, sign: str = "") -> str:
    """Write a loss; one that a script made up may have hundreds of digits."""
    return format(loss, f"{sign}.3f" if abs(loss) < ABSURD else f"{sign}.0e")


def _at_equal_tokens(curve: Curve, best: Curve, speed: float) -> float | None:
    """Return how far a loss is above the incumbent's, after the tokens that the slower has read by half of its time."""
    mine, theirs = (HALF, HALF * speed) if speed < 1 else (HALF / speed, HALF)
    loss, other = _loss_at(curve, mine), _loss_at(best, theirs)
    return None if loss is None or other is None else loss - other


def _loss_at(curve: Curve, fraction: float) -> float | None:
    """Interpolate a curve; a point is the mean of its tenth, and so is the loss in the middle of that."""
    points = [(end - 0.5 / POINTS, loss) for end, loss in curve]
    for (start, before), (end, after) in pairwise(points):
        if start <= fraction <= end:
            return before + (after - before) * (fraction - start) / (end - start)
    return None
