"""Describe what there is beside the attempts: the night, loss curves, dials that were turned, known ideas."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from agent.experiment import Attempt, Ending, History, Status, Summary, kept
from agent.proposers.author.attempts import AttemptRow, memory_gb, rows
from agent.proposers.author.excerpts import first, harmless_code, quoted, written
from agent.proposers.briefing import Briefing, Curve, KnownIdea, Left
from agent.script.dials import Dial, Value, dials_in, is_number, legible_dials, show
from agent.text import counted, one_line


def lasting(briefing: Briefing) -> str:
    """List the facts that no attempt changes: device, corpus, training time."""
    return written("night", night=briefing.night, setting=briefing.setting)


def present(briefing: Briefing) -> str:
    """List the facts that hold now: noise, the incumbent, where its time goes, what is left of the night."""
    best = briefing.parent
    return written(
        "so_far",
        noise=briefing.noise,
        best=best,
        pace=_pace(best),
        size=_size(best.summary or Summary()),
        memory_gb=memory_gb(best, briefing.night.device_kind),
        setting=briefing.setting,
        left=_left(briefing.left),
    )


def _pace(best: Attempt) -> str:
    summary = best.summary or Summary()
    return _known(
        ("{:,} steps", summary.num_steps),
        ("{:.4g} M tokens", summary.total_tokens_M),
        ("{:,.0f} tokens a second, with start and end", best.tokens_s),
    )


def _size(summary: Summary) -> str:
    """Describe a model by the numbers in its run's own summary, which are not verified."""
    return _known(
        ("{:.6g} M parameters", summary.num_params_M),
        ("{:.6g} layers", summary.depth),
        ("{:.6g} % of the device's peak FLOPS", summary.mfu_percent),
    )


def _known(*facts: tuple[str, object]) -> str:
    return ", ".join(form.format(value) for form, value in facts if isinstance(value, int | float))


