"""Render the rows of attempts."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from agent.amounts import ABSURD
from agent.experiment import Attempt, History, Night, Score, memory_mb, params_M, short
from agent.records.ledger.columns import COLUMNS, cell_of

LedgerText = Sequence[bytes]  # pieces of the file, each of whole lines


def rendered(night: Night, history: History) -> LedgerText:
    """Return the lines of all attempts that have a decision."""
    commits = {attempt.number: attempt.commit for attempt in history}
    decided = (attempt for attempt in history if attempt.decision is not None)
    lines = "".join(f"{row_of(night, attempt, commits.get(attempt.parent or 0))}\n" for attempt in decided)
    return [lines.encode(errors="surrogateescape")]


# ---- a row -----------------------------------------------------------------------------------------------------------


def row_of(night: Night, attempt: Attempt, parent: str | None) -> str:
    """Return the line of an attempt; parent: the commit that it was made from, if it is none of attempt 0's."""
    parent = night.base if attempt.parent is None else parent
    summary, decision, at_dawn = attempt.summary, attempt.decision, attempt.dawn_runs()
    cells: Mapping[str, str] = {
        "commit": (attempt.commit or "")[:7],
        "val_bpb": _number(attempt.val_bpb, 6),
        "memory_gb": _gigabytes(memory_mb(night, attempt)),
        "status": attempt.status or "",
        "description": attempt.proposal.title,
        "attempt": str(attempt.number),
        "tag": night.tag,
        "branch": short(night.branch),
        "parent": (parent or "")[:7],
        "reason": decision.words if decision else "",
        "seeds": str(attempt.seeds),
        "val_bpb_std": _number(attempt.val_bpb_std, 6),
        "tokens_M": _number(summary.total_tokens_M if summary else None, 3),
        "params_M": _number(params_M(attempt), 3),
        "train_s": _number(summary.training_seconds if summary else None, 1),
        "wall_s": _number(sum(run.wall_s for run in attempt.counted_runs), 1),
        "source": attempt.proposal.source,
        "protocol": night.protocol,
        "device": night.device,
        "started": attempt.started,
        "gain_bpb": "" if decision is None or decision.gain_bpb is None else f"{decision.gain_bpb:.6f}",
        "sure": _number(decision.sure if decision else None, 2),
        "dawn_bpb": _number(_mean(run.score for run in at_dawn), 6),
        "dawn_seeds": str(len(at_dawn)) if at_dawn else "",
        "holdout_bpb": _number(_mean(run.holdout for run in at_dawn), 6),
    }
    return "\t".join(cell_of(cells[column]) for column in COLUMNS)


def _mean(scores: Iterable[Score | None]) -> float | None:
    found = [score.val_bpb for score in scores if score is not None and score.val_bpb is not None]
    return statistics.fmean(found) if found else None


def _number(value: float | None, decimals: int) -> str:
    return f"{value:.{decimals}f}" if value is not None and 0 <= value < ABSURD else ""


def _gigabytes(peak_mb: float | None) -> str:
    """Format gigabytes with one decimal, or with three if one would show zero."""
    gigabytes = None if peak_mb is None else peak_mb / 1024
    return _number(gigabytes, 3 if gigabytes is not None and 0 < gigabytes < 0.05 else 1)
