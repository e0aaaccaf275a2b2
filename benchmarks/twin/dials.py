"""The dials of train_mlx.py, and those of how the twin runs."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, fields, replace

import measure


@dataclass(frozen=True)
class Dials:
    """As train_mlx.py's, whose values for CUDA are the defaults."""

    depth: int = 8
    width: int = 512
    heads: int = 4
    kv_heads: int = 4
    windows: tuple[int, ...] = ()  # for each layer; when empty, every fourth and the last see all, others half a row
    mlp_ratio: int = 4
    softcap: float = 15.0
    rope_base: float = 10000.0
    gate_channels: int = 32
    induction_orders: str = "1248"
    batch_rows: int = 64
    micro_steps: int = 1
    matrix_lr: float = 0.04
    embedding_lr: float = 0.6
    induction_lr: float = 0.3
    unembedding_lr: float = 0.004
    scalar_lr: float = 0.5
    weight_decay: float = 0.2
    adam_beta1: float = 0.8
    adam_beta2: float = 0.95
    muon_momentum: float = 0.95
    warmup_fraction: float = 0.0
    warmdown_fraction: float = 0.5
    final_lr_fraction: float = 0.0
    # not dials of the original, but how the twin runs
    dtype: str = "auto"  # bfloat16 on a GPU, float32 on a CPU
    attention: str = "auto"

    def complete(self, device: str, seq_len: int) -> Dials:
        """With everything decided that is left to the device and the corpus, except which attention is faster."""
        last = self.depth - 1
        usual = tuple(seq_len if i % 4 == 3 or i == last else max(2, seq_len // 2) for i in range(self.depth))
        dtype = self.dtype if self.dtype != "auto" else "float32" if device == "cpu" else "bfloat16"
        return replace(self, windows=tuple(self.windows) or usual, dtype=dtype)

    def check(self) -> None:
        if self.width % self.heads or self.heads % self.kv_heads:
            sizes = f"width {self.width}, heads {self.heads}, kv_heads {self.kv_heads}"
            raise measure.Misuse(f"{sizes}: the heads must divide the width, and kv_heads the heads")
        if len(self.windows) != self.depth:
            raise measure.Misuse(f"{len(self.windows)} windows for {self.depth} layers: name one for each layer")


def windows(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def read_dials(args: argparse.Namespace) -> Dials:
    try:
        values = json.loads(args.config)
        values |= {f.name: getattr(args, f.name) for f in fields(Dials) if getattr(args, f.name) is not None}
        return Dials(**{**values, "windows": tuple(values.get("windows", ()))})
    except (ValueError, TypeError) as error:
        names = ", ".join(asdict(Dials()))
        raise measure.Misuse(f"--config {args.config} cannot be read ({error}): a JSON object of {names}") from error
