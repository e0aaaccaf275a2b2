"""Say what a source of ideas is told before it proposes, and refuse what cannot be a new attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.errors import NightError, ScriptError
from agent.experiment import Ask, Attempt, History, Night, Noise, Proposal
from agent.script.contract import check_script
from agent.script.dials import tried_as

Curve = tuple[tuple[float, float], ...]  # (fraction of the budget, training loss)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Describe the text that all attempts train on, and how it is cut into tokens."""

    name: str
    bytes_per_token: float  # of the validation text
    vocab_size: int
    seq_len: int  # tokens in a row of a batch


@dataclass(frozen=True, slots=True)
class Phase:
    """Hold the share of a training step that one part of it takes."""

    name: str  # waiting for a batch, forward + backward, optimizer, Python
    ms: float  # milliseconds of a step
    share: float  # of the step, 0 to 1


@dataclass(frozen=True, slots=True)
class KnownIdea:
    """Name an idea of the catalogue, and what became of it in this night."""

    slug: str
    title: str
    state: str  # kept #4, tried #7, yes (it applies and is untried), unlikely, or no (it does not apply)


@dataclass(frozen=True, slots=True)
class Call:
    """Name a function that a training script may call."""

    name: str  # kernels.linear
    signature: str  # (x, weight) -> array
    meaning: str  # a sentence


@dataclass(frozen=True, slots=True)
class Setting:
    """Hold the facts of a night that are in neither its journal nor its script."""

    cores: int | None = None  # None: not known, as in a night from elsewhere
    memory_gb: float | None = None  # of the GPU where it has its own, else of the machine
    corpus: Corpus | None = None  # None: the prepared data do not say
    phases: tuple[Phase, ...] = ()  # of attempt 0, measured once a night; empty: not measured
    ideas: tuple[KnownIdea, ...] = ()
    calls: tuple[Call, ...] = ()
    curves: Mapping[int, Curve] = field(default_factory=dict)  # attempt → its last run's curve, of about ten points


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
    """Hold everything that a source is told before it proposes."""

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


def check_proposal(proposal: Proposal, history: History, script: str) -> None:
    """Raise NightError for a proposal that cannot be a new attempt; `script` is the script's name for the message."""
    try:
        check_script(proposal.script, script)
    except ScriptError as error:
        raise NightError(f"{proposal.source} proposed a script that cannot be run: {error}") from error
    earlier = tried_as(proposal.script, history)
    if earlier is not None:
        raise NightError(f"{proposal.source} proposed the script of attempt {earlier} again; it has to be a new one")
