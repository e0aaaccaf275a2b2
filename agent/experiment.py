"""The nouns of a night, as frozen records.

An *attempt* is one edit of the training script. It is measured by one or more *runs*, each with its own seed; a
run that came to its end has a *score*; the scores lead to a *decision*. Absence is ``None``, never zero.
"""

import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import takewhile
from typing import Any, Literal

from agent.errors import NightError
from agent.lab.hardware import DeviceKind
from agent.text import ABSURD, SCORE_DECIMALS, one_line, paragraphs, plain_lines

TITLE_CHARS, HYPOTHESIS_CHARS, PROPOSER_CHARS = 200, 4000, 80
MOST_SCRIPT_BYTES = 16 << 20  # a longer script is refused: a journal from elsewhere may unpack to gigabytes


# ---- runs ------------------------------------------------------------------------------------------------------------


class Ending(StrEnum):
    """Name how a training process ended."""

    RUNNING = "running"  # the process goes on, or the harness died and has not recorded an end
    FINISHED = "finished"
    CRASHED = "crashed"  # a non-zero exit code, or the promised files are not there
    OVERRAN = "overran"  # killed by the harness's clock
    EXCEEDED = "exceeded"  # killed at a limit of memory, disk or processes
    HOPELESS = "hopeless"  # ended early: its curve said that it would be no better than the incumbent
    SLEPT = "slept"  # the machine slept during it; redone
    STOPPED = "stopped"  # killed because the user asked; redone on resume
    LOST = "lost"  # the harness died during it; redone on resume
    INVALID = "invalid"  # the machine is to blame: its memory, disk, load, speed or driver, or a power cut; redone once
    BROKEN = "broken"  # the run failed, and attempt 0 fails on this machine as well; redone on resume


NOT_COUNTED = frozenset({Ending.RUNNING, Ending.SLEPT, Ending.STOPPED, Ending.LOST, Ending.INVALID, Ending.BROKEN})
RUNS_A_REPETITION = 4  # an edit may repeat one invalid run for each 4 runs that counted
BASELINE_TRIES = 4  # tries per seed of attempt 0; the last one counts even if the machine made it invalid


@dataclass(frozen=True, slots=True)
class Summary:
    """A script's own numbers about its run (summary.json); None for those that it does not report."""

    training_seconds: float | None = None
    total_seconds: float | None = None
    peak_vram_mb: float | None = None
    mfu_percent: float | None = None
    total_tokens_M: float | None = None  # noqa: N815, the names of summary.json
    num_steps: int | None = None
    num_params_M: float | None = None  # noqa: N815
    depth: int | None = None


Split = Literal["validation", "holdout"]  # the part of the text that a score is taken on
SPLITS: tuple[Split, ...] = ("validation", "holdout")
MEASURED = 1e-12, 1e9  # accepted range of scores, noise and budgets in seconds; with others, judges' sums overflow


@dataclass(frozen=True, slots=True)
class Audit:
    """A comparison of committed losses with a fresh process's logits for the same prefixes, without the targets."""

    positions: int  # number of losses compared
    worst_nats: float  # the largest difference
    wall_s: float
    failure: str | None = None  # None: passed
    overran: bool = False  # a process was killed by the harness's clock

    @property
    def passed(self) -> bool:
        return self.failure is None


@dataclass(frozen=True, slots=True)
class Score:
    """The trusted scorer's answer, bits per byte, or the number that the script prints; or why there is none."""

    val_bpb: float | None
    wall_s: float
    failure: str | None = None
    audit: Audit | None = None  # None: nothing was to be kept
    overran: bool = False  # the process was killed by the harness's clock
    is_reported: bool = False  # it is a number of the script's own, which nothing has checked
    is_turned: bool = False  # higher is better

    @property
    def spent_s(self) -> float:
        """Return the seconds of scoring and audit, by the harness's clock."""
        return self.wall_s + (self.audit.wall_s if self.audit else 0.0)


