"""Read the facts of a night that has no journal here: from experiments/shipped, or from its rows in results.tsv."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from itertools import chain
from pathlib import Path
from typing import Any

from agent.experiment import Dawn, Ending, Kind, NightCall, Status
from agent.judging.champion import SOURCE as DAWN
from agent.judging.noise import TELLING_APART
from agent.records.past import ATTEMPTS, FACTS, PastAttempt, attempt_in, number_in, text_of
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
    return str(json.loads(text_of(folder / FACTS))["started"])


def of_record(folder: Path, rows: Sequence[Row]) -> NightFacts:
    """Read a shipped night; raise one of past.DAMAGED where a file is damaged. rows: its own in results.tsv."""
    facts = json.loads(text_of(folder / FACTS))
    if facts["tag"] != folder.name:
        raise ValueError(f"it is the record of another night, {facts['tag']!r}")
    lines = text_of(folder / ATTEMPTS).removesuffix("\n").split("\n")
    told = [json.loads(line) for line in lines]
    known = [attempt_in(row, told[0]["dials"]) for row in told]
    if any(one.number != at or (one.parent is not None and one.parent >= at) for at, one in enumerate(known)):
        raise ValueError("its attempts are not numbered from 0 on, each after its parent")
    dials = {one.number: one.dials for one in known}
    attempts = tuple(
        _shipped(row, one, turned(dials.get(one.parent, {}), one.dials) if one.parent is not None else {})
        for row, one in zip(told, known, strict=True)
    )
    sigma_bpb = number_in(facts["sigma_bpb"])
    dawn = _dawn(json.loads(text_of(folder / FINDINGS)), attempts) if (folder / FINDINGS).exists() else None
    return NightFacts(
        tag=str(facts["tag"]),
        branch=next((row.get("branch", "") for row in rows), ""),
        device=str(facts["device"]),
        device_kind=str(facts["device_kind"]),
        budget_s=number_in(facts["budget_s"]) or 0.0,
        protocol=str(facts["protocol"]),
        started=str(facts["started"]),
        ended=_text(facts["ended"]),
        sigma_bpb=sigma_bpb,
        smallest_bpb=None if sigma_bpb is None else TELLING_APART * sigma_bpb,
        attempts=_in_order(with_merges(attempts)),
        incumbent=None if facts["incumbent"] is None else int(facts["incumbent"]),
        sources=sources_of(attempts, None),
        dawn=dawn,
        calls=tuple(NightCall(str(began), int(workers)) for began, workers in facts.get("calls", ())),
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


def _shipped(row: Mapping[str, Any], told: PastAttempt, dials: Turned) -> AttemptFacts:
    runs = [_run(one) for one in row["scores"]]
    reason, at_dawn, status = _text(row["reason"]), _text(row["at_dawn"]), _text(row["status"])
    spent_s, params = number_in(row["spent_s"]) or 0.0, number_in(row["params"])
    scored = [run for run in runs if not run.dawn and run.val_bpb is not None]
    scoring_s = max(0.0, spent_s - sum(run.train_s for run in runs if not run.dawn))
    words = reason if at_dawn is None else f"{reason}; {at_dawn}"
    decisions = [DecisionFacts(_text(at), kind, Kind(kind).status, "", None, None) for at, kind in row["decisions"]]
    if decisions and told.kind is not None:  # a record has the words of the latest alone
        decisions[-1] = replace(decisions[-1], words=words or "", gain_bpb=told.gain_bpb, sure=told.sure)
    return AttemptFacts(
        number=told.number,
        parent=told.parent,
        title=told.title,
        hypothesis=str(row["hypothesis"]),
        source=told.source,
        status=None if status is None else Status(status),
        kind=told.kind,
        words=words,
        val_bpb=None if status == Status.CRASH else told.val_bpb,
        seeds=told.runs,
        gain_bpb=told.gain_bpb,
        sure=told.sure,
        memory_gb=number_in(row["memory_gb"]),
        params=None if params is None else round(params),
        tokens_s=told.tokens_s,
        spent_s=spent_s,
        asked_s=number_in(row["asked_s"]) or 0.0,
        usd=None,
        started=str(row["started"]),
        commit=_text(row["commit"]),
        without=told.without,
        dials=dials,
        # a record has one time for all scores of an attempt
        runs=tuple(replace(run, scoring_s=scoring_s / len(scored)) if run in scored else run for run in runs),
        decisions=tuple(decisions),
        merges=None if row.get("merges") is None else int(row["merges"]),
    )


def _run(row: Mapping[str, Any]) -> RunFacts:
    return RunFacts(
        seed=int(number_in(row["seed"]) or 0),
        dawn=int(number_in(row["dawn"]) or 0),
        ending=Ending(row["ending"]),
        val_bpb=number_in(row["val_bpb"]),
        holdout_bpb=number_in(row["holdout_bpb"]),
        failure=None,
        train_s=number_in(row["wall_s"]) or 0.0,
        scoring_s=0.0,
        tokens_s=number_in(row["tokens_s"]),
        began=_text(row["began"]),
        worker=str(row.get("worker", "local")),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


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
