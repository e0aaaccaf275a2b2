"""The head of the report: the night in a sentence, how sure that is, its figures, and what helped."""

from collections.abc import Sequence
from html import escape

from agent.experiment import Kind
from agent.invocation import typed
from agent.judging.intervals import Interval
from agent.text import budget, counted, duration, one_line, percent_sure
from agent.view.facts.lineage import Kept, lineage
from agent.view.facts.nouns import AttemptFacts, DawnFacts, NightFacts
from agent.view.facts.overview import overview_of

MOST_HELPED = 6
TITLE_CHARS = 160
ROW_PX = 18


# ---- facts -----------------------------------------------------------------------------------------------------------


# ---- sentences -------------------------------------------------------------------------------------------------------


def claim(night: NightFacts) -> str:
    """Return what was tried and what it brought, in one sentence."""
    now = overview_of(night)
    tried, first, best = counted(now.ideas, "idea"), now.baseline, now.best
    if best is None or first is None:
        begun = "No idea was tried yet: the baseline is measured first."
        return f"{tried} tried, and no script has a score yet." if now.ideas else begun
    if not now.ideas:
        return f"The baseline scores {_bpb(best.val_bpb)} bits per byte, and no idea was tried yet."
    found = f"{tried} tried, {now.keep} kept"
    if best.number == 0:
        return f"{found}: the baseline is still the best script, at {_bpb(best.val_bpb)}."
    went = "down" if best.val_bpb <= first.val_bpb else "up"
    return f"{found}: val_bpb went {went} from {_bpb(first.val_bpb)} to {_bpb(best.val_bpb)}."


def certainty(night: NightFacts) -> str:
    """Return how sure the gain is, as HTML."""
    dawn, gain = night.dawn, overview_of(night).gain
    if dawn is not None and dawn.honest is not None:
        return _of_dawn(dawn, dawn.honest) + _next_step(night, dawn)
    if gain is None:
        return _without_gain(night)
    looks = "The best of many attempts looks better than it is"
    again = f": {_command('confirm', night.tag)} measures it again."
    advice = again if night.is_here else "."
    return (
        f"By the night's own scores the best script gains <strong>{escape(_within(gain))}</strong> bits per byte."
        f"{_doubts(night, gain)} {looks}{advice}"
    )


def _without_gain(night: NightFacts) -> str:
    words = ["The score, val_bpb, is bits per byte of held-out text: lower is better."] if night.attempts else []
    if night.doubt is not None:
        words.append(
            f"The baseline hardly trains ({escape(night.doubt)}), so a gain can hardly be told from noise: begin a "
            f"night with a longer <code>--budget-s</code> or a smaller model."
        )
    elif night.ideas and night.is_here:
        words.append(f"{_command('run', '--tag', night.tag)} tries more ideas.")
    return " ".join(words)


def _doubts(night: NightFacts, gain: Interval) -> str:
    if not gain.has_width:
        return " How sure that is, is not known."
    luck = " The interval includes zero, so all of it may be luck." if gain.low_bpb <= 0 else ""
    if night.doubt is None:
        return luck
    return (
        f"{luck} The baseline hardly trains ({escape(night.doubt)}), so its noise says little about that of other "
        f"scripts, and σ is doubled."
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


def _next_step(night: NightFacts, dawn: DawnFacts) -> str:
    """Return what the owner does after a dawn, as HTML."""
    if not night.is_here:
        return ""
    if dawn.script is None:
        run, confirm = _command("run", "--tag", night.tag), _command("confirm", night.tag)
        return f" {run} looks further, {confirm} measures it with more seeds."
    return f" {_command('take', f'{night.tag}:confirmed')} puts it into your working tree."


def _command(*words: str) -> str:
    return f"<code>{escape(typed(*words))}</code>"


# ---- parts -----------------------------------------------------------------------------------------------------------


def head(night: NightFacts, among: int = 1) -> str:
    """Return the head of a night as HTML; `among` nights are in the page."""
    level = "h1" if among == 1 else "h2"
    columns = _helped(night) + _how_sure(night)
    return (
        f'<header><p class="eyebrow">{escape(_where(night))}</p>'
        f'<{level} class="claim">{escape(claim(night))}</{level}>'
        f'<p class="lead">{certainty(night)}</p>{_figures(night)}</header>'
        + (f'<div class="columns">{columns}</div>' if columns else "")
    )


def _where(night: NightFacts) -> str:
    began, ended = (at[:16].replace("T", " ") for at in (night.started, night.ended or ""))
    day, minute = slice(10), slice(11, None)
    until = ended[minute] if ended[day] == began[day] else ended
    when = f"{began} to {until}" if began and ended not in ("", began) else began or ended
    trained = f"{budget(night.budget_s)} a run" if night.budget_s else ""
    lost = "only its rows of results.tsv are left" if night.lost else ""
    return " · ".join(filter(None, (f"Night {night.tag}", night.device, trained, f"{when} UTC" if when else "", lost)))


def _figures(night: NightFacts) -> str:
    now = overview_of(night)
    rows: list[tuple[str, str, str]] = []
    if now.best is not None:
        name = "the baseline" if now.best.number == 0 else f"#{now.best.number}, {counted(now.best.seeds, 'seed')}"
        rows.append(("Best val_bpb", _bpb(now.best.val_bpb), name))
    if now.gain is not None:
        rows.append(("Gain in the night", _bpb(now.gain.mean_bpb), _ends(now.gain)))
        honest = night.dawn.honest if night.dawn is not None else None
        measured = ("–", "not measured") if honest is None else (_bpb(honest.mean_bpb), _ends(honest))
        rows.append(("Honest gain at dawn", *measured))
    counts = f"{now.keep} kept · {now.crash} crashed"
    rows.append(("Ideas tried", f"{now.ideas:,}", counts))
    spent = duration(now.hours["training"] + now.hours["scoring"])
    workers = {run.worker for one in night.attempts for run in one.runs}
    spent_on = f"{len(workers)} workers together" if len(workers) > 1 else "training and scoring"
    rows.append(("Time spent", spent, spent_on if now.usd is None else f"${now.usd:.2f} paid"))
    if night.sigma_bpb is not None and night.smallest_bpb is not None:
        rows.append(("Noise of one run", f"σ {_bpb(night.sigma_bpb)}", f"below {_bpb(night.smallest_bpb)} may be luck"))
    return '<dl class="figures">' + "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in rows
    ) + "</dl>"  # fmt: skip


