"""What one try is asked to do: an edited script, what it is about, and the options of a night that it may open."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from agent.errors import NightError
from agent.experiment import TITLE_CHARS, Proposal
from agent.text import one_line

SOURCE = "you"


@dataclass(frozen=True, slots=True)
class TryRequest:
    """Hold what `nightshift try` was given; None leaves the choice to the harness, or to the night that goes on."""

    script: str  # the whole text
    file: str  # it was read from, for messages
    path: str  # of the night's script inside the repository
    message: str
    tag: str | None
    budget_s: float | None
    seed: int | None
    terms: Mapping[str, Any]
    anyway: bool  # though it lacks kept edits
    submitted: str  # ISO 8601, UTC
    based_on: int | None = None  # the attempt that it was made from, as far as that was known when it was submitted
    merged_onto: int | None = None  # the best attempt, where the script is the edit merged onto its script

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "TryRequest":
        """Build a request from facts that were read; raise ValueError or TypeError for those that no request holds."""
        found = cls(**facts)
        texts = (found.script, found.file, found.path, found.message, found.submitted)
        numbers = (found.budget_s, found.seed, found.based_on, found.merged_onto)
        is_sound = all(isinstance(text, str) for text in texts) and isinstance(found.terms, dict)
        is_sound = is_sound and all(number is None or isinstance(number, int | float) for number in numbers)
        if not is_sound or not (found.tag is None or isinstance(found.tag, str)):
            raise ValueError(f"it has other facts than {', '.join(field.name for field in fields(cls))}")
        return found

    @property
    def title(self) -> str:
        return one_line(self.message.strip().partition("\n")[0], TITLE_CHARS)

    def proposal(self) -> Proposal:
        """Return the edited script with its title and its reason; raise NightError for an empty message."""
        title, _, why = self.message.strip().partition("\n")
        if not title.strip():
            raise NightError("--message is empty; say what is tried and why")
        why = why or title
        if self.merged_onto is not None:
            why += f"\n\nMerged onto attempt {self.merged_onto}, which was kept while it waited."
        return Proposal.of(self.script, title, why, SOURCE)