@dataclass(frozen=True, slots=True)
class Run:
    """One training process: how it ended and, once scored, what its weights are worth."""

    seed: int
    ending: Ending
    exit_code: int | None  # -n after signal n; None when the harness ended it
    wall_s: float
    summary: Summary | None
    last_lines: str  # the end of its log
    score: Score | None = None
    # 0: a run of the night; k: made in the k-th confirmation, with a seed that no choice has seen
    confirmation: int = 0
    # score on a text that no run of the night was judged by; only confirmation runs have one
    holdout: Score | None = None
    weights_bytes: int | None = None  # None: it saved no weights of its own
    params: int | None = None  # elements of all tensors in its weights; None where it saved none that can be read
    peak_bytes: int | None = None  # the most memory that its processes filled, by the harness's own watch
    forecast_bpb: float | None = None  # the score that its curve forecast when it was stopped early
    others_share: float | None = None  # of the processors that it wanted, what others took; None: it was not measured
    worker: str = field(default="local", compare=False)  # name of the worker that executed it
    began: str | None = field(default=None, compare=False)  # ISO 8601, UTC; None before it is recorded
    ended: str | None = field(default=None, compare=False)

    @property
    def given_s(self) -> float:
        """Return the seconds that the machine gave it: without what other programs took."""
        return self.wall_s * (1 - (self.others_share or 0.0))

    @property
    def steps_s(self) -> float | None:
        """Return the script's count of steps by its seconds of training; None if it gives none, or did not finish."""
        summary = self.summary
        if self.ending not in (Ending.FINISHED, Ending.INVALID) or not (summary and summary.num_steps):
            return None
        speed = summary.num_steps / summary.training_seconds if summary.training_seconds else 0.0
        return speed if 0 < speed < ABSURD else None

    @property
    def tokens_s(self) -> float | None:
        """Return the script's count of tokens by its seconds of training; None if it gives none, or did not finish."""
        summary = self.summary
        if self.ending is not Ending.FINISHED or not (summary and summary.total_tokens_M and summary.training_seconds):
            return None
        speed = 1e6 * summary.total_tokens_M / summary.training_seconds
        return speed if 0 < speed < ABSURD else None

    @property
    def val_bpb(self) -> float | None:
        """Return its score as judges compare it: lower is better."""
        if self.score is None or self.score.val_bpb is None:
            return None
        return 0 - self.score.val_bpb if self.score.is_turned else self.score.val_bpb

    @property
    def holdout_bpb(self) -> float | None:
        return self.holdout.val_bpb if self.holdout else None

    @property
    def scores(self) -> tuple[Score, ...]:
        """Return the scores that it has, of the validation text and of the holdout."""
        return tuple(score for score in (self.score, self.holdout) if score is not None)

    @property
    def failure(self) -> str | None:
        """Return why there is no score, or what an audit found."""
        words = (score.failure or (score.audit.failure if score.audit else None) for score in self.scores)
        return next(filter(None, words), None)

    @property
    def scoring_s(self) -> float:
        """Return the seconds of scoring and audits, by the harness's clock."""
        return sum(score.spent_s for score in self.scores)

    @property
    def spent_s(self) -> float:
        """Return the seconds of training, scoring and audits, by the harness's clock."""
        return self.wall_s + self.scoring_s


@dataclass(frozen=True, slots=True)
class DryRun:
    """A second of training and scoring: what breaks at the end of a run of minutes breaks here."""

    wall_s: float
    failure: str | None  # None: nothing broke
    overran: bool = False  # a process was killed by the harness's clock


# ---- decisions -------------------------------------------------------------------------------------------------------


class Status(StrEnum):
    """Name the verdict on an attempt."""

    KEEP = "keep"
    DISCARD = "discard"
    CRASH = "crash"


