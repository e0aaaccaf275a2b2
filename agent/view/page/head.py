"""The head of the report: the night in a sentence, how sure that is, its figures, and what helped."""

from dataclasses import dataclass

from markupsafe import Markup

from agent.experiment import Kind
from agent.invocation import typed
from agent.judging.findings import Findings
from agent.judging.intervals import Interval
from agent.records.record import Home, Record
from agent.records.summary import NightSummary, summary_of
from agent.text import budget, counted, duration
from agent.view.course import Kept, lineage
from agent.view.words import bpb, ends, within


@dataclass(frozen=True, slots=True)
class Head:
    """Hold what the template shows above the table."""

    where: str
    claim: str
    lead: Markup
    figures: list[tuple[str, str, str]]  # name, value, and a small line below it
    helped: list[tuple[Kept, str]]  # kept edits with their origin, the largest gain first
    gains: list["Bar"]  # over the baseline, with their intervals


@dataclass(frozen=True, slots=True)
class Bar:
    """Hold an interval with its places on a common scale, in percent of the width."""

    name: str
    words: str
    is_weak: bool
    zero: float
    start: float
    end: float
    mean: float


def head(night: Record) -> Head:
    """Return the head of a night's report."""
    now = summary_of(night)
    return Head(
        _where(night), claim(now), certainty(night, now), _figures(night, now), _helped(night), _gains(night, now)
    )


# ---- sentences -------------------------------------------------------------------------------------------------------


def claim(now: NightSummary) -> str:
    """Return what was tried and what it brought, in one sentence."""
    tried, first, best = counted(now.ideas, "idea"), now.baseline, now.best
    if best is None or first is None:
        begun = "No idea was tried yet: the baseline is measured first."
        return f"{tried} tried, and no script has a score yet." if now.ideas else begun
    if not now.ideas:
        return f"The baseline scores {bpb(best.val_bpb)} bits per byte, and no idea was tried yet."
    found = f"{tried} tried, {now.kept} kept"
    if best.number == 0:
        return f"{found}: the baseline is still the best script, at {bpb(best.val_bpb)}."
    went = "down" if best.val_bpb <= first.val_bpb else "up"
    return f"{found}: val_bpb went {went} from {bpb(first.val_bpb)} to {bpb(best.val_bpb)}."


def certainty(night: Record, now: NightSummary) -> Markup:
    """Return how sure the gain is, and the next step."""
    dawn, gain = night.findings, now.gain
    if dawn is not None and dawn.honest is not None:
        return _of_dawn(dawn, dawn.honest) + _next_step(night, dawn)
    if gain is None:
        return _without_gain(night)
    sentence = Markup("By the night's own scores the best script gains <strong>{}</strong> bits per byte.")
    again = Markup(": {} measures it again.").format(_command("confirm", night.tag))
    looks = " The best of many attempts looks better than it is" + (again if night.is_here else Markup("."))
    return sentence.format(within(gain)) + _doubts(night, gain) + looks


def _without_gain(night: Record) -> Markup:
    words = (
        [Markup("The score, val_bpb, is bits per byte of held-out text: lower is better.")] if night.attempts else []
    )
    if night.noise is not None and night.noise.doubt is not None:
        sentence = Markup(
            "The baseline hardly trains ({}), so a gain can hardly be told from noise: begin a night with a longer "
            "<code>--budget-s</code> or a smaller model."
        )
        words.append(sentence.format(night.noise.doubt))
    elif night.ideas and night.is_here:
        words.append(_command("run", "--tag", night.tag) + " tries more ideas.")
    return Markup(" ").join(words)


def _doubts(night: Record, gain: Interval) -> str:
    if not gain.has_width:
        return " How sure that is, is not known."
    luck = " The interval includes zero, so all of it may be luck." if gain.low_bpb <= 0 else ""
    doubt = night.noise.doubt if night.noise else None
    if doubt is None:
        return luck
    return (
        f"{luck} The baseline hardly trains ({doubt}), so its noise says little about that of other scripts, "
        f"and σ is doubled."
    )


def _of_dawn(dawn: Findings, honest: Interval) -> Markup:
    measured = Markup("Measured again on fresh seeds, #{} gains <strong>{}</strong> bits per byte over the baseline")
    measured = measured.format(dawn.champion, within(honest))
    if dawn.script is None:
        what = "it is worse" if honest.high_bpb < 0 else "that may be luck"
        return measured + Markup(": {}, so it is <strong>not confirmed</strong>.").format(what)
    if dawn.script == dawn.champion:
        return measured + Markup(": <strong>confirmed</strong>.")
    taken_out = ". What brought nothing was taken out: #{} is the <strong>confirmed</strong> script."
    return measured + Markup(taken_out).format(dawn.script)


