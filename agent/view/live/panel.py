"""The lines of the live panel: the attempt at work, and where its night stands. Pure, except for the clock."""

import time
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from agent.experiment import Status
from agent.text import counted, shown_difference
from agent.view.live.at_work import AtWork, bar, fraction, pace_words
from agent.view.live.columns import as_many_as_fit, shortened, shown
from agent.view.live.so_far import SoFar
from agent.view.live.verdicts import COLOURS
from agent.view.live.workers import NAMES as NAMES_OF_SEVERAL
from agent.view.live.workers import Workers, load_words, worker_lines

NAMES = 7  # columns: the longest name of a line, and a gap
SHORTEST_BAR, LONGEST_BAR = 10, 40  # columns
LEFT_FREE = 4  # lines of a terminal that the workers leave to verdicts
RULE = "─"
COUNTED = {Status.KEEP: "kept", Status.DISCARD: "discarded", Status.CRASH: "crashed"}


def panel_lines(console: Console, budget_s: float, at_work: AtWork | None, so_far: SoFar | None) -> list[Text]:
    """Return the panel's lines, at most eight; each is shorter than the terminal is wide, and ends between words."""
    width = console.width - 1  # a terminal may break the line after a character in the last column
    lines = [*_at_work_lines(console, budget_s, at_work, width)] if at_work is not None else []
    lines += [_named_line(name, parts, width) for name, parts in _standing(so_far)] if so_far is not None else []
    return [Text(RULE * width, "dim"), *lines] if lines else []


def lines_of_several(
    console: Console, budget_s: float, workers: Workers, asking: AtWork | None, so_far: SoFar | None
) -> list[Text]:
    """Return the panel of a night with several workers: a line for each that works, as the terminal has room."""
    width, at_work = console.width - 1, workers.at_work
    standing = [] if so_far is None else [*_standing(so_far)]
    told = "workers", load_words(len(at_work), workers, None if so_far is None else so_far.load)
    at_cost = len(standing) - (standing[-1][0] == "cost") if standing else 0
    standing = [*standing[:at_cost], told, *standing[at_cost:]]
    if asking is not None:
        standing = [("ideas", [asking.title, *pace_words(asking, budget_s)]), *standing]
    most = max(2, console.height - len(standing) - LEFT_FREE)
    lines = [*worker_lines(console, budget_s, at_work, width, most)]
    lines += [_named_line(name, parts, width, NAMES_OF_SEVERAL) for name, parts in standing]
    return [Text(RULE * width, "dim"), *lines]


def _at_work_lines(console: Console, budget_s: float, now: AtWork, width: int) -> Iterator[Text]:
    doing = f" · {now.doing}" if now.doing else ""
    has_room = len(doing) < max(width // 2, width - cell_len(now.title))
    title = shortened(now.title, width - len(doing) if has_room else width)
    yield Text.assemble((title, "bold"), doing if has_room else "")
    if now.why and now.why not in now.title:
        yield Text(shortened(now.why, width), "italic")
    words = pace_words(now, budget_s)
    told = as_many_as_fit(words, width - SHORTEST_BAR - 1)
    columns = max(1, min(LONGEST_BAR, width - told.cell_len - 1))
    yield Text.assemble(bar(console, fraction(now), columns), " ", told)


def _standing(now: SoFar) -> Iterator[tuple[str, Sequence[str | Text]]]:
    """Yield name and parts of each line, the most important part first."""
    yield "best", _best_words(now)
    numbers = {status: now.counts.get(status, 0) for status in COUNTED}
    counts = [Text(f"{numbers[one]} {word}", COLOURS[one] if numbers[one] else "") for one, word in COUNTED.items()]
    sigma = [f"σ {now.noise.sigma_bpb:.6f}"] if now.noise is not None else []
    yield "so far", [*counts, *sigma]
    yield "left", _left_words(now)
    cached = f" ({now.cost.tokens_cached:,} cached)" if now.cost.tokens_cached else ""
    cost = [
        "" if now.cost.usd is None else f"${now.cost.usd:,.2f}",
        "" if now.cost.tokens_in is None else f"{now.cost.tokens_in:,} tokens in{cached}",
        "" if now.cost.tokens_out is None else f"{now.cost.tokens_out:,} out",
    ]
    if any(cost):
        yield "cost", list(filter(None, cost))


def _best_words(now: SoFar) -> Sequence[str | Text]:
    best, baseline, gain = now.best, now.baseline, now.gain
    if best is None or baseline is None:
        return ["the baseline is measured first"]
    score = f"#{best.number} val_bpb {best.val_bpb:.6f}"
    if gain is None:
        return [score, "the baseline"]
    below_bpb = shown_difference(baseline.val_bpb, best.val_bpb)
    side = "below" if below_bpb >= 0 else "above"  # after further seeds, a lucky keep may be above
    margin = f" ± {gain.mean_bpb - gain.low_bpb:.6f}" if gain.has_width else ""
    difference = Text(f"{abs(below_bpb):.6f}{margin} {side} the baseline", "green" if gain.low_bpb > 0 else "")
    return [score, difference, f"baseline {baseline.val_bpb:.6f}", shown(best.title)]


def _left_words(now: SoFar) -> Sequence[str | Text]:
    words = []
    if now.experiments_left is not None:
        words.append(counted(now.experiments_left, "experiment"))
    if now.ends_s is not None:
        words.append(countdown(max(0.0, now.ends_s - time.time())))
    return words or ["no limit; it runs until it is stopped"]


def countdown(seconds: float) -> str:
    """Return the time that is left, in its two largest units."""
    minutes, rest_s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest_s} s" if minutes else f"{rest_s} s"


def _named_line(name: str, parts: Sequence[str | Text], width: int, names: int = NAMES) -> Text:
    return Text.assemble((f"{name:<{names}}", "dim"), as_many_as_fit(parts, width - names))
