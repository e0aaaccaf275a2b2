"""Is this better? Pure functions of the scores so far."""

import math
import signal

from agent.experiment import Attempt, Decision, Ending, History, Run, Status, incumbent


class Greedy:
    """One run each; keep what is strictly lower than the incumbent's mean. A tie is a discard."""

    def judge(self, attempt: Attempt, history: History) -> Decision:
        failure = _failure(attempt)
        if failure is not None or attempt.val_bpb is None:
            return Decision(Status.CRASH, failure or "no score")
        best = incumbent(history)
        if best is None or best.val_bpb is None:
            return Decision(Status.KEEP, "baseline")
        return _compare(attempt.val_bpb, best.val_bpb)


def _compare(val_bpb: float, best_bpb: float) -> Decision:
    if val_bpb < best_bpb:
        return Decision(Status.KEEP, f"{best_bpb - val_bpb:.6f} below the incumbent")
    if val_bpb == best_bpb:
        return Decision(Status.DISCARD, "a tie with the incumbent")
    return Decision(Status.DISCARD, f"{val_bpb - best_bpb:.6f} above the incumbent")


def _failure(attempt: Attempt) -> str | None:
    """Why the attempt has no finite score; one bad run is enough, since luck with the seed is no merit."""
    if not attempt.done_runs:
        return "it was never run"
    return next((why for run in attempt.done_runs if (why := _run_failure(run)) is not None), None)


def _run_failure(run: Run) -> str | None:
    if run.ending is Ending.OVERRAN:
        return _with_last_line(f"still running after {run.wall_s:.0f} s", run)
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
