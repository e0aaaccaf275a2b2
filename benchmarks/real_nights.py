"""What real nights find, by the source of their ideas: the mix, the search, the catalogue, an author.

    python benchmarks/real_nights.py --folder DIR --at-once 4 --budget-s 40 --minutes 13 --arms mix=2 search=2
    python benchmarks/real_nights.py --folder DIR --arms author search catalogue --experiments 20 \\
                                     --author "--llm openai:gpt-5 --price 1.25,10 --max-cost 5"
    python benchmarks/real_nights.py --report --folder experiments/shipped --name nov22-cpu
    python benchmarks/real_nights.py --quick

Every night is the real command line in a clone of this tree: commits, sandbox, scorer, audit, judge, and at its end a
dawn with fresh seeds, four of attempt 0 and four of the champion by default. What proposes is all that differs:

    mix        the default sources, without a language model
    search     one to many dials, by the built-in search
    catalogue  the known ideas of agent/ideas/
    author     a language model or a coding agent; --author has the words of `nightshift run` that say which one

The n-th nights of all arms have the same seeds. A night sees no record of other nights, so nights are independent.
Recorded is the gain by the scores that the night chose by, honest the gain on dawn's seeds; the interval over nights is
Student's. A night that keeps nothing has an honest gain of zero. The corpus is the one that is prepared
($NIGHTSHIFT_DATA). What an author takes to answer comes on top of the others' time where --experiments are equal; where
it has no idea, the search steps in: its attempts in the arm say how often.

Nights that run at once divide the machine as workers of a night do: a GPU each, or equal shares of the cores; taskset
and CUDA_VISIBLE_DEVICES narrow what there is. SIGTERM or Ctrl-C ends the nights, and the exit code is 130. A night that
was begun is not begun again. DIR/work has clones and logs; --report sums up the journals there, or the records that lie
in DIR, as `nightshift export record` writes them.

Flat keys of --json, for each ARM: ARM_nights, ARM_confirmed_nights, ARM_runs, ARM_crashes, ARM_hours, ARM_attempts,
ARM_kept; ARM_recorded, ARM_honest, ARM_holdout and ARM_over_search, each also with _low and _high; for each SOURCE of
its ideas ARM_SOURCE_ before attempts, kept, gain_bpb, hours, calls, failures, tokens_in, tokens_cached, tokens_out,
usd; device, device_kind, protocol, budget_s.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import measure
import real_outcomes
from measure import Option

from agent.experiment import Lease
from agent.pools.leases import leases_of_machine, pin
from agent.sandbox.environment import leased_env

ARMS = ("mix", "search", "catalogue", "author")
ARM = re.compile(rf"({'|'.join(ARMS)})(=[1-9]\d*)?")
TOY = measure.ROOT / "tests" / "scripts" / "unigram.py"
NEEDED = ("agent", "tests/scripts")  # what is copied of the tree: folders, and files of these kinds
TEXTS = (".md", ".py", ".toml", ".tsv")
SEEDS_APART = 100  # between the nights of an arm
POLL_S, GRACE_S = 0.2, 20.0  # GRACE_S: from the wish to end a night to the end of its process
WHO = ("-c", "user.name=nightshift", "-c", "user.email=nightshift@localhost")


@dataclass(frozen=True)
class Planned:
    """Hold one night that is to be run."""

    arm: str
    seed: int
    clone: Path  # named by its tag

    @property
    def log(self) -> Path:
        return self.clone.with_suffix(".log")


def planned(args: argparse.Namespace, folder: Path) -> list[Planned]:
    """Return the nights, the first of each arm first: a cut then leaves as many of each."""
    arms = [(arm, int(count or args.nights)) for arm, _, count in (word.partition("=") for word in args.arms)]
    pairs = [(arm, number) for number in range(max(c for _, c in arms)) for arm, count in arms if number < count]
    name = args.name or time.strftime("%b%d").lower()
    return [
        Planned(arm, args.seed + SEEDS_APART * number, folder / "work" / f"{name}-{arm}-{number}")
        for arm, number in pairs
    ]


def command(args: argparse.Namespace, night: Planned) -> list[str]:
    words = [sys.executable, "-m", "agent", "run", "--tag", night.clone.name, "--seed", str(night.seed)]
    words += ["--budget-s", f"{args.budget_s:g}", "--dawn", str(args.dawn), *shlex.split(args.night_options)]
    if args.minutes is not None:
        words += ["--hours", f"{args.minutes / 60:.6f}"]
    if args.experiments is not None:
        words += ["--experiments", str(args.experiments)]
    if night.arm == "author":
        return [*words, "--proposer", "llm" if "--llm" in args.author else "command", *shlex.split(args.author)]
    return [*words, "--proposer", night.arm]


def make_clone(args: argparse.Namespace, clone: Path) -> None:
    """Make a repository of the tree as it stands, in which the night runs."""
    for part in NEEDED:
        shutil.copytree(measure.ROOT / part, clone / part, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for path in measure.ROOT.iterdir():
        if path.is_file() and path.suffix in TEXTS:
            shutil.copy(path, clone)
    if args.script is not None:
        shutil.copy(args.script, clone / measure.SCRIPT.name)
    for words in (("init", "-q", "-b", "main"), ("add", "--force", "."), ("commit", "-q", "-m", "the measured tree")):
        subprocess.run(["git", *WHO, *words], cwd=clone, check=True)


def start(args: argparse.Namespace, night: Planned, lease: Lease, data: str) -> subprocess.Popen[bytes]:
    make_clone(args, night.clone)
    env = {**os.environ, **leased_env(lease), "NIGHTSHIFT_DATA": data, "PYTHONUNBUFFERED": "1"}
    if "PYTHONPATH" in env:  # nights have other working folders
        env["PYTHONPATH"] = os.pathsep.join(str(Path(part).resolve()) for part in env["PYTHONPATH"].split(os.pathsep))
    measure.say(f"{time.strftime('%H:%M:%S')} {night.clone.name} on {lease.worker}")
    with night.log.open("wb") as log:
        return subprocess.Popen(
            command(args, night), cwd=night.clone, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=lambda: pin(lease),
        )  # fmt: skip


def live(args: argparse.Namespace, folder: Path, leases: Sequence[Lease], data: str) -> None:
    """Run the nights that were not begun; raise Failed where one fails."""
    waiting = [night for night in planned(args, folder) if not night.clone.exists()]
    free, running, failed = [*leases], dict[Planned, tuple[subprocess.Popen[bytes], Lease]](), list[Planned]()
    try:
        while waiting or running:
            while waiting and free:
                night, lease = waiting.pop(0), free.pop(0)
                running[night] = start(args, night, lease, data), lease
            time.sleep(POLL_S)
            for night, (process, lease) in list(running.items()):
                if (code := process.poll()) is not None:
                    del running[night]
                    free.append(lease)
                    failed += [night] if code else []
                    measure.say(f"{time.strftime('%H:%M:%S')} {night.clone.name} ended with exit code {code}")
    finally:
        end([process for process, _ in running.values()])
    if failed:
        raise measure.Failed("failed, as these say: " + ", ".join(str(night.log) for night in failed))


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End nights now."""
    for _ in range(2 if processes else 0):  # the first wish would let the run end
        for process in processes:
            process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
        process.kill()
        process.wait()


