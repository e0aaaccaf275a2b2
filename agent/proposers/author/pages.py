"""Write the view of a night as pages, for an author that reads files or runs commands: no limit is as short there."""

import re

from agent.proposers.author.attempts import diffs, history
from agent.proposers.author.calls import calls
from agent.proposers.author.night import curves, known_ideas, lasting, present, turned_dials
from agent.proposers.briefing import Briefing

PLENTY_CHARS = 60_000  # of a part: an agent reads as it needs
HEADING = re.compile(r"(#{1,6})\s+\S.*")
SELF_DRIVING = re.compile(r"\(self-driving agents\)\s*#*\s*$", re.IGNORECASE)  # ends the heading of such a section
FENCE = re.compile(r"\s{0,3}(```+|~~~+)")


def facts_page(briefing: Briefing) -> str:
    """Write what there is beside the attempts: the night, loss curves, dials and known ideas."""
    return _page(
        ("The night", f"{lasting(briefing)}\n{present(briefing)}"),
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


def for_one_answer(program: str) -> str:
    """Return the program without sections whose heading ends in "(self-driving agents)", and what is below them."""
    shown: list[str] = []
    level, fence = 0, ""  # of the heading that is left out, and of the code block that is open
    for line in program.split("\n"):
        mark = FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence else HEADING.fullmatch(line)
        if heading is not None and (not level or len(heading[1]) <= level):
            level = len(heading[1]) if SELF_DRIVING.search(line) else 0
        if not level:
            shown.append(line)
    return "\n".join(shown)
