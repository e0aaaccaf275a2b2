"""Render the rows of attempts; what has not changed since is not rendered again."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.amounts import ABSURD
from agent.experiment import Attempt, History, Night, Score, short
from agent.experiment.chunks import SIZE, chunks_of
from agent.experiment.sizes import memory_mb, params_M
from agent.judging.recent import numbered
from agent.records.ledger.columns import COLUMNS, cell_of

LedgerText = Sequence[bytes]  # pieces of the file, each of whole lines


class LastLines:
    """Remember the lines that were rendered last: of a chunk that changes, all but one stay."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Night, Attempt, str | None, str]] = {}

    def line(self, night: Night, attempt: Attempt, parent: str | None) -> str:
        """Return the line of an attempt; render it only where it is not the one last rendered by its number."""
        at = attempt.number % (2 * SIZE)
        known = self._known.get(at)
        if known is None or known[1] is not attempt or known[2] != parent or known[0] != night:
            known = self._known[at] = night, attempt, parent, row_of(night, attempt, parent)
        return known[3]


def rendered(night: Night, history: History, lines: LastLines | None = None) -> LedgerText:
    """Return the lines of all attempts that have a decision: those of each chunk of the history as one piece.

    They follow from the attempts of the chunk, and from the commits that these were made from. lines: those that were
    rendered before, for a history that changes step by step.
    """
    found, lines = [], lines or LastLines()
    for chunk in chunks_of(history):
        parents = ((number, numbered(history, number)) for number in chunk.once(_parents))
        commits = tuple((number, None if one is None else one.commit) for number, one in parents)
        found.append(chunk.once(_Rendering(night, commits, lines)))
    return found


def _parents(attempts: Sequence[Attempt]) -> list[int]:
    return sorted({one.parent for one in attempts if one.parent is not None})


@dataclass(frozen=True, slots=True)
class _Rendering:
    """Hold what the lines of attempts depend on beside themselves, and render them."""

    night: Night
    commits: tuple[tuple[int, str | None], ...]  # of their parents, by number
    known: LastLines = field(compare=False)

    def __call__(self, attempts: Sequence[Attempt]) -> bytes:
        commits = dict(self.commits)
        decided = (one for one in attempts if one.decision is not None)
        lines = (self.known.line(self.night, one, commits.get(one.parent or 0)) for one in decided)
        return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")


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
