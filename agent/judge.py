"""Is this better? Pure functions of the scores so far."""

import math
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from agent.experiment import Attempt, Decision, Ending, History, Review, Run, Status, incumbent

# Honest edits move the score by a few percent. Halving it in one step is a sign that something else is measured.
PLAUSIBLE_GAIN = 0.2  # of the incumbent's bits per byte
SAME = 1e-6  # relative: the same weights, scored twice, differ by the order in which their rows were computed


@dataclass(frozen=True, slots=True)
class Greedy:
    """Keep what is strictly lower than the incumbent's mean; a tie is a discard.

    With confirm, what would be kept is measured with that many more seeds first, and judged by the mean.
    """

    confirm: int = 0

    def judge(self, attempt: Attempt, history: History) -> Decision:
        failure = _failure(attempt)
        if failure is not None or attempt.val_bpb is None:
            return Decision(Status.CRASH, failure or "no score")
        best = incumbent(history)
        if best is None or best.val_bpb is None:
            return Decision(Status.KEEP, "baseline")
        verdict = _compare(attempt.val_bpb, best.val_bpb)
        if verdict.status is Status.KEEP and len(attempt.done_runs) <= self.confirm:
            return Decision(None, "another seed has to confirm it")
        if verdict.status is Status.KEEP and any(math.isclose(*pair, rel_tol=SAME) for pair in pairs(attempt)):
            return Decision(Status.DISCARD, "it ignores its seed: two seeds gave the very same score")
        return verdict

    def review(self, history: History) -> Review:
        """What was decided once stays decided."""
        return Review()


def pairs(attempt: Attempt) -> Iterator[tuple[float, float]]:
    """Scores of every two runs of it."""
    return combinations(attempt.scores_bpb, 2)


def trusted(verdict: Decision, attempt: Attempt, best: Attempt | None, plausible: float = PLAUSIBLE_GAIN) -> Decision:
    """What the judge would keep is kept once every run of it has passed its audit, and its gain can be believed."""
    audits = [run.score.audit for run in attempt.done_runs if run.score and run.score.audit]
    failure = next((audit.failure for audit in audits if audit.failure is not None), None)
    if failure is not None:
        return Decision(Status.DISCARD, f"audit: {failure}")
    if best is not None and best.val_bpb and attempt.val_bpb is not None:
        gain = 1 - attempt.val_bpb / best.val_bpb
        if gain > plausible:
            reason = (
                f"quarantine: {gain:.0%} below the incumbent, more than {plausible:.0%} in one step is not believed"
            )
            return Decision(Status.DISCARD, reason)
    return verdict


def _compare(val_bpb: float, best_bpb: float) -> Decision:
    if math.isclose(val_bpb, best_bpb, rel_tol=SAME):
        return Decision(Status.DISCARD, "a tie with the incumbent")
    if val_bpb < best_bpb:
        return Decision(Status.KEEP, f"{best_bpb - val_bpb:.6f} below the incumbent")
    return Decision(Status.DISCARD, f"{val_bpb - best_bpb:.6f} above the incumbent")


def _failure(attempt: Attempt) -> str | None:
    """Why the attempt has no finite score; one bad run is enough, since luck with the seed is no merit."""
    if not attempt.done_runs:
        return "it was never run"
    return next((why for run in attempt.done_runs if (why := _run_failure(run)) is not None), None)


def _run_failure(run: Run) -> str | None:
    if run.ending is Ending.OVERRAN:
        return _with_last_line(f"still running after {run.wall_s:.0f} s", run)
    if run.ending is Ending.FELLED:
        return "the machine went down during it, twice"
    if run.ending is Ending.EXCEEDED:
        return run.last_lines.strip().splitlines()[-1]  # which cap, in the harness's words
    if run.ending is not Ending.FINISHED:
        return _with_last_line(_how_it_ended(run.exit_code), run)
    if run.score is None:
        return "not scored"
    if run.score.val_bpb is None:
        return run.score.failure or "no score"
    if not math.isfinite(run.score.val_bpb) or run.score.val_bpb <= 0:
        return f"val_bpb {run.score.val_bpb} is no score"
    return None


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "ended by a signal"
    if exit_code == -signal.SIGKILL:
        return f"killed by signal {-exit_code}, usually a sign that memory ran out"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _with_last_line(how: str, run: Run) -> str:
    lines = run.last_lines.strip().splitlines()
    return f"{how}: {lines[-1].strip()[:200]}" if lines else how
