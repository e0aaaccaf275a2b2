"""Goes on with a night in this repository and dies by SIGKILL at one chosen moment; without one it ends well.

python killed_night.py TAG MOMENT     MOMENT is "before:STEP", "after:STEP" or "never"
"""

import dataclasses
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/, for nights.py

from nights import scripted_context, unigram

from agent.git.repo import Repo
from agent.judging.judge import Balanced
from agent.night import driver as night
from agent.night import record
from agent.records.journal import Journal
from agent.runs import execute

JITTER = 0.01  # the judge has to measure the noise, and may ask for further seeds


def main(tag: str, moment: str) -> None:
    when, _, step = moment.partition(":")
    for owner, name in STEPS.values():
        if STEPS.get(step) == (owner, name):
            setattr(owner, name, deadly(getattr(owner, name), when))
    scripts = [unigram(SHARPNESS=0.9, JITTER=JITTER), unigram(SHARPNESS=0.3, JITTER=JITTER)]
    with scripted_context(Path.cwd(), tag, scripts) as context:
        night.run_night(dataclasses.replace(context, judge=Balanced()))


STEPS = {
    "propose": (Journal, "add_attempt"),
    "objects": (Repo, "commit_script"),
    "ref": (Repo, "move_ref"),
    "commit": (Journal, "record_commit"),
    "start": (Journal, "start_run"),
    "train": (execute, "train"),
    "end": (Journal, "end_run"),
    "score": (execute, "score"),
    "scored": (Journal, "record_score"),
    "decide": (Journal, "record_decision"),
    "ledger": (record, "write_plain"),
    "settle": (Journal, "settle"),
}


def deadly(step: Callable[..., object], when: str) -> Callable[..., object]:
    def wrapped(*args: object, **kwargs: object) -> object:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = step(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped


if __name__ == "__main__":
    main(*sys.argv[1:])
