"""The lines of the live panel: what is at work, and where its night stands. Pure, except for the clock."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rich.cells import cell_len
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.text import Text

from agent.experiment import Attempt, Progress, Status
from agent.proposers.briefing import Left
from agent.records.summary import NightSummary
from agent.text import counted, shown_difference
from agent.view.live.verdicts import COLOURS, progress_words, within_one
from agent.view.screen import shortened, shown
from agent.view.workers import Load, in_order

NIGHT = ""  # the key of what no worker does: asking for an idea, committing it
RULE, BETWEEN = "─", " · "
NAMES = 7  # columns: the longest name of a line, and a gap
SHORTEST_BAR, LONGEST_BAR, WORKERS_BAR, AMOUNT = 10, 40, 8, 5  # columns; of a number behind a worker's bar
LEAST_TITLE, FAIR_TITLE = 24, 48  # columns that a worker's line leaves to a title by its loss, and by further facts
LEAST_WITH_BAR = 60  # columns: a worker's line on a narrower terminal has no bar
LEFT_FREE = 4  # lines of a terminal that the workers leave to verdicts
BAR = "cyan"  # rich has a red, the colour of crashes
NEARLY = 0.99  # a bar that goes by an estimate waits there


@dataclass(frozen=True, slots=True)
class Job:
    """Hold what is done now, by a worker or by the night itself."""

    title: str
    why: str = ""
    doing: str = ""  # such as scoring
    training: Progress | None = None  # None: no training run, or it has told nothing yet
    elapsed_s: float | None = None  # None: not known
    usual_s: float | None = None  # how long the same took last time
    attempt: int | None = None
    seed: int | None = None  # of a training run

    @classmethod
    def on(cls, attempt: Attempt, seed: int | None = None) -> "Job":
        title, why = shown(attempt.proposal.title), shown(attempt.proposal.hypothesis)
        return cls(f"#{attempt.number} {title}", why, attempt=attempt.number, seed=seed)

    @property
    def fraction(self) -> float | None:
        """Return how much of it is done, 0 to 1; None where the end is not known."""
        if self.training is not None:
            return within_one(self.training.fraction)
        return min(NEARLY, self.elapsed_s / self.usual_s) if self.elapsed_s is not None and self.usual_s else None

    def pace(self, budget_s: float) -> Sequence[str]:
        """Return what is known of how far it is, the most important first."""
        if self.training is not None:
            return progress_words(self.training, budget_s)
        if self.elapsed_s is None:
            return []
        took = f"{self.elapsed_s:.0f} s"
        return [took if self.usual_s is None else f"{took} of about {max(self.usual_s, self.elapsed_s):.0f} s"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Hold where a night stands, and what is left of it."""

    now: NightSummary
    experiments_left: int | None  # None: no limit
    ends_s: float | None  # of the clock time.time(); None: no limit
    load: Load | None = None  # of several workers; None: the night has one

    @classmethod
    def of(cls, now: NightSummary, left: Left, load: Load | None = None) -> "Standing":
        return cls(now, left.experiments, None if left.seconds is None else time.time() + left.seconds, load)


def panel_lines(console: Console, budget_s: float, job: Job | None, standing: Standing | None) -> list[Text]:
    """Return the panel's lines, at most eight; each is shorter than the terminal is wide, and ends between words."""
    width = console.width - 1  # a terminal may break the line after a character in the last column
    lines = [] if job is None else [*_job_lines(console, budget_s, job, width)]
    lines += [] if standing is None else [_named_line(*line, width) for line in _standing_lines(standing)]
    return [Text(RULE * width, "dim"), *lines] if lines else []


