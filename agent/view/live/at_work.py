"""What a worker does now: its attempt, and how far it is, as a bar and in words. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.text import Text

from agent.experiment import Attempt, Progress
from agent.view.live.columns import shown
from agent.view.live.verdicts import progress_words, within_one

BAR = "cyan"  # rich has a red, the colour of crashes
NEARLY = 0.99  # a bar that goes by an estimate waits there


@dataclass(frozen=True, slots=True)
class AtWork:
    """Hold what the night does now."""

    title: str
    why: str = ""
    doing: str = ""  # such as scoring
    training: Progress | None = None  # None: no training run, or it has told nothing yet
    elapsed_s: float | None = None  # None: not known
    usual_s: float | None = None  # how long the same took last time
    attempt: int | None = None
    seed: int | None = None  # of a training run

    @classmethod
    def on(cls, attempt: Attempt) -> "AtWork":
        title, why = shown(attempt.proposal.title), shown(attempt.proposal.hypothesis)
        return cls(f"#{attempt.number} {title}", why, attempt=attempt.number)


def pace_words(now: AtWork, budget_s: float) -> Sequence[str]:
    """Return what is known of how far it is, the most important first."""
    if now.training is not None:
        return progress_words(now.training, budget_s)
    if now.elapsed_s is None:
        return []
    took = f"{now.elapsed_s:.0f} s"
    return [took if now.usual_s is None else f"{took} of about {max(now.usual_s, now.elapsed_s):.0f} s"]


def fraction(now: AtWork) -> float | None:
    """Return how much of it is done, 0 to 1; None where the end is not known."""
    if now.training is not None:
        return within_one(now.training.fraction)
    if now.elapsed_s is None or not now.usual_s:
        return None
    return min(NEARLY, now.elapsed_s / now.usual_s)


def bar(console: Console, fraction: float | None, columns: int) -> Text:
    """Draw a bar at this fraction, or a pulsing one if the end is not known."""
    total = None if fraction is None else 1.0
    drawn = ProgressBar(
        total=total, completed=fraction or 0.0, width=columns, pulse=fraction is None,
        complete_style=BAR, finished_style=BAR, pulse_style=BAR,
    )  # fmt: skip
    segments = console.render(drawn, console.options.update(width=columns))
    return Text.assemble(*((segment.text, segment.style or "") for segment in segments if not segment.control))
