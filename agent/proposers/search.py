"""Search over the script's dials with Optuna's TPE: needs no key, knows nothing but numbers, never tires.

A night has tens of experiments and a script has tens of dials, so a sampler that turns them all at once would leave
the incumbent far behind. Here every proposal turns one to three dials of the incumbent's script. Which ones is drawn
at random; their new values are asked of TPE, which has been told every attempt of the night with all of its dials.
A proposal is a function of the history and the seed alone: nothing is kept between calls, so a resumed night
proposes what an undisturbed one would have.
"""

import math
import random
import warnings
from collections.abc import Mapping

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from agent.dials import Choices, Dial, Interval, Value, is_number, normalised, read_dials, searched, set_dials, show
from agent.errors import Exhausted, ScriptError
from agent.experiment import Attempt, Briefing, History, Proposal

MAX_TRIES = 400  # draws before the dials count as exhausted
MIN_STEP = 0.04  # of a dial's range: smaller turns drown in the noise of the seed
MAX_STEP = 0.25  # of a dial's range: a few experiments cannot afford leaps, and several steps lead as far
TURNED = (1, 2, 3)  # dials at once …
TURNED_WEIGHTS = (3, 2, 1)  # … and how often each number is drawn
STARTUP_TRIALS = 1  # from attempt 0 on TPE has one good point, which is where to search
CANDIDATES = 8  # fewer than Optuna's 24: the best of many is always right beside the incumbent

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Search:
    """Raises ScriptError when the script has no dial with a range."""

    def __init__(self, device_kind: str, seed: int | str) -> None:
        self._device_kind = device_kind
        self._seed = seed

    def propose(self, briefing: Briefing) -> Proposal:
        history, script = briefing.history, briefing.parent.proposal.script
        dials = searched(script, self._device_kind)
        tried = {normalised(attempt.proposal.script) for attempt in history}
        for turn in range(MAX_TRIES):
            changed = self._draw(dials, history, turn)
            candidate = set_dials(script, self._device_kind, changed)
            if changed and normalised(candidate) not in tried:
                return _proposal(candidate, changed, dials, history)
        raise Exhausted(f"search finds no untried setting of {len(dials)} dials; add dials or widen their ranges")

    def _draw(self, dials: tuple[Dial, ...], history: History, turn: int) -> dict[str, Value]:
        """New values for a few dials; steps too small to be seen are left out."""
        rng = random.Random(f"{self._seed} {len(history)} {turn}")
        count = min(len(dials), rng.choices(TURNED, TURNED_WEIGHTS)[0])
        chosen = rng.sample(dials, count)
        axes = {dial.name: _reach(dial) for dial in chosen if not _is_unordered(dial)}
        trial = self._study(dials, history, rng.getrandbits(31)).ask(axes)
        values = {dial.name: _value(dial, trial.params[dial.name]) for dial in chosen if dial.name in axes}
        # TPE likes best what is known to be good, which of a few words is nearly always the incumbent's
        values |= {dial.name: rng.choice(_others(dial)) for dial in chosen if dial.name not in axes}
        return {dial.name: values[dial.name] for dial in chosen if _is_a_step(dial, values[dial.name])}

    def _study(self, dials: tuple[Dial, ...], history: History, seed: int) -> optuna.Study:
        """All that the night knows, told to a fresh study. A crash counts as the worst score: a place to avoid."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS, n_ei_candidates=CANDIDATES)
        study = optuna.create_study(sampler=sampler)
        scores = [attempt.val_bpb for attempt in history if attempt.val_bpb is not None]
        for attempt in history:
            trial = self._trial(attempt, dials, worst=max(scores, default=math.inf))
            if trial is not None:
                study.add_trial(trial)
        return study

    def _trial(self, attempt: Attempt, dials: tuple[Dial, ...], worst: float) -> optuna.trial.FrozenTrial | None:
        """None for an attempt whose script says nothing about these dials."""
        try:
            theirs = {dial.name: dial.value for dial in read_dials(attempt.proposal.script, self._device_kind)}
        except (ScriptError, SyntaxError):
            return None
        positions = {dial.name: _position(dial, theirs[dial.name]) for dial in dials if dial.name in theirs}
        params = {name: position for name, position in positions.items() if position is not None}
        axes = {dial.name: _axis(dial) for dial in dials if dial.name in params}
        value = attempt.val_bpb if attempt.val_bpb is not None else worst
        return create_trial(state=TrialState.COMPLETE, params=params, distributions=axes, value=value)


def _axis(dial: Dial) -> BaseDistribution:
    """A person's own value is always within reach, also where it lies outside of the range."""
    match dial.span:
        case Interval(low, high, log, whole=True):
            return IntDistribution(int(min(low, _number(dial))), int(max(high, _number(dial))), log=log)
        case Interval(low, high, log):
            return FloatDistribution(min(low, _number(dial)), max(high, _number(dial)), log=log)
    options = _options(dial)
    if all(is_number(option) for option in options):
        return IntDistribution(0, len(options) - 1)  # numbers in order: neighbours are alike
    return CategoricalDistribution(range(len(options)))


