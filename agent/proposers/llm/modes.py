"""The modes of asking a language model: one edit, three different ideas, or several near misses combined.

The task comes last in a prompt and says all that differs between the modes, so that the text before it is the same in
every mode and a provider's cache holds it.
"""

from collections.abc import Sequence
from enum import StrEnum

from agent.proposers.author.near import Combinable


class AskMode(StrEnum):
    """Name a mode by the source that its ideas are credited to: each mode earns its own share of a night."""

    EDIT = "llm"
    EXPLORE = "explore"
    COMBINE = "combine"


SOURCES = frozenset(mode.value for mode in AskMode)  # all that a language model's ideas and calls are credited to


def task_of(mode: AskMode, script: str, parts: Combinable | None = None) -> str:
    """Return the task that ends a prompt, with the form of the answer; `parts`: what may be combined."""
    match mode:
        case AskMode.EXPLORE:
            return (
                f"This time answer with three edits of {script} instead of one: three ideas that differ from each "
                "other and from all attempts so far. Each changes another part or rests on another mechanism; no "
                "attempt has tried anything like it, and turning a dial alone is no such idea. Each has to lower "
                "val_bpb by itself: they are tried one after the other, each alone. Give each idea whole, in the form "
                f"that you were given, from its TITLE: line to its last block, under a line IDEA 1, IDEA 2 or IDEA "
                f"3. All blocks refer to {script} as it stands above. Keep each idea small: what "
                "is cut off is lost."
            )
        case AskMode.COMBINE if parts is not None:
            kept = f" In {script} above stand those that were kept: {_listed(parts.keeps)}." if parts.keeps else ""
            return (
                f"This time combine attempts. These were nearly kept, and {script} above lacks them: "
                f"{_listed(parts.near)}. The gain of each alone was too small to be told from luck.{kept} Choose two "
                "or more of all these attempts whose gains should add up, at least one of those that were nearly "
                f"kept, and write one edit of {script}, as it stands above, that brings in what it lacks of them. "
                "Leave out what works against the rest. Answer in the form that you were given, with one line more "
                "after TITLE:, which names the attempts that you combine:\n\n"
                "COMBINES: their numbers, with commas between them"
            )
        case _:
            return (
                f"Propose one edit of {script}, as it stands above, that lowers val_bpb and that has not been tried "
                "yet. One idea, in the form that you were given."
            )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
