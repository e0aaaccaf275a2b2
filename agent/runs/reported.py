"""Read what a script reports of itself: lines that it prints at its end, and its summary.json. Nothing checks it."""

import json
import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from agent.experiment import MEASURED, Score
from agent.files import read_end
from agent.sandbox.process import LOG
from agent.text import SAID_CHARS, one_line

SUMMARY, SUMMARY_BYTES = "summary.json", 1 << 20  # much more than a summary needs
LOG_BYTES = 1 << 20  # what is read of the end of a log
SEED = "NIGHTSHIFT_SEED"  # variable that tells a run its seed
RULE = "---"  # a script reports below the last such line, where it prints one


def takes(script: str, option: str) -> bool:
    """Return whether a script names an option of its command line, in quotes, as argparse and others are told it."""
    return re.search(f"[\"']{option}[\"']", script) is not None


def seeds_of(script: str) -> str:
    """Say how a script is told the seed of a run."""
    if takes(script, "--seed"):
        return "the script is told one by --seed"
    if SEED in script:
        return f"the script reads one from {SEED}"
    return f"none: the script takes no --seed and reads no {SEED}, so runs are plain repeats"


def score_of(folder: Path, metric: str) -> Score:
    """Return the number that the run in a folder reports, or why there is none.

    metric: its name, after a minus where higher is better.
    """
    name = metric.removeprefix("-")
    above, below = _printed(folder)
    numbers = _in_json(folder)
    said = [*below[name], *([str(numbers[name])] if name in numbers else [])]
    shown = " and as ".join(dict.fromkeys(one_line(text, SAID_CHARS) or "nothing" for text in said[:9]))
    value, why = 0.0, f"it reports no {name}: print a line '{name}: NUMBER' at the end, or write it to {SUMMARY}"
    try:
        value, *others = {float(text) for text in said}
    except ValueError:
        if said:
            why = f"it reports {name} as {shown}, which is no number"
        elif above[name]:
            why = f"it prints {name} above its last line {RULE}: print it below"
    else:
        if not others and abs(value) <= MEASURED[1]:  # not so for NaN
            return Score(value, 0.0, is_reported=True, is_turned=metric != name)
        most = f"a score lies between -{MEASURED[1]:,.0f} and {MEASURED[1]:,.0f}"
        why = f"it reports {name} as {shown}: {'report one number' if others else most}"
    return Score(None, 0.0, why, is_reported=True)


def numbers_of(folder: Path) -> dict[str, object]:
    """Return all numbers that the run in a folder reports, by their names."""
    numbers = dict[str, object]()
    for name, texts in _printed(folder)[1].items():
        with suppress(ValueError, RecursionError):
            numbers[name] = json.loads(texts[-1])
    return numbers | _in_json(folder)


def _printed(folder: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return name → values, printed above the last rule and below it; without a rule, all is below."""
    above, below = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    with suppress(OSError):
        for line in read_end(folder, LOG, LOG_BYTES).decode(errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                below[name.strip()].append(value)
            elif name.strip() == RULE:
                for moved, values in below.items():
                    above[moved] += values
                below.clear()
    return above, below


def _in_json(folder: Path) -> dict[str, object]:
    """Return what is in the run's summary.json: beside the script, or in its folder for results."""
    for place in (folder / "out", folder):
        with suppress(OSError, ValueError, RecursionError):
            if isinstance(numbers := json.loads(read_end(place, SUMMARY, SUMMARY_BYTES)), dict):
                return numbers
    return {}
