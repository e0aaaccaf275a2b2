"""Prepare a corpus (text → tokenizer → token arrays), yield batches and compute the metric for training scripts.

    python prepare.py [--dataset stdlib|tinystories|climbmix|PATH] [--scale auto|tiny|small|full]
                      [--use everywhere|here|nowhere]

Experiments never edit this file. A prepared corpus is one folder: three splits as flat arrays of tokens, a tokenizer,
and a manifest with their sha256. Training only reads it, without agent/lab/encode.py and its packages.
"""

from __future__ import annotations

import argparse
import io
import itertools
import math
import queue
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

try:
    import mlx  # noqa: F401, only to see that it is there
    import numpy as np

    from agent.lab.corpus import SUFFIXES, DataError, Scale, Split, find_sources, plan_units, say
    from agent.lab.data import Data, data_dir, evaluation_rows, load_data, select
    from agent.lab.hardware import cache_root, device_kind, memory_bytes, usable_cores
    from agent.lab.numbers import decimal, whole
    from agent.lab.packing import Tokens, pack_rows
except ImportError as error:  # train_mlx.py imports this file first
    sys.exit(
        f"{error}; run this with the Python that nightshift is installed in, as uv run python does in its clone, and "
        f"rename what is called agent, mlx or numpy beside it"
    )

__all__ = [
    "SCALES", "SCALE_OF_DEVICE", "TIME_BUDGET_S", "Data", "DataError", "batches", "checked_logits", "data_dir",
    "decimal", "ensure_data", "evaluate_bpb", "evaluation_rows", "load_data", "main", "prepare", "rows_at_once",
    "token_losses", "whole",
]  # fmt: skip

Use = Literal["everywhere", "here", "nowhere"]  # the scope in which a corpus is the default

TIME_BUDGET_S = 300  # seconds of training in one experiment

SCALES = {
    "tiny": Scale("tiny", seq_len=512, vocab_size=4096, eval_tokens=64 * 1024),  # two CPU cores evaluate it in 15 s
    "small": Scale("small", seq_len=1024, vocab_size=8192, eval_tokens=2**20, smaller="tiny"),
    "full": Scale("full", seq_len=2048, vocab_size=8192, eval_tokens=40 * 524288, smaller="small"),
}
SCALE_OF_DEVICE = {"cpu": "tiny", "metal": "small", "cuda": "full"}

EVAL_LOGITS_BYTES = {"cpu": 2**27, "metal": 2**28, "cuda": 2**31}  # float32 logits of one evaluation batch, at most


# ---- preparing -------------------------------------------------------------------------------------------------------


def prepare(
    dataset: str = "stdlib",
    scale: Scale | None = None,
    *,
    cache: Path | None = None,
    shards: int | None = None,
    workers: int | None = None,
    use: Use = "everywhere",
) -> Path:
    """Prepare a corpus, choose it and return its folder; go on after an interrupted call.

    By default the device determines the scale, and all folders use the corpus. Raise DataError for problems with text,
    disk or network.
    """
    from filelock import FileLock

    from agent.lab.encode import Job, build, file_errors, refusal_leaves_nothing

    cache = cache or cache_root()
    scale = scale or _scale_of_this_device()
    with file_errors(cache):
        job = Job(dataset, scale, plan_units(find_sources(dataset, shards, cache)), cache / "data")
        with refusal_leaves_nothing(job), FileLock(job.folder / "lock"):
            for left in job.folder.glob(".*.[0-9]*.????????"):  # a killed call had not yet given it its name
                with suppress(OSError):
                    left.unlink()
            if _is_prepared(job.folder, job.recipe):
                say(f"{dataset} is already prepared")
            else:
                build(job, workers or usable_cores())
            shutil.rmtree(job.build, ignore_errors=True)  # now: a call that finds the corpus selected skips this
            if use != "nowhere":
                select(job.folder, Path.cwd() if use == "here" else None)
    return job.folder


def _scale_of_this_device() -> Scale:
    return SCALES[SCALE_OF_DEVICE[device_kind()]]


def _is_prepared(folder: Path, recipe: str) -> bool:
    try:
        manifest = load_data(folder).manifest
    except DataError:
        return False
    return bool(manifest["recipe"] == recipe) and all((folder / name).exists() for name in manifest["files"])


# ---- loading ---------------------------------------------------------------------------------------------------------


def ensure_data() -> Data:
    """Load the selected corpus; if there is none, print so and prepare the default first."""
    if data_dir() is None:
        say("no corpus is prepared yet: preparing the default, the text of Python's standard library")
        prepare()
    return load_data()


# ---- batches ---------------------------------------------------------------------------------------------------------


def batches(
    tokens: Tokens, bos: int, *, rows: int, seq_len: int, seed: int, prefetch: int = 4
) -> Iterator[np.ndarray]:  # each (B, T+1) int32
    """Yield packed batches (B, T+1) without end, made ahead in a thread that ends when the iterator is closed.

    The first T columns are inputs, the last T targets. The same seed gives the same batches. Errors of the thread are
    raised here.
    """
    ahead: queue.Queue[np.ndarray | BaseException] = queue.Queue(prefetch)
    closed = threading.Event()

    def work() -> None:
        try:
            packed = pack_rows(tokens, bos, seq_len=seq_len, seed=seed)
            while not closed.is_set():
                ahead.put(np.stack(list(itertools.islice(packed, rows))))
        except BaseException as error:
            ahead.put(error)

    thread = threading.Thread(target=work, name="batches", daemon=True)
    thread.start()
    try:
        while True:
            batch = ahead.get()
            if isinstance(batch, BaseException):
                raise batch
            yield batch
    finally:
        closed.set()
        while not ahead.empty():
            ahead.get_nowait()  # make room, since the thread may be waiting for it
        thread.join()


