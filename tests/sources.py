"""Sources of ideas and what they are told, for tests of what asks them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from judged import decided
from samples import NIGHT

from agent.experiment import Ask, Attempt, Ending, Proposal, Run, Score, Status
from agent.proposers.briefing import Briefing, Proposer
from agent.proposers.mix import USUAL, Asked, Mix, Prior
from agent.proposers.outbox import Outbox

SCRIPT = "def main(): ...\ndef load_model(): ...\n"


def attempt(number: int, source: str, gain_bpb: float = 0.0, spent_s: float = 300.0, **more: object) -> Attempt:
    status = Status.KEEP if gain_bpb or number == 0 else more.pop("status", Status.DISCARD)
    run = Run(0, Ending.FINISHED, 0, spent_s, None, "", Score(1.0 - 0.001 * number, 0.0))
    proposal = Proposal(f"{SCRIPT}LR = {number}\n", f"attempt {number}", "", source, **more)
    decision = decided(status, "", gain_bpb if number else None)
    return Attempt(number, 0 if number else None, proposal, "", "c", (run,), decision, True)


def brief(history: list[Attempt], asks: tuple[Ask, ...] = (), **more: object) -> Briefing:
    best = next(one for one in reversed(history) if one.status is Status.KEEP)
    return Briefing(NIGHT, history, best, asks=asks, **more)


@dataclass
class Source:
    """Proposes something new under its name, or raises what it was given."""

    name: str
    error: Exception | None = None
    briefings: list[Briefing] = field(default_factory=list)

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        self.briefings.append(briefing)
        if self.error is not None:
            raise self.error
        return [Proposal(f"{SCRIPT}X = {len(self.briefings)}\n", "an idea", "", self.name)]


def mixed(
    sources: Mapping[str, Proposer],
    seed: int | str,
    *,
    first: Collection[str] = (),
    last: Collection[str] = (),
    repairers: Collection[str],
    alike: Mapping[str, Collection[str]] | None = None,
    priors: Mapping[str, Prior] | None = None,
    outbox: Outbox | None = None,
) -> Mix:
    """A mix of these sources, some of which are asked first, or last, or cost something."""
    asked = {
        name: Asked(
            source,
            name in repairers,
            name in first,
            name in last,
            frozenset((alike or {}).get(name, ())),
            (priors or {}).get(name, USUAL),
        )
        for name, source in sources.items()
    }
    return Mix(asked, seed, outbox or Outbox(lambda: False))
