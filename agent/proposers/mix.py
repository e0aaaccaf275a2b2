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
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import takewhile

from agent.errors import Exhausted, NoIdea, NotYet, Unanswered
from agent.experiment import Ask, Kind, Proposal, Status, source_name
from agent.proposers.briefing import Briefing, Proposer
from agent.proposers.outbox import Outbox
from agent.records.summary import earned, kept_gains_bpb

PRIOR_KEEPS = 1.0  # of a source that was never asked, in its prior's attempts
RESTS_AFTER, MOST_RESTED = 2, 32  # turns: failed in a row, and attempts rested at most


@dataclass(frozen=True, slots=True)
class Prior:
    """Say what is expected of a source before it has proposed anything."""

    attempts_a_keep: float = 2.0  # in how many it brings a typical keep
    first_turn: int = 4  # attempts of others, after which it has its first turn whatever is drawn


USUAL = Prior()


@dataclass(frozen=True, slots=True)
class Asked:
    """Hold a source as a mix asks it."""

    proposer: Proposer
    costs: bool = False  # time or money; such a source can read why something broke
    first: bool = False  # asked before any is drawn, since a person waits
    last: bool = False  # stands in where all others fail, which is said
    alike: frozenset[str] = frozenset()  # the names of sources that make the same calls
    prior: Prior = USUAL
    slots: AbstractContextManager[object] = nullcontext()  # noqa: RUF009, one of the questions that it may get at once


class Mix:
    """Draw which source to ask; the source of a Proposal or an Ask begins with its name: llm, or llm:some-model.

    Equal seeds, histories and asks give equal draws, so a resumed night goes on like an undisturbed one. Several
    threads may ask at once: sources are drawn one after the other, and asked side by side. An exhausted one is asked
    again when the script to be edited has changed.
    """

    def __init__(self, sources: Mapping[str, Asked], seed: int | str, outbox: Outbox) -> None:
        self._sources, self._seed, self._outbox = sources, seed, outbox
        self._lock = threading.Lock()  # never held while a source is asked
        self._exhausted: dict[str, tuple[int, str]] = {}  # source → the attempt that it was to edit, and why
        self._asked: Counter[str | None] = Counter()  # source → how many questions it is being asked
        self._stands_in = False

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        """Return the idea of the first source that has one; raise Exhausted if all are, or NoIdea with the reasons.

        A source that costs nothing is not asked ahead of its turn: it takes a second, and then knows the last run. But
        where one that costs was asked in vain, this is its turn.
        """
        briefing, failures = self._outbox.told(briefing), list[str]()
        with self._lock:
            names = self._order(briefing, failures)
            # the source that counts as being asked until another one is; the first answer at once, mostly with nothing
            at = next((name for name in names if not self._sources[name].first), None)
            self._asked[at] += 1
        unanswered, has_paid = set[str](), False
        try:
            for name in names:
                source = self._sources[name]
                if name in unanswered or (briefing.is_ahead and source.first):
                    continue
                if briefing.is_ahead and not source.costs and not has_paid:
                    raise NoIdea(f"{name} is asked when a device is free")
                if not source.first:
                    with self._lock:
                        self._asked[at] -= 1
                        self._asked[name] += 1
                    at = name
                try:
                    return [self._idea_of(name, briefing, failures)]
                except NotYet:
                    continue
                except (NoIdea, Exhausted) as error:
                    failures.append(f"{name}: {error}")
                    has_paid |= source.costs
                    if isinstance(error, Unanswered):
                        unanswered |= source.alike
                    if isinstance(error, Exhausted):
                        self._exhausted[name] = briefing.parent.number, failures[-1]
        finally:
            with self._lock:
                self._asked[at] -= 1
        if not self._open(briefing):
            raise Exhausted("; ".join(why for _, why in self._exhausted.values()))
        raise NoIdea("; ".join(failures) or "no source can have an idea yet")

    def _idea_of(self, name: str, briefing: Briefing, failures: Sequence[str]) -> Proposal:
        """Return the idea of one source; say it where a stand-in begins or ends."""
        source = self._sources[name]
        mine = briefing if name == self._maker(briefing) else replace(briefing, broken=None)
        with source.slots:
            idea = self._outbox.ask(source.proposer, mine, source.alike | {name}, is_free=not source.costs)
        with self._lock:
            has_changed, self._stands_in = source.last is not self._stands_in, source.last
        if has_changed:
            self._outbox.said(" · ".join((*(failures if source.last else ()), f"ideas now come from {name}")))
        return idea.proposal

    def _open(self, briefing: Briefing) -> list[str]:
        """List the sources that may still have ideas."""
        parent = briefing.parent.number
        return [name for name in self._sources if self._exhausted.get(name, (None, ""))[0] != parent]

    def _order(self, briefing: Briefing, failures: list[str]) -> list[str]:
        """Return in which order to ask: the source of a crash to repair first, and sources that rest last."""
        sources, until = {name: self._sources[name] for name in self._open(briefing)}, {}
        for name, source in sources.items():
            # one that can repair what crashed is not held to its crashes, and a person's scripts do not wait for any
            rest = rests_until(name, briefing, counts_crashes=not source.costs, alike=source.alike)
            if rest is not None and not source.first:
                until[name] = rest
        priors = {name: source.prior for name, source in sources.items()}
        drawn, maker = by_promise(priors, briefing, self._seed, asked=self._asked), self._maker(briefing)
        order = sorted(
            drawn, key=lambda name: (name != maker, name in until, sources[name].last, not sources[name].first)
        )
        failures += [
            f"{name} failed again and again and rests until attempt {until[name]}" for name in order if name in until
        ]
        return order

    def _maker(self, briefing: Briefing) -> str | None:
        """Return the source of the crash to repair, if it can read why."""
        if briefing.broken is None:
            return None
        name = source_name(briefing.broken.proposal.source)
        return name if name in self._sources and self._sources[name].costs else None


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


