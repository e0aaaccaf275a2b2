"""Run the work of preparing a corpus in several processes, which end with the process that started them."""

from __future__ import annotations

import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from agent.lab.corpus import UnfinishedError


@contextmanager
def processes(count: int) -> Iterator[Executor | None]:
    """Start a pool of processes for the `with` block and end them afterwards.

    Yield None instead if count is 1; the work is then done in this process. Raise UnfinishedError if one was killed.
    """
    if count < 2:
        yield None
        return
    context = multiprocessing.get_context("spawn")  # fork would copy the threads' locks
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_live_with_parent)
    try:
        for _ in range(count):
            pool.submit(_import_tiktoken)
        yield pool
    except BrokenProcessPool as error:
        remedy = "run the same command again, with fewer --workers if memory is short; finished work is kept"
        raise UnfinishedError(f"one of {count} worker processes was killed: {remedy}") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _import_tiktoken() -> None:
    """Start one process of the pool: it starts one for each task that finds no idle process."""
    import tiktoken  # noqa: F401


def work_through(jobs: Sequence[tuple[Any, ...]], work: Callable[..., None], pool: Executor | None) -> Iterator[None]:
    """Yield once for every finished job."""
    if pool is None:
        yield from itertools.starmap(work, jobs)
        return
    for job in as_completed([pool.submit(work, *arguments) for arguments in jobs]):
        yield job.result()


def _live_with_parent() -> None:
    """Leave Ctrl-C to the parent, and end when it is gone: a killed parent cannot tell its workers to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
