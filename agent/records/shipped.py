"""The record of a night that is committed to the repository: small files of text, without its scripts.

night.json holds the facts of the night, attempts.jsonl one attempt a line, champion.diff what its best script changed,
findings.json what dawn found. past.py reads them again.
"""

import json
import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.errors import NightError, NothingYet
from agent.experiment import Ask, Attempt, Dawn, History, Night, Run, incumbent, memory_mb
from agent.files import replaced_folder
from agent.records.journal import Journal
from agent.records.past import ATTEMPTS, FACTS, PastAttempt, dials_in, of_journal
from agent.records.place import Place
from agent.records.terms import Terms

FORMAT = 1
FINDINGS, CHAMPION = "findings.json", "champion.diff"
# of a night's options, those that say how it was judged: an agent's command line or a server's address is private
TOLD = ("judge", "confirm", "plausible_gain", "early_stop", "sandbox", "proposer")


def ship(place: Place, tag: str, folder: Path) -> tuple[Path, ...]:
    """Write the record of a night into a folder, which is replaced if it holds this night's earlier record.

    Return the files. Raise NightError if the folder holds anything else, or the night has no decision yet.
    """
    with Journal.read(place.journal(tag)) as journal:
        night, history, asks, past = journal.night(), journal.attempts(), journal.asks(), of_journal(journal)
        calls = [[call.began, call.workers] for call in journal.calls()]
        dawn = next((dawn for dawn in reversed(journal.dawns()) if dawn.findings), None)
    if not any(attempt.decision for attempt in history):
        raise NothingYet(f"night {tag} has no result yet; ship it once its first attempt is decided")
    best = incumbent(history)
    confirmed = _confirmed(best, dawn)
    facts = _facts(night, history) | {
        "sigma_bpb": past.sigma_bpb,
        "incumbent": best.number if best is not None else None,
        "confirmed": confirmed,
        "calls": calls,
    }
    texts = {FACTS: _json(facts), ATTEMPTS: _rows(night, history, asks)}
    champion = best if confirmed is None else history[confirmed]
    if champion is not None and champion.number and champion.commit and history[0].commit:
        texts[CHAMPION] = place.repo.diff(history[0].commit, champion.commit) + "\n"
    if dawn is not None:
        texts[FINDINGS] = _json(asdict(dawn))
    _check_free(folder, night)
    with replaced_folder(folder) as aside:
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    return tuple(folder / name for name in texts)


def _confirmed(best: Attempt | None, dawn: Dawn | None) -> int | None:
    """Return the attempt whose script dawn has confirmed in place of the incumbent's; None if there is none."""
    if best is None or dawn is None or dawn.findings is None or dawn.champion != best.number:
        return None
    return None if dawn.findings["script"] is None else int(dawn.findings["script"])


def _rows(night: Night, history: History, asks: Iterable[Ask]) -> str:
    """Return one line of JSON for each attempt."""
    base = dials_in(history[0].proposal.script, night.device_kind)
    asked_s: dict[int, float] = defaultdict(float)
    for ask in asks:
        asked_s[ask.attempt] += ask.wall_s
    rows = (
        _row(night, attempt, base if attempt.number else {}) | {"asked_s": asked_s[attempt.number]}
        for attempt in history
    )
    return "".join(map(_line, rows))


def _line(row: Mapping[str, Any]) -> str:
    """Return a row as people can read it: with its arrows and umlauts, unless UTF-8 cannot have a character."""
    text = json.dumps(row, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(row)
    return text + "\n"


def _json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, indent=1) + "\n"


def _facts(night: Night, history: History) -> dict[str, Any]:
    terms = asdict(Terms.from_json(night.terms))
    ends = [run.ended for attempt in history for run in attempt.runs if run.ended is not None]
    return {
        "format": FORMAT,
        "tag": night.tag,
        "script": night.script,
        "base": night.base,
        "budget_s": night.budget_s,
        "seed": night.seed,
        "device_kind": night.device_kind,
        "device": night.device,
        "protocol": night.protocol,
        "started": night.started,
        "ended": max(ends, default=None),
        "python": ".".join(platform.python_version_tuple()[:2]),  # by which the skeletons were made
        "terms": {name: terms[name] for name in TOLD},
        "attempts": len(history),
    }


def _row(night: Night, attempt: Attempt, base: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an attempt; of its dials, those that differ from attempt 0's (base, empty for that one)."""
    proposal, decision = attempt.proposal, attempt.decision
    past = PastAttempt.of(attempt, night.device_kind)
    memory = memory_mb(night, attempt)
    return asdict(past) | {
        "dials": {name: value for name, value in past.dials.items() if name not in base or base[name] != value},
        "dials_gone": [name for name in base if name not in past.dials],
        "hypothesis": proposal.hypothesis,
        "repairs": proposal.repairs,
        "merges": proposal.merges,
        "started": attempt.started,
        "commit": attempt.commit,
        "status": attempt.status,
        "reason": decision.reason if decision else None,
        "at_dawn": decision.at_dawn if decision else None,
        "memory_gb": None if memory is None else memory / 1024,
        "params": attempt.weights.params if attempt.weights else None,
        "spent_s": attempt.spent_s,
        "scores": [_run(run) for run in attempt.counted_runs],
        "decisions": [[entry.at, entry.decision.kind] for entry in attempt.decisions],
    }


def _run(run: Run) -> dict[str, Any]:
    """Return the facts of one run; dawn: 0 for the night's own."""
    return {
        "seed": run.seed,
        "dawn": run.dawn,
        "ending": run.ending,
        "val_bpb": run.score.val_bpb if run.score else None,
        "holdout_bpb": run.holdout.val_bpb if run.holdout else None,
        "wall_s": round(run.wall_s, 3),
        "tokens_s": None if run.tokens_s is None else round(run.tokens_s),
        "began": run.began,
        "worker": run.worker,
    }


def _check_free(folder: Path, night: Night) -> None:
    """Raise NightError where the folder is neither free nor an earlier record of this night."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        there = json.loads((folder / FACTS).read_text())
        is_ours = (there["tag"], there["started"]) == (night.tag, night.started)
    except (OSError, ValueError, TypeError, LookupError):
        is_ours = False
    if not is_ours:
        raise NightError(f"{folder} holds something other than the record of night {night.tag}; name another with --to")
