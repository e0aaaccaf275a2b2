"""The records of a night, as the rows of its journal have them."""

import json
import sqlite3
from typing import Any

from agent.experiment import (
    Attempt,
    Audit,
    Decision,
    DryRun,
    Ending,
    Entry,
    Kind,
    Proposal,
    Run,
    Score,
    Summary,
    Weights,
)


def attempt_of(row: sqlite3.Row, script: str, runs: tuple[Run, ...], decisions: tuple[Entry, ...]) -> Attempt:
    last = decisions[-1] if decisions else None
    decided = last is not None and last.decision.kind is not Kind.VOID
    return Attempt(
        number=row["number"],
        parent=row["parent"],
        proposal=Proposal(
            script,
            row["title"],
            row["hypothesis"],
            row["source"],
            repairs=row["repairs"],
            without=tuple(json.loads(row["without"])),
            merges=row["merges"],
        ),
        started=row["started"],
        commit=row["commit_sha"],
        dry_run=DryRun(**json.loads(row["dry_run"])) if row["dry_run"] else None,
        runs=runs,
        decision=last.decision if last is not None and decided else None,
        settled=last is not None and decided and row["settled"] == last.id,
        decisions=decisions,
    )


def entry_of(row: sqlite3.Row) -> Entry:
    decision = Decision(Kind(row["kind"]), row["reason"], row["gain_bpb"], row["sure"], row["at_dawn"])
    return Entry(row["id"], row["at"], decision)


def run_of(row: sqlite3.Row) -> Run:
    """Read a run from its row; one without an ending counts as lost, though it may be running."""
    return Run(
        seed=row["seed"],
        ending=Ending(row["ending"] or Ending.LOST),
        exit_code=row["exit_code"],
        wall_s=float(row["wall_s"] or 0.0),
        summary=Summary(**json.loads(row["summary"])) if row["summary"] else None,
        last_lines=row["last_lines"] or "",
        weights_bytes=row["weights_bytes"],
        peak_bytes=row["peak_bytes"],
        score=_score(row) if row["score_s"] is not None else None,
        dawn=row["dawn"],
        holdout=_holdout(json.loads(row["holdout"])) if row["holdout"] else None,
        weights=Weights(**json.loads(row["weights"])) if row["weights"] else None,
        worker=row["worker"],
        began=row["began"],
        ended=row["ended"],
    )


def _holdout(facts: dict[str, Any]) -> Score:
    return Score(**facts | {"audit": Audit(**facts["audit"]) if facts["audit"] else None})


def _score(row: sqlite3.Row) -> Score:
    val_bpb = row["val_bpb"]
    audit = Audit(**json.loads(row["audit"])) if row["audit"] else None
    return Score(
        None if val_bpb is None else float(val_bpb), float(row["score_s"]), row["failure"], audit, bool(row["overran"])
    )
