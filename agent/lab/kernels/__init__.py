"""Run the operations of a script by faster kernels, as long as they are what the kernels were written for.

The script writes each operation in plain MLX below `@fast`. `NIGHTSHIFT_KERNELS=plain` in the environment switches all
kernels off. Scripts of earlier nights call the operations by their names here, as in `kernels.norm(x)`.
"""

from agent.lab.kernels.device import kernel_device
from agent.lab.kernels.plain import Piece, last_seen, ngram_ids, norm
from agent.lab.kernels.swap import fast
from agent.lab.kernels.twins import (
    adamw,
    attend,
    cautious_step,
    cross_entropy,
    embedding,
    gated_add,
    linear,
    linear_add,
    mix_norm,
    nesterov,
    relu_squared,
    residual_norm,
    rotary_qkv,
    softcap,
    softcapped_cross_entropy,
)
from agent.lab.kernels.windows import cut

__all__ = [
    "Piece", "adamw", "attend", "cautious_step", "cross_entropy", "cut", "embedding", "fast", "gated_add",
    "kernel_device", "last_seen", "linear", "linear_add", "mix_norm", "nesterov", "ngram_ids", "norm", "relu_squared",
    "residual_norm", "rotary_qkv", "softcap", "softcapped_cross_entropy",
]  # fmt: skip
