"""Read what a script leaves: its curve, its summary, and the header of its weights. Nothing there is taken on trust.

Weights are safetensors: eight bytes that give the length of a JSON header, the header, then the tensors' bytes.
"""

import json
import os
import re
from dataclasses import fields
from math import prod
from pathlib import Path
from typing import BinaryIO

from agent.experiment import Progress, Summary, Weights
from agent.files import open_plain, read_end
from agent.judging.early_stop import Losses, losses
from agent.runs.runner import WEIGHTS
from agent.text import ABSURD, is_finite

METRICS, METRICS_BYTES = "metrics.jsonl", 8 << 20  # the end of a longer file: about 60,000 points
POINT_BYTES, SUMMARY_BYTES = 4 << 10, 1 << 20  # much more than a line of metrics.jsonl, or a summary, needs
COUNTS = ("num_steps", "depth")  # of a summary's numbers, those that are whole
ABOVE_ZERO = ("peak_vram_mb", "num_params_M")
# enough for 16,000 tensors, and quick to read
HEADER_BYTES = 4 << 20
LEAST_HEADER_BYTES, TENSOR_BYTES = 1 << 10, 1 << 9  # in all, and for each tensor: a longer header could hide weights
MOST_DIMENSIONS, LONGEST = 16, 1 << 48  # of a tensor: no model has more, and larger products are slow
DTYPE = re.compile(r"(?:BOOL|[A-Z]+(8|16|32|64)(?:_\w+)?)")  # with the bits of an element; a truth value has 8


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
        numbers = json.loads(read_end(out, "summary.json", SUMMARY_BYTES))
        names = [field.name for field in fields(Summary) if _is_plausible(field.name, numbers.get(field.name))]
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return Summary(**{name: numbers[name] for name in names})


def _is_plausible(name: str, value: object) -> bool:
    if not is_finite(value) or (name in COUNTS and not isinstance(value, int)):
        return False
    return 0 <= value <= ABSURD and (value > 0 or name not in ABOVE_ZERO)  # type: ignore[operator]  # a number


def read_weights(out: Path) -> Weights | None:
    """Return the sizes in the header of the run's weights; None if the file is missing or malformed."""
    try:
        with open_plain(out, Path(WEIGHTS).name) as file:
            return count_weights(file, os.fstat(file.fileno()).st_size)
    except OSError:
        return None


def count_weights(file: BinaryIO, file_bytes: int) -> Weights | None:
    """Return the parameters and bytes in an open file of this size; None unless its header tells of every byte."""
    header_bytes = int.from_bytes(file.read(8), "little")
    if not 2 <= header_bytes <= min(HEADER_BYTES, file_bytes - 8):
        return None
    params = bits = 0
    try:
        header = json.loads(file.read(header_bytes))
        tensors = [facts for name, facts in header.items() if name != "__metadata__"]
        for tensor in tensors:
            dtype, shape = DTYPE.fullmatch(tensor["dtype"]), tensor["shape"]
            if len(shape) > MOST_DIMENSIONS or not all(type(size) is int and 0 <= size <= LONGEST for size in shape):
                return None  # bool is an int to isinstance
            params += prod(shape)
            bits += prod(shape) * int(dtype[1] or 8)  # type: ignore[index]  # an unknown type raises TypeError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    data_bytes = file_bytes - 8 - header_bytes
    is_short = header_bytes <= LEAST_HEADER_BYTES + TENSOR_BYTES * len(tensors)
    return Weights(params, data_bytes) if is_short and bits == 8 * data_bytes else None
