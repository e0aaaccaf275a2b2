"""Tell which known ideas and which dials of the incumbent this night has tried, and which it has not."""

from collections import defaultdict

from agent.proposers.author.attempts import rows
from agent.proposers.author.excerpts import first, harmless_code, quoted
from agent.proposers.briefing import Briefing, KnownIdea
from agent.script.dials import Dial, Value, dials_in, is_number, legible_dials, show
from agent.text import one_line

TITLE_CHARS = 100
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
    return quoted(idea.title, TITLE_CHARS)  # its patch may be anybody's


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
