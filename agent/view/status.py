"""Write where a night stands as lines for a terminal, without what takes long to import."""

from agent.experiment import Noise
from agent.judging.findings import Findings
from agent.records.record import Record
from agent.records.summary import NightSummary, Stopped
from agent.text import counted, duration, harmless, shown_difference
from agent.view.words import interval_words, load_words
from agent.view.workers import Crew, Worker, runs_in_flight


def status_lines(
    record: Record, now: NightSummary, crew: Crew, *, pid: int | None, stopping: bool, left: str | None = None
) -> list[str]:
    """Return the lines on a night's state; left: how much is left of its limits, in words."""
    night = record.night
    state = f"running (pid {pid})" if pid else "not running"
    if pid and stopping:
        state += f", ends after {runs_in_flight(crew.load.workers)}"
    counts = [f"{now.kept} kept", f"{now.discarded} discarded", f"{now.crashed} crashed"]
    counts += [f"{len(now.unfinished)} unfinished"] if now.unfinished else []
    counts += ["the baseline has no score"] if now.attempts and now.baseline is None and not now.unfinished else []
    lines = [
        f"night {night.tag}: {state}; {_times(now)}",
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
        lines += [f"at work: {_doing(worker)}" for worker in crew.at_work]
    if now.unfinished and not crew.at_work:  # the first is resumed first
        number, title = now.unfinished[0]
        lines.append(f"{'at work' if pid else 'unfinished, goes on when the night does'}: #{number} {title}")
    return [harmless(line) for line in lines if line is not None]


def crew_lines(crew: Crew, *, running: bool) -> list[str]:
    """Return a line on all workers of a night, and one for each that has a run now."""
    load = crew.load
    parts = [f"{len(crew.at_work)} of {load.workers} busy now"] if running else [str(load.workers)]
    parts += load_words(load)
    names = max((len(one.name) for one in crew.at_work), default=0)
    return [
        f"workers: {', '.join(parts)}",
        *([crew.contention.words] if crew.contention is not None and crew.contention.is_notable else []),
        *(f"  {one.name:<{names}}  {_doing(one)}" for one in crew.at_work),
    ]


def _doing(one: Worker) -> str:
    work = one.work
    assert work is not None
    return f"{work.doing}, seed {work.seed}: #{work.attempt} {one.title}"


def _times(now: NightSummary) -> str:
    last = "" if now.ended is None else f", its last run ended {_minute(now.ended)}"
    return f"it began {_minute(now.night.started)}{last}"


def _minute(at: str) -> str:
    return f"{at[:16].replace('T', ' ')} UTC"


def _best_line(now: NightSummary) -> str | None:
    best, first = now.best, now.baseline
    if best is None or first is None:
        return None
    told = f"best val_bpb {best.val_bpb:.6f} (#{best.number})"
    if now.gain is None:
        return f"{told}, the baseline"
    side = "below" if best.val_bpb <= first.val_bpb else "above"  # after further seeds, a lucky keep may be above
    gain = f"{abs(shown_difference(first.val_bpb, best.val_bpb)):.6f} {side} the baseline's {first.val_bpb:.6f}"
    around = f" (95 %: {now.gain.low_bpb:+.6f} to {now.gain.high_bpb:+.6f})" if now.gain.has_width else ""
    return f"{told}, {gain}{around}"


def _spent_line(now: NightSummary) -> str | None:
    spent_h = sum(now.hours.values())
    if not spent_h:
        return None
    parts = [f"{duration(hours)} {what}" for what, hours in now.hours.items() if hours]
    cost = "" if now.usd is None else f"; ${now.usd:.2f}"
    cost += f" of at most ${now.most_usd:.2f}" if cost and now.most_usd is not None else ""
    return f"spent: {', '.join(parts)}{cost}"


def stopped_line(found: Stopped) -> str:
    return (
        f"{found.stopped} of {found.runs} runs stopped early, which saved {found.saved_s:.0f} s of training "
        f"({found.share:.0%})"
    )


def noise_lines(found: Noise) -> list[str]:
    """Return lines on the measured noise, with a warning if it cannot be trusted."""
    if found.sigma_bpb == 0:
        return [f"noise: none: {found.runs} runs of the same script with other seeds gave the same score"]
    told = (
        f"noise: σ {found.sigma_bpb:.6f} from {found.runs} repeated runs; a difference of two single runs "
        f"below {found.smallest_bpb:.6f} may be luck"
    )
    return [told] if found.doubt is None else [told, _hardly_trained(found.doubt)]


def _hardly_trained(doubt: str) -> str:
    return (
        f"the baseline hardly trains ({doubt}), so its noise says little about that of other scripts: σ is "
        f"doubled, and every keep needs several runs; for gains that last take a longer --budget-s or a smaller model"
    )


def confirmed_branch(branch: str) -> str:
    """Return the branch that dawn makes for a confirmed script, from that of the night."""
    return f"{branch}-confirmed"


def dawn_line(found: Findings, record: Record) -> str:
    """Return a line on the findings of the latest dawn."""
    confirmed = record.attempt(found.script)
    if confirmed is None:
        gain = "too few runs" if found.honest is None else f"a gain of {interval_words(found.honest)}"
        return f"dawn: #{found.champion} is not confirmed ({gain})"
    gain = "" if found.honest is None else f", an honest gain of {interval_words(found.honest)}"
    return f"dawn: confirmed #{confirmed.number} {confirmed.title}, on {confirmed_branch(record.branch)}{gain}"
