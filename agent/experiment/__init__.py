"""The nouns of a night, as frozen records, and the protocols of the parts that can be exchanged.

An *attempt* is one edit of the training script. It is measured by one or more *runs*, each with its own seed; a
run that came to its end has a *score*; the scores lead to a *decision*. Absence is ``None``, never zero.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol

from agent.experiment.chunks import by_chunk
from agent.experiment.decisions import NOT_BELIEVED, Decision, Entry, Kind, Review, Status
from agent.experiment.runs import VOID, Audit, DryRun, Ending, Run, Score, Summary, Weights
from agent.experiment.scripts import Script, holds_script, holds_text, packed_of
from agent.experiment.setting import Call, Corpus, Curve, KnownIdea, Phase, Setting
from agent.text import one_line, paragraphs

# names from the other files of this folder; those defined here need no entry
__all__ = [
    "NOT_BELIEVED", "VOID", "Audit", "Call", "Corpus", "Curve", "Decision", "DryRun", "Ending", "Entry", "Kind",
    "KnownIdea", "Phase", "Review", "Run", "Score", "Script", "Setting", "Status", "Summary", "Weights",
]  # fmt: skip
TITLE_CHARS, HYPOTHESIS_CHARS, SOURCE_CHARS = 200, 4000, 80


@holds_script
@holds_text("hypothesis")
@dataclass(frozen=True, slots=True)
class Proposal:
    script: str  # the whole text; held compressed, and a Script is taken as well
    title: str
    hypothesis: str
    source: str  # who proposed it: "you" for attempt 0, else the proposer's name
    repairs: int | None = None  # the crashed attempt that it repairs
    without: tuple[int, ...] = ()  # dawn's question, no idea: kept edits that the parent's script lacks, halves below 0
    merges: int | None = None  # the overtaken attempt whose edit it carries onto the incumbent

    @classmethod
    def of(
        cls,
        script: str,
        title: str,
        hypothesis: str = "",
        source: str = "",
        *,
        repairs: int | None = None,
        without: tuple[int, ...] = (),
        merges: int | None = None,
    ) -> "Proposal":
        """Make a proposal whose words are fit for the journal, a commit message and a terminal."""
        title = one_line(title, TITLE_CHARS) or "untitled"
        source = one_line(source, SOURCE_CHARS) or "unknown"
        return cls(script, title, paragraphs(hypothesis, HYPOTHESIS_CHARS), source, repairs, without, merges)

    @property
    def packed(self) -> Script:
        """Return the compressed script, for callers that need only its hash."""
        return packed_of(self)


@dataclass(frozen=True, slots=True)
class Noise:
    """Hold how far scores vary with the seed alone."""

    sigma_bpb: float  # standard deviation of one run
    runs: int  # repeated runs that it is learnt from
    smallest_bpb: float  # the smallest difference between two single runs that is not luck, 19 times in 20
    doubt: str | None = None  # why attempt 0 says little about it, so that it was widened


@dataclass(frozen=True, slots=True)
class Attempt:
    """Hold one row of the ledger: an edit, its runs, and the decisions on it."""

    number: int
    parent: int | None  # the attempt whose script was edited; None for attempt 0
    proposal: Proposal
    started: str  # ISO 8601, UTC
    commit: str | None = None
    runs: tuple[Run, ...] = ()
    decision: Decision | None = None
    settled: bool = False  # branch, ledger and weights follow the decision
    dry_run: DryRun | None = None  # None where nothing but dials was turned: nothing can break that did not before
    decisions: tuple[Entry, ...] = ()  # all that the journal has of it, the present one last

    @property
    def status(self) -> Status | None:
        return self.decision.status if self.decision else None

    @property
    def kind(self) -> Kind | None:
        return self.decision.kind if self.decision else None

    @property
    def kept_since(self) -> int:
        """Return the id of the decision since which the attempt is kept without a break; 0 if it is not kept."""
        unbroken = takewhile(lambda entry: entry.decision.status is Status.KEEP, reversed(self.decisions))
        return min((entry.id for entry in unbroken), default=0)

    @property
    def is_idea(self) -> bool:
        """Return whether it is an idea: dawn's questions about the champion are not, even if adopted."""
        return not self.proposal.without

    @property
    def counted_runs(self) -> tuple[Run, ...]:
        """Return the runs that count, dawn's included: void ones are repeated.

        The first run with a seed during which the machine went down, as in a power cut, is void. The second with the
        same seed counts: a script that crashes the machine would do so each time.
        """
        if len(self.runs) == 1:  # as most have
            return () if self.runs[0].ending in VOID or self.runs[0].ending is Ending.FELLED else self.runs
        felled = {run.seed: run for run in reversed(self.runs) if run.ending is Ending.FELLED}  # the first of each seed
        return tuple(run for run in self.runs if run.ending not in VOID and run is not felled.get(run.seed))

    @property
    def done_runs(self) -> tuple[Run, ...]:
        """Return the runs of the night, without dawn's: it judges and learns from these alone."""
        return tuple(run for run in self.counted_runs if not run.dawn)

    def dawn_runs(self, dawn: int | None = None) -> tuple[Run, ...]:
        """Return the runs of this dawn; None: of every dawn."""
        return tuple(run for run in self.counted_runs if run.dawn and dawn in (None, run.dawn))

    @property
    def seeds(self) -> int:
        """Return how many runs of the night it had, failed ones included; each has another seed."""
        return len(self.done_runs)

    @property
    def scores_bpb(self) -> tuple[float, ...]:
        """Return the scores of the night's runs; dawn's scores are used for dawn's findings only."""
        scores = (run.score for run in self.done_runs)
        return tuple(score.val_bpb for score in scores if score is not None and score.val_bpb is not None)

    @property
    def val_bpb(self) -> float | None:
        """Return the mean of the night's scores; None without any score, and for a crash."""
        if self.status is Status.CRASH or not self.scores_bpb:
            return None
        return statistics.fmean(self.scores_bpb)

    @property
    def val_bpb_std(self) -> float | None:
        return statistics.stdev(self.scores_bpb) if len(self.scores_bpb) > 1 else None

    @property
    def spent_s(self) -> float:
        """Return the seconds of all runs of the night."""
        return sum(run.spent_s for run in self.done_runs)

    @property
    def summary(self) -> Summary | None:
        """Return the summary of the last run that left one."""
        return next((run.summary for run in reversed(self.counted_runs) if run.summary), None)

    @property
    def weights(self) -> Weights | None:
        """Return the largest sizes that any of its runs saved; None if those of a run are not known."""
        known = [run.weights for run in self.done_runs if run.ending is Ending.FINISHED]
        counted = [weights for weights in known if weights is not None]
        if not counted or len(counted) < len(known):
            return None
        return Weights(max(one.params for one in counted), max(one.data_bytes for one in counted))

    @property
    def peak_bytes(self) -> int | None:
        """Return the peak memory of its training runs, without those that a failure cut short."""
        trained = [run.peak_bytes for run in self.done_runs if run.ending in (Ending.FINISHED, Ending.HOPELESS)]
        return max((peak for peak in trained if peak is not None), default=None)

    @property
    def tokens_s(self) -> float | None:
        """Return the mean speed of its training runs, in tokens a second; None if no run has one."""
        speeds = [run.tokens_s for run in self.done_runs if run.tokens_s is not None]
        return statistics.fmean(speeds) if speeds else None


