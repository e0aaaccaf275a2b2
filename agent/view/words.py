"""Say a gain, an interval, a time, a size and where a night stands, in the same words on every screen and page.

It imports nothing that takes long: `status` is asked often.
"""

from agent.experiment import Findings, Interval, Noise, Progress, Work, confirmed_branch
from agent.proposers.briefing import Left
from agent.records.record import Record
from agent.records.summary import EarlyStops, NightSummary, Scored
from agent.text import ABSURD, SCORE_DECIMALS, counted, duration, harmless, shown_difference
from agent.view.workers import Crew, Load, Worker

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


def interval_words(interval: Interval | None, sign: str = "+") -> str:
    """Return a gain with its 95 % interval where the noise is known, for a terminal; sign: "" for a score."""
    if interval is None:
        return "not measured: too few runs"
    mean, low, high = (score(bpb, sign) for bpb in (interval.mean_bpb, interval.low_bpb, interval.high_bpb))
    return f"{mean} [{low}, {high}]" if interval.has_width else mean


def scored_words(scored: Scored) -> str:
    """Return the mean of an attempt's scores with its 95 % interval, and how many there are."""
    around = Interval(scored.val_bpb, scored.low_bpb, scored.high_bpb)
    return f"{interval_words(around, sign='')}, mean of {counted(scored.seeds, 'seed')}"


def gain_words(now: NightSummary) -> str:
    """Return how far the best script is below the baseline, with half of its 95 % interval; "" without a gain."""
    if now.best is None or now.baseline is None or now.gain is None:
        return ""
    below_bpb = shown_difference(now.baseline.val_bpb, now.best.val_bpb)
    side = "below" if below_bpb >= 0 else "above"  # after further seeds, a lucky keep may be above
    margin = f" ± {score(now.gain.mean_bpb - now.gain.low_bpb)}" if now.gain.has_width else ""
    return f"{score(abs(below_bpb))}{margin} {side} the baseline"


def load_words(load: Load) -> list[str]:
    """Say how busy the workers of a night were, and how many experiments an hour that made."""
    words = []
    if load.utilisation is not None:
        words.append(f"busy for {load.utilisation:.0%} of the {duration(load.at_work_s / 3600)} at work")
    if load.experiments_an_hour:
        words.append(f"{counted(round(load.experiments_an_hour), 'experiment')} an hour")
    return words


def memory(gigabytes: float) -> str:
    """Return a size in GB, or in MB if it is below 0.1 GB."""
    return f"{gigabytes:.1f} GB" if gigabytes >= 0.1 else f"{1024 * gigabytes:.0f} MB"


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


def left_words(left: Left) -> list[str]:
    """Say what is left of the limits of a night, if it has any."""
    words = [] if left.experiments is None else [counted(left.experiments, "experiment")]
    return words + ([] if left.seconds is None else [duration(left.seconds / 3600)])


def doing_words(work: Work) -> str:
    """Return what a worker does, such as training, seed 7."""
    seed = "" if work.seed is None else f", seed {work.seed}"
    return f"{work.doing}{seed}{' of dawn' if work.dawn else ''}"


def within_one(fraction: float) -> float:
    return min(1.0, max(0.0, fraction))


# ---- where a night stands --------------------------------------------------------------------------------------------


