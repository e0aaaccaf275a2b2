"""Show a night live: verdicts that scroll, and below them a panel with what is at work and where the night stands.

`run` and `status --follow` draw the same: a night's journal is read again where something was committed since, and the
panel is a picture of what it says then. The journal stays open to read, without a transaction between two refreshes, so
the night is never kept waiting.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from agent.experiment import TITLE_CHARS, Attempt, Kind, Status
from agent.proposers.proposer import Left
from agent.records.journal import Journal
from agent.records.record import Record, of_journal
from agent.records.summary import NightSummary, summary_of
from agent.text import harmless_lines, one_line
from agent.view.answer import in_order
from agent.view.run_files import before_training, training_progress
from agent.view.screen import folded
from agent.view.terminal import COLOURS, verdict_line
from agent.view.words import BETWEEN, Form, doing_words, left_words, pace_words, within_one
from agent.work import LOCAL, Doing, Progress, Work

EARLIER = 3  # as many verdicts are shown where somebody begins to follow a night
DRAWN_EVERY_S = 0.5  # a drawing takes some milliseconds, which a run on a CPU would have used
RESTS = 10  # after reading a changed journal, it rests this many times as long: a long night takes a while to read
LONGEST_BAR = 40  # columns


# ---- the panel -------------------------------------------------------------------------------------------------------

Fact = str | tuple[str, str]  # words, or words with their style


def panel(now: NightSummary, left: Left, jobs: Iterable[RenderableType], clock: str = "") -> RenderableType:
    """Draw where a night stands, and below it what is at work. A low terminal shows the first lines."""
    names = Table.grid(Column(no_wrap=True, style="dim"), Column(), padding=(0, 2, 0, 0))
    for name, facts in _standing(now, left):
        names.add_row(name, _line(*facts))
    return Group(Rule(clock, style="dim"), names, *jobs)


def job(facts: Sequence[Fact], point: Progress | None, pace: Sequence[str]) -> RenderableType:
    """Draw what is done now, by a worker or by the night itself; point: of a training that has told how far it is."""
    bar = Table.grid(Column(max_width=LONGEST_BAR), Column(no_wrap=True), padding=(0, 1, 0, 0))
    bar.add_row(_bar(point), BETWEEN.join(pace))
    return Group(_line(*facts), bar)


def _line(*facts: Fact) -> Text:
    """Return facts in a line, which is cut where a terminal is narrow."""
    parts = [part for fact in facts for part in (BETWEEN, fact)]
    return Text.assemble(*parts[1:], no_wrap=True, overflow="ellipsis")


def _bar(point: Progress | None) -> ProgressBar:
    """Return a bar, or a pulsing one if the end is not known."""
    styles = dict.fromkeys(("complete_style", "finished_style", "pulse_style"), "cyan")  # red is the colour of crashes
    if point is None:
        return ProgressBar(total=None, pulse=True, **styles)  # type: ignore[arg-type]
    return ProgressBar(total=1.0, completed=within_one(point.fraction), **styles)  # type: ignore[arg-type]


def _standing(now: NightSummary, left: Left) -> Iterator[tuple[str, Sequence[Fact]]]:
    """Yield name and facts of each line, the most important fact first."""
    best, gain, form = now.best, now.gain, Form.of(now.night)
    if now.confirmation is not None and best is not None and best.number == now.confirmation.best:
        gain = now.confirmation.honest or gain  # the confirmation has measured this with fresh seeds
    if best is None or now.baseline is None:
        yield "best", ["the baseline is measured first"]
    else:
        beside: list[Fact] = ["the baseline"]
        if gain is not None:
            beside = [
                (f"gain {form.interval(gain)}", "green" if gain.low_bpb > 0 else ""),
                one_line(best.title, TITLE_CHARS),
            ]
        yield "best", [f"#{best.number} {now.night.metric} {form.number(best.val_bpb)}", *beside]
    numbers = zip((now.kept, now.discarded, now.crashed), ("kept", "discarded", "crashed"), Status, strict=True)
    counts = [(f"{number} {word}", COLOURS[status] if number else "") for number, word, status in numbers]
    yield "so far", [*counts, *([] if now.usd is None else [f"${now.usd:,.2f}"])]
    if limits := left_words(left):  # without one, a night, a confirmation and a queue end at different points
        yield "left", limits


# ---- the screen ------------------------------------------------------------------------------------------------------


class Told(Protocol):
    """Tell a screen what happens in a night."""

    @property
    def clock(self) -> str:
        """Return the time in a night that is past; "" for one that runs."""

    def version(self) -> int:
        """Return a number that differs where there is more to read; raise NightError where none can come."""

    def read(self) -> tuple[Sequence[Work], Record]:
        """Return what the workers do, and the night so far."""

    def close(self) -> None: ...


class JournalTold:
    """Tell what the journal in a night's folder says now."""

    clock = ""

    def __init__(self, folder: Path) -> None:
        self._journal = Journal.read(folder / "journal.sqlite")

    def version(self) -> int:
        self._journal.check_in_place()
        return self._journal.data_version()

    def read(self) -> tuple[Sequence[Work], Record]:
        return self._journal.work(), of_journal(self._journal)

    def close(self) -> None:
        self._journal.__exit__()


