"""What the person in front of a terminal, or the reader of a log, sees while a night goes on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from agent.experiment import LOCAL, Ask, Attempt, Doing, History, Night, NightCall, Progress, Work
from agent.judging.noise import noise
from agent.proposers.briefing import Left
from agent.records.record import Record
from agent.records.summary import summary_of
from agent.text import harmless, harmless_lines
from agent.view.live.panel import NIGHT, Job, Standing, lines_of_several, panel_lines
from agent.view.live.verdicts import describe, verdict
from agent.view.screen import folded
from agent.view.workers import load_of, running, runs_in_flight

PLAIN_EVERY_S = 60.0
DRAWN_EVERY_S = 0.2  # a drawing takes a millisecond, which a run on a CPU would have used
ALIKE = frozenset({Doing.REHEARSING, Doing.SCORING, Doing.AUDITING})  # take about as long each time
ENDS_NOW = "the night ends now; what it was at is done again when it goes on"
CLEAR_BELOW, CLEAR_REST_OF_LINE = "\x1b[J", "\x1b[K"
CUT_LONG_LINES, WRAP_LONG_LINES = "\x1b[?7l", "\x1b[?7h"  # a terminal may have changed its size a moment ago
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


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
        calls: tuple[NightCall, ...] = (),
    ) -> None:
        self._console, self._budget_s, self._calls = console, budget_s, calls  # calls: of the night, this one included
        self._for_author = for_author  # the reader makes edits, and may not read words of a scoring process
        self._stopping = stopping  # has somebody asked the night to end?
        self._stopping_now = stopping_now  # and what is at work?
        again = f"; Ctrl-C again ends {'the run' if workers == 1 else 'them'} too" if heeds_ctrl_c else ""
        self._on_stop: str | None = f"the night ends after {runs_in_flight(workers)}{again}"  # None: it was said
        # runs of attempt 0: where workers are several, one alone, and at least one on each beside the others
        self._calibration = calibration if workers == 1 else max(calibration, 1 + workers)
        self._dawn_runs: tuple[int, int | None] | None = None  # made, and to be made if known; None: it is night
        self._panel = PinnedLines(console) if console.is_terminal and not console.is_dumb_terminal else None
        self._meant, self._seen = workers, set[str]()  # workers that there will be, and names of those that began
        self._jobs: dict[str, Job] = {}  # by worker, and of the night itself
        self._work: dict[str, Work] = {}
        self._latest = NIGHT  # whose job began last
        self._standing: Standing | None = None
        self._usual_s: dict[str, float] = {}  # how long each kind of work took last
        self._said_s: dict[str, float] = {}  # worker → when its run was last told of in a log
        self._drawn_at_s = 0.0

    @property
    def _has_several(self) -> bool:
        return max(self._meant, len(self._seen)) > 1

    # ---- where the night stands --------------------------------------------------------------------------------------

    def night_stands(self, night: Night, history: History, asks: Sequence[Ask], left: Left) -> None:
        if self._panel is not None:
            record = Record(night, tuple(history), tuple(asks), calls=self._calls, noise=noise(history))
            load = load_of(record, running(self._work.values(), record), time.time()) if self._has_several else None
            self.stands(Standing.of(summary_of(record), left, load))

    def stands(self, standing: Standing) -> None:
        self._standing = standing
        self._draw()

    def dawn_began(self, runs: int | None, made: int = 0) -> None:
        """Count the runs from now on as dawn's; runs: at most, None where that is not known."""
        self._dawn_runs = made, runs

    # ---- what is at work ---------------------------------------------------------------------------------------------

    def asking_began(self, number: int) -> None:
        self._begin(NIGHT, Job(f"#{number} asking for an idea"), "")

    def attempt_began(self, attempt: Attempt) -> None:
        if self._panel is None:
            again = ", another seed" if attempt.settled and attempt.counted_runs else ""
            self.said(harmless(f"#{attempt.number} {attempt.proposal.title}{again}"))
        self._begin(NIGHT, Job.on(attempt), "committing")

    def work_began(self, attempt: Attempt, work: Work) -> None:
        """Show what a worker begins to do with an attempt."""
        worker, doing = work.worker, str(work.doing)
        self._seen.add(worker)
        if work.doing is Doing.TRAINING:
            doing = f"{self._which_run(attempt, worker)}, seed {work.seed}"
        if work.doing is not Doing.REHEARSING:
            self._work[worker] = work
        self._begin(worker, Job.on(attempt, work.seed), doing)
        makes_another = self._dawn_runs is not None or (attempt.done_runs and not attempt.settled)
        if self._panel is None and work.doing is Doing.TRAINING and makes_another:
            self.said(f"   {self._whose(worker)}{doing}")  # why a log begins again at 0%

    def _which_run(self, attempt: Attempt, worker: str) -> str:
        if self._dawn_runs is not None:
            made, most = self._dawn_runs
            self._dawn_runs = made + 1, most
            return f"dawn run {made + 1}" + ("" if most is None else f" of up to {max(made + 1, most)}")
        others = [job for name, job in self._jobs.items() if name != worker and job.seed is not None]
        number = len(attempt.done_runs) + sum(job.attempt == attempt.number for job in others) + 1
        if attempt.number == 0 and not attempt.settled and number <= self._calibration > 1:
            return f"calibration run {number} of {self._calibration}"
        return f"run {number}"

    def worker_rests(self, worker: str) -> None:
        """Forget what this worker did: it has no job now."""
        self._work.pop(worker, None)
        if self._has_several:
            self._jobs.pop(worker, None)
            if not self._jobs.keys() - {NIGHT}:
                self._draw()  # else with the next news of another, as this one may begin its next job in a moment

    def _begin(self, whose: str, job: Job, doing: str) -> None:
        before = self._jobs.get(whose if self._has_several else self._latest)
        if before is not None and before.doing in ALIKE and before.elapsed_s is not None:
            self._usual_s[before.doing] = before.elapsed_s
        if whose != NIGHT:
            self._jobs.pop(NIGHT, None)
        self._jobs[whose] = replace(job, doing=doing, usual_s=self._usual_s.get(doing))
        self._latest = whose
        self._said_s[whose] = 0.0
        self._draw()
        self._drawn_at_s = 0.0  # its first news is shown at once

    def progressed(self, point: Progress | None, elapsed_s: float | None, worker: str = LOCAL) -> None:
        """Show how far the work is; elapsed_s: since it began, None where that is not known."""
        if self._on_stop is not None and self._stopping():
            sentence, self._on_stop = self._on_stop, None
            self.said(ENDS_NOW if self._stopping_now() else sentence)
        whose = worker if self._has_several and worker in self._jobs else NIGHT if self._has_several else self._latest
        job = self._jobs.get(whose)
        if job is not None and self._panel is not None:
            trains = job.doing != Doing.REHEARSING  # that is over after a second
            self._jobs[whose] = replace(job, training=point if trains else None, elapsed_s=elapsed_s)
            if time.monotonic() - self._drawn_at_s >= DRAWN_EVERY_S:
                self._draw()
        elif job is not None and elapsed_s is not None and elapsed_s - self._said_s[whose] >= PLAIN_EVERY_S:
            self._said_s[whose] = elapsed_s
            doing = f"{job.doing or job.title} · {elapsed_s:.0f} s"  # an author is asked, a run starts or is scored
            self.said(f"   {self._whose(whose)}{doing if point is None else describe(point, self._budget_s)}")

    def _whose(self, worker: str) -> str:
        """Return the beginning of a line on a run in a log: nothing, or which of several workers has which attempt."""
        job = self._jobs.get(worker)
        return f"{worker} · #{job.attempt} · " if job is not None and worker and self._has_several else ""

    # ---- lines -------------------------------------------------------------------------------------------------------

    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None:
        if not self._has_several:
            self._jobs.clear()
        self._print([Text.from_markup(verdict(attempt, before, for_author=self._for_author))])

    def said(self, sentence: str) -> None:
        self._print([Text(line) for line in harmless_lines(sentence).split("\n")])

    def close(self) -> None:
        """Remove the panel; what is said later stands where it was."""
        if self._panel is not None:
            self._panel.close()
            self._jobs, self._standing, self._meant, self._seen = {}, None, 1, set()

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
        if self._has_several:
            workers = max(self._meant, len(self._seen))
            return lines_of_several(self._console, self._budget_s, self._jobs, workers, self._standing)
        return panel_lines(self._console, self._budget_s, self._jobs.get(self._latest), self._standing)


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
