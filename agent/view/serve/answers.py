"""Answer requests about one attempt: the end of its log, its edit, its loss curve.

A request names numbers, which are compared with those of the night. No part of it becomes part of a path.
"""

import re
from functools import lru_cache

from agent.errors import NightError, NightshiftError
from agent.git import Repo
from agent.records.journal import Journal
from agent.text import harmless_lines
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.facts.read import curve, log_tail, rounded
from agent.view.serve.feed import Snapshot

DIFF_CHARS = 400_000
NUMBER, COMMIT = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9a-f]{40,64}")


class NotThere(NightshiftError):
    """Say that there is no such attempt, run or file."""


def attempt_named(facts: NightFacts, number: str, tag: str | None) -> AttemptFacts:
    """Return the attempt of this number; raise NotThere if the shown night has none, or another night is meant."""
    if tag not in (None, facts.tag):
        raise NotThere(f"this page shows night {facts.tag} now; load it again")
    attempt = facts.attempt(int(number)) if NUMBER.fullmatch(number) else None
    if attempt is None:
        raise NotThere(f"night {facts.tag} has no attempt of this number")
    return attempt


def log_of(snapshot: Snapshot, attempt: AttemptFacts, seed: str | None) -> str:
    """Return the end of a run's log; where the file is gone, the last lines that the journal keeps."""
    place, tag, number = snapshot.watched.place, snapshot.facts.tag, attempt.number
    now = [(snapshot.now.attempt, snapshot.now.seed)] if snapshot.now is not None else []
    now += [(job.attempt, job.seed) for job in snapshot.busy.jobs] if snapshot.busy is not None else []
    at_work = [running for one, running in now if one == number and running is not None]
    chosen = _chosen(attempt, [*(run.seed for run in attempt.runs), *at_work], seed)
    tail = log_tail(place, tag, number, chosen)
    if tail is not None:
        return tail
    try:
        with Journal.read(place.journal(tag)) as journal:
            runs = [run for run in journal.attempt(number).runs if run.seed == chosen]
    except (NightError, OSError, IndexError):
        runs = []
    if not runs or not runs[-1].last_lines:
        raise NotThere(f"the log of attempt {number} with seed {chosen} is gone")
    return harmless_lines(runs[-1].last_lines)


def curve_of(snapshot: Snapshot, attempt: AttemptFacts, seed: str | None) -> dict[str, object]:
    """Return the loss curve of a run: points of fraction of the budget and loss."""
    chosen = _chosen(attempt, [run.seed for run in attempt.runs], seed)
    points = curve(snapshot.watched.place, snapshot.facts.tag, attempt.number, chosen)
    return {"attempt": attempt.number, "seed": chosen, "points": rounded(points)}


def _chosen(attempt: AttemptFacts, seeds: list[int], asked: str | None) -> int:
    """Return the seed that was asked for, or that of the latest run."""
    known = {str(seed): seed for seed in seeds}
    if not known:
        raise NotThere(f"attempt {attempt.number} has not run yet")
    if asked is not None and asked not in known:
        raise NotThere(f"attempt {attempt.number} has no run with this seed; there are: {', '.join(known)}")
    return seeds[-1] if asked is None else known[asked]


def diff_of(snapshot: Snapshot, attempt: AttemptFacts) -> str:
    """Return the edit of an attempt as a unified diff, cut where it is very long."""
    if attempt.parent is None:
        raise NotThere(f"attempt {attempt.number} is the script that the night began with")
    parent = snapshot.facts.attempt(attempt.parent)
    old, new = (one.commit or "" if one is not None else "" for one in (parent, attempt))
    if not (COMMIT.fullmatch(old) and COMMIT.fullmatch(new)):  # a record from elsewhere may hold anything
        raise NotThere(f"the commit of attempt {attempt.number} or of its parent is not known here")
    return _diff(snapshot.watched.place.repo, old, new)


@lru_cache(maxsize=64)
def _diff(repo: Repo, old: str, new: str) -> str:
    text = repo.diff(old, new)
    cut = "" if len(text) <= DIFF_CHARS else "\n[... cut: the edit is longer ...]\n"
    return harmless_lines(text[:DIFF_CHARS]) + cut