def _left(left: Left) -> str:
    words = [] if left.experiments is None else [counted(left.experiments, "experiment")]
    if left.seconds is not None:
        hours = left.seconds / 3600
        words.append(f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes")
    return ", ".join(words)


# ---- loss curves -----------------------------------------------------------------------------------------------------

POINTS, LOSERS = 10, 3
ABSURD = 1e4  # no loss is as large
HALF = 0.5  # of the budget: later, learning rates fall with the time, and losses at equal tokens mislead
ABOUT = """\
Mean training loss of each tenth of the training time, one run each; speed against the incumbent's; and how far the loss
is above the incumbent's after as many tokens, at half of the slower one's time. Below zero, the attempt learns more
from each token: where it is behind at equal time, its speed is the reason."""


def compared(history: History, best: Attempt) -> tuple[Attempt, ...]:
    """Return the attempts whose curves are worth a look: the incumbent, the keep before it, the latest losers."""
    before = [one for one in kept(history) if one.number != best.number]
    lost = [one for one in history if one.status is Status.DISCARD and one.is_idea and has_curve(one)]
    return (best, *before[-1:], *lost[: -LOSERS - 1 : -1])


def has_curve(attempt: Attempt) -> bool:
    return any(run.ending in (Ending.FINISHED, Ending.HOPELESS) for run in attempt.done_runs)


def thinned(points: Sequence[tuple[float, float]]) -> Curve:
    """Return the mean loss of each tenth of the budget that has a point, at the end of that tenth."""
    means: list[tuple[float, float]] = []
    marks = [fraction for fraction, _ in points]
    for tenth in range(1, POINTS + 1):
        begin = 0 if tenth == 1 else bisect_left(marks, (tenth - 1) / POINTS)
        end = len(points) if tenth == POINTS else bisect_left(marks, tenth / POINTS)
        losses = [loss for _, loss in points[begin:end]]
        if losses:
            means.append((tenth / POINTS, sum(losses) / len(losses)))
    return tuple(means)


def curves(briefing: Briefing, most_chars: int) -> str:
    """Write the table of curves; without the last columns where it would be too long."""
    known = briefing.setting.curves if briefing.setting is not None else {}
    by_number = {row.attempt.number: row for row in rows(briefing)}
    numbers = [one.number for one in compared(briefing.history, briefing.parent) if known.get(one.number)]
    for count in range(len(numbers), 1, -1):
        shown = numbers[:count]
        table = _table([by_number[number] for number in shown], [known[number] for number in shown])
        text = "\n".join([ABOUT, "", *table])
        if len(text) <= most_chars:
            return text
    return ""


def _table(chosen: Sequence[AttemptRow], drawn: Sequence[Curve]) -> list[str]:
    best = drawn[0]
    columns = [["time", *(f"{tenth / POINTS:.0%}" for tenth in range(1, POINTS + 1)), "tokens/s", "equal tokens"]]
    for at, (row, curve) in enumerate(zip(chosen, drawn, strict=True)):
        found = {round(fraction * POINTS): _loss_words(loss) for fraction, loss in curve}
        title = f"#{row.attempt.number} {'incumbent' if at == 0 else row.verdict}"
        speed = "" if row.speed is None or at == 0 else f"{row.speed - 1:+.0%}"
        ahead = None if row.speed is None or at == 0 else _at_equal_tokens(curve, best, row.speed)
        losses = [found.get(tenth, "") for tenth in range(1, POINTS + 1)]
        columns.append([title, *losses, speed, "" if ahead is None else _loss_words(ahead, "+")])
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _loss_words(loss: float, sign: str = "") -> str:
    """Write a loss; one that a script made up may have hundreds of digits."""
    return format(loss, f"{sign}.3f" if abs(loss) < ABSURD else f"{sign}.0e")


def _at_equal_tokens(curve: Curve, best: Curve, speed: float) -> float | None:
    """Return how far a loss is above the incumbent's, after the tokens that the slower has read by half of its time."""
    mine, theirs = (HALF, HALF * speed) if speed < 1 else (HALF / speed, HALF)
    loss, other = _loss_at(curve, mine), _loss_at(best, theirs)
    return None if loss is None or other is None else loss - other


def _loss_at(curve: Curve, fraction: float) -> float | None:
    """Interpolate a curve; a point is the mean of its tenth, and so is the loss in the middle of that."""
    points = [(end - 0.5 / POINTS, loss) for end, loss in curve]
    for (start, before), (end, after) in pairwise(points):
        if start <= fraction <= end:
            return before + (after - before) * (fraction - start) / (end - start)
    return None


# ---- known ideas, and dials that were turned -------------------------------------------------------------------------

IDEA_CHARS = 100
UNTRIED = "Not tried yet, the most promising first; the night may try them without you:"


def known_ideas(briefing: Briefing, most_chars: int) -> str:
    """List the ideas that were not tried, the most promising first, then the others; the last go if room is short."""
    ideas = briefing.setting.ideas if briefing.setting is not None else ()
    tried = [f"- {_named(idea)}: {idea.state}" for idea in ideas if idea.state.startswith(("kept", "tried"))]
    untried = [f"- {_named(idea)}" for idea in ideas if idea.state == "yes"]
    doubted = [f"- {_named(idea)}" for idea in ideas if idea.state == "unlikely"]
    text = ""
    for head, lines in ((UNTRIED, untried), ("Tried:", tried), ("Not tried, and unlikely to help:", doubted)):
        shown = first(lines, most_chars - len(text) - len(head) - 2)
        if shown:
            text += "\n".join([*(["", ""] if text else []), head, *shown])
    return text


def _named(idea: KnownIdea) -> str:
    return quoted(idea.title, IDEA_CHARS)  # its patch may be anybody's


HEAD = "Turned, from the value that the script had then (↑ up, ↓ down):"
VALUE_CHARS = 60  # of one: a script may put any text into a dial
LATEST = 8  # turns of one dial that are listed
MOST_AT_ONCE = 3  # dials of one edit: with more, its verdict says little about each


def turned_dials(briefing: Briefing, most_chars: int) -> str:
    """List the searchable dials that were turned, with the outcomes, and the names of all others."""
    dials = _searchable(briefing)
    turns, among_many = _turns(briefing)
    lines = [
        f"- {one.name} = {_shown(one.value)}: {'; '.join(turns[one.name][-LATEST:])}"
        for one in dials
        if turns[one.name]
    ]
    rest = [one.name for one in dials if not turns[one.name]]
    tails = (
        ("Turned only among many others at once", [name for name in rest if name in among_many]),
        ("Never turned in this night", [name for name in rest if name not in among_many]),
    )
    tail = [f"{words}: {', '.join(names)}." for words, names in tails if names]
    shown = first(lines, most_chars - sum(map(len, tail)) - len(tail) - len(HEAD))
    text = "\n".join([*([HEAD] if shown else []), *shown, *tail])
    return text if len(text) <= most_chars else ""


def _searchable(briefing: Briefing) -> list[Dial]:
    """Return the dials of the incumbent that have a range; all of them where none has."""
    found = legible_dials(briefing.parent.proposal.script, briefing.night.device_kind)
    ranged = [dial for dial in found if dial.span is not None]
    return list({dial.name: dial for dial in ranged or found}.values())


def _turns(briefing: Briefing) -> tuple[dict[str, list[str]], set[str]]:
    """Return what came of turning each dial, in the order of the attempts; and the dials of edits that turned many."""
    by_number = {row.attempt.number: row for row in rows(briefing)}
    found: dict[str, list[str]] = defaultdict(list)
    among_many: set[str] = set()
    for row in by_number.values():
        parent = by_number.get(-1 if row.attempt.parent is None else row.attempt.parent)
        if parent is None or not row.attempt.is_idea:
            continue
        old, new = (dials_in(one.attempt.proposal.script, briefing.night.device_kind) for one in (parent, row))
        changed = [name for name, value in new.items() if name in old and old[name] != value]
        if len(changed) > MOST_AT_ONCE:
            among_many.update(changed)
            continue
        together = f" with {len(changed) - 1} more" if len(changed) > 1 else ""
        for name in changed:
            found[name].append(f"{_direction(old[name], new[name])} {row.verdict} #{row.attempt.number}{together}")
    return found, among_many


def _direction(old: Value, new: Value) -> str:
    if is_number(old) and is_number(new):
        return f"{'↑' if new > old else '↓'}{_shown(new)}"  # type: ignore[operator]
    return f"→ {_shown(new)}"


def _shown(value: Value) -> str:
    return harmless_code(one_line(show(value), VALUE_CHARS))
