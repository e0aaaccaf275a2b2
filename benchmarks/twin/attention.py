"""Causal attention within windows, in several forms of the same arithmetic, and the faster one for a shape."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import measure
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from twin.devices import synchronize
from twin.dials import Dials

Attend = Callable[[Tensor, Tensor, Tensor, int], Tensor]  # q, k, v: (B, H, T, D), window → (B, H, T, D)


def causal(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def spans(T: int, window: int) -> list[tuple[int, int, int]]:
    """Blocks of queries: each one's first and last-but-one position, and the first key that it may see."""
    block = (min(window, T) + 1) // 2
    stops = [*range(block, T, block), T]
    return [(start, stop, max(0, stop - window)) for start, stop in zip([0, *stops], stops, strict=False)]


def blocks(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    T = q.shape[2]
    if window >= T:
        return causal(q, k, v, T)
    pieces = [
        lower_right(q[:, :, start:stop], k[:, :, first:stop], v[:, :, first:stop])
        for start, stop, first in spans(T, window)
    ]
    return torch.cat(pieces, dim=2)


def lower_right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention whose last query sees the last key, for fewer queries than keys."""
    L, S = q.shape[2], k.shape[2]
    if L == S:
        return causal(q, k, v, S)
    if q.is_cuda and q.dtype in (torch.bfloat16, torch.float16):  # this operator's "causal" is the lower-right one
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=None)[0]
    seen = torch.ones(L, S, dtype=torch.bool, device=q.device).tril(S - L)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def squares(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    pieces = spans(q.shape[2], window)
    whole = [stop for _, stop, first in pieces if first == 0][-1]  # up to here, everybody sees everything before
    outputs = [causal(q[:, :, :whole], k[:, :, :whole], v[:, :, :whole], whole)]
    for start, stop, first in pieces:
        if first > 0:
            square = causal(q[:, :, first:stop], k[:, :, first:stop], v[:, :, first:stop], window)
            outputs.append(square[:, :, start - first :])
    return torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]


ATTENTION: dict[str, Attend] = {"blocks": blocks, "squares": squares, "causal": causal}


def choose_attention(dials: Dials, seq_len: int, device: str) -> str:
    """The faster of the two forms that compute the same, at this shape."""
    window = min(dials.windows)
    if dials.attention != "auto":
        return dials.attention
    if window >= seq_len:
        return "causal"
    shape = (dials.batch_rows, seq_len, dials.heads, dials.width // dials.heads)
    qkv = [torch.randn(shape, device=device, dtype=getattr(torch, dials.dtype)) for _ in range(3)]
    qkv = [z.transpose(1, 2).requires_grad_() for z in qkv]
    seconds = {}
    for name in ("blocks", "squares"):
        try:
            seconds[name] = time_attention(ATTENTION[name], qkv, window)
        except RuntimeError as error:  # a form that this device or build cannot run is none
            print(f"attention {name} does not run here: {str(error).splitlines()[0]}", flush=True)
    if not seconds:
        raise measure.Failed("neither form of attention runs here: name one with --attention")
    print("attention, ms: " + ", ".join(f"{name} {1e3 * s:.2f}" for name, s in seconds.items()), flush=True)
    return min(seconds, key=lambda name: seconds[name])


def time_attention(attend: Attend, qkv: list[Tensor], window: int) -> float:
    """Seconds of one layer's attention, forward and backward: the best of a few."""
    out = attend(*qkv, window)
    slope = torch.randn_like(out)
    best = math.inf
    for _ in range(6):
        synchronize(qkv[0].device.type)
        tic = time.perf_counter()
        torch.autograd.grad(attend(*qkv, window), qkv, slope)
        synchronize(qkv[0].device.type)
        best = min(best, time.perf_counter() - tic)
    return best