# ---- the metric ------------------------------------------------------------------------------------------------------


def evaluate_bpb(model: Any, data: Data, split: Split = "validation") -> float:
    """Return the bits per byte of a split under model(tokens (B, T) int32) → logits (B, T, V); lower is better.

    Each byte of the split counts once, BOS never. Raise ValueError if the logits have another shape.
    """
    inputs, targets = evaluation_rows(data.split(split), data.bos, data.seq_len)  # (R, T)
    rows = rows_at_once(data)
    nats = 0.0
    for at in range(0, len(inputs), rows):
        losses = token_losses(model, inputs[at : at + rows], targets[at : at + rows], rows, data)
        counted = data.token_bytes[targets[at : at + rows]] > 0
        nats += float(losses[counted].sum(dtype=np.float64))
    return nats / (math.log(2) * int(data.token_bytes[targets].sum(dtype=np.int64)))


def rows_at_once(data: Data) -> int:
    """Return how many rows to evaluate together: those of a whole split, or as many as the memory for logits allows."""
    logits_bytes = min(EVAL_LOGITS_BYTES[device_kind()], memory_bytes() // 64)
    whole: int = -(-data.manifest["eval_tokens"] // data.seq_len)
    return max(1, min(whole, logits_bytes // (4 * data.seq_len * data.vocab_size)))


def token_losses(model: Any, inputs: np.ndarray, targets: np.ndarray, rows: int, data: Data) -> np.ndarray:
    """Return the cross-entropy (R, T) of inputs and targets (R, T) in nats and float32; R is at most `rows`."""
    import mlx.core as mx

    from agent.lab import kernels

    y = mx.array(np.pad(targets.astype(np.int32), ((0, rows - len(targets)), (0, 0)), constant_values=data.bos))
    losses = kernels.cross_entropy(checked_logits(model, inputs, rows, data).astype(mx.float32), y)
    mx.eval(losses)
    return np.array(losses)[: len(inputs)]


def checked_logits(model: Any, inputs: np.ndarray, rows: int, data: Data) -> Any:  # (rows, T, V)
    """Return the logits of inputs (R, T) filled up to `rows` rows, as a new shape would be compiled again.

    Raise ValueError if the logits have a wrong shape.
    """
    import mlx.core as mx

    x = mx.array(np.pad(inputs.astype(np.int32), ((0, rows - len(inputs)), (0, 0)), constant_values=data.bos))
    logits = model(x)
    if logits.shape != (expected := (*x.shape, data.vocab_size)):
        raise ValueError(f"the model's logits have shape {logits.shape} where (B, T, vocabulary) = {expected} is due")
    return logits


# ---- command line ----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare a corpus; return 0, or 2 after printing one sentence on the failure, or 130 when interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a path may have characters that its encoding lacks
    options = _parser().parse_args(argv)
    began = time.monotonic()
    try:
        sizes = {"shards": options.shards, "workers": options.workers}
        folder = prepare(options.dataset, SCALES.get(options.scale), **sizes, use=options.use)
        print(_summary(load_data(folder, verify=False), options.use, time.monotonic() - began))
    except (DataError, OSError) as error:  # OSError: there is no home for the cache
        print(f"prepare: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("prepare: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Prepare a corpus: tokenizer, token arrays, manifest.")
    about = (
        "stdlib (the text of Python's own standard library, no network), tinystories, climbmix, or the PATH of a file "
        f"or folder of {' '.join(SUFFIXES)} (default: %(default)s)"
    )
    parser.add_argument("--dataset", default="stdlib", help=about)
    about = "sizes; auto chooses tiny on a CPU, small on Apple silicon, full on CUDA (default: %(default)s)"
    parser.add_argument("--scale", choices=["auto", *SCALES], default="auto", help=about)
    about = "where it is trained on: in all folders without a choice of their own, this one, or none (%(default)s)"
    parser.add_argument("--use", choices=get_args(Use), default="everywhere", help=about)
    parser.add_argument("--shards", type=whole(), help="files to download (default: 10 of climbmix, else all)")
    parser.add_argument("--workers", type=whole(), help="processes that tokenise (default: one for each core)")
    return parser


def _summary(data: Data, use: Use, seconds: float) -> str:
    splits, skipped = data.manifest["splits"], data.manifest["skipped"]
    lines = [f"corpus:          {data.folder}", f"used:            {use}"]
    for name, split in splits.items():
        lines.append(f"{name + ':':<16} {split['tokens']:,} tokens in {split['documents']:,} documents")
    tokens, text_bytes = (sum(split[key] for split in splits.values()) for key in ("tokens", "bytes"))
    lines.append(f"vocabulary:      {data.vocab_size:,} tokens, {text_bytes / tokens:.2f} bytes each")
    if skipped["count"]:
        lines.append(f"skipped:         {skipped['count']} not UTF-8 text, for example {skipped['example']}")
    lines.append(f"seconds:         {seconds:.1f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
