"""What depends on the device: moving data there, waiting for it, its name, memory and fastest kernels."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def to_device(array: np.ndarray | list[float], device: str) -> Tensor:
    tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.tensor(array, dtype=torch.float32)
    return tensor.pin_memory().to(device, non_blocking=True) if device == "cuda" else tensor.to(device)


def on_device(batches: Iterator[np.ndarray], device: str) -> Iterator[Tensor]:
    """Each batch is already on its way to the device when the one before it is handed out."""
    coming = to_device(next(batches), device)
    for batch in batches:
        here, coming = coming, to_device(batch, device)
        yield here


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else device


def peak_memory_bytes(device: str) -> int:
    """A GPU's from the allocator, as MLX counts it; on a CPU the process's largest size."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return rss * (1 if sys.platform == "darwin" else 1024)


def usual_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def prefer_fast_kernels(stack: ExitStack) -> None:
    """cuDNN's attention before flash attention's, and TF32 in the Newton-Schulz products."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.set_float32_matmul_precision("high")
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    stack.enter_context(sdpa_kernel(order, set_priority=True))