class Kind(StrEnum):
    """Name why an attempt has its status, for programs: the reason beside it is for people alone."""

    status: Status | None  # None where the attempt has none by it

    def __new__(cls, word: str, status: Status | None = None) -> "Kind":
        kind = str.__new__(cls, word)
        kind._value_, kind.status = word, status
        return kind

    BASELINE = "baseline", Status.KEEP
    KEPT = "kept", Status.KEEP  # the gain is certain enough
    PROVISIONAL = "provisional", Status.KEEP  # the gain is likely, not certain
    CONFIRMED = "confirmed", Status.KEEP  # once provisional; more runs have made it certain
    SIMPLER = "simpler", Status.KEEP  # less code or fewer parameters at about the same score

    WORSE = "worse", Status.DISCARD
    TIE = "tie", Status.DISCARD
    LUCK = "luck", Status.DISCARD  # lower, but by too little to be worth a keep
    REVOKED = "revoked", Status.DISCARD  # kept before; by now the whole night's scores say otherwise
    STALE = "stale", Status.DISCARD  # overtaken, and in conflict with the edits kept meanwhile
    OVERTAKEN = "overtaken", Status.DISCARD  # better than its parent, which is no longer the best: to be merged
    ORPHANED = "orphaned", Status.DISCARD  # made from an attempt that is no longer kept
    IGNORES_SEED = "ignores its seed", Status.DISCARD
    STOPPED_EARLY = "stopped early", Status.DISCARD  # the curve forecast a score no better than the incumbent's
    TOO_SLOW = "too slow", Status.DISCARD
    FAILED_AUDIT = "failed audit", Status.DISCARD
    QUARANTINED = "quarantined", Status.DISCARD  # the gain is too large to be believed
    QUESTION = "question", Status.DISCARD  # a comparison that the confirmation asks for, not an idea

    # an arm of a study: the study compares it with the others when all runs are made
    MEASURED = "measured", Status.DISCARD

    CRASHED = "crashed", Status.CRASH

    UNDECIDED = "undecided"  # another seed has to tell
    INVALID = "invalid"  # the machine caused the failures: the attempt is measured again


NOT_BELIEVED = frozenset({Kind.FAILED_AUDIT, Kind.QUARANTINED})  # their scores are no measurements


@dataclass(frozen=True, slots=True)
class Decision:
    """What a judge, a check or the confirmation decided about an attempt."""

    kind: Kind
    reason: str  # the same for people
    gain_bpb: float | None = None  # the edit's gain over its parent, by the judge's shrunken estimate
    sure: float | None = None  # the probability that it brings anything, 0 to 1
    id: int = field(default=0, compare=False)  # counts up over the whole night; 0 before it is recorded
    at: str | None = field(default=None, compare=False)  # ISO 8601, UTC, to milliseconds

    @property
    def status(self) -> Status | None:
        return self.kind.status


@dataclass(frozen=True, slots=True)
class Review:
    """A judge's later decisions on settled attempts, or the attempt to measure again."""

    again: tuple[int, ...] = ()  # attempts to measure with another seed before the next idea, the most urgent first
    decisions: Mapping[int, Decision] = field(default_factory=dict)  # those that are no longer as they were recorded


# ---- attempts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outline:
    """What tells a script apart from others, on the night's kind of device; it is empty if it cannot be read."""

    dials: Mapping[str, Any] = field(default_factory=dict)  # dials whose values JSON can hold
    skeleton: str = ""  # a hash that leaves out the values of the dials: equal where two scripts differ in those alone
    fingerprint: str = ""  # a hash of the syntax tree, without comments and layout
    # counts statements, names, constants and a text's words, without docstrings and operations as shipped
    code_size: int = 0
    plain: tuple[str, ...] = ()  # operations that run as plain MLX, because the edit changed them or what they read

    def differs_in_dials_only(self, other: "Outline") -> bool:
        return "" != self.skeleton == other.skeleton


UNREAD = Outline()