def by_promise(
    priors: Mapping[str, Prior], briefing: Briefing, seed: int | str, *, asked: Mapping[str | None, int]
) -> list[str]:
    """Order the sources by gains per hour, each drawn from its posterior; one whose first turn is due comes first.

    asked: how many questions each source is being asked. These, and attempts in flight, count as tried with the outcome
    that is expected of their source: its rate stays, and its posterior narrows, so that workers that want an idea at
    the same time do not all draw the source that has the widest.
    """
    history, asks = briefing.history, briefing.asks
    rng = random.Random(f"{seed} {briefing.number} {len(asks)}")
    known = {share.source: share for share in earned(history, asks)}
    typical_bpb = statistics.fmean([gain for gain in kept_gains_bpb(history).values() if gain > 0] or [1.0])
    done_s = [one.spent_s for one in history if one.decision is not None and one.is_idea]
    attempt_h = ((statistics.fmean(done_s) if done_s else 0.0) or briefing.night.budget_s) / 3600
    open_h = defaultdict[str | None, float](float, {name: number * attempt_h for name, number in asked.items()})
    overtaken_h = defaultdict[str, float](float)
    for one in history:
        name = source_name(one.proposal.source)
        if one.is_idea and one.decision is None:
            open_h[name] += max(0.0, attempt_h - one.spent_s / 3600)
        elif one.kind is Kind.OVERTAKEN:  # no failure: its gain is counted, once, where it is merged and wins again
            overtaken_h[name] += one.spent_s / 3600
    rates = {}
    for name, prior in priors.items():
        keeps, hours = PRIOR_KEEPS, prior.attempts_a_keep * attempt_h - overtaken_h[name]
        if name in known:
            keeps, hours = keeps + known[name].gain_bpb / typical_bpb, hours + known[name].hours
        narrower = 1 + open_h[name] / hours
        rates[name] = rng.gammavariate(keeps * narrower, 1 / (hours * narrower))
    met = {*known, *(name for name, number in asked.items() if number)}
    tried = sum(share.attempts for share in known.values()) + sum(asked.values())
    return sorted(rates, key=lambda name: (name in met or tried < priors[name].first_turn, -rates[name]))
