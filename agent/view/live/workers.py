"""The lines of the workers in the live panel: one for each that works, where a night has several."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from agent.experiment import Progress
from agent.text import counted
from agent.view.facts.load import Load, in_order
from agent.view.live.at_work import AtWork, bar, fraction, pace_words
from agent.view.live.columns import BETWEEN, shortened

NAMES = 8  # columns: the longest name of a line beside those of workers, and a gap
BAR, AMOUNT, GAP = 8, 5, "  "  # columns of a bar, and of a number behind it
LEAST_TITLE, FAIR_TITLE = 24, 48  # columns that are left to a title by the loss, and by further facts
LEAST_WITH_BAR = 60  # columns: a narrower terminal has no bars


class Workers:
    """Hold what each worker of a night does now."""

    def __init__(self, meant: int = 1) -> None:
        self._meant = meant  # how many there will be, as far as that is known before each has had a job
        self._jobs: dict[str, AtWork | None] = {}  # None: it has none now

    @property
    def are_several(self) -> bool:
        return self.count > 1

    @property
    def count(self) -> int:
        return max(self._meant, len(self._jobs))

    @property
    def at_work(self) -> Mapping[str, AtWork]:
        """Return the name of each worker with a job, in people's order → its job."""
        jobs = {name: job for name, job in self._jobs.items() if job is not None}
        return {name: jobs[name] for name in sorted(jobs, key=in_order)}

    def job_of(self, worker: str) -> AtWork | None:
        return self._jobs.get(worker)

    def training(self, attempt: int) -> int:
        """Return how many runs of an attempt are going on."""
        return sum(job is not None and job.attempt == attempt and job.seed is not None for job in self._jobs.values())

    def begin(self, worker: str, job: AtWork) -> None:
        self._jobs[worker] = job

    def note(self, worker: str, progress: Progress | None, elapsed_s: float | None) -> None:
        """Note how far a worker is; one that has no job is left alone."""
        job = self._jobs.get(worker)
        if job is not None:
            self._jobs[worker] = replace(job, training=progress, elapsed_s=elapsed_s)

    def rest(self, worker: str) -> None:
        self._jobs[worker] = None


def worker_lines(
    console: Console, budget_s: float, at_work: Mapping[str, AtWork], width: int, most: int
) -> Iterator[Text]:
    """Yield a line for each worker that works; where they are more than so many lines, the rest are counted."""
    few = list(at_work.items())[: most if len(at_work) <= most else most - 1]
    names = max([NAMES, *(len(name) + 1 for name, _ in few)])
    names = min(names, max(NAMES, width // 3))
    for name, job in few:
        yield _line(console, budget_s, Text(f"{shortened(name, names - 1):<{names}}", "dim"), job, width)
    if len(few) < len(at_work):
        yield Text(f"and {len(at_work) - len(few)} more", "dim")


def _line(console: Console, budget_s: float, name: Text, job: AtWork, width: int) -> Text:
    """Return name, bar, how far it is, title and what it does, then as many further facts as leave the title room."""
    parts = [name, *([bar(console, fraction(job), BAR)] if width >= LEAST_WITH_BAR else [])]
    amount, *more = [*pace_words(job, budget_s), ""]
    parts.append(Text(f"{amount.partition(' of ')[0]:>{AMOUNT}}{GAP}"))
    room = width - sum(part.cell_len for part in parts)
    end = BETWEEN + job.doing if job.doing else ""
    if room - len(end) < min(LEAST_TITLE, len(job.title)) and len(end) > room // 2:
        end = ""
    for words in sorted(filter(None, more), key=lambda one: not one.startswith("loss")):
        least = LEAST_TITLE if words.startswith("loss") else FAIR_TITLE
        if end and room - len(end + BETWEEN + words) >= min(least, cell_len(job.title)):
            end += BETWEEN + words
    return Text.assemble(*parts, (shortened(job.title, room - len(end)), "bold"), end)


def load_words(busy: int, workers: Workers, load: Load | None) -> list[str]:
    """Return how many workers are busy, how busy they were, and how many experiments an hour that made."""
    words = [f"{busy} of {workers.count} busy"]
    if load is not None and load.utilisation is not None:
        words.append(f"{load.utilisation:.0%} of the night")
    if load is not None and load.experiments_an_hour:
        words.append(f"{counted(round(load.experiments_an_hour), 'experiment')} an hour")
    return words