def compare(args: argparse.Namespace, folder: Path) -> measure.Flat:
    if not args.report:
        if args.minutes is None and args.experiments is None:
            raise measure.Misuse("a night needs an end: give --minutes or --experiments")
        if other := [word for word in args.arms if not ARM.fullmatch(word)]:
            raise measure.Misuse(f"--arms {other[0]}: write {', '.join(ARMS)}, or as in mix=3")
        if any(word.startswith("author") for word in args.arms) != bool(args.author):
            raise measure.Misuse("--arms author and --author WORDS belong together: give both, or neither")
        facts: Mapping[str, Mapping[str, str]] = measure.describe(measure.SCRIPT)
        leases = leases_of_machine(facts["device"]["kind"], args.at_once, None)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        live(args, folder, leases, facts["corpus"]["folder"])
    return real_outcomes.flatten(real_outcomes.read_all(folder, args.name))


PROGRAM = measure.Program(
    __doc__,
    compare,
    "Real nights by source of ideas",
    {
        "arms": Option("what proposes; mix=3 for three nights where --nights is not meant", ["mix", "search"]),
        "author": Option("words of `nightshift run`: --llm … or --command …", ""),
        "nights": Option("of each arm", 2, 1),
        "at_once": Option("nights", 1),
        "budget_s": Option("of each run", 40.0, 0.05),
        "minutes": Option("of each night, its dawn included", kind=float),
        "experiments": Option("of each night", None, 2),
        "dawn": Option("runs kept for each dawn: the first eight are four fresh seeds a side", 8, 4),
        "script": Option("in place of train_mlx.py, as attempt 0", None, TOY, Path),
        "name": Option("how the nights' tags begin, else with the date", ""),
        "seed": Option("of the first night of each arm", 0),
        # greedy: one run of each attempt
        "night_options": Option("more words for `nightshift run`", "", "--judge greedy"),
        "report": Option("print what lies in --folder, run nothing", False),
    },
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