def _helped(night: NightFacts) -> str:
    """List the edits that the night has kept, the largest gain first."""
    ideas = {one.number: one for one in night.ideas}
    kept = [one for one in lineage(night) if one.still_kept and one.number in ideas]
    if not kept:
        return ""
    kept.sort(key=lambda one: -(one.gain_bpb or 0.0))
    several = f" · {len(kept)} edits" if len(kept) > 1 else ""
    left = len(kept) - MOST_HELPED
    rest = f'<p class="soft">and {left} more in the table</p>' if left > 0 else ""
    items = "".join(_helped_item(one, ideas[one.number]) for one in kept[:MOST_HELPED])
    title = f'<h2>What helped<span class="soft light">{several}</span></h2>'
    return f'<section>{title}<ol class="helped">{items}</ol>{rest}</section>'


def _helped_item(one: Kept, idea: AttemptFacts) -> str:
    origin = one_line(idea.source, 60) + (f" · {Kind.PROVISIONAL}" if idea.kind == Kind.PROVISIONAL else "")
    sure = "" if one.sure is None else f"{percent_sure(one.sure)} sure"
    gain = "–" if one.gain_bpb is None else f"{one.gain_bpb:+.4f}".replace("-", "−")
    return (
        f'<li><a class="title" dir="auto" href="#attempt-{one.number}">{escape(one_line(one.title, TITLE_CHARS))}</a>'
        f'<span class="gain">{gain}</span><small>#{one.number} · {escape(origin)}</small>'
        f"<small>{sure}</small></li>"
    )


# ---- how sure --------------------------------------------------------------------------------------------------------


def _how_sure(night: NightFacts) -> str:
    """Draw the gains over the baseline with their 95 % intervals below each other, zero marked."""
    gain, dawn = overview_of(night).gain, night.dawn
    rows: list[tuple[str, Interval, str]] = [("in the night", gain, " weak")] if gain is not None else []
    if dawn is not None and dawn.honest is not None:
        rows.append(("on fresh seeds", dawn.honest, ""))
    if dawn is not None and dawn.holdout is not None:
        rows.append(("on the holdout", dawn.holdout, ""))
    if not any(found.has_width for _, found, _ in rows):
        return ""
    low = min(0.0, *(found.low_bpb for _, found, _ in rows))
    span = (max(0.0, *(found.high_bpb for _, found, _ in rows)) - low) or 1.0
    drawn = "".join(_interval_row(words, found, look, low, span) for words, found, look in rows)
    note = "Bars are 95 % intervals; the dotted line is no gain."
    if dawn is not None and dawn.holdout is not None:
        note += " The holdout is text that no attempt was judged by."
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
    names = ("Night", "Gain (95 %)", "Honest gain (95 %)", "Ideas", "Kept", "Baseline", "Best", "Run on")
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
    now = overview_of(night)
    honest = night.dawn.honest if night.dawn is not None else None
    cells = (
        night.tag,
        *("–" if found is None else _within(found) for found in (now.gain, honest)),
        f"{now.ideas:,}",
        str(now.keep),
        *("–" if score is None else _bpb(score.val_bpb) for score in (now.baseline, now.best)),
        f"{night.device}, {budget(night.budget_s)}" if night.budget_s else night.device,
    )
    return "<tr>" + "".join(f"<td{_numeric(at)}>{escape(cell)}</td>" for at, cell in enumerate(cells)) + "</tr>"


def _numeric(at: int) -> str:
    return ' class="number"' if 0 < at < 7 else ""


# ---- words -----------------------------------------------------------------------------------------------------------


def _bpb(value: float) -> str:
    return f"{value:.4f}".replace("-", "−")


def _ends(found: Interval) -> str:
    if not found.has_width:
        return "its noise is not known"
    return f"{_bpb(found.low_bpb)} to {_bpb(found.high_bpb)}"


def _within(found: Interval) -> str:
    if not found.has_width:
        return _bpb(found.mean_bpb)
    return f"{_bpb(found.mean_bpb)} ({_bpb(found.low_bpb)} to {_bpb(found.high_bpb)})"
