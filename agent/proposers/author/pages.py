"""Write the view of a night as pages, for an author that reads files or runs commands: no limit is as short there."""

from agent.experiment import Briefing
from agent.proposers.author.attempts import history
from agent.proposers.author.calls import calls
from agent.proposers.author.curves import curves
from agent.proposers.author.diffs import diffs
from agent.proposers.author.facts import lasting, present
from agent.proposers.author.known import known_ideas
from agent.proposers.author.turned import turned_dials

PLENTY_CHARS = 60_000  # of a part: an agent reads as it needs


def facts_page(briefing: Briefing) -> str:
    """Write what there is beside the attempts: the night, loss curves, dials and known ideas."""
    return _page(
        ("The night", "\n".join([*lasting(briefing), *present(briefing)])),
        ("Loss curves", curves(briefing, PLENTY_CHARS)),
        ("Dials", turned_dials(briefing, PLENTY_CHARS)),
        ("Known ideas", known_ideas(briefing, PLENTY_CHARS)),
    )


def attempts_page(briefing: Briefing) -> str:
    """Write the attempts, and the edits that teach most."""
    return _page(("Attempts", history(briefing, PLENTY_CHARS)), ("Edits", diffs(briefing, PLENTY_CHARS)))


def calls_page(briefing: Briefing) -> str:
    """Write what the training script may call."""
    return _page(("What the script may call", calls(briefing, PLENTY_CHARS) or "See the sources beside this file."))


def _page(*parts: tuple[str, str]) -> str:
    return "\n".join(f"# {title}\n\n{text}\n" for title, text in parts if text)
