"""Count the parameters in a file of weights by its header, without trusting the script's own numbers.

The format is safetensors: eight bytes that give the length of a JSON header, the header, then the tensors' bytes.
"""

import json
from math import prod
from typing import BinaryIO

from agent.experiment import Weights

# enough for 16,000 tensors, and quick to read
HEADER_BYTES = 4 << 20
LEAST_HEADER_BYTES, TENSOR_BYTES = 1 << 10, 1 << 9  # in all, and for each tensor: a longer header could hide weights
MOST_DIMENSIONS, LONGEST = 16, 1 << 48  # of a tensor: no model has more, and larger products are slow
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


def count_weights(file: BinaryIO, file_bytes: int) -> Weights | None:
    """Return the parameters and bytes in an open file of this size; None unless its header covers every byte."""
    header_bytes = int.from_bytes(file.read(8), "little")
    if not 2 <= header_bytes <= min(HEADER_BYTES, file_bytes - 8):
        return None
    try:
        header = json.loads(file.read(header_bytes))
    except (ValueError, RecursionError):
        return None
    if not isinstance(header, dict):
        return None
    tensors = [_tensor(said) for name, said in header.items() if name != "__metadata__"]
    known = sorted(tensor for tensor in tensors if tensor is not None)
    ends = [0, *(end for _, end, _ in known)]
    gapless = all(begin == end for (begin, _, _), end in zip(known, ends[:-1], strict=True))
    if header_bytes > LEAST_HEADER_BYTES + TENSOR_BYTES * len(tensors):
        return None
    if len(known) < len(tensors) or not gapless or ends[-1] != file_bytes - 8 - header_bytes:
        return None
    return Weights(params=sum(params for _, _, params in known), data_bytes=ends[-1])


def _tensor(said: object) -> tuple[int, int, int] | None:
    """Return a tensor's first byte, end and number of elements; None if these do not agree."""
    match said:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]} if dtype in BITS:
            pass
        case _:
            return None
    if len(shape) > MOST_DIMENSIONS or not all(type(size) is int and 0 <= size <= LONGEST for size in (*shape, begin)):
        return None  # bool is an int to isinstance
    params = prod(shape)
    return (begin, end, params) if type(end) is int and 8 * (end - begin) == BITS[dtype] * params else None
