"""Tell which ideas of the catalogue this night has tried, and which it has not."""

from agent.proposers.author.quoting import quoted
from agent.proposers.author.sections import first
from agent.proposers.briefing import Briefing, KnownIdea

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