History = Sequence[Attempt]  # one night's attempts in the order of their numbers


def runs_at_dawns(history: History) -> int:
    """Count the runs at all dawns of a night."""
    return sum(len(attempt.dawn_runs()) for attempt in history)


def kept(history: History) -> list[Attempt]:
    """Return the attempts that are kept, in the order in which they came to be; by number where no journal tells."""
    now = (one for found in by_chunk(history, _kept_in) for one in found)
    return sorted(now, key=lambda attempt: (attempt.kept_since, attempt.number))


def _kept_in(attempts: tuple[Attempt, ...]) -> list[Attempt]:
    return [one for one in attempts if one.decision is not None and one.decision.status is Status.KEEP]


def incumbent(history: History) -> Attempt | None:
    """Return the attempt that the branch points at: the latest one kept."""
    return next(reversed(kept(history)), None)


@dataclass(frozen=True, slots=True)
class Dawn:
    """Hold one confirmation of a night's result: its champion measured with fresh seeds."""

    number: int  # from 1
    champion: int
    fresh: int  # runs of attempt 0 and of the champion each, before any edit is doubted
    began: str  # ISO 8601, UTC
    ended: str | None = None  # None while it goes on, and where it was interrupted
    findings: Mapping[str, Any] | None = None  # by the names of confirmation.Findings; None before anything is known


@dataclass(frozen=True, slots=True)
class NightCall:
    """Hold when a call of a night began, its first or one that goes on, and how many workers it has."""

    began: str  # ISO 8601, UTC
    workers: int


LOOK_BUDGET_S = 60.0  # of training


@dataclass(frozen=True, slots=True)
class Night:
    """Hold the facts of a night that are fixed when it opens; `terms` alone may change."""

    tag: str
    branch: str  # refs/heads/experiments/5min-<tag>
    script: str  # path inside the repository
    base: str  # HEAD when the night opened: parent of attempt 0
    budget_s: float
    seed: int
    device_kind: str  # cpu, metal, cuda
    device: str
    protocol: str  # fingerprint of data, budget and device kind: only equals are compared
    data: str  # folder of the prepared corpus
    started: str  # ISO 8601, UTC
    pins: str = "{}"  # JSON, kind → file → sha256: checked before every score (agent/records/checksums.py)
    terms: str = "{}"  # JSON, the options that hold for all of it (agent/records/terms.py); it may change
    id: str = ""  # by chance: no other night has it, nor a copy of this one elsewhere; "" before format 8


