"""Run a peer's train.py, unchanged, over our prepared corpus: what five_minutes.py starts, one process for each.

The peers are karpathy/autoresearch (PyTorch) and trevin-creator/autoresearch-mlx (MLX). Both import MAX_SEQ_LEN,
TIME_BUDGET, Tokenizer, make_dataloader and evaluate_bpb from `prepare`; the first also gets FlashAttention-3 from the
Hugging Face hub through `kernels.get_kernel`. Stand-ins for these modules give them our rows of training text, packed
and prefetched in a thread, and score them on our validation text with our count of bytes, so that every score is of the
same bits over the same bytes. All else is the peer's own: model, optimizer, precision, compilation, batch size, clock
and summary. FlashAttention-3 is PyTorch's own attention here.

It is imported, never run as a program: torch.compile looks up the globals of what it compiles by the name of their
module, and a program's is `__main__`, which by then is the peer's script.
"""

import os
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import measure
import numpy as np

import prepare

LOGITS_BYTES = 2**31  # bytes of float32 logits that an MLX peer may use while it is scored
RUN = f"import sys; sys.path.insert(0, {str(measure.HERE)!r}); import cyclopts, peers; cyclopts.run(peers.run)"


def is_mlx(script: Path) -> bool:
    return "import mlx" in script.read_text(encoding="utf-8")


def read_script(path: Path) -> Path:
    """Return the training script of a peer, named by its folder or itself."""
    script = path / "train.py" if path.is_dir() else path
    if not script.is_file():
        raise measure.Misuse(f"{path} holds no train.py: name a clone of the peer")
    return script.resolve()


def run(script: Path, *, budget_s: float, seed: int) -> None:
    """Run a script; seed: of the order of the text, since a peer seeds its weights itself."""
    data = prepare.load_data()
    make = partial(stand_in, data, budget_s, seed)
    with ExitStack() as stack:
        if is_mlx(script):
            sys.modules["prepare"] = for_mlx(make, data)
        else:
            # the script's own setting, which would come too late
            os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
            from torch.nn.attention import SDPBackend, sdpa_kernel

            names = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
            stack.enter_context(sdpa_kernel([getattr(SDPBackend, name) for name in names], set_priority=True))
            sys.modules["prepare"] = for_torch(make)
            sys.modules["kernels"] = kernels_for_torch()
        sys.argv = [str(script)]
        runpy.run_path(str(script), run_name="__main__")


# ---- the module `prepare` --------------------------------------------------------------------------------------------


def stand_in(
    data: prepare.Data,
    budget_s: float,
    seed: int,
    to_device: Callable[[np.ndarray], Any],
    contiguous: Callable[[Any], Any],
    as_losses: Callable[[Any], Any],
    most_rows: int = 1 << 30,
) -> ModuleType:
    """Return a module `prepare` with a peer's names, by functions of its library.

    as_losses: of what its model answers, flat and on the host; most_rows: that are scored at a time.
    """

    def make_dataloader(
        tokenizer: object, rows: int, seq_len: int, split: str, buffer_size: int = 0
    ) -> Iterator[tuple[Any, Any, int]]:
        tokens = data.split("train" if split == "train" else "validation")
        for batch in prepare.batches(tokens, data.bos, rows=rows, seq_len=seq_len, seed=seed):
            on_device = to_device(batch)
            yield contiguous(on_device[:, :-1]), contiguous(on_device[:, 1:]), 1

    def evaluate_bpb(model: Any, tokenizer: object, batch_size: int) -> float:
        def losses_of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            return np.array(as_losses(model(to_device(x), to_device(y), reduction="none"))).reshape(x.shape)

        return measure.bits_per_byte(losses_of, data, rows=min(batch_size, most_rows))

    tokenizer = SimpleNamespace(get_vocab_size=lambda: data.vocab_size, get_bos_token_id=lambda: data.bos)
    module = ModuleType("prepare", "A stand-in over another corpus.")
    module.__dict__.update(
        MAX_SEQ_LEN=data.seq_len,
        TIME_BUDGET=int(budget_s) if budget_s == int(budget_s) else budget_s,
        EVAL_TOKENS=len(data.split("validation").tokens),
        VOCAB_SIZE=data.vocab_size,
        Tokenizer=SimpleNamespace(from_directory=lambda *folder: tokenizer),
        make_dataloader=make_dataloader,
        evaluate_bpb=evaluate_bpb,
    )
    return module


def for_mlx(make: Callable[..., ModuleType], data: prepare.Data) -> ModuleType:
    import mlx.core as mx

    most_rows = max(1, LOGITS_BYTES // (4 * data.seq_len * data.vocab_size))
    return make(mx.array, lambda rows: rows, lambda losses: losses.astype(mx.float32), most_rows)


def for_torch(make: Callable[..., ModuleType]) -> ModuleType:
    import torch

    def to_device(array: np.ndarray) -> Any:
        rows = torch.from_numpy(array)
        return rows.pin_memory().to("cuda", non_blocking=True).long()  # widened there: half the bytes to copy

    torch_prepare = make(to_device, torch.Tensor.contiguous, lambda losses: losses.float().cpu())
    torch_prepare.__dict__["evaluate_bpb"] = torch.no_grad()(torch_prepare.evaluate_bpb)
    return torch_prepare


# ---- the module `kernels` --------------------------------------------------------------------------------------------


def kernels_for_torch() -> ModuleType:
    """Return a module `kernels` with PyTorch's attention in the place of FlashAttention-3."""
    interface = SimpleNamespace(flash_attn_interface=SimpleNamespace(flash_attn_func=attention))
    module = ModuleType("kernels", "A stand-in for a package of the Hugging Face hub.")
    module.__dict__["get_kernel"] = lambda repository, *args, **options: interface
    return module


def attention(q: Any, k: Any, v: Any, causal: bool = True, window_size: tuple[int, int] = (-1, -1)) -> Any:
    """Attend by scaled_dot_product_attention, cuDNN's where it can be had: q, k, v (B, T, H, D) → (B, T, H, D).

    It ignores windows: a layer meant to see half a row sees all of it, which costs arithmetic and loses nothing.
    """
    import torch.nn.functional as F  # noqa: N812

    q, k, v = (z.transpose(1, 2) for z in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
