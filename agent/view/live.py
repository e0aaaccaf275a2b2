"""The live view: verdicts that scroll, and below them a panel with what is at work and where its night stands.

`run` and `status --follow` draw the same: a night's journal is read again where something was committed since, and the
panel is a picture of what it says then. The journal stays open to read, without a transaction between two looks, so the
night is never kept waiting.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.text import Text

from agent.experiment import LOCAL, VOID, Attempt, Doing, Ending, Kind, Progress, Status, Work
from agent.judging.judges import choose_judge
from agent.proposers.briefing import Left
from agent.records.journal import Journal
from agent.records.place import run_folder
from agent.records.record import Record, of_journal
from agent.records.summary import NightSummary, summary_of
from agent.runs.outputs import read_progress
from agent.text import counted, duration, harmless_lines
from agent.view.screen import folded, shortened, shown
from agent.view.terminal import COLOURS, verdict
from agent.view.words import BETWEEN, gain_words, progress_words, within_one
from agent.view.workers import Load, in_order, load_of, runs_in_flight, workers_of_call

EARLIER = 3  # verdicts that are shown where somebody begins to follow
PLAIN_EVERY_S = 60.0
DRAWN_EVERY_S = 0.2  # a drawing takes a millisecond, which a run on a CPU would have used
ASKING, PREPARING = "asking", "preparing"  # what a night does beside the jobs of its workers
NAMES = 8  # columns: the longest name of a line, and a gap
SHORTEST_BAR, LONGEST_BAR, WORKERS_BAR, AMOUNT = 10, 40, 8, 5  # columns; of a number behind a worker's bar
LEAST_TITLE, LEAST_WITH_BAR = 24, 60  # columns that a worker's line leaves to a title; of a line with a bar
LEFT_FREE = 4  # lines of a terminal that the workers leave to verdicts
NEARLY = 0.99  # a bar that goes by an estimate waits there
ENDS_NOW = "the night ends now; what it was at is done again when it goes on"


# ---- what is at work -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """Hold what is done now, by a worker or by the night itself."""

    title: str
    doing: str  # such as run 2, seed 1
    why: str = ""
    training: Progress | None = None  # None: it does not train, or has told nothing yet
    elapsed_s: float | None = None  # None: not known
    usual_s: float | None = None  # how long the same took last time

    @property
    def fraction(self) -> float | None:
        """Return how much of it is done, 0 to 1; None where the end is not known."""
        if self.training is not None:
            return within_one(self.training.fraction)
        return min(NEARLY, self.elapsed_s / self.usual_s) if self.elapsed_s is not None and self.usual_s else None

    def pace(self, budget_s: float) -> list[str]:
        """Return what is known of how far it is, the most important first."""
        if self.training is not None:
            return progress_words(self.training, budget_s)
        if self.elapsed_s is None:
            return []
        about = f" of about {max(self.usual_s, self.elapsed_s):.0f} s" if self.usual_s else ""
        return [f"{self.elapsed_s:.0f} s{about}"]


@dataclass(frozen=True, slots=True)
class Moment:
    """Hold what a night is at, as its journal tells."""

    doing: str  # a Doing's word, ASKING or PREPARING
    attempt: int
    seed: int | None = None
    began: str | None = None  # ISO 8601, UTC; None where no time was noted

    @classmethod
    def read(cls, journal: Journal) -> "Moment":
        if work := journal.work():
            return cls(work[0].doing, work[0].attempt, work[0].seed, work[0].began)
        *_, attempts = journal.changes()
        return cls.after(journal.attempt(attempts - 1) if attempts else None)

    @classmethod
    def after(cls, last: Attempt | None) -> "Moment":
        """Return what a night does after its last attempt was begun, while no worker has a job."""
        if last is None:
            return cls(ASKING, 0)
        if last.decision is None:
            return cls(PREPARING, last.number, began=last.started)
        return cls(ASKING, last.number + 1, began=last.decisions[-1].at)


def seconds_since(began: str | None) -> float | None:
    """Return the seconds since a time of the journal; None where no time was noted."""
    if not began:
        return None
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(began)).total_seconds())


@dataclass(frozen=True, slots=True)
class Standing:
    """Hold where a night stands."""

    now: NightSummary
    workers: int = 1
    load: Load | None = None  # of several workers


# ---- the panel -------------------------------------------------------------------------------------------------------


def panel_lines(
    console: Console,
    budget_s: float,
    jobs: Mapping[str, Job],
    standing: Standing | None = None,
    left: Left | None = None,
) -> list[Text]:
    """Return the panel; each line is shorter than the terminal is wide, and ends between words.

    jobs: by worker. One job has three lines, several have one each, as many as the terminal has room for.
    """
    width = console.width - 1  # a terminal may break the line after a character in the last column
    named = (
        [] if standing is None else [_named_line(*line, width) for line in _standing_lines(standing, left, len(jobs))]
    )
    if len(jobs) == 1 and (standing is None or standing.workers == 1):
        drawn = list(_job_lines(console, budget_s, next(iter(jobs.values())), width))
    else:
        most = max(2, console.height - len(named) - LEFT_FREE)
        few = sorted(jobs, key=in_order)[: most if len(jobs) <= most else most - 1]
        names = min(max([NAMES, *(len(name) + 1 for name in few)]), max(NAMES, width // 3))
        cells = {name: f"{shortened(name, names - 1):<{names}}" for name in few}
        drawn = [_worker_line(console, budget_s, cells[name], jobs[name], width) for name in few]
        drawn += [Text(f"and {len(jobs) - len(few)} more", "dim")] if len(few) < len(jobs) else []
    return [Text("─" * width, "dim"), *drawn, *named] if drawn or named else []


def _job_lines(console: Console, budget_s: float, job: Job, width: int) -> Iterator[Text]:
    doing = f"{BETWEEN}{job.doing}" if job.doing else ""
    has_room = len(doing) < max(width // 2, width - cell_len(job.title))
    yield Text.assemble((shortened(job.title, width - len(doing) * has_room), "bold"), doing if has_room else "")
    if job.why and job.why not in job.title:
        yield Text(shortened(job.why, width), "italic")
    pace = as_many_as_fit(job.pace(budget_s), width - SHORTEST_BAR - 1)
    yield Text.assemble(_bar(console, job.fraction, max(1, min(LONGEST_BAR, width - pace.cell_len - 1))), " ", pace)


def _worker_line(console: Console, budget_s: float, name: str, job: Job, width: int) -> Text:
    """Return name, bar, how far it is, title, what it does and its loss, as far as there is room."""
    amount, *more = [*job.pace(budget_s), ""]
    bar = [_bar(console, job.fraction, WORKERS_BAR)] if width >= LEAST_WITH_BAR else []
    begins = Text.assemble((name, "dim"), *bar, f"{amount.partition(' of ')[0]:>{AMOUNT}}  ")
    room = width - begins.cell_len
    end = ""
    for words in (job.doing, *(fact for fact in more if fact.startswith("loss"))):
        least = min(LEAST_TITLE, cell_len(job.title))
        end += BETWEEN + words if words and room - len(end + BETWEEN + words) >= least else ""
    return Text.assemble(begins, (shortened(job.title, room - len(end)), "bold"), end)


def _bar(console: Console, fraction: float | None, columns: int) -> Text:
    """Draw a bar at this fraction, or a pulsing one if the end is not known."""
    look = dict.fromkeys(("complete_style", "finished_style", "pulse_style"), "cyan")  # red is the colour of crashes
    total = None if fraction is None else 1.0
    drawn = ProgressBar(total=total, completed=fraction or 0.0, width=columns, pulse=fraction is None, **look)  # type: ignore[arg-type]
    segments = console.render(drawn, console.options.update(width=columns))
    return Text.assemble(*((segment.text, segment.style or "") for segment in segments if not segment.control))


def _standing_lines(standing: Standing, left: Left | None, at_work: int) -> Iterator[tuple[str, Sequence[str | Text]]]:
    """Yield name and parts of each line, the most important part first."""
    now, load = standing.now, standing.load
    yield "best", _best_words(now)
    numbers = zip((now.kept, now.discarded, now.crashed), ("kept", "discarded", "crashed"), Status, strict=True)
    counts = [Text(f"{number} {word}", COLOURS[status] if number else "") for number, word, status in numbers]
    yield "so far", [*counts, *([f"σ {now.noise.sigma_bpb:.6f}"] if now.noise is not None else [])]
    limits = [] if left is None or left.experiments is None else [counted(left.experiments, "experiment")]
    limits += [] if left is None or left.seconds is None else [duration(left.seconds / 3600)]
    yield "left", limits or ["no limit; it runs until it is stopped"]
    if standing.workers > 1:
        busy: list[str | Text] = [f"{at_work} of {standing.workers} busy"]
        busy += [f"{load.utilisation:.0%} of the night"] if load is not None and load.utilisation is not None else []
        if load is not None and load.experiments_an_hour:
            busy.append(f"{counted(round(load.experiments_an_hour), 'experiment')} an hour")
        yield "workers", busy
    tokens = [(share.tokens_in or 0, share.tokens_cached or 0, share.tokens_out or 0) for share in now.sources]
    read, cached, written = map(sum, zip(*tokens, strict=True)) if tokens else (0, 0, 0)
    cost = [] if now.usd is None else [f"${now.usd:,.2f}"]
    cost += [f"{read:,} tokens in{f' ({cached:,} cached)' if cached else ''}"] if read else []
    cost += [f"{written:,} out"] if written else []
    if cost:
        yield "cost", cost


def _best_words(now: NightSummary) -> Sequence[str | Text]:
    best, baseline, gain = now.best, now.baseline, now.gain
    if best is None or baseline is None:
        return ["the baseline is measured first"]
    score = f"#{best.number} val_bpb {best.val_bpb:.6f}"
    if gain is None:
        return [score, "the baseline"]
    difference = Text(gain_words(now), "green" if gain.low_bpb > 0 else "")
    return [score, difference, f"baseline {baseline.val_bpb:.6f}", shown(best.title)]


def _named_line(name: str, parts: Sequence[str | Text], width: int) -> Text:
    return Text.assemble((f"{name:<{NAMES}}", "dim"), as_many_as_fit(parts, width - NAMES))


def as_many_as_fit(parts: Sequence[str | Text], columns: int) -> Text:
    """Join the first parts of a line, as many as fit into the columns; at least one, shortened if it has to be."""
    texts = [Text(part) if isinstance(part, str) else part for part in parts]
    widths = accumulate(len(BETWEEN) * (at > 0) + text.cell_len for at, text in enumerate(texts))
    count = sum(width <= columns for width in widths)
    if texts and not count:
        return Text(shortened(texts[0].plain, columns), texts[0].style)
    return Text(BETWEEN).join(texts[:count])


# ---- the screen ------------------------------------------------------------------------------------------------------


class Screen:
    """Draw a panel below lines that scroll on a terminal; elsewhere print a plain line now and then."""

    def __init__(self, console: Console, budget_s: float) -> None:
        self._console, self._budget_s = console, budget_s
        self._panel = PinnedLines(console) if console.is_terminal and not console.is_dumb_terminal else None
        self._jobs: dict[str, Job] = {}  # by worker
        self._said_s: dict[str, float] = {}  # worker → the seconds of its job when a log was last told of it
        self._pinned: list[Text] = []
        self._drawn_at_s = 0.0

    def said(self, sentence: str) -> None:
        """Print a sentence that scrolls."""
        self.print([Text(line) for line in harmless_lines(sentence).split("\n")])

    def print(self, lines: Sequence[Text]) -> None:
        """Print lines that scroll."""
        if self._panel is None:
            for line in lines:
                self._console.print(line, highlight=False, soft_wrap=True)
            return
        width = self._console.width
        self._panel.print_above([part for line in lines for part in folded(line, width)], self._pinned)

    def show(self, jobs: Mapping[str, Job], standing: Standing | None = None, left: Left | None = None) -> None:
        """Show what is at work, and where the night stands."""
        before, self._jobs = self._jobs, dict(jobs)
        began = [
            worker for worker, job in jobs.items()
            if worker not in before or (job.title, job.doing) != (before[worker].title, before[worker].doing)
        ]  # fmt: skip
        if self._panel is None:
            self._log(began)
        elif began or before.keys() != jobs.keys() or time.monotonic() - self._drawn_at_s >= DRAWN_EVERY_S:
            self._drawn_at_s = time.monotonic()
            self._pinned = panel_lines(self._console, self._budget_s, jobs, standing, left)
            self._panel.show(self._pinned)

    def _log(self, began: Sequence[str]) -> None:
        """Tell a log of jobs that began, and once a minute how far each is."""
        for worker, job in self._jobs.items():
            whose = f"{worker} · " if len(self._jobs) > 1 else ""
            if worker in began:
                self._said_s[worker] = 0.0
            if worker in began and job.doing.startswith(("run", "calibration", "dawn")):
                self.said(f"{whose}{job.title} · {job.doing}")
            elif job.elapsed_s is not None and job.elapsed_s - self._said_s[worker] >= PLAIN_EVERY_S:
                self._said_s[worker] = job.elapsed_s
                pace = job.pace(self._budget_s)
                self.said(f"   {whose}{BETWEEN.join(pace if job.training else [job.doing or job.title, *pace])}")

    def close(self) -> None:
        """Remove the panel; what is said later stands where it was."""
        self._jobs, self._pinned = {}, []
        if self._panel is not None:
            self._panel.close()


class RunScreen(Screen):
    """Show one run that no night has."""

    def begin(self, title: str, doing: str) -> None:
        self._job = Job(title, doing)
        self.show({LOCAL: self._job})

    def progressed(self, point: Progress | None, elapsed_s: float) -> None:
        if point is not None and point.is_scoring:
            point, self._job = None, replace(self._job, doing=Doing.SCORING)
        self.show({LOCAL: replace(self._job, training=point, elapsed_s=elapsed_s)})


class NightScreen(Screen):
    """Show a night by its journal, each time that something was committed to it."""

    def __init__(
        self,
        console: Console,
        folder: Path,
        left: Callable[[int], Left],
        stopping: Callable[[], bool],
        stopping_now: Callable[[], bool],
        *,
        is_own: bool = True,
        for_author: bool = False,
    ) -> None:
        """Open the journal in the night's folder.

        left: what is left of the night, by its ideas without attempt 0. is_own: Ctrl-C here ends it. for_author: the
        reader makes edits, and may not read words of a scoring process.
        """
        self._folder, self._journal = folder, Journal.read(folder / "journal.sqlite")
        night = self._journal.night()
        super().__init__(console, night.budget_s)
        self._left, self._stopping, self._stopping_now = left, stopping, stopping_now
        self._is_own, self._for_author = is_own, for_author
        self._workers = workers_of_call(self._journal)
        calibration = choose_judge(night.terms.judge, night.terms.confirm).calibration
        # where workers are several, one run alone, and at least one on each beside the others
        self._calibration = calibration if self._workers == 1 else max(calibration, 1 + self._workers)
        self._is_stop_said = False
        self._version: int | None = None  # of the journal at the last look
        self._changes: tuple[int, ...] = ()
        self._work: tuple[Work, ...] = ()
        self._record = of_journal(self._journal)
        self._standing: Standing | None = None
        decided = sorted(attempt.decisions[-1].id for attempt in self._record.attempts if attempt.decisions)
        self._decision = decided[-1] if decided and is_own else decided[-EARLIER - 1] if len(decided) > EARLIER else 0
        self._told: dict[str, tuple[Progress | None, float]] = {}  # worker → how far it is, by its pool
        self._looked_at_s = 0.0

    # ---- what the driver of a night tells ----------------------------------------------------------------------------

    def work_began(self, attempt: Attempt, work: Work) -> None:
        self.look()

    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None:
        self.look()

    def progressed(self, progress: Progress | None, elapsed_s: float, worker: str = LOCAL) -> None:
        self._told[worker] = progress, elapsed_s
        self.look()

    # ---- looks -------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Show what is new; raise NightError where the journal was removed."""
        version = self._journal.data_version()
        if version == self._version and time.monotonic() - self._looked_at_s < DRAWN_EVERY_S:
            return
        self._journal.check_in_place()
        self._looked_at_s = time.monotonic()
        if version != self._version:
            self._version = version
            before, self._work, changes = self._work, self._journal.work(), self._journal.changes()
            for ended in {*before} - {*self._work}:
                self._told.pop(ended.worker, None)
            if changes != self._changes:
                self._changes, self._record = changes, of_journal(self._journal)
                record, workers = self._record, max(self._workers, len(self._work))
                load = load_of(record, time.time()) if workers > 1 else None
                self._standing = Standing(summary_of(record), workers, load)
                self._print_verdicts()
        if self._stopping() and not self._is_stop_said:
            self._is_stop_said = True
            again = f"; Ctrl-C again ends {'the run' if self._workers == 1 else 'them'} too" if self._is_own else ""
            ends = f"the night ends after {runs_in_flight(self._workers)}{again}"
            self.said(ENDS_NOW if self._stopping_now() else ends)
        self.show(dict(self._at_work()), self._standing, self._left(len(self._record.ideas)))

    def close(self) -> None:
        super().close()
        self._journal.__exit__()

    def _print_verdicts(self) -> None:
        since, record = self._decision, self._record
        decided = [attempt for attempt in record.attempts if attempt.decisions and attempt.decisions[-1].id > since]
        for attempt in sorted(decided, key=lambda one: one.decisions[-1].id):
            self._decision = attempt.decisions[-1].id
            if _is_verdict(attempt, since):
                self.print([verdict(attempt, record.parent(attempt), for_author=self._for_author)])

    def _at_work(self) -> Iterator[tuple[str, Job]]:
        """Yield each worker with its job; the night itself, where no worker has one."""
        record = self._record
        for work in self._work:
            attempt = record.attempts[work.attempt]
            point, elapsed_s = self._told.get(work.worker, (None, seconds_since(work.began)))
            if work.doing is Doing.TRAINING and work.seed is not None and point is None:
                point = read_progress(run_folder(self._folder, work.attempt, work.seed) / "out")
            doing = self._which_run(attempt, work) if work.doing is Doing.TRAINING else str(work.doing)
            title, why = f"#{attempt.number} {shown(attempt.title)}", shown(attempt.proposal.hypothesis)
            trains = point if work.doing is Doing.TRAINING else None
            yield work.worker, Job(title, doing, why, trains, elapsed_s, _usual_s(record, work.doing))
        if not self._work:
            now = Moment.after(record.attempts[-1] if record.attempts else None)
            title = f"#{now.attempt} asking for an idea"
            if now.doing == PREPARING:
                title = f"#{now.attempt} {shown(record.attempts[now.attempt].title)}"
            # not since its last verdict, where the night rested between two calls
            began = now.began and max([now.began, *(call.began for call in record.calls[-1:])])
            yield "", Job(title, "", elapsed_s=seconds_since(began))

    def _which_run(self, attempt: Attempt, work: Work) -> str:
        runs = [run for run in attempt.runs if run.ending is Ending.RUNNING or run.ending not in VOID]
        if work.dawn:
            every = (run for one in self._record.attempts for run in one.runs)
            made = sum(run.dawn == work.dawn and run.ending not in VOID for run in every)
            return f"dawn run {made + 1}, seed {work.seed}"
        number = next((at for at, run in enumerate(runs, 1) if run.seed == work.seed), len(runs) + 1)
        if attempt.number == 0 and not attempt.settled and number <= self._calibration > 1:
            return f"calibration run {number} of {self._calibration}, seed {work.seed}"
        return f"run {number}, seed {work.seed}"