def lines_of_several(
    console: Console, budget_s: float, jobs: Mapping[str, Job], workers: int, standing: Standing | None
) -> list[Text]:
    """Return the panel of a night with several workers: a line for each that works, as the terminal has room."""
    width = console.width - 1
    at_work = {name: jobs[name] for name in sorted(jobs.keys() - {NIGHT}, key=in_order)}
    lines = {} if standing is None else dict(_standing_lines(standing))
    load = None if standing is None else standing.load
    busy: list[str | Text] = [f"{len(at_work)} of {workers} busy"]
    busy += [f"{load.utilisation:.0%} of the night"] if load is not None and load.utilisation is not None else []
    if load is not None and load.experiments_an_hour:
        busy.append(f"{counted(round(load.experiments_an_hour), 'experiment')} an hour")
    cost = lines.pop("cost", None)
    lines |= {"workers": busy} | ({"cost": cost} if cost else {})
    asking = jobs.get(NIGHT)
    if asking is not None and asking.attempt is None:
        lines = {"ideas": [asking.title, *asking.pace(budget_s)]} | lines
    most = max(2, console.height - len(lines) - LEFT_FREE)
    few = list(at_work.items())[: most if len(at_work) <= most else most - 1]
    names = min(max([NAMES + 1, *(len(name) + 1 for name, _ in few)]), max(NAMES + 1, width // 3))
    drawn = [_worker_line(console, budget_s, f"{shortened(name, names - 1):<{names}}", job, width) for name, job in few]
    drawn += [Text(f"and {len(at_work) - len(few)} more", "dim")] if len(few) < len(at_work) else []
    named = [_named_line(name, parts, width, NAMES + 1) for name, parts in lines.items()]
    return [Text(RULE * width, "dim"), *drawn, *named]


def _job_lines(console: Console, budget_s: float, job: Job, width: int) -> Iterator[Text]:
    doing = f"{BETWEEN}{job.doing}" if job.doing else ""
    has_room = len(doing) < max(width // 2, width - cell_len(job.title))
    yield Text.assemble((shortened(job.title, width - len(doing) * has_room), "bold"), doing if has_room else "")
    if job.why and job.why not in job.title:
        yield Text(shortened(job.why, width), "italic")
    told = as_many_as_fit(job.pace(budget_s), width - SHORTEST_BAR - 1)
    columns = max(1, min(LONGEST_BAR, width - told.cell_len - 1))
    yield Text.assemble(_bar(console, job.fraction, columns), " ", told)


def _worker_line(console: Console, budget_s: float, name: str, job: Job, width: int) -> Text:
    """Return name, bar, how far it is, title and what it does, then as many further facts as leave the title room."""
    amount, *more = [*job.pace(budget_s), ""]
    bar = [_bar(console, job.fraction, WORKERS_BAR)] if width >= LEAST_WITH_BAR else []
    begins = Text.assemble((name, "dim"), *bar, f"{amount.partition(' of ')[0]:>{AMOUNT}}  ")
    room = width - begins.cell_len
    end = BETWEEN + job.doing if job.doing else ""
    if room - len(end) < min(LEAST_TITLE, len(job.title)) and len(end) > room // 2:
        end = ""
    for words in sorted(filter(None, more), key=lambda fact: not fact.startswith("loss")):
        least = LEAST_TITLE if words.startswith("loss") else FAIR_TITLE
        if end and room - len(end + BETWEEN + words) >= min(least, cell_len(job.title)):
            end += BETWEEN + words
    return Text.assemble(begins, (shortened(job.title, room - len(end)), "bold"), end)


def _bar(console: Console, fraction: float | None, columns: int) -> Text:
    """Draw a bar at this fraction, or a pulsing one if the end is not known."""
    total = None if fraction is None else 1.0
    drawn = ProgressBar(
        total=total, completed=fraction or 0.0, width=columns, pulse=fraction is None,
        complete_style=BAR, finished_style=BAR, pulse_style=BAR,
    )  # fmt: skip
    segments = console.render(drawn, console.options.update(width=columns))
    return Text.assemble(*((segment.text, segment.style or "") for segment in segments if not segment.control))


# ---- where the night stands ------------------------------------------------------------------------------------------


def _standing_lines(standing: Standing) -> Iterator[tuple[str, Sequence[str | Text]]]:
    """Yield name and parts of each line, the most important part first."""
    now = standing.now
    yield "best", _best_words(now)
    numbers = zip((now.kept, now.discarded, now.crashed), ("kept", "discarded", "crashed"), Status, strict=True)
    counts = [Text(f"{number} {word}", COLOURS[status] if number else "") for number, word, status in numbers]
    yield "so far", [*counts, *([f"σ {now.noise.sigma_bpb:.6f}"] if now.noise is not None else [])]
    left = [] if standing.experiments_left is None else [counted(standing.experiments_left, "experiment")]
    left += [] if standing.ends_s is None else [countdown(max(0.0, standing.ends_s - time.time()))]
    yield "left", left or ["no limit; it runs until it is stopped"]
    tokens = {
        name: [count for share in now.sources if (count := getattr(share, name)) is not None]
        for name in ("tokens_in", "tokens_out", "tokens_cached")
    }
    cached = f" ({sum(tokens['tokens_cached']):,} cached)" if sum(tokens["tokens_cached"]) else ""
    cost = [] if now.usd is None else [f"${now.usd:,.2f}"]
    cost += [f"{sum(tokens['tokens_in']):,} tokens in{cached}"] if tokens["tokens_in"] else []
    cost += [f"{sum(tokens['tokens_out']):,} out"] if tokens["tokens_out"] else []
    if cost:
        yield "cost", cost


def _best_words(now: NightSummary) -> Sequence[str | Text]:
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


def countdown(seconds: float) -> str:
    """Return the time that is left, in its two largest units."""
    minutes, rest_s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest_s} s" if minutes else f"{rest_s} s"


def _named_line(name: str, parts: Sequence[str | Text], width: int, names: int = NAMES) -> Text:
    return Text.assemble((f"{name:<{names}}", "dim"), as_many_as_fit(parts, width - names))


def as_many_as_fit(parts: Sequence[str | Text], columns: int) -> Text:
    """Join the first parts of a line, as many as fit into the columns; at least one, shortened if it has to be."""
    texts = [Text(part) if isinstance(part, str) else part for part in parts]
    widths = accumulate(len(BETWEEN) * (at > 0) + text.cell_len for at, text in enumerate(texts))
    count = sum(width <= columns for width in widths)
    if texts and not count:
        return Text(shortened(texts[0].plain, columns), texts[0].style)
    return Text(BETWEEN).join(texts[:count])
