"""All that is recorded of a night, whether its journal or its shipped record is here."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from agent.experiment import Ask, Attempt, Night, Noise, Options, best_of
from agent.findings import Confirmation, Findings
from agent.records.journal import Journal
from agent.script.dials import Value

Turned = Mapping[str, tuple[Value, Value]]  # dial → its value in the parent and in the attempt, where they differ
# The options that say how a night was judged. Others are private: an agent's command line, a server's address.
PUBLIC = ("judge", "confirm", "plausible_gain", "early_stop", "sandbox", "proposer", "study", "metric")


@dataclass(frozen=True)  # no slots: cached_property needs a __dict__
class Record:
    """A night with everything that happened in it: it runs here, was shipped, or is an earlier one to learn from.

    Every view draws this, and `summary_of` sums it up.
    """

    night: Night
    attempts: tuple[Attempt, ...]  # the place of each is its number
    asks: tuple[Ask, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    noise: Noise | None = None
    is_here: bool = True  # the journal is here, so the night can go on

    @property
    def tag(self) -> str:
        return self.night.tag

    @property
    def device(self) -> str:
        return self.night.device

    @property
    def protocol(self) -> str:
        return self.night.protocol

    @property
    def budget_s(self) -> float:
        return self.night.budget_s

    @property
    def sigma_bpb(self) -> float | None:
        """Return the standard deviation of one run; None where it is not known."""
        return self.noise.sigma_bpb if self.noise else None

    @cached_property
    def ended(self) -> str | None:
        """Return when its last run ended; None before any has."""
        return max(
            (run.ended for attempt in self.attempts for run in attempt.runs if run.ended is not None), default=None
        )

    @cached_property
    def ideas(self) -> tuple[Attempt, ...]:
        """Return the attempts that were proposed: neither attempt 0 nor the confirmation's questions."""
        return tuple(attempt for attempt in self.attempts if attempt.is_edit)

    def attempt(self, number: int | None) -> Attempt | None:
        """Return the attempt of this number; None where there is none."""
        return self.attempts[number] if number is not None and number < len(self.attempts) else None

    def parent(self, attempt: Attempt) -> Attempt | None:
        """Return the attempt that this one edits; None for attempt 0."""
        return self.attempt(attempt.parent)

    @cached_property
    def best(self) -> Attempt | None:
        """Return the attempt that was kept last."""
        return best_of(self.attempts)

    @property
    def to_take(self) -> Attempt | None:
        """Return the attempt that was confirmed, else the one that was kept last; None before anything is kept."""
        kept, findings = self.best, self.findings
        if kept is None or findings is None or kept.number not in (findings.best, findings.script):
            return kept
        return self.attempt(findings.script) or kept

    @property
    def best_number(self) -> int | None:
        return self.best.number if self.best else None

    @cached_property
    def findings(self) -> Findings | None:
        """Return what the latest confirmation that has found anything has found."""
        return next(
            (confirmation.findings for confirmation in reversed(self.confirmations) if confirmation.findings), None
        )

    @cached_property
    def turned(self) -> dict[int, Turned]:
        """Return attempt → the dials that its script and its parent's both have and set otherwise."""
        return {attempt.number: turned_from(self.attempts[attempt.parent or 0], attempt) for attempt in self.attempts}

    @cached_property
    def turned_dials(self) -> frozenset[str]:
        """Return the names of all dials that an attempt has turned."""
        return frozenset(name for turned in self.turned.values() for name in turned)

    @cached_property
    def merged_as(self) -> dict[int, int]:
        """Return overtaken attempt → the latest one that carries its edit."""
        return {
            attempt.proposal.merges: attempt.number for attempt in self.attempts if attempt.proposal.merges is not None
        }

    def usd(self, attempt: Attempt) -> float | None:
        """Return what the proposal of an attempt has cost; None where no cost is known."""
        costs = [ask.usd for ask in self.asks if ask.attempt == attempt.number and ask.usd is not None]
        return sum(costs) if costs else None


def turned_from(base: Attempt, attempt: Attempt) -> Turned:
    """Return the dials that the scripts of both have and set otherwise."""
    before, after = base.outline.dials, attempt.outline.dials
    return {name: (before[name], value) for name, value in after.items() if name in before and before[name] != value}


def public(night: Night) -> Night:
    """Return a night without its owner's private facts: the place of the data, and options that are not PUBLIC."""
    options = Options(**{name: getattr(night.options, name) for name in PUBLIC})
    return replace(night, data="", pins={}, options=options)


def of_journal(journal: Journal) -> Record:
    """Read a night from its journal."""
    return Record(journal.night(), journal.attempts(), journal.asks(), journal.confirmations(), journal.noise())


# ---- an earlier night, as evidence for a later one -------------------------------------------------------------------

OTHER_PROTOCOL, OTHER_DEVICE = 0.5, 0.5  # how much a night on another text, or another device of the kind, tells


def likeness(past: Night, night: Night) -> float:
    """Return how much an earlier night tells about this one, 0 to 1: 1 with the same device and protocol."""
    if (past.device_kind, past.options.metric) != (night.device_kind, night.options.metric):
        return 0.0
    if min(past.budget_s, night.budget_s) <= 0:
        return 0.0
    alike = 1.0 if past.device == night.device else OTHER_DEVICE
    if past.protocol != night.protocol:
        budgets = past.budget_s, night.budget_s
        alike *= OTHER_PROTOCOL * min(budgets) / max(budgets)
    return alike
