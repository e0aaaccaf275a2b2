"""The facts of a night as frozen records. They hold no script, so that ten thousand attempts fit into memory.

Terminal, JSON, page and exports show these records and those that are computed from them, and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.experiment import NightCall, Part, Run
from agent.judging.intervals import Interval
from agent.records.summary import Share
from agent.script.dials import Value


@dataclass(frozen=True, slots=True)
class DecisionFacts:
    """Hold a decision on an attempt; the last of an attempt holds."""

    at: str | None  # ISO 8601, UTC; None where no time was recorded
    kind: str  # a Kind's word
    status: str | None
    words: str  # the reason, for people
    gain_bpb: float | None  # over its parent, by the judge's shrunken estimate
    sure: float | None  # the probability of a gain, 0 to 1
    order: int = 0  # among all decisions of the night, as they were recorded


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """Hold one attempt of a night, in the state of its latest decision."""

    number: int
    parent: int | None
    title: str
    hypothesis: str
    source: str  # as the proposal names it, such as "catalogue: smear"
    status: str | None  # keep, discard or crash; None: not decided yet
    kind: str | None
    words: str | None  # the latest decision's
    val_bpb: float | None  # mean over the night's runs that count
    seeds: int
    gain_bpb: float | None
    sure: float | None
    memory_gb: float | None
    params: int | None
    tokens_s: float | None
    spent_s: float  # training, scoring and audits
    asked_s: float  # for the proposal
    usd: float | None  # of the proposal; None: no cost is known
    started: str
    commit: str | None
    without: tuple[Part, ...]  # the edits that a script of dawn leaves out; empty for an idea
    # dial → its value in the parent and here, where they differ; of a long night, of kept and late attempts alone
    dials: Mapping[str, tuple[Value, Value]]
    runs: tuple[Run, ...]  # those that have ended, dawn's and repeated ones included
    decisions: tuple[DecisionFacts, ...]
    dry_run_s: float = 0.0
    merges: int | None = None  # the overtaken attempt whose edit it carries onto the best script of its time
    merged_as: int | None = None  # the latest attempt that carries its own edit

    @property
    def is_idea(self) -> bool:
        """Return whether this is no ablation of dawn's; attempt 0 counts, too."""
        return not self.without


@dataclass(frozen=True, slots=True)
class DawnFacts:
    """Hold dawn's findings on the champion."""

    number: int
    champion: int
    script: int | None  # the confirmed attempt; None: not confirmed
    recorded_bpb: float | None
    believed_bpb: float | None
    honest: Interval | None  # on fresh seeds
    holdout: Interval | None
    edits: tuple[tuple[Part, Interval | None], ...]  # each kept edit's effect, or a half's
    passengers: tuple[Part, ...]
    title: str | None = None  # of the confirmed attempt


@dataclass(frozen=True, slots=True)
class NightFacts:
    """Hold a night: what it ran on, its attempts, and where it stands."""

    tag: str
    branch: str  # as people name it; "" where it is not known
    device: str
    device_kind: str
    budget_s: float
    protocol: str
    started: str
    ended: str | None  # of its last run; None: it has none
    sigma_bpb: float | None  # standard deviation of one run; None where it is not known
    smallest_bpb: float | None  # the smallest difference of two single runs that the night can tell apart
    attempts: tuple[AttemptFacts, ...]  # by number; where the night is lost, some may be missing
    incumbent: int | None
    sources: tuple[Share, ...]
    dawn: DawnFacts | None
    lost: bool = False  # only the rows of results.tsv are left: no hypotheses, runs or decisions
    noise_runs: int | None = None  # repeated runs that sigma is learnt from
    doubt: str | None = None  # why sigma says little, so that it was doubled
    most_usd: float | None = None  # the limit of its cost
    calls: tuple[NightCall, ...] = ()  # as far as they were recorded
    shipped: bool = False  # read from its shipped record: its journal and its commits are elsewhere

    @property
    def is_here(self) -> bool:
        """Say whether the night can go on here."""
        return not (self.lost or self.shipped)

    @property
    def ideas(self) -> tuple[AttemptFacts, ...]:
        """Return the attempts that were proposed: neither attempt 0 nor dawn's questions."""
        return tuple(one for one in self.attempts if one.is_idea and one.parent is not None)

    def attempt(self, number: int | None) -> AttemptFacts | None:
        """Return the attempt of this number; None where there is none."""
        return next((one for one in self.attempts if one.number == number), None)
