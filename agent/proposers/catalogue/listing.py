"""List the known ideas with all that is known of them, for people and programs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ScriptError
from agent.experiment import Attempt, History, Night, Status, incumbent
from agent.judging.noise import noise
from agent.proposers.catalogue.applying import applied, may_apply, patched
from agent.proposers.catalogue.catalogue import bases_of
from agent.proposers.catalogue.evidence import Prospect, prospects
from agent.proposers.catalogue.idea import idea_folders, read_ideas
from agent.records.past import PastNight


@dataclass(frozen=True, slots=True)
class Listed:
    """Hold an idea, and whether it applies to a script."""

    prospect: Prospect
    why_not: str | None  # None: it applies

    @property
    def nights(self) -> tuple[str, ...]:
        """Return the nights in which it was tried, in their order."""
        return tuple(dict.fromkeys(one.tag for one in self.prospect.measured))

    @property
    def gain_percent(self) -> float | None:
        """Return the mean of all measured gains, each weighted by how exact it is and how much its night tells."""
        known = [
            (one.likeness / max(one.error_percent, 1e-9) ** 2, one.gain_percent)
            for one in self.prospect.measured
            if one.gain_percent is not None
        ]
        return math.fsum(weight * gain for weight, gain in known) / math.fsum(w for w, _ in known) if known else None

    @property
    def kept(self) -> Attempt | None:
        """Return the attempt of this night by which it was kept, if it is."""
        return next((one for one in self.prospect.attempts if one.status is Status.KEEP), None)

    @property
    def state(self) -> str:
        """Say in a word whether the night may try it, or which attempt did."""
        if self.kept is not None:
            return f"kept #{self.kept.number}"
        if not self.prospect.is_open:
            return f"tried #{self.prospect.attempts[-1].number}"
        if self.why_not is not None:
            return "no"
        return "unlikely" if self.prospect.is_unlikely else "yes"


def listing(
    file: Path, night: Night, script: str, history: History, past: Sequence[PastNight], *, exactly: str | None = None
) -> tuple[list[Listed], tuple[str, ...]]:
    """Return the ideas for the script in this file, and a sentence for each bad file.

    They come in the order in which the night tries them, the one first from which most is expected. At the end are
    those that it does not try now, and last those that do not apply.
    script: the text to which they are to apply, which a night may have edited since; exactly: the idea of which it is
    told to the last line whether it does.
    """
    ideas, faults = read_ideas(*idea_folders(file))
    found = noise(history) if incumbent(history) is not None else None
    known = prospects(ideas, night, history, found.sigma_bpb if found else None, past)
    bases = bases_of(history)
    listed = [
        Listed(one, _why_not(one, script, bases, night.device_kind, exactly=one.idea.slug == exactly)) for one in known
    ]
    return sorted(listed, key=lambda one: (one.why_not is not None, one.state != "yes")), faults


def _why_not(one: Prospect, script: str, bases: Sequence[str], device_kind: str, *, exactly: bool) -> str | None:
    """Return why an idea does not apply; None where it does. exactly: merge it, instead of looking for its lines."""
    patch, slug = one.idea.patch, one.idea.slug
    if not exactly:
        is_at_home = patched(patch, script) is not None or may_apply(patch, script)
        return None if is_at_home else f"idea {slug} is about lines that this script does not have"
    try:
        applied(one.idea, script, bases, device_kind)
    except ScriptError as error:
        return str(error)
    return None
