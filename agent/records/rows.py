"""The records of a night, as the rows of its journal have them."""

import json
import platform
import sqlite3
from collections.abc import Callable
from sys import intern
from typing import Any, cast

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
    Script,
    Summary,
    Weights,
)
from agent.records.shelf import LOG, SHORT, WHY, Shelf, Unread

PYTHON = ".".join(platform.python_version_tuple()[:2])  # the shape of a syntax tree changes with it


def attempt_of(
    row: sqlite3.Row, script: Script, runs: tuple[Run, ...], decisions: tuple[Entry, ...], shelf: Shelf | None = None
) -> Attempt:
    """Return the attempt of a row; shelf: which reads its long texts later."""
    last = decisions[-1] if decisions else None
    decided = last is not None and last.decision.kind is not Kind.VOID
    return Attempt(
        number=row["number"],
        parent=row["parent"],
        proposal=_proposal(row, script, shelf),
        started=row["started"],
        commit=row["commit_sha"],
        dry_run=DryRun(**json.loads(row["dry_run"])) if row["dry_run"] else None,
        runs=runs,
        decision=last.decision if last is not None and decided else None,
        settled=last is not None and decided and row["settled"] == last.id,
        decisions=decisions,
    )


def script_of(row: sqlite3.Row, packed: Callable[[str], bytes] | None = None) -> Script:
    """Return the script of a row; packed: how to get its text later, which the row then lacks."""
    return Script(row["sha256"], packed or row["packed"], row["fingerprint"] if row["python"] == PYTHON else None)


def _proposal(row: sqlite3.Row, script: Script, shelf: Shelf | None) -> Proposal:
    why = _later(row["hypothesis"], shelf, WHY, row["number"])
    words = cast(str, script), row["title"], why, intern(row["source"])  # a script is unpacked when it is read
    without = tuple(json.loads(row["without"]))
    return Proposal(*words, repairs=row["repairs"], without=without, merges=row["merges"])


def entry_of(row: sqlite3.Row) -> Entry:
    decision = Decision(Kind(row["kind"]), row["reason"], row["gain_bpb"], row["sure"], row["at_dawn"])
    return Entry(row["id"], row["at"], decision)


def _later(text: str, shelf: Shelf | None, query: str, key: int) -> str:
    """Return a text or, where it is long and there is a shelf, the way to read it."""
    return text if shelf is None or len(text) < SHORT else cast(str, Unread(shelf, query, key))


def run_of(row: sqlite3.Row, shelf: Shelf | None = None) -> Run:
    """Read a run from its row; one without an ending counts as lost, though it may be running.

    shelf: which reads the log of a run that went well later; that of any other says why it failed.
    """
    log = row["last_lines"] or ""
    return Run(
        seed=row["seed"],
        ending=Ending(row["ending"] or Ending.LOST),
        exit_code=row["exit_code"],
        wall_s=float(row["wall_s"] or 0.0),
        summary=Summary(**json.loads(row["summary"])) if row["summary"] else None,
        last_lines=_later(log, shelf if row["ending"] == Ending.FINISHED else None, LOG, row["id"]),
        weights_bytes=row["weights_bytes"],
        peak_bytes=row["peak_bytes"],
        score=_score(row) if row["score_s"] is not None else None,
        dawn=row["dawn"],
        holdout=_holdout(json.loads(row["holdout"])) if row["holdout"] else None,
        weights=Weights(**json.loads(row["weights"])) if row["weights"] else None,
        worker=intern(row["worker"]),
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
