"""Show the owner's program to one who answers once: without the sections for agents that drive themselves."""

import re

HEADING = re.compile(r"(#{1,6})\s+\S.*")
SELF_DRIVING = re.compile(r"\(self-driving agents\)\s*#*\s*$", re.IGNORECASE)  # ends the heading of such a section
FENCE = re.compile(r"\s{0,3}(```+|~~~+)")


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