def _next_step(night: Record, dawn: Findings) -> Markup:
    """Return what the owner does after a dawn."""
    if not night.is_here:
        return Markup("")
    if dawn.script is None:
        further = Markup(" {} looks further, {} measures it with more seeds.")
        return further.format(_command("run", "--tag", night.tag), _command("confirm", night.tag))
    return Markup(" {} puts it into your working tree.").format(_command("take", f"{night.tag}:confirmed"))


def _command(*words: str) -> Markup:
    return Markup("<code>{}</code>").format(typed(*words))


# ---- parts -----------------------------------------------------------------------------------------------------------


def _where(night: Record) -> str:
    began, ended = (at[:16].replace("T", " ") for at in (night.started, night.ended or ""))
    until = ended[11:] if ended[:10] == began[:10] else ended
    when = f"{began} to {until}" if began and ended not in ("", began) else began or ended
    trained = f"{budget(night.budget_s)} a run" if night.budget_s else ""
    lost = "only its rows of results.tsv are left" if night.home is Home.ROWS else ""
    return " · ".join(filter(None, (f"Night {night.tag}", night.device, trained, f"{when} UTC" if when else "", lost)))


def _figures(night: Record, now: NightSummary) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    if now.best is not None:
        name = "the baseline" if now.best.number == 0 else f"#{now.best.number}, {counted(now.best.seeds, 'seed')}"
        rows.append(("Best val_bpb", bpb(now.best.val_bpb), name))
    if now.gain is not None:
        rows.append(("Gain in the night", bpb(now.gain.mean_bpb), ends(now.gain)))
        honest = night.findings.honest if night.findings is not None else None
        measured = ("–", "not measured") if honest is None else (bpb(honest.mean_bpb), ends(honest))
        rows.append(("Honest gain at dawn", *measured))
    rows.append(("Ideas tried", f"{now.ideas:,}", f"{now.kept} kept · {now.crashed} crashed"))
    workers = {run.worker for attempt in night.attempts for run in attempt.runs}
    spent_on = f"{len(workers)} workers together" if len(workers) > 1 else "training and scoring"
    spent_on = spent_on if now.usd is None else f"${now.usd:.2f} paid"
    rows.append(("Time spent", duration(now.hours["training"] + now.hours["scoring"]), spent_on))
    if night.noise is not None:
        few = f"below {bpb(night.noise.smallest_bpb)} may be luck"
        rows.append(("Noise of one run", f"σ {bpb(night.noise.sigma_bpb)}", few))
    return rows


def _helped(night: Record) -> list[tuple[Kept, str]]:
    """Return the edits that the night has kept, the largest gain first, each with its source."""
    ideas = {idea.number: idea for idea in night.ideas}
    kept = [edit for edit in lineage(night) if edit.still_kept and edit.number in ideas]
    kept.sort(key=lambda edit: -(edit.gain_bpb or 0.0))
    provisional = f" · {Kind.PROVISIONAL}"
    return [
        (edit, ideas[edit.number].source + (provisional if ideas[edit.number].kind == Kind.PROVISIONAL else ""))
        for edit in kept
    ]


def _gains(night: Record, now: NightSummary) -> list[Bar]:
    """Return the gains over the baseline with their 95 % intervals, on one scale; none where no noise is known."""
    dawn = night.findings
    at_dawn = (dawn.honest, dawn.holdout) if dawn is not None else (None, None)
    rows = zip(("in the night", "on fresh seeds", "on the holdout"), (now.gain, *at_dawn), strict=True)
    gains = {name: gain for name, gain in rows if gain is not None}
    if not any(gain.has_width for gain in gains.values()):
        return []
    low = min(0.0, *(gain.low_bpb for gain in gains.values()))
    span = (max(0.0, *(gain.high_bpb for gain in gains.values())) - low) or 1.0

    def percent(value: float) -> float:
        return round(2 + 96 * (value - low) / span, 1)

    return [
        Bar(name, within(gain), gain is now.gain, *map(percent, (0.0, gain.low_bpb, gain.high_bpb, gain.mean_bpb)))
        for name, gain in gains.items()
    ]