def status_lines(
    record: Record, now: NightSummary, crew: Crew, *, pid: int | None, stopping: bool, left: str | None = None
) -> list[str]:
    """Return the lines on a night's state; left: how much is left of its limits, in words."""
    night = record.night
    state = f"running (pid {pid})" if pid else "not running"
    if pid and stopping:
        state += ", ends after what runs now"
    counts = [f"{now.kept} kept", f"{now.discarded} discarded", f"{now.crashed} crashed"]
    counts += [f"{len(now.unfinished)} unfinished"] if now.unfinished else []
    counts += ["the baseline has no score"] if now.attempts and now.baseline is None and not now.unfinished else []
    lines = [
        f"night {night.tag}: {state}; it began {moment(night.started)}"
        + ("" if now.ended is None else f", its last run ended {moment(now.ended)}"),
        f"branch {record.branch}, {night.budget_s:g} s a run, {night.device}, protocol {night.protocol}",
        f"{counted(now.attempts, 'attempt')}, {now.ideas} of them ideas: {', '.join(counts)}",
        None if now.stopped is None else stopped_line(now.stopped),
        _best_line(now),
        None if now.dawn is None else dawn_line(now.dawn, record),
    ]
    lines += [] if now.noise is None else noise_lines(now.noise)
    lines += [_spent_line(now), left]
    if crew.has_several:
        lines += crew_lines(crew, running=pid is not None)
    else:
        lines += [f"at work: {_worker_words(worker)}" for worker in crew.at_work]
    if now.unfinished and not crew.at_work:  # the first is resumed first
        number, title = now.unfinished[0]
        lines.append(f"{'at work' if pid else 'unfinished, goes on when the night does'}: #{number} {title}")
    return [harmless(line) for line in lines if line is not None]


def crew_lines(crew: Crew, *, running: bool) -> list[str]:
    """Return a line on all workers of a night, and one for each that has a run now."""
    load = crew.load
    parts = [f"{len(crew.at_work)} of {load.workers} busy now"] if running else [str(load.workers)]
    parts += load_words(load)
    names = max((len(worker.name) for worker in crew.at_work), default=0)
    return [
        f"workers: {', '.join(parts)}",
        *([crew.contention.words] if crew.contention is not None and crew.contention.is_notable else []),
        *(f"  {worker.name:<{names}}  {_worker_words(worker)}" for worker in crew.at_work),
    ]


def _worker_words(worker: Worker) -> str:
    assert worker.work is not None
    return f"{doing_words(worker.work)}: #{worker.work.attempt} {worker.title}"


def _best_line(now: NightSummary) -> str | None:
    if now.best is None or now.baseline is None:
        return None
    gain = "the baseline" if now.gain is None else f"{gain_words(now)}'s {now.baseline.val_bpb:.6f}"
    return f"best val_bpb {now.best.val_bpb:.6f} (#{now.best.number}), {gain}"


def _spent_line(now: NightSummary) -> str | None:
    spent_h = sum(now.hours.values())
    if not spent_h:
        return None
    parts = [f"{duration(hours)} {what}" for what, hours in now.hours.items() if hours]
    cost = "" if now.usd is None else f"; ${now.usd:.2f}"
    cost += f" of at most ${now.most_usd:.2f}" if cost and now.most_usd is not None else ""
    return f"spent: {', '.join(parts)}{cost}"


def stopped_line(stops: EarlyStops) -> str:
    return (
        f"{stops.stopped} of {stops.runs} runs stopped early, which saved {stops.saved_s:.0f} s of training "
        f"({stops.share:.0%})"
    )


def noise_lines(noise: Noise) -> list[str]:
    """Return lines on the measured noise, with a warning if it cannot be trusted."""
    if noise.sigma_bpb == 0:
        return [f"noise: none: {noise.runs} runs of the same script with other seeds gave the same score"]
    line = (
        f"noise: σ {noise.sigma_bpb:.6f} from {noise.runs} repeated runs; a difference of two single runs "
        f"below {noise.smallest_bpb:.6f} may be luck"
    )
    return [line] if noise.doubt is None else [line, _hardly_trained(noise.doubt)]


def _hardly_trained(doubt: str) -> str:
    return (
        f"the baseline hardly trains ({doubt}), so its noise says little about that of other scripts: σ is "
        f"doubled, and every keep needs several runs; for gains that last take a longer --budget-s or a smaller model"
    )


def dawn_line(findings: Findings, record: Record) -> str:
    """Return a line on the findings of the latest dawn."""
    confirmed = record.attempt(findings.script)
    if confirmed is None:
        gain = "too few runs" if findings.honest is None else f"a gain of {interval_words(findings.honest)}"
        return f"dawn: #{findings.champion} is not confirmed ({gain})"
    gain = "" if findings.honest is None else f", an honest gain of {interval_words(findings.honest)}"
    return f"dawn: confirmed #{confirmed.number} {confirmed.title}, on {confirmed_branch(record.branch)}{gain}"