@dataclass(frozen=True, slots=True)
class Proposal:
    """An edit of a script, as its proposer describes it."""

    title: str
    hypothesis: str
    proposer: str  # "you" for attempt 0, else the name of the proposer that had the edit
    repairs: int | None = None  # the crashed attempt that it repairs
    # kept edits that the parent's script lacks: a comparison for the confirmation, not an idea
    without: tuple[int, ...] = ()
    merges: int | None = None  # the overtaken attempt whose edit it carries onto the best script
    packed: bytes = field(default=b"", repr=False)  # the compressed script; b"": the record came without it

    @property
    def script(self) -> str:
        """Return the whole script; "" in a record that came without it. Raise NightError where it is damaged."""
        try:
            return unpacked(self.packed) if self.packed else ""
        except ValueError as error:
            raise NightError(
                f"the script of {self.title!r} is damaged in the journal ({error}); put the journal back from a backup"
            ) from error

    @classmethod
    def of(
        cls,
        script: str,
        title: str,
        hypothesis: str = "",
        proposer: str = "",
        *,
        repairs: int | None = None,
        without: tuple[int, ...] = (),
    ) -> "Proposal":
        """Make a proposal whose words are fit for the journal, a commit message and a terminal."""
        title = one_line(title, TITLE_CHARS) or "untitled"
        proposer = one_line(proposer, PROPOSER_CHARS) or "unknown"
        hypothesis = paragraphs(hypothesis, HYPOTHESIS_CHARS)
        return cls(title, hypothesis, proposer, repairs, without, packed=packed(plain_lines(script)))


def packed(script: str) -> bytes:
    """Return a script as journals and proposals hold it; half a surrogate pair, which no file has, is kept."""
    return zlib.compress(script.encode(errors="surrogatepass"))


def unpacked(packed: bytes) -> str:
    """Return the script that packed() was given; raise ValueError where it is damaged, or unpacks to far too much."""
    inflating = zlib.decompressobj()
    try:
        content = inflating.decompress(packed, MOST_SCRIPT_BYTES)  # some kilobytes may hold gigabytes
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not inflating.eof:
        raise ValueError(f"it does not end within {MOST_SCRIPT_BYTES >> 20} MB")
    return content.decode(errors="surrogatepass")


@dataclass(frozen=True, slots=True)
class Idea:
    """A proposal that waits until it is an attempt, or is dropped."""

    id: int  # counts up over the whole night
    parent: int  # the attempt whose script it edits
    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Noise:
    """How far scores vary with the seed alone."""

    sigma_bpb: float  # standard deviation of one run
    runs: int  # number of repeated runs that it is estimated from
    smallest_bpb: float  # the smallest difference between two single runs that is not luck, 19 times in 20
    doubt: str | None = None  # why attempt 0 says little about the noise, so that it was widened
    paired_bpb: float | None = None  # smallest_bpb for runs with one seed, of scripts that differ in dials alone


