"""Show a bar on the terminal while something takes longer than a person likes to wait without a word."""

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

SHOWN_FROM_S = 2.0
Item = TypeVar("Item")


def tracked(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield the items; from two seconds on, show on stderr how many are done, if that is a terminal."""
    console, began = Console(stderr=True), time.monotonic()
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(what, total=len(items))
    try:
        for item in items:
            yield item
            bar.advance(task)
            if not bar.live.is_started and time.monotonic() - began > SHOWN_FROM_S:
                bar.start()
    finally:
        bar.stop()
