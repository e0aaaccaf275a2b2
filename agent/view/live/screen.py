"""What the person in front of a terminal, or the reader of a log, sees while a night goes on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from agent.experiment import Ask, Attempt, History, Left
from agent.experiment import Progress as Point
from agent.experiment.lease import LOCAL
from agent.text import harmless, harmless_lines
from agent.view.live.columns import folded
from agent.view.live.panel import AtWork, panel_lines
from agent.view.live.pinned import PinnedLines
from agent.view.live.so_far import SoFar
from agent.view.live.verdicts import describe, verdict

PLAIN_EVERY_S = 60.0
DRAWN_EVERY_S = 0.2  # a drawing takes a millisecond, which a run on a CPU would have used
ALIKE = frozenset({"dry run", "scoring", "auditing"})  # take about as long each time
ENDS_AFTER_RUN = "the night ends after this run; Ctrl-C again ends the run too"


class Screen:
    """A panel below the verdicts on a terminal; elsewhere a plain line now and then. One line per verdict on both."""

    def __init__(
        self,
        console: Console,
        budget_s: float,
        stopping: Callable[[], bool] = lambda: False,
        *,
        calibration: int = 1,
        on_stop: str = ENDS_AFTER_RUN,
        for_author: bool = False,
    ) -> None:
        self._console = console
        self._for_author = for_author  # the reader makes edits, and may not read words of a scoring process
        self._budget_s = budget_s
        self._stopping = stopping  # has somebody asked the night to end?
        self._on_stop: str | None = on_stop  # None: it was said
        self._calibration = calibration  # runs of attempt 0
        self._dawn_runs: tuple[int, int | None] | None = None  # made, and to be made if known; None: it is night
        self._panel = PinnedLines(console) if console.is_terminal and not console.is_dumb_terminal else None
        self._at_work: AtWork | None = None
        self._so_far: SoFar | None = None
        self._usual_s: dict[str, float] = {}  # how long each kind of work took last
        self._said_s = 0.0
        self._drawn_at_s = 0.0

    # ---- where the night stands --------------------------------------------------------------------------------------

    def night_stands(self, history: History, asks: Sequence[Ask], left: Left) -> None:
        if self._panel is not None:
            self.stands(SoFar.of(history, asks, left))

    def stands(self, so_far: SoFar) -> None:
        self._so_far = so_far
        self._draw()

    def dawn_began(self, runs: int | None, made: int = 0) -> None:
        """Count the runs from now on as dawn's; runs: at most, None where that is not known."""
        self._dawn_runs = made, runs

    # ---- the attempt at work -----------------------------------------------------------------------------------------

    def asking_began(self, number: int) -> None:
        self._begin(AtWork(f"#{number} asking for an idea"), "")

    def attempt_began(self, attempt: Attempt) -> None:
        if self._panel is None:
            again = ", another seed" if attempt.settled and attempt.counted_runs else ""
            self.said(harmless(f"#{attempt.number} {attempt.proposal.title}{again}"))
        self._begin(AtWork.on(attempt), "committing")

    def dry_run_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        self._begin(AtWork.on(attempt), "dry run")

    def run_began(self, attempt: Attempt, seed: int, worker: str = LOCAL) -> None:
        self._said_s = 0.0
        words = f"{self._which_run(attempt)}, seed {seed}"
        if self._panel is None and (self._dawn_runs is not None or (attempt.done_runs and not attempt.settled)):
            self.said(f"   {words}")  # why a log begins again at 0%
        self._begin(AtWork.on(attempt), words)

    def _which_run(self, attempt: Attempt) -> str:
        if self._dawn_runs is not None:
            made, most = self._dawn_runs
            self._dawn_runs = made + 1, most
            return f"dawn run {made + 1}" + ("" if most is None else f" of up to {max(made + 1, most)}")
        number = len(attempt.done_runs) + 1
        if attempt.number == 0 and not attempt.settled and number <= self._calibration > 1:
            return f"calibration run {number} of {self._calibration}"
        return f"run {number}"

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        self._begin(AtWork.on(attempt), "scoring")

    def audit_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        self._begin(AtWork.on(attempt), "auditing")

    def worker_rests(self, worker: str) -> None:
        """Forget what this worker did: it has no job now."""
        if worker == LOCAL:
            return

    def _begin(self, now: AtWork, doing: str) -> None:
        before = self._at_work
        if before is not None and before.doing in ALIKE and before.elapsed_s is not None:
            self._usual_s[before.doing] = before.elapsed_s
        self._at_work = replace(now, doing=doing, usual_s=self._usual_s.get(doing))
        self._draw()
        self._drawn_at_s = 0.0  # its first news is shown at once

    def progressed(self, point: Point | None, elapsed_s: float | None, worker: str = LOCAL) -> None:
        """Show how far the work is; elapsed_s: since it began, None where that is not known."""
        self._acknowledge_stop()
        now = self._at_work
        if self._panel is None:
            if point is not None and elapsed_s is not None and elapsed_s - self._said_s >= PLAIN_EVERY_S:
                self._said_s = elapsed_s
                self.said(f"   {describe(point, self._budget_s)}")
        elif now is not None and time.monotonic() - self._drawn_at_s >= DRAWN_EVERY_S:
            trains = now.doing != "dry run"  # that is over after a second
            self._at_work = replace(now, training=point if trains else None, elapsed_s=elapsed_s)
            self._draw()

    # ---- lines -------------------------------------------------------------------------------------------------------

    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None:
        self._at_work = None
        self._print([Text.from_markup(verdict(attempt, before, for_author=self._for_author))])

    def said(self, sentence: str) -> None:
        self._print([Text(line) for line in harmless_lines(sentence).split("\n")])

    def close(self) -> None:
        """Remove the panel; what is said later stands where it was."""
        if self._panel is not None:
            self._panel.close()
            self._at_work = self._so_far = None

    def _acknowledge_stop(self) -> None:
        if self._on_stop is not None and self._stopping():
            sentence, self._on_stop = self._on_stop, None
            self.said(sentence)

    def _print(self, lines: Sequence[Text]) -> None:
        if self._panel is None:
            for line in lines:
                self._console.print(line, highlight=False, soft_wrap=True)
            return
        width = self._console.width
        self._panel.print_above([part for line in lines for part in folded(line, width)], self._pinned())

    def _draw(self) -> None:
        if self._panel is not None:
            self._drawn_at_s = time.monotonic()
            self._panel.show(self._pinned())

    def _pinned(self) -> list[Text]:
        return panel_lines(self._console, self._budget_s, self._at_work, self._so_far)
