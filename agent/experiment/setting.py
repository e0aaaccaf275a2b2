"""The facts around a night that authors of edits are told: machine, data, phases of a step, known ideas, curves."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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

    name: str  # forward, backward, optimizer, …
    ms: float
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

    cores: int | None = None  # None, here and below: the night was opened by a version that did not note it
    memory_gb: float | None = None  # of the GPU where it has its own, else of the machine
    corpus: Corpus | None = None  # None: the prepared data do not say
    phases: tuple[Phase, ...] = ()  # of attempt 0, measured once a night; empty: not measured
    ideas: tuple[KnownIdea, ...] = ()
    calls: tuple[Call, ...] = ()
    curves: Mapping[int, Curve] = field(default_factory=dict)  # attempt → its last run's curve, of about ten points
