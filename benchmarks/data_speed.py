"""How fast text becomes tokens and tokens become batches, each against a goal.

    python benchmarks/data_speed.py [--quick] [--json FILE] [--text PATH] [--text-mb N]

Three measurements, on the standard library's text if no other is given:

preparing    prepare.py's whole work, from files to a corpus with its manifest, and the stages of it
the loader   tokens/s of pack_rows alone, of batches() with its thread, and with the upload to MLX: on one core, where
             the system lets a process choose its cores
tokenising   all cores, as prepare.py uses them (reading, cutting, hashing, writing), against one thread of tiktoken
             that is given the same documents in memory; in turns, the ratio from each pair. prepare.py's processes
             start while the tokenizer is trained: their start and end are measured by themselves
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure
import numpy as np

import prepare
from agent.lab import corpus, encode, hardware
from agent.lab.corpus import find_sources
from agent.lab.encode import processes, work_through
from agent.text import counted

LOADER_GOAL_TOKENS_S = 5e6  # three times what an H200 trains on
TOKENISE_GOAL = 0.9  # of the number of cores
ONE_THREAD_MB = 200  # of the text, at most, for the one thread: with many cores it would take minutes for all of it
ROWS = {"tiny": 4, "small": 16, "full": 64}  # train_mlx.py's BATCH_ROWS on the device that the scale is meant for
SHORT_TOKENS = 20  # of a document, on average: the loader's work is by document
STAGES = {"_train_tokenizer": "tokenizer", "_tokenise": "tokenising", "_merge": "merging"}


@dataclass(frozen=True)
class Plan:
    """What the command line asked for."""

    dataset: str
    text_mb: float  # to be tokenised: the text is read again, or cut
    rounds: int
    seconds: float  # of each measurement of the loader
    cores: int


@dataclass(frozen=True)
class Preparing:
    text_mb: float
    files: int
    seconds: float
    stages_s: dict[str, float]
    folder: Path


@dataclass(frozen=True)
class Loading:
    what: str
    rows: int
    seq_len: int
    pack_tokens_s: float
    batches_tokens_s: float
    upload_tokens_s: float | None  # None without MLX

    @property
    def tokens_s(self) -> float:
        """With everything that training waits for."""
        return self.upload_tokens_s or self.batches_tokens_s


@dataclass(frozen=True)
class Tokenising:
    text_mb: float
    one_thread_mb_s: float
    all_cores_s: float
    start_s: float  # until the processes wait for work, and their end
    ratio: float
    ratio_with_start: float


# ---- preparing -------------------------------------------------------------------------------------------------------


def measure_preparing(plan: Plan, folder: Path) -> Preparing:
    """The round of the median time; the corpus of the last one is left in `folder`."""
    units = corpus.plan_units(find_sources(plan.dataset, None, folder))
    files = {span.path for unit in units for span in unit.spans}
    found = []
    for _ in range(plan.rounds):
        shutil.rmtree(folder / "data", ignore_errors=True)
        with timed_stages() as stages_s:
            start = time.perf_counter()
            made = prepare.prepare(plan.dataset, prepare.SCALES["full"], cache=folder, workers=plan.cores)
            seconds = time.perf_counter() - start
        found.append(Preparing(mb(units), len(files), seconds, stages_s, made))
    return sorted(found, key=lambda one: one.seconds)[len(found) // 2]


@contextmanager
def timed_stages() -> Iterator[dict[str, float]]:
    """The seconds that each stage of encode.build takes, by name."""
    stages_s: dict[str, float] = {}
    originals = {function: getattr(encode, function) for function in STAGES}
    for function, stage in STAGES.items():
        setattr(encode, function, timed(originals[function], stage, stages_s))
    try:
        yield stages_s
    finally:
        for function, original in originals.items():
            setattr(encode, function, original)


def timed(function: Callable[..., Any], name: str, seconds: dict[str, float]) -> Callable[..., Any]:
    def wrapped(*arguments: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments)
        seconds[name] = time.perf_counter() - start
        return result

    return wrapped


def mb(units: Sequence[corpus.Unit]) -> float:
    return sum(unit.text_bytes for unit in units) / 1e6


# ---- the loader ------------------------------------------------------------------------------------------------------


def measure_loader(plan: Plan, folder: Path) -> list[Loading]:
    """The corpus in a folder at the shape of every scale, and documents of a few tokens each at the smallest."""
    data = prepare.load_data(folder, verify=False)
    split, upload = data.split("train"), uploader()
    with one_core():
        found = [
            load(f"scale {scale}", split, data.bos, ROWS[scale], sizes.seq_len, plan.seconds, upload)
            for scale, sizes in prepare.SCALES.items()
        ]
        short = short_documents(data.bos)
        return [*found, load("short documents", short, data.bos, found[0].rows, found[0].seq_len, plan.seconds, upload)]


def load(
    what: str,
    split: prepare.Tokens,
    bos: int,
    rows: int,
    seq_len: int,
    seconds: float,
    upload: Callable[[np.ndarray], None] | None,
) -> Loading:
    packed = prepare.pack_rows(split, bos, seq_len=seq_len, seed=0)
    pack_tokens_s = seq_len * calls_per_s(lambda: next(packed), seconds)
    ahead = prepare.batches(split, bos, rows=rows, seq_len=seq_len, seed=0)
    tokens = rows * seq_len
    batches_tokens_s = tokens * calls_per_s(lambda: next(ahead), seconds)
    upload_tokens_s = tokens * calls_per_s(lambda: upload(next(ahead)), seconds) if upload else None
    ahead.close()  # type: ignore[attr-defined]  # a generator
    return Loading(what, rows, seq_len, pack_tokens_s, batches_tokens_s, upload_tokens_s)


def calls_per_s(call: Callable[[], object], seconds: float) -> float:
    """In the steady state: what a thread had made ahead is taken first."""
    for _ in range(8):
        call()
    start = time.perf_counter()
    for count in itertools.count(1):
        call()
        if (elapsed_s := time.perf_counter() - start) >= seconds:
            return count / elapsed_s
    raise AssertionError("unreachable")


def uploader() -> Callable[[np.ndarray], None] | None:
    """Brings a batch to where MLX computes; None where there is no MLX."""
    hardware.tune()
    try:
        import mlx.core as mx
    except ImportError:
        return None
    return lambda batch: mx.eval(mx.array(batch))


def short_documents(bos: int, tokens: int = 4_000_000) -> prepare.Tokens:
    rng = np.random.default_rng(0)
    lengths = 1 + rng.geometric(1 / SHORT_TOKENS, tokens // SHORT_TOKENS)  # 1: BOS
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return prepare.Tokens(rng.integers(0, bos, offsets[-1], np.uint16), offsets)


@contextmanager
def one_core() -> Iterator[None]:
    """This thread, and those that it starts, on one of the cores it has."""
    if not hasattr(os, "sched_setaffinity"):
        yield  # a Mac does not let a process choose
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


# ---- tokenising ------------------------------------------------------------------------------------------------------


def measure_tokenising(plan: Plan, tokenizer: Path, folder: Path) -> Tokenising:
    units = units_of(plan.dataset, plan.text_mb, folder)
    some = units_of(plan.dataset, min(plan.text_mb, ONE_THREAD_MB), folder)
    encoding = encode.load_encoding(tokenizer)
    rounds = [
        (mb(some) / one_thread_seconds(some, encoding), *all_cores_seconds(units, tokenizer, folder, plan.cores))
        for _ in range(plan.rounds)
    ]
    return Tokenising(
        text_mb=mb(units),
        one_thread_mb_s=statistics.median(one_mb_s for one_mb_s, _, _ in rounds),
        all_cores_s=statistics.median(all_s for _, all_s, _ in rounds),
        start_s=statistics.median(start_s for _, _, start_s in rounds),
        ratio=statistics.median(mb(units) / all_s / one_mb_s for one_mb_s, all_s, _ in rounds),
        ratio_with_start=statistics.median(
            mb(units) / (all_s + start_s) / one_mb_s for one_mb_s, all_s, start_s in rounds
        ),
    )


def units_of(dataset: str, text_mb: float, cache: Path) -> list[corpus.Unit]:
    """The units of a dataset over and over, until there is this much text."""
    units = corpus.plan_units(find_sources(dataset, None, cache))
    many = units * math.ceil(text_mb / mb(units))
    before_mb = itertools.accumulate((unit.text_bytes / 1e6 for unit in many), initial=0.0)
    return [unit for unit, so_far in zip(many, before_mb, strict=False) if so_far < text_mb]


def one_thread_seconds(units: Sequence[corpus.Unit], encoding: Any) -> float:
    """What tiktoken takes for the documents, and for nothing else."""
    seconds = 0.0
    for unit in units:
        documents = list(corpus.read_documents(unit, []))
        start = time.perf_counter()
        for document in documents:
            encoding.encode_ordinary(document)
        seconds += time.perf_counter() - start
    return seconds


def all_cores_seconds(units: Sequence[corpus.Unit], tokenizer: Path, folder: Path, cores: int) -> tuple[float, float]:
    """Seconds of the work, and of the start and end of the processes that do it."""
    with tempfile.TemporaryDirectory(dir=folder) as parts:
        jobs = [(unit, tokenizer, Path(parts, f"{i}.npz")) for i, unit in enumerate(units)]
        begun = time.perf_counter()
        with processes(cores) as pool:
            finish([(tokenizer,)] * cores, get_ready, pool)
            ready = time.perf_counter()
            finish(jobs, encode.tokenise_unit, pool)
            done = time.perf_counter()
        ended = time.perf_counter()
    return done - ready, ready - begun + ended - done


def finish(jobs: Sequence[tuple[Any, ...]], work: Callable[..., None], pool: Executor | None) -> None:
    for _ in work_through(jobs, work, pool):
        pass


def get_ready(tokenizer: Path) -> None:
    encode.load_encoding(tokenizer)


# ---- what comes of it ------------------------------------------------------------------------------------------------


def print_tables(plan: Plan, preparing: Preparing, loading: Sequence[Loading], tokenising: Tokenising) -> None:
    cores = counted(plan.cores, "core")
    stages = [[f"  {stage}", f"{s:.2f}", f"{preparing.text_mb / s:.1f}"] for stage, s in preparing.stages_s.items()]
    measure.print_table(
        f"preparing {preparing.text_mb:.0f} MB in {counted(preparing.files, 'file')}",
        ["", "seconds", "MB/s"],
        [["in all", f"{preparing.seconds:.2f}", f"{preparing.text_mb / preparing.seconds:.1f}"], *stages],
    )
    measure.print_table(
        f"the loader on one core, M tokens/s (goal {LOADER_GOAL_TOKENS_S / 1e6:.0f})",
        ["", "rows × T", "pack_rows", "batches", "and upload", "goal met"],
        [
            [one.what, f"{one.rows} × {one.seq_len}", *(measure.show(tokens_s and tokens_s / 1e6, ".1f") for tokens_s in
             (one.pack_tokens_s, one.batches_tokens_s, one.upload_tokens_s)), mark(one.tokens_s / LOADER_GOAL_TOKENS_S)]
            for one in loading
        ],
    )  # fmt: skip
    goal, ours = TOKENISE_GOAL * plan.cores, tokenising
    with_start_s = ours.all_cores_s + ours.start_s
    measure.print_table(
        f"tokenising {ours.text_mb:.0f} MB: {cores} against one thread of tiktoken (goal {goal:.1f} times)",
        ["", "seconds", "MB/s", "times one thread", "goal met"],
        [
            ["one thread of tiktoken", "", f"{ours.one_thread_mb_s:.1f}", "1", ""],
            [cores, f"{ours.all_cores_s:.2f}", f"{ours.text_mb / ours.all_cores_s:.1f}", f"{ours.ratio:.2f}",
             mark(ours.ratio / goal)],
            ["  with start and end of the processes", f"{with_start_s:.2f}", f"{ours.text_mb / with_start_s:.1f}",
             f"{ours.ratio_with_start:.2f}", ""],
        ],
    )  # fmt: skip


def mark(share_of_goal: float) -> str:
    return "yes" if share_of_goal >= 1 else f"no: {share_of_goal:.0%} of it"


def flat(plan: Plan, preparing: Preparing, loading: Sequence[Loading], tokenising: Tokenising) -> measure.Flat:
    found: measure.Flat = {
        "machine": platform.platform(),
        "cores": plan.cores,
        "prepare_text_mb": preparing.text_mb,
        "prepare_s": preparing.seconds,
        "prepare_mb_s": preparing.text_mb / preparing.seconds,
        **{f"prepare_{stage}_s": seconds for stage, seconds in preparing.stages_s.items()},
        "loader_tokens_s": min(one.tokens_s for one in loading),
        "loader_goal_tokens_s": LOADER_GOAL_TOKENS_S,
        "tokenise_text_mb": tokenising.text_mb,
        "tokenise_one_thread_mb_s": tokenising.one_thread_mb_s,
        "tokenise_mb_s": tokenising.text_mb / tokenising.all_cores_s,
        "tokenise_start_s": tokenising.start_s,
        "tokenise_ratio": tokenising.ratio,
        "tokenise_ratio_with_start": tokenising.ratio_with_start,
        "tokenise_goal": TOKENISE_GOAL * plan.cores,
    }
    for one in loading:
        key = "loader_" + one.what.removeprefix("scale ").replace(" ", "_")
        found |= {f"{key}_pack_tokens_s": one.pack_tokens_s, f"{key}_batches_tokens_s": one.batches_tokens_s}
        found[f"{key}_upload_tokens_s"] = one.upload_tokens_s
    return found


# ---- command line ----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """0 when everything is measured, goal met or not; 2 with one sentence when it cannot be; 130 when interrupted."""
    options = parser().parse_args(argv)
    return measure.guarded("data_speed", lambda: run(options))


def run(options: argparse.Namespace) -> int:
    measure.check_writable(options.json)
    cores = hardware.usable_cores()
    # a process starts and ends in the time of 3 MB: with little text for each that is what would be measured
    text_mb = options.text_mb or (min(100 * cores, ONE_THREAD_MB) if options.quick else 100 * cores)
    plan = Plan(options.text, text_mb, 1 if options.quick else 3, options.seconds, cores)
    with measure.work_folder(None) as folder:
        preparing = measure_preparing(plan, folder)
        loading = measure_loader(plan, preparing.folder)
        tokenising = measure_tokenising(plan, preparing.folder / "tokenizer.tiktoken", folder)
    print_tables(plan, preparing, loading, tokenising)
    measure.write_json(options.json, flat(plan, preparing, loading, tokenising))
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("data_speed.py", description="Time the way from text to batches.")
    top.add_argument("--quick", action="store_true", help="less text, each measurement once: under a minute")
    top.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    top.add_argument("--text", default="stdlib", metavar="PATH", help="a file or folder (default: Python's library)")
    top.add_argument("--text-mb", type=above_zero, metavar="N", help="tokenise N MB (default: 100 for each core)")
    top.add_argument(
        "--seconds",
        type=above_zero,
        default=1.0,
        metavar="S",
        help="for each figure of the loader (default: %(default)g)",
    )
    return top


def above_zero(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return number


if __name__ == "__main__":
    sys.exit(main())