def _is_verdict(attempt: Attempt, since: int) -> bool:
    """Return whether the decisions after this one changed what an attempt is: dawn only adds words to some."""
    if attempt.status is None or attempt.kind is Kind.QUESTION:
        return False
    kinds = [entry.decision.kind for entry in attempt.decisions if entry.id <= since]
    return not kinds or kinds[-1] is not attempt.kind


def _usual_s(record: Record, doing: Doing) -> float | None:
    """Return how long the latest dry run, scoring or audit took; they take about as long each time."""
    for attempt in reversed(record.attempts):
        if doing is Doing.REHEARSING and attempt.dry_run is not None:
            return attempt.dry_run.wall_s
        for score in (run.score for run in attempt.runs if run.score is not None):
            if doing is Doing.SCORING:
                return score.wall_s
            if doing is Doing.AUDITING and score.audit is not None:
                return score.audit.wall_s
    return None


# ---- lines that stay -------------------------------------------------------------------------------------------------

CLEAR_BELOW, CLEAR_REST_OF_LINE = "\x1b[J", "\x1b[K"
CUT_LONG_LINES, WRAP_LONG_LINES = "\x1b[?7l", "\x1b[?7h"  # a terminal may have changed its size a moment ago
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class PinnedLines:
    """Draw lines below everything printed so far; nothing but these methods may write to the console meanwhile.

    After each drawing the cursor goes back to the first of them. So the next drawing overwrites them, as does a line
    that scrolls or another process's message, also after the terminal was made narrower or wider and has broken the
    lines in another way. Where the way back is by the number of lines, as in rich.live.Live, some of them would stay.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._drawn = ""

    def show(self, lines: Sequence[Text]) -> None:
        """Draw these lines in place of those shown before; a low terminal shows the first of them."""
        drawing = self._drawing(lines)
        if drawing != self._drawn:
            self._drawn = drawing
            self._write(f"{HIDE_CURSOR}{drawing}" if drawing else f"\r{CLEAR_BELOW}")

    def print_above(self, lines: Sequence[Text], pinned: Sequence[Text]) -> None:
        """Print lines that scroll, and draw the pinned ones below them."""
        self._drawn = self._drawing(pinned)
        printed = "".join(f"{self._rendered(line)}\n" for line in lines)
        self._write(f"\r{CLEAR_BELOW}{printed}{self._drawn}")

    def close(self) -> None:
        """Remove the pinned lines."""
        if self._drawn:
            self._drawn = ""
            self._write(f"\r{CLEAR_BELOW}{SHOW_CURSOR}")

    def _drawing(self, lines: Sequence[Text]) -> str:
        if not lines:
            return ""
        fitting = lines[: max(1, self._console.height - 1)]
        back = f"\x1b[{len(fitting) - 1}A" if len(fitting) > 1 else ""
        drawn = f"{CLEAR_REST_OF_LINE}\n".join(map(self._rendered, fitting))
        return f"{CUT_LONG_LINES}\r{drawn}{CLEAR_BELOW}{back}\r{WRAP_LONG_LINES}"

    def _rendered(self, line: Text) -> str:
        with self._console.capture() as rendering:
            self._console.print(line, end="", soft_wrap=True, highlight=False)
        return rendering.get()

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()
