"""Read a night: from its journal, else its shipped record, else its rows in results.tsv, else its commits alone."""

import re
from collections.abc import Sequence
from contextlib import suppress

from agent.errors import NightError
from agent.experiment import (
    Attempt,
    Decision,
    Ending,
    Entry,
    Kind,
    Night,
    Proposal,
    Run,
    Score,
    Status,
    Summary,
    Weights,
)
from agent.git import Repo, is_of_night, valid_tag
from agent.judging.findings import SOURCE as DAWN
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.record import Home, Record, of_journal
from agent.records.results import Row, number_of, read_rows
from agent.records.shipped import DAMAGED, facts_of, of_folder

NUMBER = re.compile(r"[0-9]{1,9}")  # of an attempt
NAMED = re.compile(r"#([0-9]{1,9})\b")  # an attempt, in a title
BUDGET = re.compile(r"([\d.]+)(min|s)-")  # at the beginning of a branch's name
UNITS_S = {"min": 60.0, "s": 1.0}
KINDS = {Status.KEEP: Kind.KEPT, Status.DISCARD: Kind.DISCARDED, Status.CRASH: Kind.CRASHED}
MOST_SEEDS = 1000  # of an attempt, in a row from elsewhere


def read_night(place: Place, tag: str, *, with_dials: bool = True) -> Record:
    """Return all that is recorded of a night; raise NightError for a tag that nothing here knows.

    with_dials: also read the scripts of a journal, for the dials that were turned.
    """
    is_name = valid_tag(tag)  # of a folder: exports and replays write to folders that are named after the night
    if is_name and place.journal(tag).exists():
        with Journal.read(place.journal(tag)) as journal:
            return of_journal(journal, with_dials=with_dials)
    rows = [row for row in read_rows(place.ledger) if row.get("tag") == tag] if is_name else []
    if is_name and (place.shipped / tag).is_dir():
        try:
            record = of_folder(place.shipped / tag)
            if record.tag != tag:
                raise ValueError(f"it is the record of another night, {record.tag!r}")
        except DAMAGED as error:
            if not rows:
                raise NightError(
                    f"{place.shipped / tag} is damaged ({error}); write it again with nightshift export record"
                ) from error
        else:
            return record
    if is_name:
        rows = rows or rows_of_refs(place.repo, tag)
    if rows:
        return of_rows(tag, rows)
    raise NightError(f"no night {tag} is known here; there are: {', '.join(known_tags(place)) or 'none'}")


def known_tags(place: Place) -> tuple[str, ...]:
    """Return the tags of all nights with a journal, a shipped record or rows in results.tsv, oldest first.

    A record or row from elsewhere may have any text as its tag; only those that read_night reads are returned.
    """
    started: dict[str, str] = {}
    for row in read_rows(place.ledger):
        if tag := row.get("tag"):
            began = row.get("started", "")
            started[tag] = min(started.get(tag, began), began)
    for folder in place.shipped.glob("*/"):
        with suppress(*DAMAGED):
            started[folder.name] = facts_of(folder).night.started
    for path in place.nights.glob("*/journal.sqlite"):
        with suppress(NightError), Journal.read(path) as journal:
            started[path.parent.name] = journal.night().started
    return tuple(sorted(filter(valid_tag, started), key=lambda tag: (started[tag], tag)))


# ---- rows of results.tsv ---------------------------------------------------------------------------------------------


def rows_of_refs(repo: Repo, tag: str) -> list[Row]:
    """Return the rows that can be made of a night's refs, as after a fetch, or in a linked worktree."""
    wanted = "--format=%(refname)%09%(objectname)%09%(parent)%09%(subject)"
    listed = repo.git("for-each-ref", wanted, f"refs/experiments/{tag}/", "refs/heads/experiments/")
    refs = [line.split("\t", 3) for line in listed.splitlines() if is_of_night(line.partition("\t")[0], tag)]
    kept = {commit: Status.KEEP for ref, commit, *_ in refs if ref.endswith(f"-{tag}")}
    rows = []
    for ref, commit, parent, title in refs:
        if NUMBER.fullmatch(number := ref.rpartition("/")[2]):
            row = {"tag": tag, "attempt": number, "commit": commit, "parent": parent, "description": title}
            rows.append({**row, "status": kept.get(commit, "")})
    return rows


def of_rows(tag: str, rows: Sequence[Row]) -> Record:
    """Return what the rows of a night still tell."""
    numbers = [row.get("attempt", "") for row in rows]
    places = [int(number) for number in numbers] if all(map(NUMBER.fullmatch, numbers)) else list(range(len(rows)))
    by_commit = {row["commit"]: place for place, row in zip(places, rows, strict=True) if row.get("commit")}
    attempts = [_of_row(row, place, by_commit) for place, row in zip(places, rows, strict=True)]
    first, branch = rows[0], rows[0].get("branch", "")
    budget = BUDGET.match(branch.removeprefix("experiments/"))
    night = Night(
        tag=tag,
        branch=branch,
        script="",
        base="",
        budget_s=(number_of(budget[1]) or 0.0) * UNITS_S[budget[2]] if budget else 0.0,
        seed=0,
        device_kind="",
        device=first.get("device", ""),
        protocol=first.get("protocol", ""),
        data="",
        started=min(row.get("started", "") for row in rows),
    )
    return Record(night, tuple(sorted(attempts, key=lambda attempt: attempt.number)), home=Home.ROWS)


def _of_row(row: Row, number: int, by_commit: dict[str, int]) -> Attempt:
    """Return an attempt with as many equal runs as its row counts."""

    def value(name: str) -> float | None:
        return number_of(row.get(name, ""))

    status = next((one for one in Status if one == row.get("status", "").lower()), None)
    parent, source, title = by_commit.get(row.get("parent", "")), row.get("source", ""), row.get("description", "")
    seeds, at_dawn = (min(int(value(name) or 0), MOST_SEEDS) for name in ("seeds", "dawn_seeds"))
    seeds = seeds or (value("val_bpb") is not None)
    memory_gb, params_M = value("memory_gb"), value("params_M")
    asked = tuple(map(int, NAMED.findall(title.partition("without")[2])))
    summary = Summary(peak_vram_mb=None if memory_gb is None else 1024 * memory_gb, total_tokens_M=value("tokens_M"))
    weights = None if params_M is None else Weights(round(1e6 * params_M), 0)
    wall_s, ending = value("wall_s") or 0.0, Ending.CRASHED if status is Status.CRASH else Ending.FINISHED

    def run(seed: int, dawn: int, bpb: float | None, holdout_bpb: float | None = None) -> Run:
        score, holdout = (None if one is None else Score(one, 0.0) for one in (bpb, holdout_bpb))
        spent_s = wall_s / (seeds + at_dawn)
        return Run(seed, ending, None, spent_s, summary, "", score, dawn, holdout, weights=weights)

    night_runs = [run(seed, 0, value("val_bpb")) for seed in range(seeds)]
    dawn_runs = [run(seeds + seed, 1, value("dawn_bpb"), value("holdout_bpb")) for seed in range(at_dawn)]
    kind = None if status is None else Kind.BASELINE if number == 0 and status is Status.KEEP else KINDS[status]
    decision = None if kind is None else Decision(kind, row.get("reason", ""), value("gain_bpb"), value("sure"))
    return Attempt(
        number,
        parent if parent is not None and parent < number else None,
        Proposal("", title, "", source, without=(asked or (0,)) if source == DAWN else ()),
        row.get("started", ""),
        row.get("commit") or None,
        (*night_runs, *dawn_runs),
        decision,
        decisions=() if decision is None else (Entry(number, "", decision),),
    )
