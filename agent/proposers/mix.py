"""Several sources of ideas in one night: a bandit that gives each its share, and sources that stand in for others.

What a source is worth is its gain per hour, training and asking together. Gains are counted in typical keeps (the
mean gain of what the night has kept), so that a source's keeps are events of a Poisson process in its hours, whose rate
has a Gamma posterior. Thompson sampling (Thompson, 1933; Chapelle & Li, 2011) draws a rate for each source and asks
the one with the highest. The prior is one typical keep in the hours of a few attempts, of how many the source says. No
source stays that good for long, so one that has not been tried yet soon is.
"""

import random
import statistics
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar

from agent.errors import Exhausted, NoIdea, NotYet, Unanswered
from agent.experiment import Ask, History, Kind, Proposal, Status, kept, source_name
from agent.proposers.briefing import Briefing, Proposer
from agent.proposers.checked import Claims
from agent.records.summary import Brought, brought_by, gain_bpb

Number = TypeVar("Number", int, float)

PRIOR_KEEPS = 1.0  # of a source that was never asked, in its prior's attempts
RESTS_AFTER, MOST_RESTED = 2, 32  # turns: failed in a row, and attempts rested at most


@dataclass(frozen=True, slots=True)
class Prior:
    """Say what is expected of a source before it has proposed anything."""

    attempts_a_keep: float = 2.0  # in how many it brings a typical keep
    first_turn: int = 4  # attempts of others, after which it has its first turn whatever is drawn


USUAL = Prior()