@dataclass(frozen=True)  # no slots: cached_property needs a __dict__
class Attempt:
    """One row of the results: an edit, its runs, and the decisions on it."""

    number: int
    parent: int | None  # the attempt whose script was edited; None for attempt 0
    proposal: Proposal
    started: str  # ISO 8601, UTC
    commit: str | None = None
    runs: tuple[Run, ...] = ()
    decisions: tuple[Decision, ...] = ()  # every decision that was recorded; the last one holds
    settled: bool = False  # branch, results and weights follow the decision
    dry_run: DryRun | None = None  # None where only dials were turned: nothing new can break
    outline: Outline = UNREAD

    @cached_property
    def decision(self) -> Decision | None:
        """Return the present decision; None before the first, and after one that makes the attempt invalid."""
        last = self.decisions[-1] if self.decisions else None
        return None if last is None or last.kind is Kind.INVALID else last

    @property
    def status(self) -> Status | None:
        return self.decision.status if self.decision else None

    @property
    def kind(self) -> Kind | None:
        return self.decision.kind if self.decision else None

    @property
    def words(self) -> str | None:
        """Return why it has its status, for people; None before it is decided."""
        return self.decision.reason if self.decision else None

    @property
    def gain_bpb(self) -> float | None:
        """Return the gain over its parent by the judge's shrunken estimate; None where there is none."""
        return self.decision.gain_bpb if self.decision else None

    @property
    def sure(self) -> float | None:
        return self.decision.sure if self.decision else None

    @property
    def title(self) -> str:
        return self.proposal.title

    @property
    def proposer(self) -> str:
        """Return who proposed it, as in "catalogue: smear"."""
        return self.proposal.proposer

    @cached_property
    def was_kept(self) -> bool:
        """Return whether it was kept, for a time or to the end."""
        return any(decision.status is Status.KEEP for decision in self.decisions)

    @cached_property
    def kept_since(self) -> int:
        """Return the id of the decision since which the attempt is kept without a break; 0 if it is not kept."""
        unbroken = takewhile(lambda decision: decision.status is Status.KEEP, reversed(self.decisions))
        return min((decision.id for decision in unbroken), default=0)

    @property
    def counts(self) -> bool:
        """Return whether its scores are relied on, and so are all audited: it is kept, or an arm of a study."""
        return self.status is Status.KEEP or self.kind is Kind.MEASURED

    @property
    def is_idea(self) -> bool:
        """Return whether it is an idea: the confirmation's questions about the best script are not."""
        return not self.proposal.without

    @property
    def is_edit(self) -> bool:
        """Return whether it is an idea that edits another attempt: attempt 0 does not."""
        return self.parent is not None and self.is_idea

    @cached_property
    def counted_runs(self) -> tuple[Run, ...]:
        """Return the runs that count, the confirmation's included: invalid ones are repeated."""
        return tuple(run for run in self.runs if run.ending not in NOT_COUNTED)

    def may_be_repeated(self, seed: int) -> bool:
        """Return whether a run with this seed is made again if the machine makes it invalid.

        A script could pretend that the machine was to blame for a bad run, and show the better of two with every seed.
        So an edit has one such run, and one more for each RUNS_A_REPETITION that counted.
        """
        invalid = [run.seed for run in self.runs if run.ending is Ending.INVALID]
        is_trusted = self.number == 0 or len(invalid) <= len(self.counted_runs) // RUNS_A_REPETITION
        return is_trusted and invalid.count(seed) < repetitions(self.number)

    @cached_property
    def done_runs(self) -> tuple[Run, ...]:
        """Return the runs of the night, without the confirmation's: the night judges by these alone."""
        return tuple(run for run in self.counted_runs if not run.confirmation)

    def confirmation_runs(self, confirmation: int | None = None) -> tuple[Run, ...]:
        """Return the runs of this confirmation; None: of every confirmation."""
        return tuple(run for run in self.counted_runs if run.confirmation and confirmation in (None, run.confirmation))

    @property
    def seeds(self) -> int:
        """Return how many runs of the night it had, failed ones included; each has another seed."""
        return len(self.done_runs)

    @cached_property
    def scores_by_seed(self) -> Mapping[int, float]:
        """Return the scores of the night's runs by seed; the confirmation's serve its findings alone."""
        return {run.seed: run.val_bpb for run in self.done_runs if run.val_bpb is not None}

    @cached_property
    def scores_bpb(self) -> tuple[float, ...]:
        """Return the scores of the night's runs."""
        return tuple(self.scores_by_seed.values())

    def lower_with_same_seeds(self, parent: "Attempt") -> float | None:
        """Return how far its scores lie below its parent's on average, seed by seed; None where no seed is common."""
        ours, theirs = self.scores_by_seed, parent.scores_by_seed
        differences = [theirs[seed] - ours[seed] for seed in ours if seed in theirs]
        return statistics.fmean(differences) if differences else None

    @property
    def is_reported(self) -> bool:
        """Return whether its scores are the script's own numbers."""
        return any(run.score is not None and run.score.is_reported for run in self.runs)

    @property
    def decimals(self) -> int | None:
        """Return the decimals of its scores; None for a script's own numbers, of which seven digits count."""
        return None if self.is_reported else SCORE_DECIMALS

    @property
    def shown_bpb(self) -> float | None:
        """Return the mean of the night's scores as a script prints them."""
        is_turned = any(run.score is not None and run.score.is_turned for run in self.runs)
        return 0 - self.val_bpb if is_turned and self.val_bpb is not None else self.val_bpb

    @property
    def val_bpb(self) -> float | None:
        """Return the mean of the night's scores, lower is better; None without any score, and for a crash."""
        if self.status is Status.CRASH or not self.scores_bpb:
            return None
        return statistics.fmean(self.scores_bpb)

    @cached_property
    def spent_s(self) -> float:
        """Return the seconds of all runs of the night."""
        return sum(run.spent_s for run in self.done_runs)

    @property
    def summary(self) -> Summary | None:
        """Return the summary of the last run that left one."""
        return next((run.summary for run in reversed(self.counted_runs) if run.summary), None)

    @cached_property
    def saved_params(self) -> int | None:
        """Return the most parameters that any of its runs saved; None if those of a run are not known."""
        saved = [run.params for run in self.done_runs if run.ending is Ending.FINISHED]
        counted = [params for params in saved if params is not None]
        return max(counted, default=None) if len(counted) == len(saved) else None

    @property
    def params(self) -> int | None:
        """Return the number of parameters: counted in the saved weights, else as the script says."""
        if self.saved_params is not None:
            return self.saved_params
        millions = self.summary.num_params_M if self.summary else None
        return None if millions is None else round(1e6 * millions)

    @property
    def steps(self) -> int | None:
        """Return how many steps its training runs made, the middle one's; None if no run tells it."""
        counts = [run.summary.num_steps for run in self.done_runs if run.summary and run.summary.num_steps is not None]
        return statistics.median_low(counts) if counts else None

    @property
    def tokens_s(self) -> float | None:
        """Return the mean speed of its training runs, in tokens a second; None if no run has one."""
        speeds = [run.tokens_s for run in self.done_runs if run.tokens_s is not None]
        return statistics.fmean(speeds) if speeds else None