class NightScreen:
    """Show a night by its journal, each time that something was committed to it, or one that is past.

    A terminal gets a panel below lines that scroll; a pipe gets a plain line for each training that begins.
    """

    def __init__(
        self,
        console: Console,
        folder: Path,
        left: Callable[[int], Left],
        stopping: Callable[[], bool],
        stopping_now: Callable[[], bool],
        *,
        is_own: bool = True,
        past: Told | None = None,
    ) -> None:
        """Open the journal in the night's folder, unless the night is past.

        left: what is left of the night, by its ideas without attempt 0. is_own: Ctrl-C here ends it.
        """
        self._console, self._folder, self._told = console, folder, past or JournalTold(folder)
        self._live: Live | None = None
        if console.is_interactive:
            self._live = Live(
                console=console, auto_refresh=False, transient=True, vertical_overflow="crop",
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
        self._left, self._stopping, self._stopping_now = left, stopping, stopping_now
        self._is_own, self._is_stop_said = is_own, False
        self._version: int | None = None  # version of what was told at the last refresh
        self._refreshed_s = self._rests_until_s = 0.0
        (self._work, self._record), self._begun = self._told.read(), set[Work]()
        self._now = summary_of(self._record)
        decided = sorted(attempt.decisions[-1].id for attempt in self._record.attempts if attempt.decisions)
        self._decision = max([0, *(decided if is_own else decided[:-EARLIER])])  # the last decision that was printed
        self._progress: dict[str, Progress | None] = {}  # worker → how far it is, by its pool

    def said(self, sentence: str) -> None:
        """Print a sentence that scrolls."""
        self._print([Text(line) for line in harmless_lines(sentence).split("\n")])

    def _print(self, lines: Sequence[Text]) -> None:
        for line in lines:
            for part in [line] if self._live is None else folded(line, self._console.width):
                self._console.print(part, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the panel; what is said later stands where it was."""
        if self._live is not None:
            self._live.stop()
        self._told.close()

    # ---- what the driver of a night tells ----------------------------------------------------------------------------

    def work_began(self, attempt: Attempt, work: Work) -> None:
        self.refresh()

    def attempt_settled(self, attempt: Attempt) -> None:
        self._rests_until_s = 0.0
        self.refresh()

    def progressed(self, progress: Progress | None, worker: str = LOCAL) -> None:
        self._progress[worker] = progress
        self.refresh()

    # ---- refreshing --------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Show what is new; raise NightError where the journal was removed."""
        version, now_s = self._told.version(), time.monotonic()
        if now_s < self._rests_until_s or (version == self._version and now_s - self._refreshed_s < DRAWN_EVERY_S):
            return
        self._refreshed_s = now_s
        if version != self._version:
            self._version = version
            self._progress.clear()
            self._work, self._record = self._told.read()
            self._now = summary_of(self._record)
            self._print_verdicts()
            if not self._told.clock:
                self._rests_until_s = now_s + RESTS * (time.monotonic() - now_s)
        if self._stopping() and not self._is_stop_said:
            self._is_stop_said = True
            again = "; Ctrl-C again ends it at once" if self._is_own else ""
            self.said(
                "the night ends now; what it was at is done again when it goes on"
                if self._stopping_now()
                else f"the night ends after what runs now{again}"
            )
        if self._live is not None:
            self._live.start()
            left = self._left(len(self._record.ideas))
            self._live.update(panel(self._now, left, self._jobs(), self._told.clock), refresh=True)
        else:
            self._print_beginnings()

    def _print_verdicts(self) -> None:
        since, record = self._decision, self._record
        decided = [attempt for attempt in record.attempts if attempt.decisions and attempt.decisions[-1].id > since]
        for attempt in sorted(decided, key=lambda attempt: attempt.decisions[-1].id):
            last = attempt.decisions[-1]
            self._decision = last.id
            if _is_verdict(attempt, since):
                self._print([Text(self._when(last.at)) + verdict_line(record, attempt)])

    def _print_beginnings(self) -> None:
        """Print a line for each training that has begun since the last refresh."""
        for work in self._work:
            if work.doing is Doing.TRAINING and work not in self._begun:
                whose = [work.worker] if len(self._work) > 1 else []
                words = [*whose, _title(self._record.attempts[work.attempt]), doing_words(work)]
                self.said(self._when(work.began) + BETWEEN.join(words))
        self._begun |= set(self._work)

    def _when(self, at: str | None) -> str:
        """Return the beginning of a line: hours and minutes, in a night that is past."""
        return f"{at[11:16]}{BETWEEN}" if at and self._told.clock else ""

    def _pace(self, point: Progress | None, since: str | None, what: str | None = None) -> list[str]:
        """Return how far something is; what it does before that, and for how long, is told of a night that runs."""
        is_past = bool(self._told.clock)
        return pace_words(point, self._record.budget_s, None if is_past else since, None if is_past else what)

    def _jobs(self) -> Iterator[RenderableType]:
        """Draw the job of each worker; where none has one, what the night itself does."""
        record = self._record
        for work in sorted(self._work, key=lambda work: in_order(work.worker)):
            whose = [(one_line(work.worker, TITLE_CHARS), "dim")] if len(self._work) > 1 else []
            title = _title(record.attempts[work.attempt]), "bold"
            point, what = self._progress.get(work.worker), None
            if not self._told.clock:  # of a night that is past, the files say how its runs ended
                point = training_progress(self._folder, work, point)
                what = before_training(self._folder, work)
            pace = self._pace(point, work.began, what)
            yield job([*whose, doing_words(work), title], point, pace)
        if not self._work:
            what, since = _between_runs(record)
            yield job([(what, "bold")], None, self._pace(None, since))


def _between_runs(record: Record) -> tuple[str, str | None]:
    """Return what a night does while no worker has a job, and since when: it prepares an attempt, or asks for one."""
    last = record.attempts[-1] if record.attempts else None
    if last is not None and last.decision is None:
        return _title(last), last.started
    # its last verdict would be too early a moment, where the night rested between two calls
    times = (record.night.called, last.decisions[-1].at if last is not None else None)
    return f"#{len(record.attempts)} asking for an idea", max(filter(None, times), default=None)


def _title(attempt: Attempt) -> str:
    return f"#{attempt.number} {one_line(attempt.title, TITLE_CHARS)}"


def _is_verdict(attempt: Attempt, since: int) -> bool:
    """Return whether the decisions after this one changed what an attempt is: a confirmation adds words alone."""
    if attempt.status is None or attempt.kind is Kind.QUESTION:
        return False
    kinds = [decision.kind for decision in attempt.decisions if decision.id <= since]
    return not kinds or kinds[-1] is not attempt.kind
