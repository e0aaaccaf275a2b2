"""What the person in front of a terminal, or the reader of a log, sees while a night goes on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from agent.experiment import LOCAL, Ask, Attempt, Doing, History, NightCall, Work
from agent.experiment import Progress as Point
from agent.judging.noise import noise
from agent.proposers.briefing import Left
from agent.text import harmless, harmless_lines
from agent.view.facts.load import Load, load_of_history
from agent.view.facts.workers import runs_in_flight
from agent.view.live.at_work import AtWork
from agent.view.live.columns import folded
from agent.view.live.panel import lines_of_several, panel_lines
from agent.view.live.pinned import PinnedLines
from agent.view.live.so_far import SoFar
from agent.view.live.verdicts import describe, verdict
from agent.view.live.workers import Workers

PLAIN_EVERY_S = 60.0
DRAWN_EVERY_S = 0.2  # a drawing takes a millisecond, which a run on a CPU would have used
LOAD_EVERY_S, LOAD_SHARE = 5.0, 0.01  # at most so often, and of the time: after 10,000 attempts it takes a while
ALIKE = frozenset({"dry run", "scoring", "auditing"})  # take about as long each time
ENDS_NOW = "the night ends now; what it was at is done again when it goes on"


class Screen:
    """A panel below the verdicts on a terminal; elsewhere a plain line now and then. One line per verdict on both."""

    def __init__(
        self,
        console: Console,
        budget_s: float,
        stopping: Callable[[], bool] = lambda: False,
        *,
        stopping_now: Callable[[], bool] = lambda: False,
        calibration: int = 1,
        heeds_ctrl_c: bool = True,
        for_author: bool = False,
        workers: int = 1,
        calls: Sequence[NightCall] = (),
    ) -> None:
        self._calls = calls  # of the night, this one among them
        self._console = console
        self._for_author = for_author  # the reader makes edits, and may not read words of a scoring process
        self._budget_s = budget_s
        self._stopping = stopping  # has somebody asked the night to end?
        self._stopping_now = stopping_now  # and what is at work?
        again = f"; Ctrl-C again ends {'the run' if workers == 1 else 'them'} too" if heeds_ctrl_c else ""
        self._on_stop: str | None = f"the night ends after {runs_in_flight(workers)}{again}"  # None: it was said
        # runs of attempt 0: where workers are several, one alone, and at least one on each beside the others
        self._calibration = calibration if workers == 1 else max(calibration, 1 + workers)
        self._dawn_runs: tuple[int, int | None] | None = None  # made, and to be made if known; None: it is night
        self._panel = PinnedLines(console) if console.is_terminal and not console.is_dumb_terminal else None
        self._at_work: AtWork | None = None  # of a night with one worker
        self._workers = Workers(workers)
        self._asking: AtWork | None = None  # of a night with several
        self._load: Load | None = None
        self._load_due_s = 0.0
        self._so_far: SoFar | None = None
        self._usual_s: dict[str, float] = {}  # how long each kind of work took last
        self._said_s: dict[str, float] = {}  # worker → when its run was last told of in a log
        self._drawn_at_s = 0.0

    # ---- where the night stands --------------------------------------------------------------------------------------

    def night_stands(self, history: History, asks: Sequence[Ask], left: Left) -> None:
        if self._panel is not None:
            self.stands(SoFar.of(history, noise(history), asks, left, self._load_of(history, asks)))

    def _load_of(self, history: History, asks: Sequence[Ask]) -> Load | None:
        """Return how busy several workers were, as it was computed a moment ago; None with one worker."""
        began_s = time.monotonic()
        if self._workers.are_several and (self._load is None or began_s >= self._load_due_s):
            busy = self._workers.at_work.keys()
            self._load = load_of_history(history, asks, self._budget_s, self._calls, busy=busy, now_s=time.time())
            self._load_due_s = began_s + max(LOAD_EVERY_S, (time.monotonic() - began_s) / LOAD_SHARE)
        return self._load

    def stands(self, so_far: SoFar) -> None:
        self._so_far = so_far
        self._draw()

    def dawn_began(self, runs: int | None, made: int = 0) -> None:
        """Count the runs from now on as dawn's; runs: at most, None where that is not known."""
        self._dawn_runs = made, runs

    # ---- the attempt at work -----------------------------------------------------------------------------------------

    def asking_began(self, number: int) -> None:
        self._asking = AtWork(f"#{number} asking for an idea")
        self._begin(self._asking, "")

    def attempt_began(self, attempt: Attempt) -> None:
        if self._panel is None:
            again = ", another seed" if attempt.settled and attempt.counted_runs else ""
            self.said(harmless(f"#{attempt.number} {attempt.proposal.title}{again}"))
        self._asking = None
        self._begin(AtWork.on(attempt), "committing")

    def work_began(self, attempt: Attempt, work: Work) -> None:
        """Show what a worker begins to do with an attempt."""
        worker = work.worker
        if work.doing is not Doing.TRAINING:
            self._begin(AtWork.on(attempt), work.doing, worker)
            return
        self._workers.rest(worker)
        words = f"{self._which_run(attempt)}, seed {work.seed}"
        self._begin(replace(AtWork.on(attempt), seed=work.seed), words, worker)
        if self._panel is None and (self._dawn_runs is not None or (attempt.done_runs and not attempt.settled)):
            self.said(f"   {self._whose(worker)}{words}")  # why a log begins again at 0%

    def _which_run(self, attempt: Attempt) -> str:
        if self._dawn_runs is not None:
            made, most = self._dawn_runs
            self._dawn_runs = made + 1, most
            return f"dawn run {made + 1}" + ("" if most is None else f" of up to {max(made + 1, most)}")
        number = len(attempt.done_runs) + self._workers.training(attempt.number) + 1
        if attempt.number == 0 and not attempt.settled and number <= self._calibration > 1:
            return f"calibration run {number} of {self._calibration}"
        return f"run {number}"

    def worker_rests(self, worker: str) -> None:
        """Forget what this worker did: it has no job now."""
        self._workers.rest(worker)
        if self._workers.are_several and not self._workers.at_work:
            self._draw()  # else with the next news of another, as this one may begin its next job in a moment

    def _begin(self, now: AtWork, doing: str, worker: str | None = None) -> None:
        before = self._at_work if worker is None or not self._workers.are_several else self._workers.job_of(worker)
        if before is not None and before.doing in ALIKE and before.elapsed_s is not None:
            self._usual_s[before.doing] = before.elapsed_s
        self._at_work = replace(now, doing=doing, usual_s=self._usual_s.get(doing))
        self._said_s[worker or LOCAL] = 0.0
        if worker is not None:
            self._workers.begin(worker, self._at_work)
        self._draw()
        self._drawn_at_s = 0.0  # its first news is shown at once

    def progressed(self, point: Point | None, elapsed_s: float | None, worker: str = LOCAL) -> None:
        """Show how far the work is; elapsed_s: since it began, None where that is not known."""
        self._acknowledge_stop()
        if self._panel is None:
            if elapsed_s is not None:
                self._log(point, elapsed_s, worker)
        elif self._workers.are_several:
            self._note(point, elapsed_s, worker)
        elif self._at_work is not None and time.monotonic() - self._drawn_at_s >= DRAWN_EVERY_S:
            trains = self._at_work.doing != "dry run"  # that is over after a second
            self._at_work = replace(self._at_work, training=point if trains else None, elapsed_s=elapsed_s)
            self._draw()

    def _note(self, point: Point | None, elapsed_s: float | None, worker: str) -> None:
        """Note how far one of several workers is, and draw all of them now and then."""
        job = self._workers.job_of(worker)
        if job is not None:
            self._workers.note(worker, None if job.doing == "dry run" else point, elapsed_s)
        elif self._asking is not None:
            self._asking = replace(self._asking, elapsed_s=elapsed_s)
        if time.monotonic() - self._drawn_at_s >= DRAWN_EVERY_S:
            self._draw()

    def _log(self, point: Point | None, elapsed_s: float, worker: str) -> None:
        job = self._workers.job_of(worker) if self._workers.are_several else self._at_work
        if job is None or elapsed_s - self._said_s.get(worker, 0.0) < PLAIN_EVERY_S:
            return
        self._said_s[worker] = elapsed_s
        doing = f"{job.doing or job.title} · {elapsed_s:.0f} s"  # an author is asked, a run starts or is scored
        self.said(f"   {self._whose(worker)}{doing if point is None else describe(point, self._budget_s)}")

    def _whose(self, worker: str) -> str:
        """Return the beginning of a line on a run in a log: nothing, or which of several workers has which attempt."""
        job = self._workers.job_of(worker)
        if job is None or not self._workers.are_several:
            return ""
        return f"{worker} · #{job.attempt} · "

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
            self._at_work = self._asking = self._so_far = None
            self._workers = Workers()

    def _acknowledge_stop(self) -> None:
        if self._on_stop is not None and self._stopping():
            sentence, self._on_stop = self._on_stop, None
            self.said(ENDS_NOW if self._stopping_now() else sentence)

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
        if self._workers.are_several:
            return lines_of_several(self._console, self._budget_s, self._workers, self._asking, self._so_far)
        return panel_lines(self._console, self._budget_s, self._at_work, self._so_far)
