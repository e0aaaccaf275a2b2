"""Leave out of an answer to a program all words of processes that score: its reader may be an author of scripts."""

from collections.abc import Mapping
from typing import Any

UNSHOWN = "its scoring or its audit failed (the words of that process are not shown: it has read the validation text)"


def without_scoring_words(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an attempt without words that a scoring process may have written.

    It has read the validation text. A script could print that text there for the next script to memorise.
    """
    runs = attempt["runs"]
    if not any(run["failure"] for run in runs):
        return dict(attempt)
    runs = [run | {"failure": UNSHOWN if run["failure"] else None} for run in runs]
    decisions = [one | {"words": UNSHOWN} for one in attempt["decisions"]]
    return {**attempt, "runs": runs, "decisions": decisions, "words": UNSHOWN}
