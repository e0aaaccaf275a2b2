"""What the person in front of a terminal, or the reader of a log, sees while a night goes on."""

import os
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, TextIO, cast

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

from agent.experiment import NOT_BELIEVED, Attempt, Kind, Status
from agent.experiment import Progress as Point
from agent.text import harmless, harmless_lines, shorten, shown_difference

COLOURS = {Status.KEEP: "green", Status.DISCARD: "bright_black", Status.CRASH: "red"}
PLAIN_EVERY_S = 60.0
BESIDE_TITLE, SHORT_TITLE = 92, 20  # columns: what bar and progress take, and what a title has at least
ABSURD = 1e9  # no step, loss or speed is as large
# whose reasons are shown
TELLING = NOT_BELIEVED | {Kind.IGNORES_SEED, Kind.STOPPED_EARLY, Kind.PROVISIONAL, Kind.TOO_SLOW}


class Screen:
    """A progress bar on a terminal, a plain line now and then elsewhere; one verdict line per attempt on both."""

    def __init__(self, console: Console, budget_s: float, stopping: Callable[[], bool] = lambda: False) -> None:
        self._console = console
        self._budget_s = budget_s
        self._stopping = stopping  # has somebody asked the night to end?
        self._told_of_stop = False
        self._waiting_for = "starting"
        self._said_s = 0.0
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def asking_began(self, number: int) -> None:
        self._waiting_for = "asking for an idea"
        self._start(f"#{number}", "asking for an idea")

    def attempt_began(self, attempt: Attempt) -> None:
        again = ", another seed" if attempt.settled and attempt.counted_runs else ""
        title = harmless(f"#{attempt.number} {attempt.proposal.title}{again}")
        if not self._console.is_terminal:
            self.said(title)
        self._start(title, "committing")

    def _start(self, title: str, now: str) -> None:
        self.close()
        if not self._console.is_terminal:
            return
        width = max(SHORT_TITLE, self._console.width - BESIDE_TITLE)
        columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[now]}")
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(escape(shorten(title, width)), total=None, now=now)
        self._bar.start()

    def dry_run_began(self, attempt: Attempt) -> None:
        self._waiting_for = "dry run"
        self._show(None, "dry run")

    def run_began(self, attempt: Attempt, seed: int) -> None:
        self._said_s = 0.0
        self._waiting_for = "starting"
        self._show(None, f"seed {seed}: starting")
        if attempt.done_runs and not attempt.settled and not self._console.is_terminal:
            self.said(f"   run {len(attempt.done_runs) + 1}, seed {seed}")  # why a log begins again at 0%

    def progressed(self, point: Point | None, elapsed_s: float) -> None:
        self._acknowledge_stop()
        if point is None:
            self._show(None, f"{self._waiting_for} · {elapsed_s:.0f} s")
        else:
            self._show(_within_one(point.fraction), describe(point, self._budget_s))
        if not self._console.is_terminal and point is not None and elapsed_s - self._said_s >= PLAIN_EVERY_S:
            self._said_s = elapsed_s
            self.said(f"   {describe(point, self._budget_s)}")

    def scoring_began(self, attempt: Attempt) -> None:
        self._waiting_for = "scoring"
        self._show(None, "scoring")

    def audit_began(self, attempt: Attempt) -> None:
        self._waiting_for = "auditing"
        self._show(None, "auditing")

    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None:
        self.close()
        self._console.print(verdict(attempt, before), highlight=False, soft_wrap=True)

    def said(self, sentence: str) -> None:
        self._console.print(harmless_lines(sentence), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _acknowledge_stop(self) -> None:
        if self._stopping() and not self._told_of_stop:
            self._told_of_stop = True
            self.said("the night ends after this run; Ctrl-C again ends the run too")

    def _show(self, fraction: float | None, now: str) -> None:
        """Show the bar at this fraction, or a pulsing one if the duration is not known."""
        if self._bar is not None:
            total = None if fraction is None else 1.0
            self._bar.update(self._task, total=total, completed=fraction or 0.0, now=now)


def print_lines(lines: Iterable[Text]) -> None:
    """Print lines without wrapping: a terminal folds long ones itself, and piped output stays whole."""
    console = Console()
    if not console.is_terminal:
        print("\n".join(line.plain for line in lines))  # rich takes seconds to lay out thousands of lines
        return
    for line in lines:
        console.print(line, soft_wrap=True)


def print_folded(lines: Iterable[str]) -> None:
    """Print sentences, folded between words on a terminal; a piped one stays on one line."""
    width = terminal_width()
    for line in lines:
        print("\n".join(_folded(line, width)) if width else line)


def _folded(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) or [""]


def terminal_width() -> int | None:
    """Return the width of the terminal; None if the output goes elsewhere."""
    console = Console()
    return console.width if console.is_terminal else None


class _Steadfast:
    """Wrap a stream whose reader may disappear, as a closed terminal does; drop the output from then on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            discard_output(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            discard_output(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def steadfast(stream: TextIO) -> TextIO:
    """Return the stream in a form that ignores a missing reader, so that the night goes on."""
    return cast(TextIO, _Steadfast(stream))


def discard_output(stream: TextIO) -> None:
    """Send a stream's output to /dev/null: Python writes its buffer at exit, and would fail again without a reader."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def verdict(attempt: Attempt, before: Attempt | None) -> str:
    """Return number, title, score, difference to the earlier incumbent and decision, in rich markup."""
    status = attempt.status or Status.CRASH
    words = [f"#{attempt.number}", escape(harmless(attempt.proposal.title))]
    delta_bpb = None
    if attempt.val_bpb is not None:
        words.append(f"val_bpb {attempt.val_bpb:.6f}")
        if before is not None and before.val_bpb is not None:
            delta_bpb = shown_difference(attempt.val_bpb, before.val_bpb)
            words.append(f"Δ {delta_bpb:+.6f}")
    explained = attempt.decision is not None and _wants_a_reason(attempt, delta_bpb)
    reason = f" ({escape(harmless(attempt.decision.words))})" if attempt.decision and explained else ""
    words.append(f"[{COLOURS[status]}]{status}[/]{reason}")
    return " · ".join(words)


def _wants_a_reason(attempt: Attempt, delta_bpb: float | None) -> bool:
    """Return whether to show the reason: for crashes, the kinds of TELLING, and decisions against the difference."""
    if attempt.status is Status.CRASH or attempt.kind in TELLING:
        return True
    return delta_bpb is not None and (delta_bpb < 0) != (attempt.status is Status.KEEP)


def describe(point: Point, budget_s: float) -> str:
    """Return a line on the progress of a training run, without implausible numbers."""
    done = _within_one(point.fraction)
    words = [f"{done:.0%}"]
    if point.step is not None and 0 <= point.step < ABSURD:
        words.append(f"step {point.step:.0f}")
    if point.loss is not None and abs(point.loss) < ABSURD:
        words.append(f"loss {point.loss:.3f}")
    if point.tokens_s is not None and 0 <= point.tokens_s < ABSURD:
        words.append(f"{point.tokens_s:,.0f} tokens/s")
    words.append(f"{(1 - done) * budget_s:.0f} s left")
    return " · ".join(words)


def _within_one(fraction: float) -> float:
    return min(1.0, max(0.0, fraction))
