"""Say in one sentence why an attempt has no score, or none that is believed; and find the machine's own errors."""

import signal
from typing import TYPE_CHECKING

from agent.experiment import PLAUSIBLE_GAIN, Attempt, Decision, Ending, Kind, Run

if TYPE_CHECKING:  # psutil takes a while to import, and most who ask read a journal
    from agent.sandbox.process import Outcome


def failure(attempt: Attempt) -> str | None:
    """Return why an attempt failed: one bad run is enough, in the confirmation too; None if every run has a score."""
    return next(filter(None, map(run_failure, attempt.counted_runs)), None)


def stopped_early(attempt: Attempt) -> str | None:
    """Return why a run was stopped early, which is no failure; None if none was."""
    return next((process_failure(run) for run in attempt.done_runs if run.ending is Ending.HOPELESS), None)


def too_slow(attempt: Attempt) -> str | None:
    """Return why an attempt took too much time, in the harness's own words; None if it did not.

    It is no crash, since nothing in it is broken. An audit that ran out of time is a failed audit, not reported here.
    """
    if attempt.dry_run is not None and attempt.dry_run.overran:
        return "too slow to start or to be scored, in a dry run of a few seconds"
    for run in attempt.counted_runs:
        if run.ending is Ending.OVERRAN:
            return f"too slow to start or to save: {process_failure(run)}"
        late = next((score for score in run.scores if score.overran), None)
        if late is not None:
            return f"too slow to be scored: no end after {late.wall_s:.0f} s"
    return None


def run_failure(run: Run) -> str | None:
    """Return why a run has no score that counts; None if it has one."""
    if run.score is None:
        return process_failure(run)
    if run.score.val_bpb is None:
        return run.score.failure or "no score"
    is_scored = run.holdout is None or run.holdout.val_bpb is not None
    return None if is_scored else "it has no score on the holdout"


def process_failure(process: "Run | Outcome", *, quotes: bool = True) -> str | None:
    """Return how a process that trains or scores failed or was stopped; None if it finished.

    quotes: with the last line that it printed, which is in the script's words.
    """
    lines = process.last_lines.strip().splitlines()
    match process.ending:
        case Ending.FINISHED:
            return None
        case Ending.EXCEEDED | Ending.HOPELESS:
            return lines[-1]  # the harness's own words: the limit that was reached, or the point
        case Ending.OVERRAN:
            how = f"still running after {process.wall_s:.0f} s"
        case _:
            how = _how_it_ended(process.exit_code)
    return f"{how}: {lines[-1].strip()[:200]}" if lines and quotes else how


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return "ended by a signal" if exit_code is None else f"exit code {exit_code}"
    memory = ", usually a sign that memory ran out" if exit_code == -signal.SIGKILL else ""
    return f"killed by signal {-exit_code}{memory}"


def trusted(verdict: Decision, attempt: Attempt, best: Attempt | None, plausible: float = PLAUSIBLE_GAIN) -> Decision:
    """Return a keep unchanged unless an audit failed or the gain is implausibly large; then, that decision."""
    audits = (score.audit for run in attempt.counted_runs for score in run.scores)
    failed = next((audit.failure for audit in audits if audit is not None and audit.failure), None)
    if failed is not None:
        return Decision(Kind.FAILED_AUDIT, f"audit: {failed}")
    if best is not None and best.val_bpb and attempt.val_bpb is not None and not attempt.is_reported:
        gain = 1 - attempt.val_bpb / best.val_bpb
        if gain > plausible:
            beyond = f"better than the incumbent by {gain:.0%}, more than {plausible:.0%} in one step is not believed"
            return Decision(Kind.QUARANTINED, f"quarantine: {beyond}")
    return verdict


# ---- the machine's own words -----------------------------------------------------------------------------------------

# The words are in the script's power: a script could print them to have a bad run repeated. So they count only where
# the process failed, on a night's own kind of device, and for few runs of an attempt.
MOST_LINES = 8  # lines from the end; only a traceback's last lines may follow a message

# Kind of device ("" for any) → messages in lower case. Sources: IOGPU's errors 00000002 to 0000000e and Apple's
# MTLCommandBufferError; the CUDA runtime's cudaGetErrorString; NVIDIA's Xid 79 and NVML; MLX's allocators; errno. Some
# may also be a script's own fault: a script that asks for too much memory gets the same answer as one beside which
# another program took it all.
MESSAGES = {
    "metal": """
        impacting interactivity
        caused gpu timeout error
        caused gpu hang error
        innocent victim
        for causing prior/excessive gpu errors
        device removed
        insufficient memory
        [metal::malloc] resource limit
    """,
    "cuda": """
        uncorrectable ecc error
        uncorrectable nvlink error
        the launch timed out and was terminated
        fallen off the bus
        no cuda-capable device is detected
        cuda-capable device(s) is/are busy or unavailable
        system has unsupported display driver
        driver/library version mismatch
        out of memory
        unspecified launch failure
        device-side assert triggered
        an illegal memory access was encountered
    """,
    "": """
        [malloc] unable to allocate
        no space left on device
        disk quota exceeded
        input/output error
    """,
}


def machine_fault(last_lines: str, device_kind: str) -> str | None:
    """Return the words at the end of a log by which the machine ended a process; None if there are none.

    device_kind: cpu, metal or cuda; only its own messages, and the system's, are looked for.
    """
    end = "\n".join(last_lines.splitlines()[-MOST_LINES:]).lower()
    messages = f"{MESSAGES.get(device_kind, '')}\n{MESSAGES['']}".splitlines()
    words = next((message.strip() for message in messages if message.strip() and message.strip() in end), None)
    return None if words is None else f'its log says "{words}", as where the machine is at fault'
