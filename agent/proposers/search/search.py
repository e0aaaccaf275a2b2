"""Search over the script's dials, from the scores alone; needs no key.

A night has tens of experiments, a script tens of dials, and the noise of a seed is as large as most gains. So every
proposal turns several dials at once, up to eight from the best place so far: its run tells something about each. A
model of the scores has a curve for every dial (curves.py). Thompson sampling (Thompson 1933; Chapelle & Li 2011) draws
curves from what is known; each draw has a place that is best by it, near the best place so far. Of these, the one with
the largest expected improvement is proposed, less what is likely to crash. Later, every second proposal is
the best place by the mean of the curves instead (acquisition.py).

A proposal is a function of the history and the seed alone: nothing is kept between calls, so a resumed night proposes
what an undisturbed one would have. What else was tried and did not pay is in benchmarks/README.md.
"""

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np

from agent.errors import Exhausted, ScriptError
from agent.experiment import Proposal, source_name
from agent.proposers.briefing import Briefing
from agent.proposers.search.acquisition import Acquisition
from agent.proposers.search.evidence import evidence_of
from agent.proposers.search.space import Axis, Coordinates, turned
from agent.records.shipped import PastNight
from agent.script.dials import Dial, Value, fingerprint, first_with, legible_dials, searched, set_dials, show

SOURCE = "search"
FIRST_DRAWN = 8  # proposals before any is by the mean: it says little as yet
NAMED = 3  # turns in a title


class Search:
    """Propose turns of the script's dials, by all scores so far.

    earlier: other nights, which count by their likeness to this one. Raise ScriptError if the script has no dial to
    turn, Exhausted if all places were tried.
    """

    def __init__(self, device_kind: str, seed: int | str, *, earlier: Sequence[PastNight] = ()) -> None:
        self._device_kind = device_kind
        self._seed = seed
        self._earlier = earlier

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        script, kind = briefing.parent.proposal.script, self._device_kind
        axes, here = _axes(searched(script, kind, legible_dials))
        evidence = evidence_of(axes, briefing, kind, self._earlier)
        rng = random.Random(f"{self._seed} {briefing.number} {len(briefing.refused)}")
        sigma_bpb = briefing.noise.sigma_bpb if briefing.noise else None
        acquisition = Acquisition.of(axes, here, evidence, sigma_bpb, np.random.default_rng(rng.getrandbits(64)))
        refused = [refusal.proposal for refusal in briefing.refused]
        turned_down = {fingerprint(proposal.script) for proposal in refused}
        own = sum(_is_own(one.proposal) for one in briefing.history) + sum(map(_is_own, refused))
        by_mean = own >= FIRST_DRAWN and own % 2 == 1
        for there in acquisition.places(rng, by_mean=by_mean):
            changed = turned(axes, here, there)
            if changed:
                candidate = set_dials(script, kind, changed)
                found = fingerprint(candidate)
                if found not in turned_down and first_with(found, briefing.history) is None:
                    return [_proposal(candidate, acquisition, there, changed, len(evidence))]
        raise Exhausted(f"search finds no untried setting of {len(axes)} dials; add dials or widen their ranges")


def _is_own(proposal: Proposal) -> bool:
    return source_name(proposal.source) == SOURCE


def _axes(dials: Sequence[Dial]) -> tuple[list[Axis], Coordinates]:
    """Return the axes of these dials and their present place; leave out a dial whose value has none."""
    axes = [Axis.of(dial) for dial in dials]
    places = np.array([axis.place(axis.dial.value) for axis in axes], np.float64)
    if not np.isfinite(places).any():
        raise ScriptError(f"{dials[0].name} is {show(dials[0].value)}, which is not in its range; set it to what is")
    return [axis for axis, place in zip(axes, places, strict=True) if math.isfinite(place)], places[np.isfinite(places)]


def _proposal(
    script: str, acquisition: Acquisition, there: Coordinates, changed: Mapping[str, Value], attempts: int
) -> Proposal:
    """Make the proposal, whose title names the turns, those with the largest expected effect first."""
    axes, here, curves = acquisition.axes, acquisition.here, acquisition.curves
    apart = np.abs(curves.at(here, curves.mean) - curves.at(there, curves.mean))
    order = np.argsort(-apart, kind="stable")
    dials = [dial for dial in (axes[i].dial for i in order) if dial.name in changed]
    turns = [f"{dial.name} {show(dial.value)} → {show(changed[dial.name])}" for dial in dials]
    title = ", ".join(turns[:NAMED]) + (f" and {len(turns) - NAMED} more" if len(turns) > NAMED else "")
    what = " and ".join(f"{dial.name} = {show(changed[dial.name])}" for dial in dials)
    if attempts > 1:
        gain, error = curves.gain(here, there)
        why = f"by what {attempts} attempts say about {len(axes)} dials, val_bpb changes by {-gain:+.4f} ± {error:.4f}"
        why += ", and the run tells more about them" if gain <= 0 else ""
    else:
        why = f"nothing is known yet about {len(axes)} dials"
    return Proposal.of(script, title, f"{what}: {why}.", source=SOURCE)
