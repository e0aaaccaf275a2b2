"""Goes on with a night in this repository and dies by SIGKILL at one chosen moment; without one it ends well.

python killed_night.py TAG MOMENT [WORKERS]     MOMENT is "before:STEP", "after:STEP", "after:STEP:N" or "never"
"""

import dataclasses
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/, for nights.py

from nights import scripted_context, unigram

from agent.experiment import Lease
from agent.git import Repo
from agent.judging.judges import Balanced
from agent.night import loop as night
from agent.pools.pool import LocalPool
from agent.records import results
from agent.records.journal import Journal
from agent.runs import execute

JITTER = 0.01  # the judge has to measure the noise, and may ask for further seeds


def main(tag: str, moment: str, workers: str = "1") -> None:
    when, step, nth = [*moment.split(":"), "", "1"][:3]
    if step:
        owner, name = STEPS[step]
        setattr(owner, name, deadly(getattr(owner, name), when, int(nth or 1)))
    scripts = [unigram(SHARPNESS=0.9, JITTER=JITTER), unigram(SHARPNESS=0.3, JITTER=JITTER)]
    scripts += [unigram(SHARPNESS=0.2 + number / 100, JITTER=JITTER) for number in range(2 * int(workers) - 2)]
    with scripted_context(Path.cwd(), tag, scripts) as context:
        runners = [dataclasses.replace(context.runner, lease=Lease(f"worker {n}")) for n in range(int(workers))]
        pool = LocalPool(runners) if len(runners) > 1 else None
        night.run_night(dataclasses.replace(context, judge=Balanced(), pool=pool))


STEPS = {
    "propose": (Journal, "add_attempt"),
    "objects": (Repo, "commit_script"),
    "ref": (Repo, "move_ref"),
    "commit": (Journal, "record_commit"),
    "start": (Journal, "start_run"),
    "train": (execute, "train"),
    "end": (Journal, "end_run"),
    "score": (execute, "score"),
    "decide": (Journal, "record_decision"),
    "ledger": (results, "write_plain"),
    "settle": (Journal, "settle"),
}


def deadly(step: Callable[..., object], when: str, nth: int) -> Callable[..., object]:
    """Return a step that kills this process when it comes for the nth time."""
    times = count(1)

    def wrapped(*args: object, **kwargs: object) -> object:
        is_the_one = next(times) == nth
        if when == "before" and is_the_one:
            os.kill(os.getpid(), signal.SIGKILL)
        result = step(*args, **kwargs)
        if is_the_one:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped


if __name__ == "__main__":
    main(*sys.argv[1:])
