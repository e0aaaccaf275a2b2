"""Read the facts of a night that has no journal here: from experiments/shipped, or from its rows in results.tsv."""

import re
from collections.abc import Sequence
from dataclasses import astuple
from itertools import chain
from pathlib import Path

from agent.experiment import Status, source_name
from agent.judging.champion import SOURCE as DAWN
from agent.records.results import Row, number_of
from agent.records.shipped import number_in, read_record
from agent.records.summary import Merit, Share, earned
from agent.view.facts.journal import facts_of, turned
from agent.view.facts.nouns import AttemptFacts, DawnFacts, DecisionFacts, NightFacts
from agent.view.facts.overview import gain_bpb

NUMBER = re.compile(r"[0-9]{1,9}")  # of an attempt
BUDGET = re.compile(r"([\d.]+)(min|s)-")  # at the beginning of a branch's name
UNITS_S = {"min": 60.0, "s": 1.0}


# ---- a shipped record ------------------------------------------------------------------------------------------------


def of_record(folder: Path) -> NightFacts:
    """Read a shipped night; raise one of shipped.DAMAGED where a file is damaged."""
    record = read_record(folder)
    night, history = record.night, record.history
    if night.tag != folder.name:
        raise ValueError(f"it is the record of another night, {night.tag!r}")
    dials = [outline.dials for outline in record.outlines]
    moved = {one.number: turned(dials[one.parent], dials[one.number]) for one in history if one.parent is not None}
    dawns = () if record.dawn is None else (record.dawn,)
    facts = facts_of(night, history, record.asks, dawns, record.calls, record.noise, moved, shipped=True)
    if facts.dawn is not None:
        _check_dawn(facts.dawn, len(history))
    return facts


def _check_dawn(dawn: DawnFacts, attempts: int) -> None:
    """Raise ValueError for what no dawn finds, such as a text in the place of a number."""
    named = (dawn.champion, 0 if dawn.script is None else dawn.script)
    parts = (*(part for part, _ in dawn.edits), *dawn.passengers)
    are_numbers = all(type(number) is int for number in named) and all(type(part) in (int, float) for part in parts)
    if not are_numbers or not all(0 <= part < attempts for part in (*named, *parts)):
        raise ValueError("its findings are about attempts that it does not have")
    intervals = filter(None, (dawn.honest, dawn.holdout, *(effect for _, effect in dawn.edits)))
    scores = filter(None, (dawn.recorded_bpb, dawn.believed_bpb))
    for bpb in (*chain.from_iterable(map(astuple, intervals)), *scores):
        if number_in(bpb) is None:
            raise ValueError("an interval of its findings has no end")


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
        sources=_sources(attempts),
        dawn=None,
        lost=True,
    )


def _sources(attempts: Sequence[AttemptFacts]) -> tuple[Share, ...]:
    known = {attempt.number: attempt for attempt in attempts}
    edits = [
        Merit(
            source_name(attempt.source),
            attempt.spent_s,
            max(0.0, gain_bpb(attempt, known) or 0.0) if attempt.status == Status.KEEP else None,
        )
        for attempt in attempts
        if attempt.parent is not None and attempt.is_idea
    ]
    return earned(edits, ())


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
