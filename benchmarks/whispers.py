"""How much can one sandbox tell a later one? Every way that is known, from sandbox to sandbox, in each kind that this
machine has.

    python benchmarks/whispers.py [--quick] [--json FILE] [--sandbox NAME] [--handovers N] [--scoring-s S]

A sender in one sandbox moves a number that a receiver reads in the next (tests/whispering.py), beside handovers in
which nothing is sent. The spread of these is the noise; the bits are log2(1 + what could be moved in a scoring /
noise). A file that was read, or not, tells one bit where the receiver sees which: there the bits of a random message
that arrive are counted, by their mutual information. Last, everything that a sandbox shows is read before and after a
sandbox that did all that may be counted: no number may move with it except those that are listed here. Sandboxes at the
same time, which can tell each other anything, are not tried.

BOUNDS is what SECURITY.md admits. Exit code 1 where a way tells more than its bound, or a number is not listed, in two
trials of two: the noise of a few handovers does that in one of them now and then. Flat keys of --json, each with the
sandbox before it: NAME_bits and NAME_bits_s for each way, bits and bits_s for all of them, unlisted, ok.
"""

import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import measure
from cheats import sandboxes_of
from measure import Count, Folder, Seconds

from agent.files import read_tail
from agent.lab import hardware
from agent.runs.score import LEAST_LIMIT_S
from agent.sandbox.environment import sandbox_env
from agent.sandbox.places import View
from agent.sandbox.process import MOST_LOG_BYTES
from agent.sandbox.sandboxes import Sandbox, bring_in
from agent.sandbox.supervisor import limits_of_machine