def _reach(dial: Dial) -> BaseDistribution:
    """The part of its axis that one proposal may turn a dial to: MAX_STEP to both sides, or the next choice."""
    axis, here = _axis(dial), _position(dial, dial.value)
    match axis, here:
        case IntDistribution(), int():
            step = 1 if isinstance(dial.span, Choices) or axis.log else max(1, round(MAX_STEP * (axis.high - axis.low)))
            return IntDistribution(max(axis.low, here - step), min(axis.high, here + step), log=axis.log)
        case FloatDistribution(log=True), int() | float():
            factor = (axis.high / axis.low) ** MAX_STEP
            return FloatDistribution(max(axis.low, here / factor), min(axis.high, here * factor), log=True)
        case FloatDistribution(), int() | float():
            step_size = MAX_STEP * (axis.high - axis.low)
            return FloatDistribution(max(axis.low, here - step_size), min(axis.high, here + step_size))
    return axis


def _is_unordered(dial: Dial) -> bool:
    return isinstance(_axis(dial), CategoricalDistribution)


def _others(dial: Dial) -> list[Value]:
    return [option for option in _options(dial) if option != dial.value]


def _options(dial: Dial) -> tuple[Value, ...]:
    assert isinstance(dial.span, Choices)
    values = dial.span.values if dial.value in dial.span.values else (*dial.span.values, dial.value)
    return tuple(sorted(values)) if all(is_number(value) for value in values) else values  # type: ignore[type-var]


def _number(dial: Dial) -> float:
    assert isinstance(dial.value, int | float)
    return dial.value


def _position(dial: Dial, value: Value) -> float | int | None:
    """Where a value lies on the dial's axis; None when it is not on it."""
    if isinstance(dial.span, Choices):
        options = _options(dial)
        return options.index(value) if value in options else None
    axis = _axis(dial)
    assert isinstance(axis, IntDistribution | FloatDistribution)
    on_it = isinstance(value, int | float) and is_number(value) and axis.low <= value <= axis.high
    return value if on_it else None  # type: ignore[return-value]


def _value(dial: Dial, position: float | int) -> Value:
    """The dial's value at a position; floats as they will be written."""
    if isinstance(dial.span, Choices):
        return _options(dial)[int(position)]
    return int(position) if isinstance(dial.value, int) else float(show(float(position)))


def _is_a_step(dial: Dial, value: Value) -> bool:
    match dial.span, dial.value, value:
        case Interval(low, high, log, whole=False), int() | float() as old, int() | float() as new:
            scale = math.log if log else float
            return abs(scale(new) - scale(old)) >= MIN_STEP * abs(scale(high) - scale(low))
    return value != dial.value


def _proposal(script: str, changed: Mapping[str, Value], dials: tuple[Dial, ...], history: History) -> Proposal:
    before = {dial.name: dial.value for dial in dials}
    turns = [f"{name} {show(before[name])} → {show(value)}" for name, value in changed.items()]
    hypothesis = (
        f"TPE over {len(dials)} dials and {len(history)} attempts so far expects a lower val_bpb with "
        + " and ".join(f"{name} = {show(value)}" for name, value in changed.items())
        + f" than with the incumbent's {' and '.join(show(before[name]) for name in changed)}."
    )
    return Proposal(script, ", ".join(turns), hypothesis, source="search")
