"""The head of the report: the night in a sentence, how sure that is, its figures, and what helped."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from agent.experiment import Status
from agent.invocation import typed
from agent.judging.intervals import Interval
from agent.text import one_line
from agent.view.facts.lineage import Kept, lineage
from agent.view.facts.nouns import AttemptFacts, DawnFacts, NightFacts

SURE = 1.96  # standard errors of an interval of 95 %
MOST_HELPED = 6
TITLE_CHARS = 160
ROW_PX = 18


# ---- facts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Balance:
    """Hold what a night comes to."""

    baseline: AttemptFacts | None
    best: AttemptFacts | None  # None: nothing has a score yet
    ideas: tuple[AttemptFacts, ...]  # without attempt 0 and dawn's ablations

    @classmethod
    def of(cls, night: NightFacts) -> "Balance":
        known = {one.number: one for one in night.attempts}
        best = None if night.incumbent is None else known.get(night.incumbent)
        ideas = tuple(one for one in night.attempts if one.number and one.is_idea)
        return cls(known.get(0), best, ideas)

    def count(self, status: Status) -> int:
        return sum(one.status == status for one in self.ideas)


def gained(night: NightFacts) -> Interval | None:
    """Return by how much the best script lies below the baseline, by the night's own scores and noise.

    None without a best script other than the baseline. Without a known noise the interval has no width.
    """
    end = Balance.of(night)
    if end.baseline is None or end.best is None or end.best is end.baseline:
        return None
    if end.baseline.val_bpb is None or end.best.val_bpb is None:
        return None
    mean_bpb = end.baseline.val_bpb - end.best.val_bpb
    runs = 1 / max(1, end.baseline.seeds) + 1 / max(1, end.best.seeds)
    half_bpb = SURE * (night.sigma_bpb or 0.0) * math.sqrt(runs)
    return Interval(mean_bpb, mean_bpb - half_bpb, mean_bpb + half_bpb)


# ---- sentences -------------------------------------------------------------------------------------------------------


def claim(night: NightFacts) -> str:
    """Return what was tried and what it brought, in one sentence."""
    end = Balance.of(night)
    tried = counted(len(end.ideas), "idea")
    if end.best is None or end.best.val_bpb is None or end.baseline is None:
        return f"{tried} tried, and no script has a score yet."
    if not end.ideas:
        return f"The baseline scores {_bpb(end.best.val_bpb)} bits per byte, and no idea was tried yet."
    kept = end.count(Status.KEEP)
    if end.best is end.baseline or end.baseline.val_bpb is None:
        return f"{tried} tried, {kept} kept: the baseline is still the best script, at {_bpb(end.best.val_bpb)}."
    before, after = end.baseline.val_bpb, end.best.val_bpb
    went = "down" if after <= before else "up"
    return f"{tried} tried, {kept} kept: val_bpb went {went} from {_bpb(before)} to {_bpb(after)}."


def certainty(night: NightFacts) -> str:
    """Return how sure the gain is, as HTML."""
    dawn, gain = night.dawn, gained(night)
    if dawn is not None and dawn.honest is not None:
        return _of_dawn(dawn, dawn.honest)
    if gain is None:
        return "Lower is better." if night.attempts else ""
    ask = f"<code>{escape(typed('confirm', '--tag', night.tag))}</code>"
    return (
        f"By the night's own scores the best script gains <strong>{escape(_within(gain))}</strong> bits per byte. The "
        f"best of many attempts looks better than it is: {ask} measures it on fresh seeds."
    )


def _of_dawn(dawn: DawnFacts, honest: Interval) -> str:
    gain = f"<strong>{escape(_within(honest))}</strong> bits per byte"
    measured = f"Measured again on fresh seeds, #{dawn.champion} gains {gain} over the baseline"
    if dawn.script is None:
        what = "it is worse" if honest.high_bpb < 0 else "that may be luck"
        return f"{measured}: {what}, so it is <strong>not confirmed</strong>."
    if dawn.script == dawn.champion:
        return f"{measured}: <strong>confirmed</strong>."
    return f"{measured}. What brought nothing was taken out: #{dawn.script} is the <strong>confirmed</strong> script."


# ---- parts -----------------------------------------------------------------------------------------------------------


def head(night: NightFacts, among: int = 1) -> str:
    """Return the head of a night as HTML; `among` nights are in the page."""
    level = "h1" if among == 1 else "h2"
    gain = gained(night)
    columns = "".join(filter(None, (_helped(night), _how_sure(night) if gain is not None or night.dawn else "")))
    return (
        f'<header><p class="eyebrow">{escape(_where(night))}</p>'
        f'<{level} class="claim">{escape(claim(night))}</{level}>'
        f'<p class="lead">{certainty(night)}</p>{_figures(night)}</header>'
        + (f'<div class="columns">{columns}</div>' if columns else "")
    )


def _where(night: NightFacts) -> str:
    when = " to ".join(dict.fromkeys(at[:16].replace("T", " ") for at in (night.started, night.ended or "") if at))
    budget = f"{_time(night.budget_s)} a run" if night.budget_s else ""
    lost = "only its rows of results.tsv are left" if night.lost else ""
    return " · ".join(filter(None, (f"Night {night.tag}", night.device, budget, f"{when} UTC" if when else "", lost)))


def _figures(night: NightFacts) -> str:
    end, gain = Balance.of(night), gained(night)
    rows: list[tuple[str, str, str]] = []
    if end.best is not None and end.best.val_bpb is not None:
        name = "the baseline" if end.best.number == 0 else f"#{end.best.number}, {counted(end.best.seeds, 'seed')}"
        rows.append(("Best val_bpb", _bpb(end.best.val_bpb), name))
    if gain is not None:
        rows.append(("Gain in the night", _bpb(gain.mean_bpb), _ends(gain)))
        honest = night.dawn.honest if night.dawn is not None else None
        rows.append(("Honest gain at dawn", "–", "not measured") if honest is None else
                    ("Honest gain at dawn", _bpb(honest.mean_bpb), _ends(honest)))  # fmt: skip
    counts = [f"{end.count(status)} {word}" for status, word in ((Status.KEEP, "kept"), (Status.CRASH, "crashed"))]
    rows.append(("Ideas tried", f"{len(end.ideas):,}", " · ".join(counts)))
    rows.append(("Time spent", _spent(night), _paid(night)))
    if night.sigma_bpb is not None and night.smallest_bpb is not None:
        rows.append(("Noise of one run", f"σ {_bpb(night.sigma_bpb)}", f"tells {_bpb(night.smallest_bpb)} apart"))
    return '<dl class="figures">' + "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in rows
    ) + "</dl>"  # fmt: skip


def _spent(night: NightFacts) -> str:
    minutes = sum(one.spent_s for one in night.attempts) / 60
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min"


def _paid(night: NightFacts) -> str:
    costs = [one.usd for one in night.sources if one.usd is not None]
    return f"${sum(costs):.2f} paid" if costs else "training and scoring"


def _helped(night: NightFacts) -> str:
    """List the edits that the night has kept, the largest gain first."""
    kept = [one for one in lineage(night) if one.still_kept and one.number]
    if not kept:
        return ""
    kept.sort(key=lambda one: -(one.gain_bpb or 0.0))
    several = f" · {len(kept)} edits" if len(kept) > 1 else ""
    left = len(kept) - MOST_HELPED
    rest = f'<p class="soft">and {left} more in the table</p>' if left > 0 else ""
    items = "".join(_helped_item(one, night) for one in kept[:MOST_HELPED])
    title = f'<h2>What helped<span class="soft light">{several}</span></h2>'
    return f'<section>{title}<ol class="helped">{items}</ol>{rest}</section>'


def _helped_item(one: Kept, night: NightFacts) -> str:
    source = next(attempt.source for attempt in night.attempts if attempt.number == one.number)
    sure = "" if one.sure is None else f"{_percent(one.sure)} sure"
    gain = "–" if one.gain_bpb is None else f"{one.gain_bpb:+.4f}".replace("-", "−")
    return (
        f'<li><a class="title" dir="auto" href="#attempt-{one.number}">{escape(one_line(one.title, TITLE_CHARS))}</a>'
        f'<span class="gain">{gain}</span><small>#{one.number} · {escape(one_line(source, 60))}</small>'
        f"<small>{sure}</small></li>"
    )


# ---- how sure --------------------------------------------------------------------------------------------------------


def _how_sure(night: NightFacts) -> str:
    """Draw the gains over the baseline with their 95 % intervals below each other, zero marked."""
    gain, dawn = gained(night), night.dawn
    rows: list[tuple[str, Interval, str]] = [("in the night", gain, " weak")] if gain is not None else []
    if dawn is not None and dawn.honest is not None:
        rows.append(("on fresh seeds", dawn.honest, ""))
    if dawn is not None and dawn.holdout is not None:
        rows.append(("on the holdout", dawn.holdout, ""))
    if not rows:
        return ""
    low = min(0.0, *(found.low_bpb for _, found, _ in rows))
    span = (max(0.0, *(found.high_bpb for _, found, _ in rows)) - low) or 1.0
    drawn = "".join(_interval_row(words, found, look, low, span) for words, found, look in rows)
    note = "Bars are 95 % intervals; the dotted line is no gain. The holdout is text that no attempt was judged by."
    return (
        f'<section><h2>How sure<span class="soft light"> · gain over the baseline</span></h2>'
        f'<ul class="gains">{drawn}</ul><p class="soft small">{note}</p></section>'
    )


def _interval_row(words: str, found: Interval, look: str, low: float, span: float) -> str:
    zero, start, end, mean = (
        f"{2 + 96 * (bpb - low) / span:.1f}%" for bpb in (0.0, found.low_bpb, found.high_bpb, found.mean_bpb)
    )
    half = ROW_PX // 2
    return (
        f'<li><span class="soft">{escape(words)}</span><strong>{escape(_within(found))}</strong>'
        f'<svg class="interval" height="{ROW_PX}" aria-hidden="true">'
        f'<line class="zero" x1="{zero}" x2="{zero}" y1="0" y2="{ROW_PX}"/>'
        f'<line class="bar{look}" x1="{start}" x2="{end}" y1="{half}" y2="{half}"/>'
        f'<circle class="dot{look}" cx="{mean}" cy="{half}" r="5"/></svg></li>'
    )


# ---- several nights --------------------------------------------------------------------------------------------------


def comparison(nights: Sequence[NightFacts]) -> str:
    """Return a table of nights as HTML, the night with the largest gain marked."""
    names = ("Night", "Device", "Ideas", "Kept", "Baseline", "Best", "Gain (95 %)", "Honest gain (95 %)")
    heads = "".join(f'<th scope="col"{_numeric(at)}>{name}</th>' for at, name in enumerate(names))
    rows = "".join(_compared(night) for night in nights)
    apart = len({(night.protocol, night.device) for night in nights}) > 1
    warning = "Their devices, data or budgets differ, so their scores do not compare; their gains may." if apart else ""
    return (
        f'<header><p class="eyebrow">nightshift</p><h1 class="claim">{len(nights)} nights compared</h1>'
        f'<p class="lead">{warning}</p></header>'
        f'<div class="scrolls" tabindex="0" role="region" aria-label="The nights">'
        f'<table class="compared"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _compared(night: NightFacts) -> str:
    end, gain = Balance.of(night), gained(night)
    honest = night.dawn.honest if night.dawn is not None else None
    scores = (None if one is None else one.val_bpb for one in (end.baseline, end.best))
    cells = (
        night.tag,
        f"{night.device}, {_time(night.budget_s)}" if night.budget_s else night.device,
        f"{len(end.ideas):,}",
        str(end.count(Status.KEEP)),
        *("–" if score is None else _bpb(score) for score in scores),
        *("–" if found is None else _within(found) for found in (gain, honest)),
    )
    return "<tr>" + "".join(f"<td{_numeric(at)}>{escape(cell)}</td>" for at, cell in enumerate(cells)) + "</tr>"


def _numeric(at: int) -> str:
    return ' class="number"' if at > 1 else ""


# ---- words -----------------------------------------------------------------------------------------------------------


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _bpb(value: float) -> str:
    return f"{value:.4f}".replace("-", "−")


def _ends(found: Interval) -> str:
    if found.low_bpb == found.high_bpb:
        return "its noise is not known"
    return f"{_bpb(found.low_bpb)} to {_bpb(found.high_bpb)}"


def _within(found: Interval) -> str:
    if found.low_bpb == found.high_bpb:
        return _bpb(found.mean_bpb)
    return f"{_bpb(found.mean_bpb)} ({_bpb(found.low_bpb)} to {_bpb(found.high_bpb)})"


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:g} s"