def repetitions(number: int) -> int:
    """Return how often a process of this attempt is made again if the machine makes it invalid; then it counts.

    Attempt 0 is the user's own, and has more: an edit that fills the disk beside it must not end the night.
    """
    return 1 if number else BASELINE_TRIES - 1


History = Sequence[Attempt]  # one night's attempts in the order of their numbers


def all_confirmation_runs(history: History) -> int:
    """Count the runs in all confirmations of a night."""
    return sum(len(attempt.confirmation_runs()) for attempt in history)


def kept(history: History) -> list[Attempt]:
    """Return the attempts that are kept, in the order in which they were kept; by number where no journal says it."""
    keeps = (attempt for attempt in history if attempt.status is Status.KEEP)
    return sorted(keeps, key=lambda attempt: (attempt.kept_since, attempt.number))


def best_of(history: History) -> Attempt | None:
    """Return the attempt that the branch points at: the latest one kept."""
    return next(reversed(kept(history)), None)


def line_of(attempt: Attempt, history: History) -> list[Attempt]:
    """Return an attempt and its ancestors, attempt 0 last."""
    line = [attempt]
    while (parent := line[-1].parent) is not None:
        line.append(history[parent])
    return line


# ---- nights ----------------------------------------------------------------------------------------------------------


# Honest edits move the score by a few percent. Halving it in one step is a sign that something else is measured.
PLAUSIBLE_GAIN = 0.2  # share of the best script's bits per byte


