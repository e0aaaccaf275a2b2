"""The modes of asking a language model: one edit, three different ideas, or several near misses combined.

The task comes last in a prompt and says all that differs between the modes, so that the text before it is the same in
every mode and a provider's cache holds it.
"""

from collections.abc import Sequence
from enum import StrEnum

IDEAS = 3  # of one answer that explores


class AskMode(StrEnum):
    """Name a mode by the source that its ideas are credited to: each mode earns its own share of a night."""

    EDIT = "llm"
    EXPLORE = "explore"
    COMBINE = "combine"


def task_of(mode: AskMode, script: str, numbers: Sequence[int] = ()) -> str:
    """Return the task that ends a prompt, with the form of the answer.

    numbers: of the attempts that may be combined, in the mode that combines.
    """
    match mode:
        case AskMode.EXPLORE:
            return (
                f"This time answer with three edits of {script} instead of one: three ideas that differ from each "
                "other and from all attempts so far. Each changes another part or rests on another mechanism; no "
                "attempt has tried anything like it, and turning a dial alone is no such idea. Each has to lower "
                "val_bpb by itself: they are tried one after the other, each alone. Give each idea whole, in the form "
                f"that you were given, from its TITLE: line to its last block, under a line IDEA 1, IDEA 2 or IDEA "
                f"3. All blocks refer to {script} as it stands above. Keep each idea small: an answer that is cut off "
                "is lost."
            )
        case AskMode.COMBINE:
            return (
                f"This time combine attempts. These were kept or nearly kept: {', '.join(map(str, numbers))}. What is "
                f"kept stands in {script} above; an edit that was nearly kept does not, and its gain alone was too "
                "small to be told from luck. Choose two or more of these attempts whose gains should add up, at least "
                f"one of them not in {script} yet, and write one edit of {script}, as it stands above, that brings in "
                "those that it lacks. Leave out what works against the others. Answer in the form that you were "
                "given, with one line more after TITLE:, which names the attempts that you combine:\n\n"
                "COMBINES: their numbers, with commas between them"
            )
        case _:
            return (
                f"Propose one edit of {script}, as it stands above, that lowers val_bpb and that has not been tried "
                "yet. One idea, in the form that you were given."
            )
