"""Make the facts of a night of what its journal, or its shipped record, holds."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from agent.experiment import (
    Ask,
    Attempt,
    Dawn,
    Ending,
    Entry,
    History,
    Night,
    NightCall,
    Noise,
    Status,
    incumbent,
    memory_mb,
    params_M,
    short,
)
from agent.records.journal import Journal
from agent.records.summary import earned, merits, noise_of_night
from agent.script.dials import Value, dials_in
from agent.view.facts.nouns import AttemptFacts, DecisionFacts, NightFacts
from agent.view.facts.overview import Overview, dawn_of, overview_of

LATEST = 1000  # attempts whose dials are read, beside the kept ones: a script takes half a millisecond
Turned = Mapping[str, tuple[Value, Value]]


def of_journal(journal: Journal) -> NightFacts:
    night, history = journal.night(), journal.outlines()
    noise, turned = noise_of_night(journal, history), _turned(night, history, journal)
    return facts_of(night, history, journal.asks(), journal.dawns(), journal.calls(), noise, turned)


def facts_of(
    night: Night,
    history: History,
    asks: Sequence[Ask],
    dawns: Iterable[Dawn],
    calls: tuple[NightCall, ...],
    noise: Noise | None,
    turned: Mapping[int, Turned],
    *,
    shipped: bool = False,
) -> NightFacts:
    """Return the facts of a night; turned: attempt → the dials that it turned."""
    best = incumbent(history)
    called: dict[int, list[Ask]] = defaultdict(list)
    for ask in asks:
        called[ask.attempt].append(ask)
    attempts = _with_merges(_attempt(night, one, called[one.number], turned.get(one.number, {})) for one in history)
    ends = (run.ended for one in history for run in one.runs if run.ended is not None)
    return NightFacts(
        tag=night.tag,
        branch=short(night.branch),
        device=night.device,
        device_kind=night.device_kind,
        budget_s=night.budget_s,
        protocol=night.protocol,
        started=night.started,
        ended=max(ends, default=None),
        sigma_bpb=noise.sigma_bpb if noise else None,
        smallest_bpb=noise.smallest_bpb if noise else None,
        attempts=attempts,
        incumbent=best.number if best else None,
        sources=earned(merits(history), asks),
        dawn=dawn_of(dawns, lambda number: history[number].proposal.title),
        noise_runs=noise.runs if noise else None,
        doubt=noise.doubt if noise else None,
        most_usd=night.terms.max_cost,
        calls=calls,
        shipped=shipped,
    )


def overview(
    night: Night, history: History, asks: Sequence[Ask], dawns: Iterable[Dawn], noise: Noise | None
) -> Overview:
    """Return the overview of a night from what its journal holds; noise: of its scores, if that is known."""
    return overview_of(facts_of(night, history, asks, dawns, (), noise, {}))


def _attempt(night: Night, attempt: Attempt, asks: Collection[Ask], dials: Turned) -> AttemptFacts:
    decision, proposal, peak_mb, millions = (
        attempt.decision, attempt.proposal, memory_mb(night, attempt), params_M(attempt),
    )  # fmt: skip
    costs = [ask.usd for ask in asks if ask.usd is not None]
    return AttemptFacts(
        number=attempt.number,
        parent=attempt.parent,
        title=proposal.title,
        hypothesis=proposal.hypothesis,
        source=proposal.source,
        status=attempt.status,
        kind=attempt.kind,
        words=decision.words if decision else None,
        val_bpb=attempt.val_bpb,
        seeds=attempt.seeds,
        gain_bpb=decision.gain_bpb if decision else None,
        sure=decision.sure if decision else None,
        memory_gb=None if peak_mb is None else peak_mb / 1024,
        params=None if millions is None else round(1e6 * millions),
        tokens_s=attempt.tokens_s,
        spent_s=attempt.spent_s,
        asked_s=sum(ask.wall_s for ask in asks),
        usd=sum(costs) if costs else None,
        started=attempt.started,
        commit=attempt.commit,
        without=proposal.without,
        dials=dials,
        runs=tuple(run for run in attempt.runs if run.ending is not Ending.RUNNING),
        decisions=tuple(map(_decision, attempt.decisions)),
        dry_run_s=attempt.dry_run.wall_s if attempt.dry_run else 0.0,
        merges=proposal.merges,
    )


def _with_merges(attempts: Iterable[AttemptFacts]) -> tuple[AttemptFacts, ...]:
    """Name in each attempt the latest one that merges it."""
    found = tuple(attempts)
    merged_as = {one.merges: one.number for one in found if one.merges is not None}
    return tuple(replace(one, merged_as=merged_as[one.number]) if one.number in merged_as else one for one in found)


def _decision(entry: Entry) -> DecisionFacts:
    made = entry.decision
    return DecisionFacts(entry.at, made.kind, made.status, made.words, made.gain_bpb, made.sure, entry.id)


# ---- the dials -------------------------------------------------------------------------------------------------------


def _turned(night: Night, history: History, journal: Journal) -> dict[int, Turned]:
    """Return attempt → the dials that it turned, of the latest attempts and of all that were ever kept."""
    wanted = [one for one in history if _was_kept(one)][-LATEST:] + list(history[-LATEST:])
    pairs = {one.number: one.parent for one in wanted if one.parent is not None}
    scripts = {one.number: one.proposal.script for one in journal.attempts_among({*chain.from_iterable(pairs.items())})}
    dials = {number: dials_in(script, night.device_kind) for number, script in scripts.items()}
    return {number: turned(dials[parent], dials[number]) for number, parent in pairs.items()}


def _was_kept(attempt: Attempt) -> bool:
    return any(entry.decision.status is Status.KEEP for entry in attempt.decisions)


def turned(before: Mapping[str, Value], after: Mapping[str, Value]) -> Turned:
    """Return dial → its two values, for the dials that both scripts have and set otherwise."""
    return {name: (before[name], now) for name, now in after.items() if name in before and before[name] != now}