@dataclass(frozen=True, slots=True)
class Study:
    """The plan of a study, as it was committed before the first run."""

    plan: str  # its text (agent/judging/study_plan.py)
    sha256: str  # of this text, and of the scripts of its arms
    post_hoc: tuple[str, ...] = ()  # what was changed in it after runs of an earlier study of its name were seen


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a whole night: one field an option of the same name, with its default."""

    judge: str = "balanced"  # the judge's name, as --judge takes it
    confirm: int = 0
    plausible_gain: float = 100 * PLAUSIBLE_GAIN  # percent
    allowance_s: float | None = None  # None: learnt from the runs so far
    sandbox: Literal["auto", "require", "off"] = "auto"
    early_stop: bool = False
    dry_run: bool = True
    proposer: str = "mix"  # as --proposer takes it
    llm: str | None = None
    price: tuple[float, ...] | None = None  # dollars for a million tokens: in, out and, if named, in from a cache
    llm_max_tokens: int | None = None
    max_cost: float | None = None  # dollars
    agent: str | None = None  # --command
    agent_minutes: float = 10.0
    report: bool = True  # write the page after every attempt
    workers: int = 1  # number of workers that train at the same time
    cores_each: int | None = None  # cores for each worker; None: an equal share of the machine, or all of it
    pool: str = "local"  # the pool's name, as --pool takes it
    ray_address: str | None = None  # None: a cluster is started on this machine
    study: Study | None = None  # its arms are the night's ideas; no proposer is asked
    limit_s: float | None = None  # s for a whole run; None: its budget, and what it may take beyond
    # the number that the script itself reports, as NAME, or as -NAME where higher is better; None: bits per byte
    metric: str | None = None
    read: tuple[str, ...] = ()  # paths that such a script may read
    python: str | None = None  # interpreter that such a script runs with; None: nightshift's own


TRUSTED = "val_bpb"  # name of the score that the harness itself measures
FIRST_LOOK_BUDGET_S = 60.0  # s of budget; a night of shorter runs is a first look


@dataclass(frozen=True, slots=True)
class Night:
    """The facts of a night, fixed when it opens; only `options` and `called` may change."""

    tag: str
    branch: str  # refs/heads/experiments/5min-<tag>
    script: str  # path inside the repository
    base: str  # HEAD when the night opened: parent of attempt 0
    budget_s: float
    seed: int
    device_kind: DeviceKind  # cpu, metal or cuda
    device: str
    protocol: str  # fingerprint of data, budget and device kind: only equals are compared
    data: str  # folder of the prepared corpus
    started: str  # ISO 8601, UTC
    called: str | None = None  # start of the latest command that opened or resumed the night
    # kind → file → sha256: checked before every score (agent/runs/fixed.py)
    pins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    id: str = ""  # random: no other night has it, nor a copy of this one elsewhere
    cores: int | None = None  # cores of the machine that the night began on; None: not known
    memory_bytes: int | None = None  # memory of the GPU, else of the machine that the night began on

    @property
    def metric(self) -> str:
        """Return the name of its scores."""
        return (self.options.metric or TRUSTED).removeprefix("-")

    @property
    def most(self) -> str:
        """Return "at most " where its budget is the limit of a whole run, which may end sooner."""
        return "at most " if self.options.limit_s == self.budget_s else ""

    @property
    def sign(self) -> int:
        """Return 1 where a lower score is better, and else -1."""
        return -1 if (self.options.metric or "").startswith("-") else 1

    @property
    def better(self) -> str:
        """Return which of two scores is better: the lower or the higher one."""
        return "lower" if self.sign > 0 else "higher"


def is_first_look(budget_s: float) -> bool:
    """Return whether a night of such runs is a first look, whose scores and audits take less text."""
    return budget_s < FIRST_LOOK_BUDGET_S


def short(ref: str) -> str:
    """Return a branch as people name it."""
    return ref.removeprefix("refs/heads/")


def confirmed_branch(branch: str) -> str:
    """Return the branch that the confirmation makes for a confirmed script, from that of the night."""
    return f"{branch}-confirmed"


def attempt_ref(tag: str, number: int) -> str:
    return f"refs/experiments/{tag}/{number:04d}"


def memory_gb(night: Night, attempt: Attempt) -> float | None:
    """Return the peak memory in GiB that the script reports, else the one that the harness measured of its processes.

    The harness does not see the memory of a CUDA device, so without the script's report it is unknown there.
    """
    said_mb = attempt.summary.peak_vram_mb if attempt.summary else None
    if said_mb is not None and 0 < said_mb < ABSURD:
        return said_mb / 1024
    peaks = [run.peak_bytes for run in attempt.done_runs if run.peak_bytes]
    return max(peaks) / 2**30 if peaks and night.device_kind != "cuda" else None


# ---- proposers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """One call to a proposer outside the harness: its cost, and whether it gave a proposal."""

    attempt: int  # the number that the idea would get
    proposer: str
    started: str  # ISO 8601, UTC
    wall_s: float
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: float | None = None
    failure: str | None = None  # None: a proposal came of it
    usd_most: float | None = None  # upper limit of the cost, if the tokens were not counted; None if usd is known
    tokens_cached: int | None = None  # part of tokens_in that the server had in its cache; None: it did not say


def proposer_name(proposer: str) -> str:
    """Return the proposer's name without its model: llm for llm:some-model."""
    return proposer.partition(":")[0]
