"""Read what a script leaves: its curve, its summary, and the header of its weights. Nothing there is taken on trust.

Weights are safetensors: eight bytes that give the length of a JSON header, the header, then the tensors' bytes.
"""

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from agent.experiment import Progress, Summary, Weights
from agent.files import open_plain, read_end
from agent.judging.early_stop import Losses, losses
from agent.runs.runner import WEIGHTS
from agent.text import ABSURD, is_finite

METRICS, METRICS_BYTES = "metrics.jsonl", 8 << 20  # the end of a longer file: about 60,000 points
POINT_BYTES, SUMMARY_BYTES = 4 << 10, 1 << 20  # much more than a line of metrics.jsonl, or a summary, needs
# Type, minimum and maximum of each number in a summary, with much room beyond what today's machines reach.
PLAUSIBLE: Mapping[str, tuple[type, float, float]] = {
    "training_seconds": (float, 0, 1e8),
    "total_seconds": (float, 0, 1e8),
    "peak_vram_mb": (float, 1e-3, ABSURD),
    "mfu_percent": (float, 0, 1e3),
    "total_tokens_M": (float, 0, ABSURD),
    "num_steps": (int, 0, 1e12),
    "num_params_M": (float, 1e-6, ABSURD),
    "depth": (int, 0, 1e6),
}
# enough for 16,000 tensors, and quick to read
HEADER_BYTES = 4 << 20
LEAST_HEADER_BYTES, TENSOR_BYTES = 1 << 10, 1 << 9  # in all, and for each tensor: a longer header could hide weights
MOST_DIMENSIONS, LONGEST = 16, 1 << 48  # of a tensor: no model has more, and larger products are slow
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


def read_losses(out: Path) -> Losses:
    """Return the training losses so far; empty if there are none."""
    try:
        return losses(read_end(out, METRICS, METRICS_BYTES))
    except OSError:
        return losses(b"")


def read_progress(out: Path) -> Progress | None:
    """Return the progress in the last whole line of metrics.jsonl; None before there is one."""
    try:
        point = json.loads(read_end(out, METRICS, POINT_BYTES).rstrip(b"\n").rpartition(b"\n")[2])
        numbers = {name: point[name] for name in ("step", "loss", "tokens_s") if is_finite(point.get(name))}
        return Progress(fraction=point["progress"], **numbers) if is_finite(point["progress"]) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # not there yet, caught in the middle of a write, or nonsense


def read_summary(out: Path) -> Summary | None:
    """Return the numbers of the script's summary.json, without those that are impossible; None if it has none."""
    try:
        said = json.loads(read_end(out, "summary.json", SUMMARY_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    return Summary(**{name: said[name] for name in PLAUSIBLE if _is_plausible(name, said.get(name))})


def _is_plausible(name: str, value: object) -> bool:
    kind, least, most = PLAUSIBLE[name]
    if not is_finite(value) or (kind is int and not isinstance(value, int)):
        return False
    return least <= value <= most  # type: ignore[operator]  # finite: a number


def read_weights(out: Path) -> Weights | None:
    """Return the sizes in the header of the run's weights; None if the file is missing or malformed."""
    try:
        with open_plain(out, Path(WEIGHTS).name) as file:
            return count_weights(file, os.fstat(file.fileno()).st_size)
    except OSError:
        return None


def count_weights(file: BinaryIO, file_bytes: int) -> Weights | None:
    """Return the parameters and bytes in an open file of this size; None unless its header covers every byte."""
    header_bytes = int.from_bytes(file.read(8), "little")
    if not 2 <= header_bytes <= min(HEADER_BYTES, file_bytes - 8):
        return None
    try:
        header = json.loads(file.read(header_bytes))
        tensors = sorted(_tensor(said) for name, said in header.items() if name != "__metadata__")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    ends = [0, *(end for _, end, _ in tensors)]
    is_gapless = all(begin == end for (begin, _, _), end in zip(tensors, ends, strict=False))
    is_short = header_bytes <= LEAST_HEADER_BYTES + TENSOR_BYTES * len(tensors)
    if not (is_gapless and is_short and ends[-1] == file_bytes - 8 - header_bytes):
        return None
    return Weights(params=sum(params for _, _, params in tensors), data_bytes=ends[-1])


def _tensor(said: Any) -> tuple[int, int, int]:
    """Return a tensor's first byte, end and number of elements; raise an error if these do not agree."""
    (begin, end), shape, bits = said["data_offsets"], said["shape"], BITS[said["dtype"]]
    if len(shape) > MOST_DIMENSIONS or not all(type(size) is int and 0 <= size <= LONGEST for size in (begin, *shape)):
        raise ValueError(f"{shape} is no shape")  # bool is an int to isinstance
    params = prod(shape)
    if type(end) is not int or 8 * (end - begin) != bits * params:
        raise ValueError(f"{params} elements do not fill {begin} to {end}")
    return begin, end, params
