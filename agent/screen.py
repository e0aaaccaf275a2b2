"""What the person in front of a terminal, or the reader of a log, sees while a night goes on."""

from rich.console import Console
from rich.markup import escape
from rich.status import Status as Spinner

from agent.experiment import Attempt, Progress, Status

COLOURS = {Status.KEEP: "green", Status.DISCARD: "bright_black", Status.CRASH: "red"}
PLAIN_EVERY_S = 60.0


class Screen:
    """A live line on a terminal, a plain line now and then elsewhere; one verdict line per attempt on both."""

    def __init__(self, console: Console, budget_s: float) -> None:
        self._console = console
        self._budget_s = budget_s
        self._line = ""
        self._said_s = 0.0
        self._spinner: Spinner | None = None

    def attempt_began(self, attempt: Attempt) -> None:
        self._line = f"#{attempt.number} {attempt.proposal.title}"
        if not self._console.is_terminal:
            self.said(self._line)

    def run_began(self, attempt: Attempt, seed: int) -> None:
        self._said_s = 0.0
        self._show(f"seed {seed}: starting")

    def progressed(self, progress: Progress | None, elapsed_s: float) -> None:
        if self._console.is_terminal:
            self._show(_describe(progress, elapsed_s))
        elif progress is not None and elapsed_s - self._said_s >= PLAIN_EVERY_S:
            self._said_s = elapsed_s
            self.said(f"#… {_describe(progress, elapsed_s)}")

    def scoring_began(self, attempt: Attempt) -> None:
        self._show("scoring")

    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None:
        self.close()
        self._console.print(verdict(attempt, before), markup=True, highlight=False, soft_wrap=True)

    def said(self, sentence: str) -> None:
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def _show(self, what: str) -> None:
        if not self._console.is_terminal:
            return
        text = f"{escape(self._line)} · {what}"
        if self._spinner is None:
            self._spinner = self._console.status(text)
            self._spinner.start()
        else:
            self._spinner.update(text)


def verdict(attempt: Attempt, before: Attempt | None) -> str:
    """Number, title, score, difference to the incumbent that was, decision; rich markup."""
    status = attempt.status or Status.CRASH
    words = [f"#{attempt.number}", escape(attempt.proposal.title)]
    if attempt.val_bpb is not None:
        words.append(f"val_bpb {attempt.val_bpb:.6f}")
        if before is not None and before.val_bpb is not None:
            words.append(f"Δ {attempt.val_bpb - before.val_bpb:+.6f}")
    reason = f" ({escape(attempt.decision.reason)})" if attempt.decision and status is Status.CRASH else ""
    words.append(f"[{COLOURS[status]}]{status}[/]{reason}")
    return " · ".join(words)


def _describe(progress: Progress | None, elapsed_s: float) -> str:
    if progress is None:
        return f"{elapsed_s:.0f} s"
    words = [f"{progress.fraction:.0%}", f"{elapsed_s:.0f} s"]
    if progress.step is not None:
        words.append(f"step {progress.step:.0f}")
    if progress.loss is not None:
        words.append(f"loss {progress.loss:.3f}")
    if progress.tokens_s is not None:
        words.append(f"{progress.tokens_s:,.0f} tokens/s")
    return " · ".join(words)
