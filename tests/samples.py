"""Facts of a night, made up: for tests of what is recorded, shown and asked."""

from collections.abc import Sequence
from pathlib import Path

from judged import decided

from agent.experiment import (
    Attempt,
    Decision,
    Ending,
    History,
    Night,
    Proposal,
    Run,
    Score,
    Status,
    Summary,
)
from agent.files import read_plain, write_plain
from agent.records.journal import Journal
from agent.records.results import COLUMNS, arranged, lines_of

NIGHT = Night(
    tag="t", branch="refs/heads/experiments/30s-t", script="train_mlx.py", base="b" * 40, budget_s=30.0, seed=7,
    device_kind="cpu", device="a CPU", protocol="p" * 12, data="/data", started="2026-01-02T03:04:05Z",
)  # fmt: skip
RUN = Run(
    *(7, Ending.FINISHED, 0, 31.5, Summary(peak_vram_mb=512.0, num_steps=3), "the end"),
    params=10, peak_bytes=3 << 30,
)  # fmt: skip


FOREIGN = "0000000\t1.000000\t1.0\tkeep\tfrom a clone\t0\told-night" + "\t" * 13
UPSTREAM = "a1b2c3d\t0.997900\t44.0\tkeep\tbaseline"  # five columns


def attempt(number: int, bpb: float | None, status: Status, title: str = "title") -> Attempt:
    summary = Summary(training_seconds=30.0, peak_vram_mb=1536.0, total_tokens_M=1.25, num_params_M=0.5)
    ending = Ending.CRASHED if bpb is None else Ending.FINISHED
    run = Run(0, ending, 0, 31.5, summary, "", Score(bpb, 1.0))
    proposal = Proposal("A = 1", title, "why", "search")
    parent = None if number == 0 else 0
    return Attempt(
        number, parent, proposal, "2026-01-02T03:04:05Z", f"{number}" * 40, (run,), (decided(status, "a reason"),), True
    )


HISTORY = (
    attempt(0, 1.5, Status.KEEP, "baseline"),
    attempt(1, 1.25, Status.KEEP, "LR 0.1 → 0.2"),
    attempt(2, None, Status.CRASH, 'a "quoted"\ttitle\nof two lines'),
    attempt(3, 1.75, Status.DISCARD),
)


def enter(journal: Journal, attempt: Attempt, *decisions: Decision) -> None:
    """Write an attempt into a journal, with these decisions one after another, or its own."""
    journal.add_attempt(attempt.number, attempt.parent, attempt.proposal, "2026-01-02T03:04:05Z")
    for run in attempt.runs:
        journal.end_run(journal.start_run(attempt.number, run.seed, dawn=run.dawn), run)
    for decision in decisions or attempt.decisions:
        journal.record_decision(attempt.number, decision)
        journal.settle(attempt.number)


def render(before: str, nights: Sequence[tuple[Night, History]]) -> str:
    """Return a ledger's text after these nights were written to it."""
    return arranged(before, {night.tag: lines_of(night, history) for night, history in nights})


def put(path: Path, *nights: tuple[Night, History]) -> None:
    """Write these nights into a ledger."""
    write_plain(path, render(read_plain(path), nights))


def cells(line: str) -> dict[str, str]:
    return dict(zip(COLUMNS, line.split("\t"), strict=True))
