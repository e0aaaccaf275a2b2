"""Tell how large an attempt is: its parameters and its memory, as the script says or as the harness saw."""

from agent.amounts import ABSURD
from agent.experiment import Attempt, Night


def params_M(attempt: Attempt) -> float | None:  # noqa: N802, the name of the column
    """Return millions of parameters: counted in the saved weights, else as the script says."""
    if attempt.weights is not None:
        return attempt.weights.params / 1e6
    return attempt.summary.num_params_M if attempt.summary else None


def memory_mb(night: Night, attempt: Attempt) -> float | None:
    """Return the peak memory that the script reports, else the peak that the harness measured of its processes.

    The harness does not see the memory of a CUDA device, so without the script's report it is unknown there.
    """
    said_mb = attempt.summary.peak_vram_mb if attempt.summary else None
    if said_mb is not None and 0 < said_mb < ABSURD:
        return said_mb
    peaks = [run.peak_bytes for run in attempt.done_runs if run.peak_bytes]
    return max(peaks) / 2**20 if peaks and night.device_kind != "cuda" else None
