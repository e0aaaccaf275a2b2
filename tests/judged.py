"""Attempts with scores, for the tests of those who judge them."""

from dataclasses import replace

from agent.experiment import Attempt, Decision, Ending, History, Kind, Proposal, Run, Score, Status, best_of, packed
from agent.findings import Findings
from agent.judging.ablation import Ablation
from agent.judging.early_stop import FRACTIONS, Finished
from agent.script.dials import outline_of

PLAIN = {Status.KEEP: Kind.KEPT, Status.DISCARD: Kind.WORSE, Status.CRASH: Kind.CRASHED}


def decided(status: Status, reason: str = "", gain_bpb: float | None = None, sure: float | None = None) -> Decision:
    """A decision of this status, for its plainest cause."""
    return Decision(PLAIN[status], reason, gain_bpb, sure)


def scored_run(seed: int, val_bpb: float, *, confirmation: int = 0, holdout: float | None = None) -> Run:
    other = None if holdout is None else Score(holdout, 1.0)
    return Run(
        seed, Ending.FINISHED, 0, 1.0, None, "", Score(float(val_bpb), 1.0), confirmation=confirmation, holdout=other
    )


def scored_attempt(
    number: int,
    *scores: float,
    parent: int | None = None,
    status: Status | None = Status.DISCARD,
    reason: str = "",
    kind: Kind | None = None,
    script: str = "",
    params: int | None = None,
    without: tuple[int, ...] = (),
    confirmation: tuple[float, ...] = (),
    proposer: str = "",
    title: str = "",
    merges: int | None = None,
) -> Attempt:
    """Settled where it has a status; the confirmation runs come after the night's."""
    runs = [scored_run(seed, value) for seed, value in enumerate(scores)]
    runs += [
        scored_run(1000 + seed, value, confirmation=1, holdout=value + 0.1) for seed, value in enumerate(confirmation)
    ]
    runs = [replace(run, params=params) for run in runs]
    decisions = () if status is None else (Decision(kind or PLAIN[status], reason),)
    proposal = Proposal(title, "", proposer, without=without, merges=merges, packed=packed(script))
    outline, settled = outline_of(script, "cpu"), status is not None
    return Attempt(number, parent, proposal, "", "c", tuple(runs), decisions, settled, outline=outline)


def stopped_attempt(number: int, parent: int) -> Attempt:
    """Discarded in the middle of its run, since it would have been worse than its parent."""
    words = "stopped early: its losses forecast a score of 1.550, above the best script's"
    run = Run(0, Ending.HOPELESS, None, 0.5, None, words, forecast_bpb=1.55)
    decision = Decision(Kind.STOPPED_EARLY, run.last_lines, gain_bpb=-0.05)
    return Attempt(number, parent, Proposal("", "", ""), "", "c", (run,), (decision,), settled=True)


def finished(val_bpb: float, *, above: float = 0.0) -> Finished:
    """A run whose losses are three times its score, and something else on top."""
    return Finished({mark: 3 * val_bpb + above + 1 - mark for mark in FRACTIONS}, val_bpb)


def ablation(history: History) -> Ablation | None:
    """The first confirmation of the night's best script; None if that is attempt 0."""
    best = best_of(history)
    return Ablation(history, best) if best is not None and best.number else None


def findings(history: History) -> Findings | None:
    confirmation = ablation(history)
    return None if confirmation is None else confirmation.findings()