def is_look(budget_s: float) -> bool:
    """Return whether a night of such runs is a first look, whose scores and audits take less text."""
    return budget_s < LOOK_BUDGET_S


def short(ref: str) -> str:
    """Return a branch as people name it."""
    return ref.removeprefix("refs/heads/")


def attempt_ref(tag: str, number: int) -> str:
    return f"refs/experiments/{tag}/{number:04d}"


@dataclass(frozen=True, slots=True)
class Progress:
    """Hold the latest point of a running training's curve."""

    fraction: float  # of the budget, 0 to 1
    step: float | None = None
    loss: float | None = None
    tokens_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Hold one call to a source of ideas outside the harness: its cost, and whether it gave a proposal."""

    attempt: int  # the number that the idea would get
    source: str
    started: str  # ISO 8601, UTC
    wall_s: float
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: float | None = None
    failure: str | None = None  # None: a proposal came of it
    usd_most: float | None = None  # upper limit of the cost, if the tokens were not counted; None if usd is known
    tokens_cached: int | None = None  # of tokens_in, those that the server had in its cache; None: not told


@dataclass(frozen=True, slots=True)
class Refusal:
    """Hold a proposal that was turned down before it cost a run."""

    proposal: Proposal
    why: str


@dataclass(frozen=True, slots=True)
class Left:
    """Hold how much of a night is left; None: no limit."""

    experiments: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Briefing:
    """Hold everything that a proposer is told before it proposes."""

    night: Night
    history: History
    parent: Attempt  # whose script is to be edited: the incumbent
    noise: Noise | None = None  # None until two runs of one attempt were scored
    program: str = ""  # program.md, as it stands now
    notes: tuple[str, ...] = ()  # people's notes to the night, in their order
    asks: Sequence[Ask] = ()  # of the whole night
    refused: tuple[Refusal, ...] = ()  # the last tries for this proposal, and what was wrong with them
    broken: Attempt | None = None  # it crashed just now: its maker may repair it, once
    left: Left = Left()
    setting: Setting | None = None  # None: no source of the night can read
    asked_for: int | None = None  # see `number`

    @property
    def number(self) -> int:
        """Return the number that the idea would get as an attempt; of questions asked at once, each has another."""
        return len(self.history) if self.asked_for is None else self.asked_for


class Proposer(Protocol):
    def propose(self, briefing: Briefing) -> Proposal:
        """Return the next edit of the parent's script.

        Raise NoIdea if there is none this time, and Exhausted if there will never be another.
        """
        ...


class Judge(Protocol):
    @property
    def calibration(self) -> int:
        """Return how many runs attempt 0 gets at least; their spread is the noise."""
        ...

    def judge(self, attempt: Attempt, history: History) -> Decision:
        """Decide about an attempt from its runs so far and from all other attempts, in the order of numbers; pure.

        Attempts may end in any order: others may be undecided still, and later ones decided already.
        """
        ...

    def review(self, history: History) -> Review:
        """Return later decisions on settled attempts, or one that should be measured again; pure."""
        ...


class Watcher(Protocol):
    """Receive the events of a night, to show them: a terminal, a plain log, a test.

    worker: the name of its lease, which tells apart what goes on at the same time.
    """

    def night_stands(self, history: History, asks: Sequence[Ask], left: Left) -> None: ...
    def dawn_began(self, runs: int) -> None: ...
    def asking_began(self, number: int) -> None: ...
    def attempt_began(self, attempt: Attempt) -> None: ...
    def dry_run_began(self, attempt: Attempt, worker: str = ...) -> None: ...
    def run_began(self, attempt: Attempt, seed: int, worker: str = ...) -> None: ...
    def progressed(self, progress: Progress | None, elapsed_s: float, worker: str = ...) -> None: ...
    def scoring_began(self, attempt: Attempt, worker: str = ...) -> None: ...
    def audit_began(self, attempt: Attempt, worker: str = ...) -> None: ...
    def worker_rests(self, worker: str) -> None: ...
    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None: ...
    def said(self, sentence: str) -> None: ...


def by_source(attempts: Sequence[Attempt]) -> dict[str, list[Attempt]]:
    """Return the attempts of each source, in their order."""
    found: dict[str, list[Attempt]] = {}
    for one in attempts:
        found.setdefault(source_name(one.proposal.source), []).append(one)
    return found


def source_name(source: str) -> str:
    """Return the source's name without its model: llm for llm:some-model."""
    return source.partition(":")[0]
