"""Say a gain, an interval, a time and a size, in the same words on every screen and page."""

from agent.experiment import Progress
from agent.judging.intervals import Interval
from agent.text import ABSURD, SCORE_DECIMALS, counted, duration
from agent.view.workers import Load

BETWEEN = " · "  # parts of a line
NONE = "–"  # in a table, where there is no value


def bpb(value: float | None, sign: str = "") -> str:
    """Return a score or a gain in as many digits as a page shows; sign: "+" for a gain."""
    return NONE if value is None else format(round(value, 4) + 0.0, f"{sign}.4f").replace("-", "−")


def score(value: float | None, sign: str = "") -> str:
    """Return a score or a gain in all its digits, as a terminal shows it; "" for None; sign: "+" for a gain."""
    return "" if value is None else format(value, f"{sign}.{SCORE_DECIMALS}f")


def ends(interval: Interval) -> str:
    """Return the ends of a 95 % interval, for a page."""
    if not interval.has_width:
        return "its noise is not known"
    return f"{bpb(interval.low_bpb)} to {bpb(interval.high_bpb)}"


def within(interval: Interval) -> str:
    """Return a gain with its 95 % interval, for a page."""
    return f"{bpb(interval.mean_bpb)} ({ends(interval)})" if interval.has_width else bpb(interval.mean_bpb)


def interval_words(interval: Interval | None) -> str:
    """Return a gain with its 95 % interval, for a terminal."""
    if interval is None:
        return "not measured: too few runs"
    return f"{score(interval.mean_bpb, '+')} [{score(interval.low_bpb, '+')}, {score(interval.high_bpb, '+')}]"


def load_words(load: Load) -> list[str]:
    """Say how busy the workers of a night were, and how many experiments an hour that made."""
    words = []
    if load.utilisation is not None:
        words.append(f"busy for {load.utilisation:.0%} of the {duration(load.at_work_s / 3600)} at work")
    if load.experiments_an_hour:
        words.append(f"{counted(round(load.experiments_an_hour), 'experiment')} an hour")
    return words


def memory(megabytes: float) -> str:
    """Return a size in GB, or in MB if it is below 0.1 GB."""
    return f"{megabytes / 1024:.1f} GB" if megabytes >= 0.1 * 1024 else f"{megabytes:.0f} MB"


def moment(at: str | None) -> str:
    """Return a time of the journal as people read it, in UTC; "" where none was noted."""
    return f"{at[:19].replace('T', ' ')} UTC" if at else ""


def progress_words(point: Progress, budget_s: float) -> list[str]:
    """Return what is known of a training run's progress, the most important first."""
    done = within_one(point.fraction)
    words = [f"{done:.0%}", f"{(1 - done) * budget_s:.0f} s left"]
    if point.tokens_s is not None and 0 <= point.tokens_s < ABSURD:
        words.append(f"{point.tokens_s:,.0f} tokens/s")
    if point.loss is not None and abs(point.loss) < ABSURD:
        words.append(f"loss {point.loss:.3f}")
    if point.step is not None and 0 <= point.step < ABSURD:
        words.append(f"step {point.step:.0f}")
    return words


def within_one(fraction: float) -> float:
    return min(1.0, max(0.0, fraction))