PROGRAM = measure.ROOT / "tests" / "whispering.py"
# the most bits of one scoring, by sandbox
BOUNDS: dict[str, dict[str, float]] = {
    "bubblewrap": {
        "time": 15, "load": 81, "free memory": 26, "pipes": 18, "shared memory": 18, "free blocks": 15,
        "inodes of files": 20, "speed": 4, "processes": 0, "files in memory": 0, "times of reading": 0,
        "hints of files": 0, "extents in memory": 0,
    },
}  # fmt: skip
BOUNDS["landlock"] = BOUNDS["bubblewrap"] | {"processes": 18, "times of reading": math.inf}
MARKS = ("files in memory", "times of reading", "hints of files", "extents in memory")
COUNTS = tuple(name for name in BOUNDS["bubblewrap"] if name not in (*MARKS, "load"))
LOAD_S = 5.1  # the kernel takes the load every five seconds
LOAD_THREADS = 64
NUMBERS = {"load": 3, "free memory": 2}  # measures that move by themselves → how many values are averaged
MOST_MOVED = {"free blocks": MOST_LOG_BYTES // 4096}
OLD_S = 3 * 86400.0  # a file system notes by itself that a file was read, if that was not so for a day
# the same numbers under other names: patterns of what may move
ADMITTED = re.compile(
    r"/proc/meminfo|.*/node\d+/meminfo|(blocks|files) /|.*/power/runtime_"
    r"|/proc/self/(task/\d+/)?(stat|status|sched|schedstat|io) |usage "
    r"|descriptor (pipe|memory|socket|peer|folder|family 1) inode|/proc/self/(net/unix|fdinfo/\d+|mountinfo) "
    r"|/sys/devices/system/cpu/cpufreq/policy\d+/"
)
BEYOND_NOISE, LEAST_MOVED = 3.0, 10  # times the largest quiet change, and more than this
CHANCE_BITS = 4.0  # bits of mutual information; independent strings show less in 99 of 100 cases
MOST_SAID = 4 << 20


@dataclass(frozen=True)
class Line:
    """Lead from one sandbox to the next: sandboxes of one kind, each with a fresh folder."""

    sandbox: Sandbox
    folder: Path

    def run(self, *words: str) -> Any:
        """Run the program in a sandbox of its own, and return what it prints last. Raise Failed."""
        own = self.folder / "run"
        (own / "tmp").mkdir(parents=True)
        shutil.copyfile(PROGRAM, own / PROGRAM.name)
        view = View(own)
        bring_in(self.sandbox, view)  # as before each run of a night
        command = self.sandbox.wrap([sys.executable, "-I", PROGRAM.name, *words], view)
        with (self.folder / f"{time.monotonic_ns()}.log").open("w+b") as log:  # the file stays, as in a night
            done = subprocess.run(command, cwd=own, env=sandbox_env(own, data=""), stdout=log, stderr=subprocess.STDOUT)
            said = read_tail(log, MOST_SAID).decode(errors="replace").rstrip()
        shutil.rmtree(own)
        if done.returncode:
            raise measure.Failed(f"{self.sandbox.name}, {' '.join(words)[:60]}: {said[-800:]}")
        return json.loads(said.rpartition("\n")[2])

    def changes(self, seconds: float, handovers: int) -> list[dict[str, int]]:
        """Return by how much each number moves while a sandbox does everything, once for each handover."""
        readings = [self.run("read")]
        for _ in range(handovers):
            self.run("send", "everything", str(seconds))
            readings.append(self.run("read"))
        return [
            {key: later[key] - number for key, number in before.items() if key in later}
            for before, later in pairwise(readings)
        ]


def bits_of_count(quiet: Sequence[int], sent: Sequence[int], share: float, most: float = math.inf) -> float:
    """Return the bits of a number by its changes without and with a message.

    share: of what a scoring could send; most: that a scoring may move it.
    """
    noise = max(1, max(quiet) - min(quiet))
    moved = abs(statistics.median(sent) - statistics.median(quiet))
    return math.log2(1 + min(most, moved / share) / noise) if moved > noise else 0.0


def bits_of_marks(sent: str, heard: str) -> float:
    """Return the mutual information of two strings of bits, all together; a sandbox may show fewer files than bits."""
    sent, total = sent[: len(heard)], len(heard)
    pairs, ones, told = (Counter(each) for each in (zip(sent, heard, strict=True), sent, heard))
    information = sum(
        many / total * math.log2(many * total / (ones[bit] * told[other])) for (bit, other), many in pairs.items()
    )
    return max(0.0, information * total - CHANCE_BITS)


def ways(line: Line, handovers: int, send_s: float, scoring_s: float, files: int) -> dict[str, float]:
    """Return the bits that each known way tells in one scoring."""
    rounds = [{"": 0.0} | dict.fromkeys(COUNTS, send_s) for _ in range(handovers)]
    rounds[-1]["load"] = max(send_s, LOAD_S)  # once, at the end: it would be heard in what follows
    changes: dict[str, list[dict[str, int]]] = {"": [], **{name: [] for name in (*COUNTS, "load")}}
    before = line.run("read", "known")
    for name, seconds in (deed for each in rounds for deed in each.items()):
        line.run("send", name or "time", str(seconds))
        after = line.run("read", "known")
        changes[name].append({key: after[key] - number for key, number in before.items()})
        before = after
    found = {}
    for name in (*COUNTS, "load"):
        quiet, sent = ([change[name] for change in changes[deed]] for deed in ("", name))
        share = rounds[-1][name] / scoring_s
        if name == "load":
            share *= LOAD_THREADS / limits_of_machine().threads
        bits = bits_of_count(quiet, sent, share, MOST_MOVED.get(name, math.inf))
        found[name] = bits * NUMBERS.get(name, 1)
    for number in range(4 * files):
        old_link(line.folder / "links" / f"{number}")
    for name in MARKS:
        message = "".join(random.choices("01", k=files))
        line.run("mark", name, message)
        heard = line.run("marks", name, f"{files}")
        if not heard:
            raise measure.Failed(
                f"{line.sandbox.name}, {name}: the sandbox shows no file in which a bit could be looked for"
            )
        found[name] = bits_of_marks(message, heard)
    return found


def old_link(path: Path) -> None:
    """Make a link that was last followed long ago."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to("/")
    long_ago = time.time() - OLD_S
    os.utime(path, (long_ago, long_ago), follow_symlinks=False)


def unlisted(line: Line, handovers: int, send_s: float) -> set[str]:
    """Return the names of the numbers that move with what another sandbox did, each time, and are not listed.

    Those of COUNTS are: each has a bound of its own.
    """
    quiet, sent = (line.changes(seconds, handovers) for seconds in (0.0, send_s))
    found = set()
    for name in set.intersection(*map(set, (*quiet, *sent))).difference(COUNTS):
        noise, moved = (max(abs(change[name]) for change in quiet), [change[name] for change in sent])
        same_way = min(moved) > 0 or max(moved) < 0
        if same_way and min(map(abs, moved)) > BEYOND_NOISE * noise + LEAST_MOVED and not ADMITTED.match(name):
            found.add(name)
    return found


def tried(name: str, line: Line, handovers: int, send_s: float, scoring_s: float, files: int) -> measure.Flat:
    """Try every way in one sandbox, and return its figures."""
    line.folder.mkdir()
    bounds = BOUNDS[name]
    found = ways(line, handovers, send_s, scoring_s, files)
    if any(bits > bounds[way] for way, bits in found.items()):  # by chance? That does not happen to one way twice
        again = ways(line, handovers, send_s, scoring_s, files)
        found = {way: min(bits, again[way]) for way, bits in found.items()}
    for way, bits in found.items():
        over = " MORE THAN ITS BOUND" if bits > bounds[way] else ""
        measure.say(
            f"{name:>12}  {way}: {bits:.1f} bits, {bits / scoring_s:.2f} a second (at most {bounds[way]}){over}"
        )
    moved = unlisted(line, handovers, send_s)
    if moved:
        moved &= unlisted(line, handovers, send_s)
    for number in sorted(moved):
        measure.say(f"{name:>12}  NOT LISTED: {number}")
    flat: measure.Flat = {}
    for way, bits in (*found.items(), ("", sum(found.values()))):
        key = "_".join(filter(None, (name, way.replace(" ", "_"), "bits")))
        flat |= {key: bits, f"{key}_s": bits / scoring_s}
    is_ok = not moved and all(bits <= bounds[way] for way, bits in found.items())
    return flat | {f"{name}_unlisted": len(moved), f"{name}_ok": int(is_ok)}


@measure.program(
    lambda flat: not all(figure for key, figure in flat.items() if key.endswith("_ok")),
    handovers=4, send_s=0.3, files=200,
)  # fmt: skip
def main(
    *,
    folder: Folder,
    sandbox: Literal["all", "bubblewrap", "landlock"] = "all",
    handovers: Count = 8,
    send_s: Seconds = 2.0,
    scoring_s: Seconds = LEAST_LIMIT_S,
    files: Count = 2000,
) -> measure.Flat:
    """Whisper in every sandbox.

    Args:
        sandbox: which one
        handovers: from one sandbox to the next, for each way, with and without a message
        send_s: seconds that a sender works; what a scoring could send is estimated from it
        scoring_s: seconds that it has in a night
        files: that say a bit each
    """
    sandboxes = sandboxes_of(sandbox)
    if not sandboxes:
        raise measure.Misuse(f"--sandbox {sandbox}: this machine has no such sandbox; name another")
    flat: measure.Flat = {"device": hardware.device_name()}
    for name, each in sandboxes.items():
        flat |= tried(name, Line(each, folder / name), handovers, send_s, scoring_s, files)
    return flat


if __name__ == "__main__":
    raise SystemExit(main())