class Mix:
    """Draw which source to ask; the source of a Proposal or an Ask begins with its name: llm, or llm:some-model.

    first: sources that are asked before any is drawn, since a person waits. last: sources that stand in where all
    others fail; `say` is told when they begin and when they end. repairers: sources that can read why something broke.
    alike: for a source, those that make the same calls. priors: of the sources that are not as usual.
    at_once: how many questions a source is asked at the same time, where that is limited; claims: the proposals that
    are no attempts yet. Equal seeds, histories and asks give equal draws, so a resumed night goes on like an
    undisturbed one. Several threads may ask at once: sources are drawn one after the other, and asked side by side.
    """

    def __init__(
        self,
        sources: Mapping[str, Proposer],
        seed: int | str,
        *,
        first: Collection[str] = (),
        last: Collection[str] = (),
        repairers: Collection[str],
        alike: Mapping[str, Collection[str]] | None = None,
        priors: Mapping[str, Prior] | None = None,
        at_once: Mapping[str, int] | None = None,
        claims: Claims | None = None,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._turns = Turns(sources, repairers, alike or {}, at_once or {})
        self._seed = seed
        self._claims = claims or Claims()
        self._lock = threading.Lock()  # never held while a source is asked
        self._first, self._last = first, last
        self._priors = priors or {}
        self._say = say
        self._stands_in = False

    def propose(self, briefing: Briefing) -> Proposal:
        briefing = self._claims.told(briefing)
        with self._lock:
            priors = {name: self._priors.get(name, USUAL) for name in self._turns.names(briefing)}
            order = by_promise(priors, briefing, self._seed, asked=self._turns.asked)
            order.sort(key=lambda name: (name in self._last, name not in self._first))
            turn = self._turns.begin(order, briefing, self._first)
        idea = self._turns.first_idea(turn)
        stands_in = idea.name in self._last
        with self._lock:
            has_changed, self._stands_in = stands_in is not self._stands_in, stands_in
        if has_changed:
            self._say(" · ".join((*(idea.failures if stands_in else ()), f"ideas now come from {idea.name}")))
        return idea.proposal


# ---- taking turns ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    name: str  # of the source
    proposal: Proposal
    failures: tuple[str, ...]  # why those that were asked before it had none


@dataclass(frozen=True, slots=True)
class Dry:
    """Hold why a source is exhausted, and the attempt whose script it was asked to edit."""

    why: str
    parent: int


@dataclass(frozen=True, slots=True)
class Turn:
    """Hold in which order one question goes to the sources."""

    names: tuple[str, ...]
    briefing: Briefing
    maker: tuple[str, ...]  # the source of the crash to repair
    uncounted: Collection[str]  # sources that answer at once, mostly with nothing
    expected: str | None  # the source that counts as being asked until another one is
    failures: list[str]


class Turns:
    """Ask one source after another; ask an exhausted one again when the script to be edited has changed.

    asked: how many questions each source is being asked.
    """

    def __init__(
        self,
        sources: Mapping[str, Proposer],
        repairers: Collection[str],
        alike: Mapping[str, Collection[str]],
        at_once: Mapping[str, int],
    ) -> None:
        self._sources = dict(sources)
        self._repairers = repairers
        self._alike = alike
        self._exhausted: dict[str, Dry] = {}
        self._lock = threading.Lock()
        self.asked = dict.fromkeys(sources, 0)
        callers = {name: min([name, *alike.get(name, ())]) for name in at_once}  # that make the same calls
        slots = {one: threading.BoundedSemaphore(at_once[name]) for name, one in callers.items()}
        self._slots: dict[str, AbstractContextManager[object]] = {name: slots[one] for name, one in callers.items()}

    def names(self, briefing: Briefing) -> tuple[str, ...]:
        """List the sources that may still have ideas."""
        with self._lock:
            known = dict(self._exhausted)
        return tuple(
            name for name in self._sources if name not in known or known[name].parent != briefing.parent.number
        )

    def begin(self, order: Sequence[str], briefing: Briefing, uncounted: Collection[str]) -> Turn:
        """Return in which order to ask, and count the source that comes first as being asked from now on.

        The source of a crash to repair comes first. Sources that rest, after several failures, come last.
        """
        until = {name: rest for name in order if (rest := self._rests_until(name, briefing)) is not None}
        failures = [f"{name} failed again and again and rests until attempt {rest}" for name, rest in until.items()]
        maker = self._repairer(briefing)
        names = tuple(dict.fromkeys((*maker, *(name for name in order if name not in until), *until)))
        expected = next((name for name in names if name not in uncounted), None)
        self._count(None, expected)
        return Turn(names, briefing, maker, uncounted, expected, failures)

    def first_idea(self, turn: Turn) -> Taken:
        """Return the idea of the first source that has one; raise Exhausted if all are, or NoIdea with the reasons."""
        briefing, failures, at = turn.briefing, turn.failures, turn.expected
        unanswered: set[str] = set()
        try:
            for name in turn.names:
                if name in unanswered:
                    continue
                if name not in turn.uncounted:
                    self._count(at, name)
                    at = name
                mine = briefing if name in turn.maker else replace(briefing, broken=None)
                try:
                    with self._slots.get(name, nullcontext()):
                        return Taken(name, self._sources[name].propose(mine), tuple(failures))
                except NotYet:
                    continue
                except Unanswered as error:
                    unanswered.update(self._alike.get(name, ()))
                    failures.append(f"{name}: {error}")
                except NoIdea as error:
                    failures.append(f"{name}: {error}")
                except Exhausted as error:
                    with self._lock:
                        self._exhausted[name] = Dry(f"{name}: {error}", briefing.parent.number)
                    failures.append(f"{name}: {error}")
        finally:
            self._count(at, None)
        if not self.names(briefing):
            with self._lock:
                raise Exhausted("; ".join(dry.why for dry in self._exhausted.values()))
        raise NoIdea("; ".join(failures) or "no source can have an idea yet")

    def _count(self, before: str | None, now: str | None) -> None:
        """Count one source as being asked instead of another; None: instead of none, or no other."""
        with self._lock:
            for name, more in ((before, -1), (now, 1)):
                if name is not None:
                    self.asked[name] += more

    def _rests_until(self, name: str, briefing: Briefing) -> int | None:
        """Return until when a source rests; one that can repair what crashed is not held to its crashes."""
        alike = self._alike.get(name, ())
        return rests_until(name, briefing, counts_crashes=name not in self._repairers, alike=alike)

    def _repairer(self, briefing: Briefing) -> tuple[str, ...]:
        name = source_name(briefing.broken.proposal.source) if briefing.broken else ""
        return (name,) if name in self._repairers and name in self.names(briefing) else ()


def rests_until(
    name: str, briefing: Briefing, *, counts_crashes: bool = False, alike: Collection[str] = ()
) -> int | None:
    """Return the attempt until which a source rests that failed in its last turns: each failure doubles its rest.

    counts_crashes: a turn whose attempt crashed has failed, too. Whatever made one known idea crash on this machine may
    do the same to the next, and a crash takes seconds, so that hours alone would not tell the bandit. alike: sources
    that make the same calls, so that a call without a reply is a failure of them all.
    """
    own = _failed_last(ask for ask in reversed(briefing.asks) if source_name(ask.source) == name)
    if counts_crashes:
        mine = (one for one in reversed(briefing.history) if one.decision and source_name(one.proposal.source) == name)
        own += [one.number for one in takewhile(lambda one: one.status is Status.CRASH, mine)]
    shared = _failed_last(ask for ask in reversed(briefing.asks) if source_name(ask.source) in alike)
    unheard = {ask.attempt for ask in briefing.asks if ask.failure and ask.tokens_in is None}
    # it may have been asked several times for one attempt
    failed = max(set(own), unheard.intersection(shared), key=len)
    if len(failed) < RESTS_AFTER:
        return None
    until = max(failed) + 1 + min(MOST_RESTED, 2 ** (len(failed) - RESTS_AFTER))
    return until if until > briefing.number else None


def _failed_last(asks: Iterable[Ask]) -> list[int]:
    """Return for which attempts the last calls failed, given the calls from the last to the first."""
    return [ask.attempt for ask in takewhile(lambda ask: ask.failure is not None, asks)]


# ---- gains and costs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Share:
    """Sum up one source's part of a night: its gains and costs."""

    source: str
    attempts: int
    kept: int
    gain_bpb: float  # summed over its keeps, by the judge's shrunken estimates
    hours: float  # of training, scoring and asking
    calls: int
    failures: int  # of the calls
    tokens_in: int | None  # None: not told
    tokens_out: int | None
    usd: float | None
    tokens_cached: int | None = None  # of tokens_in
    last_failure: str | None = None  # why the latest call failed; None where it did not


def shares(history: History, asks: Sequence[Ask]) -> tuple[Share, ...]:
    """Return a row for every source that has proposed or was asked, the one that gained most first."""
    return shares_of(brought_by(history), asks)


def shares_of(sources: Sequence[Brought], asks: Sequence[Ask]) -> tuple[Share, ...]:
    """Return the rows, given what the ideas of each source have brought."""
    known = {one.source: one for one in sources}
    asked: dict[str, list[Ask]] = defaultdict(list)
    for ask in asks:
        asked[source_name(ask.source)].append(ask)
    rows = [_share(known.get(name, Brought(name)), asked[name]) for name in {*known, *asked}]
    return tuple(sorted(rows, key=lambda row: (-row.gain_bpb, row.source)))


def _share(ideas: Brought, asks: Sequence[Ask]) -> Share:
    return Share(
        source=ideas.source,
        attempts=ideas.attempts,
        kept=ideas.kept,
        gain_bpb=ideas.gain_bpb,
        hours=(ideas.spent_s + sum(ask.wall_s for ask in asks)) / 3600,
        calls=len(asks),
        failures=sum(ask.failure is not None for ask in asks),
        tokens_in=_sum(ask.tokens_in for ask in asks),
        tokens_out=_sum(ask.tokens_out for ask in asks),
        usd=_sum(ask.usd for ask in asks),
        tokens_cached=_sum(ask.tokens_cached for ask in asks),
        last_failure=asks[-1].failure if asks else None,
    )


def by_promise(
    priors: Mapping[str, Prior], briefing: Briefing, seed: int | str, *, asked: Mapping[str, int] | None = None
) -> list[str]:
    """Order the sources by gains per hour, each drawn from its posterior; one whose first turn is due comes first.

    asked: how many questions each source is being asked. These, and attempts in flight, count as tried with the outcome
    that is expected of their source: its rate stays, and its posterior narrows, so that workers that want an idea at
    the same time do not all draw the source that has the widest.
    """
    history, asks = briefing.history, briefing.asks
    rng = random.Random(f"{seed} {briefing.number} {len(asks)}")
    known = {share.source: share for share in shares(history, asks)}
    typical_bpb = statistics.fmean([gain for one in kept(history) if (gain := gain_bpb(one, history)) > 0] or [1.0])
    done_s = [one.spent_s for one in history if one.decision is not None and one.is_idea]
    attempt_h = ((statistics.fmean(done_s) if done_s else 0.0) or briefing.night.budget_s) / 3600
    asked = asked or {}
    open_h = defaultdict(float, {name: number * attempt_h for name, number in asked.items()})
    for one in history:
        if one.is_idea and one.decision is None:
            open_h[source_name(one.proposal.source)] += max(0.0, attempt_h - one.spent_s / 3600)
    # an edit that was overtaken is no failure: its gain is counted, once, where it is merged and wins again
    overtaken_h: dict[str, float] = defaultdict(float)
    for one in history:
        if one.kind is Kind.OVERTAKEN:
            overtaken_h[source_name(one.proposal.source)] += one.spent_s / 3600
    rates = {}
    for name, prior in priors.items():
        share = known.get(name)
        keeps, hours = (share.gain_bpb / typical_bpb, share.hours - overtaken_h[name]) if share else (0.0, 0.0)
        keeps, hours = PRIOR_KEEPS + keeps, prior.attempts_a_keep * attempt_h + hours
        narrower = 1 + open_h[name] / hours
        rates[name] = rng.gammavariate(keeps * narrower, 1 / (hours * narrower))
    met = {*known, *(name for name, number in asked.items() if number)}
    tried = sum(share.attempts for share in known.values()) + sum(asked.values())
    return sorted(rates, key=lambda name: (name in met or tried < priors[name].first_turn, -rates[name]))


def _sum(values: Iterable[Number | None]) -> Number | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None
