"""Read the facts of a night that has no journal here: from experiments/shipped, or from its rows in results.tsv."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from itertools import chain
from pathlib import Path
from typing import Any

from agent.experiment import Dawn, NightCall, Status
from agent.judging.champion import SOURCE as DAWN
from agent.judging.noise import TELLING_APART
from agent.records.past import ShippedAttempt, facts_of, number_in, read_record, text_of
from agent.records.results import Row, number_of
from agent.records.shipped import FINDINGS
from agent.view.facts.journal import Turned, turned, with_merges
from agent.view.facts.nouns import AttemptFacts, DawnFacts, DecisionFacts, NightFacts, RunFacts
from agent.view.facts.overview import dawn_of, sources_of

NUMBER = re.compile(r"[0-9]{1,9}")  # of an attempt
BUDGET = re.compile(r"([\d.]+)(min|s)-")  # at the beginning of a branch's name
UNITS_S = {"min": 60.0, "s": 1.0}


# ---- a shipped record ------------------------------------------------------------------------------------------------


def started_of(folder: Path) -> str:
    """Return when a shipped night began."""
    return facts_of(folder).started


def of_record(folder: Path, rows: Sequence[Row]) -> NightFacts:
    """Read a shipped night; raise one of past.DAMAGED where a file is damaged. rows: its own in results.tsv."""
    night, rows_of_attempts = read_record(folder)
    if night.tag != folder.name:
        raise ValueError(f"it is the record of another night, {night.tag!r}")
    known = {row.number: row for row in rows_of_attempts}
    if any(
        row.number != at or (row.parent is not None and row.parent >= at) for at, row in enumerate(rows_of_attempts)
    ):
        raise ValueError("its attempts are not numbered from 0 on, each after its parent")
    attempts = tuple(
        _shipped(row, turned(known[row.parent].dials, row.dials) if row.parent is not None else {})
        for row in rows_of_attempts
    )
    findings = folder / FINDINGS
    return NightFacts(
        tag=night.tag,
        branch=next((row.get("branch", "") for row in rows), ""),
        device=night.device,
        device_kind=night.device_kind,
        budget_s=night.budget_s,
        protocol=night.protocol,
        started=night.started,
        ended=night.ended,
        sigma_bpb=night.sigma_bpb,
        smallest_bpb=None if night.sigma_bpb is None else TELLING_APART * night.sigma_bpb,
        attempts=_in_order(with_merges(attempts)),
        incumbent=night.incumbent,
        sources=sources_of(attempts, None),
        dawn=_dawn(json.loads(text_of(findings)), attempts) if findings.exists() else None,
        calls=tuple(NightCall(*call) for call in night.calls),
        shipped=True,
    )


def _dawn(said: Mapping[str, Any], attempts: Sequence[AttemptFacts]) -> DawnFacts | None:
    """Read what dawn found; raise ValueError for what no dawn finds, such as a text in the place of a number."""
    found = dawn_of([Dawn(**said)], lambda number: attempts[number].title)
    if found is None:
        return None
    named = (found.champion, 0 if found.script is None else found.script)
    parts = (*(part for part, _ in found.edits), *found.passengers)
    are_numbers = all(type(number) is int for number in named) and all(type(part) in (int, float) for part in parts)
    if not are_numbers or not all(0 <= part < len(attempts) for part in (*named, *parts)):
        raise ValueError("its findings are about attempts that it does not have")
    intervals = filter(None, (found.honest, found.holdout, *(effect for _, effect in found.edits)))
    scores = filter(None, (found.recorded_bpb, found.believed_bpb))
    for bpb in (*chain.from_iterable(map(astuple, intervals)), *scores):
        if number_in(bpb) is None:
            raise ValueError("an interval of its findings has no end")
    return replace(found, number=int(found.number))


def _shipped(row: ShippedAttempt, dials: Turned) -> AttemptFacts:
    words = row.reason if row.at_dawn is None else f"{row.reason}; {row.at_dawn}"
    decisions = [DecisionFacts(at, kind, kind.status, "", None, None) for at, kind in row.decisions]
    if decisions and row.kind is not None:  # a record has the words of the latest alone
        decisions[-1] = replace(decisions[-1], words=words or "", gain_bpb=row.gain_bpb, sure=row.sure)
    return AttemptFacts(
        number=row.number,
        parent=row.parent,
        title=row.title,
        hypothesis=row.hypothesis,
        source=row.source,
        status=row.status,
        kind=row.kind,
        words=words,
        val_bpb=None if row.status is Status.CRASH else row.val_bpb,
        seeds=row.runs,
        gain_bpb=row.gain_bpb,
        sure=row.sure,
        memory_gb=row.memory_gb,
        params=None if row.params is None else round(row.params),
        tokens_s=row.tokens_s,
        spent_s=row.spent_s,
        asked_s=row.asked_s,
        usd=None,
        started=row.started,
        commit=row.commit,
        without=row.without,
        dials=dials,
        runs=tuple(_runs(row)),
        decisions=tuple(decisions),
        merges=row.merges,
    )


def _runs(row: ShippedAttempt) -> Iterator[RunFacts]:
    """Yield the runs; a record has one time for all scores of an attempt."""
    of_night = [run for run in row.scores if not run.dawn]
    scored = [run for run in of_night if run.val_bpb is not None]
    scoring_s = max(0.0, row.spent_s - sum(run.wall_s for run in of_night)) / max(1, len(scored))
    for run in row.scores:
        yield RunFacts(
            seed=run.seed,
            dawn=run.dawn,
            ending=run.ending,
            val_bpb=run.val_bpb,
            holdout_bpb=run.holdout_bpb,
            failure=None,
            train_s=run.wall_s,
            scoring_s=scoring_s if run in scored else 0.0,
            tokens_s=run.tokens_s,
            began=run.began,
            worker=run.worker,
        )


def _in_order(attempts: Iterable[AttemptFacts]) -> tuple[AttemptFacts, ...]:
    """Number the decisions of a night by their times; one without a time comes where its attempt does."""
    known, latest = [], ""
    for one in attempts:
        for place, decision in enumerate(one.decisions):
            if place == 0:
                latest = max(latest, decision.at or "")
            known.append((decision.at or latest, one.number, place))
    orders = {(number, place): order for order, (_, number, place) in enumerate(sorted(known), 1)}
    return tuple(
        replace(
            one, decisions=tuple(replace(made, order=orders[one.number, at]) for at, made in enumerate(one.decisions))
        )
        for one in attempts
    )


# ---- rows of results.tsv ---------------------------------------------------------------------------------------------


def of_rows(tag: str, rows: Sequence[Row]) -> NightFacts:
    """Return what the rows of a night still tell."""
    numbers = [row.get("attempt", "") for row in rows]
    places = [int(one) for one in numbers] if all(map(NUMBER.fullmatch, numbers)) else list(range(len(rows)))
    parents = {row["commit"]: place for place, row in zip(places, rows, strict=True) if row.get("commit")}
    attempts = tuple(
        _of_row(row, place, parent if parent is not None and parent < place else None)
        for place, row in sorted(zip(places, rows, strict=True), key=lambda one: one[0])
        for parent in (parents.get(row.get("parent", "")),)
    )
    kept = [one.number for one in attempts if one.status == Status.KEEP]
    branch = rows[0].get("branch", "")
    budget = BUDGET.match(branch.removeprefix("experiments/"))
    return NightFacts(
        tag=tag,
        branch=branch,
        device=rows[0].get("device", ""),
        device_kind="",
        budget_s=(number_of(budget[1]) or 0.0) * UNITS_S[budget[2]] if budget else 0.0,
        protocol=rows[0].get("protocol", ""),
        started=min(row.get("started", "") for row in rows),
        ended=None,
        sigma_bpb=None,
        smallest_bpb=None,
        attempts=attempts,
        incumbent=max(kept, default=None),
        sources=sources_of(attempts, None),
        dawn=None,
        lost=True,
    )


def _of_row(row: Row, number: int, parent: int | None) -> AttemptFacts:
    status = next((one for one in Status if one == row.get("status", "").lower()), None)
    gain_bpb, sure, wall_s, tokens_M, params_M, memory_gb, bpb, seeds, at_dawn = (
        number_of(row.get(name, ""))
        for name in (
            "gain_bpb",
            "sure",
            "wall_s",
            "tokens_M",
            "params_M",
            "memory_gb",
            "val_bpb",
            "seeds",
            "dawn_seeds",
        )
    )
    runs = (seeds or 0.0) + (at_dawn or 0.0)
    words = row.get("reason") or None
    asked = tuple(map(int, re.findall(r"#([0-9]{1,9})\b", row.get("description", "").partition("without")[2])))
    made = [DecisionFacts(None, status, status, words or "", gain_bpb, sure, number)] if status else []
    return AttemptFacts(
        number=number,
        parent=parent,
        title=row.get("description", ""),
        hypothesis="",
        source=row.get("source", ""),
        status=status,
        kind=None,
        words=words,
        val_bpb=None if status is Status.CRASH else bpb,
        seeds=int(seeds or 0),
        gain_bpb=gain_bpb,
        sure=sure,
        memory_gb=memory_gb,
        params=None if params_M is None else round(1e6 * params_M),
        tokens_s=1e6 * tokens_M * runs / wall_s if tokens_M and wall_s and runs else None,
        spent_s=wall_s or 0.0,
        asked_s=0.0,
        usd=None,
        started=row.get("started", ""),
        commit=row.get("commit") or None,
        without=asked or (0,) if row.get("source") == DAWN else (),
        dials={},
        runs=(),
        decisions=tuple(made),
    )
