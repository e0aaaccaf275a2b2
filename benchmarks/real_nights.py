"""What real nights find, by the source of their ideas: the mix, the search, random dials, the catalogue, an author.

    python benchmarks/real_nights.py --folder DIR --at-once 4 --budget-s 40 --minutes 13 --arms mix search random
    python benchmarks/real_nights.py --folder DIR --arms author search catalogue --experiments 20 \\
                                     --author "--llm openai:gpt-5 --price 1.25,10 --max-cost 5"
    python benchmarks/real_nights.py --report --folder DIR
    python benchmarks/real_nights.py --quick

Every night is the real command line in a clone of this tree: commits, sandbox, scorer, audit, judge, and at its end a
dawn with fresh seeds, four of attempt 0 and four of the champion by default. What proposes is all that differs:

    mix        the default sources, without a language model
    search     one to many dials, by the built-in search
    random     one to three dials, from their whole ranges (random_dials.py)
    catalogue  the known ideas of agent/ideas/
    author     a language model or a coding agent; --author has the words of `nightshift run` that say which one

The n-th nights of all arms have the same seeds. A night sees no record of other nights, so nights are independent.
Recorded is the gain by the scores that the night chose by, honest the gain on dawn's seeds; the interval over nights is
Student's. A night that keeps nothing has an honest gain of zero. The corpus is the one that is prepared
($NIGHTSHIFT_DATA). What an author takes to answer comes on top of the others' time where --experiments are equal; where
it has no idea, the search steps in, and the table of sources says how often.

Nights that run at once divide the machine as workers of a night do: a GPU each, or equal shares of the cores; taskset
and CUDA_VISIBLE_DEVICES narrow what there is. SIGTERM or Ctrl-C ends the nights, and the exit code is 130; the same
command goes on with those that are not over. DIR/TAG is the record of each night, as `nightshift export record` writes
it, DIR/results.tsv has their rows for the ledger, DIR/work clones and logs; --report sums up what is there.

Flat keys of --json, for each ARM: ARM_nights, ARM_confirmed_nights, ARM_runs, ARM_crashes, ARM_hours, ARM_attempts,
ARM_kept; ARM_recorded, ARM_honest, ARM_holdout and ARM_over_search, each also with _low and _high, ARM_times_search;
for each SOURCE of its ideas ARM_SOURCE_ before attempts, kept, gain_bpb, hours, calls, failures, tokens_in,
tokens_cached, tokens_out, usd; device, device_kind, protocol, budget_s.
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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import measure
import real_outcomes

from agent.errors import NightError
from agent.experiment import Lease
from agent.files import read_plain, write_plain
from agent.pools.leases import leases_of_machine, pin
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import arranged, lines_of
from agent.records.shipped import ship
from agent.sandbox.environment import leased_env

ARMS = ("mix", "search", "random", "catalogue", "author")
TOY = measure.ROOT / "tests" / "scripts" / "unigram.py"
RANDOM = measure.HERE / "random_dials.py"
RANDOM_MINUTES = 0.5  # for one call to it: a night keeps this time free, and the usual ten would fill a short one
NEEDED = ("agent", "benchmarks", "tests/scripts")  # what is copied of the tree: folders, and files of these kinds
TEXTS = (".md", ".py", ".toml", ".tsv")
SEEDS_APART = 100  # between the nights of an arm
POLL_S, GRACE_S = 0.2, 20.0  # GRACE_S: from the wish to end a night to the end of its process
WHO = ("-c", "user.name=nightshift", "-c", "user.email=nightshift@localhost")


# ---- the nights ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """One night that is to be run."""

    tag: str
    arm: str
    seed: int
    clone: Path

    @property
    def place(self) -> Place:
        return Place.of(self.clone / measure.SCRIPT.name)

    @property
    def log(self) -> Path:
        return self.clone.with_name(f"{self.tag}.log")

    @property
    def mark(self) -> Path:
        """Return the file that is made when the night is over."""
        return self.clone.with_name(f"{self.tag}.over")


def planned(args: argparse.Namespace, folder: Path) -> list[Planned]:
    """Return the nights, the first of each arm first: a cut then leaves as many of each."""
    arms = [(arm, count or args.nights) for arm, count in args.arms]
    pairs = [(arm, number) for number in range(max(c for _, c in arms)) for arm, count in arms if number < count]
    tags = [(f"{args.name}-{arm}-{number}", arm, args.seed + SEEDS_APART * number) for arm, number in pairs]
    return [Planned(tag, arm, seed, folder / "work" / tag) for tag, arm, seed in tags]


def command(args: argparse.Namespace, night: Planned, device_kind: str) -> list[str]:
    words = [sys.executable, "-m", "agent", "run", "--tag", night.tag, "--seed", str(night.seed)]
    words += ["--budget-s", f"{args.budget_s:g}", "--dawn", str(args.dawn), *shlex.split(args.night_options)]
    if args.minutes is not None:
        words += ["--hours", f"{seconds_left(args, night) / 3600:.6f}"]
    if args.experiments is not None:
        words += ["--experiments", str(args.experiments)]
    match night.arm:
        case "random":
            agent = [sys.executable, str(RANDOM), "--device", device_kind, "--seed", str(night.seed)]
            words += ["--proposer", "command", "--command", shlex.join(agent)]
            return [*words, "--agent-minutes", f"{RANDOM_MINUTES:g}"]
        case "author":
            return [*words, "--proposer", "llm" if "--llm" in args.author else "command", *shlex.split(args.author)]
    return [*words, "--proposer", night.arm]


def seconds_left(args: argparse.Namespace, night: Planned) -> float:
    """Return a night's time, less that of the runs which it has had before it was cut off; enough for its dawn."""
    least_s = 1.5 * (args.dawn + 1) * (args.budget_s + 10)
    spent_s = 0.0
    with suppress(NightError, OSError), Journal.read(night.place.journal(night.tag)) as journal:
        spent_s = sum(run.spent_s for attempt in journal.attempts() for run in attempt.runs)
        spent_s += sum(ask.wall_s for ask in journal.asks())
    return max(60 * args.minutes - spent_s, least_s) if spent_s else 60 * args.minutes


def make_clone(args: argparse.Namespace, night: Planned) -> None:
    """Make a repository of the tree as it stands, in which the night runs."""
    if night.clone.exists():
        return
    aside = night.clone.with_name(f"{night.tag}.new")
    shutil.rmtree(aside, ignore_errors=True)
    for part in NEEDED:
        shutil.copytree(measure.ROOT / part, aside / part, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for path in measure.ROOT.iterdir():
        if path.is_file() and path.suffix in TEXTS:
            shutil.copy(path, aside)
    if args.script is not None:
        shutil.copy(args.script, aside / measure.SCRIPT.name)
    for words in (("init", "-q", "-b", "main"), ("add", "--force", "."), ("commit", "-q", "-m", "the measured tree")):
        subprocess.run(["git", *WHO, *words], cwd=aside, check=True)
    aside.rename(night.clone)


# ---- running them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    night: Planned
    lease: Lease  # of the machine
    process: subprocess.Popen[bytes]


def start(args: argparse.Namespace, night: Planned, lease: Lease, device_kind: str, data: str) -> Running:
    make_clone(args, night)
    env = {**os.environ, **leased_env(lease), "NIGHTSHIFT_DATA": data, "PYTHONUNBUFFERED": "1"}
    if "PYTHONPATH" in env:  # nights have other working folders
        env["PYTHONPATH"] = os.pathsep.join(str(Path(part).resolve()) for part in env["PYTHONPATH"].split(os.pathsep))
    with night.log.open("ab") as log:
        process = subprocess.Popen(
            command(args, night, device_kind), cwd=night.clone, env=env, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, preexec_fn=lambda: pin(lease),
        )  # fmt: skip
    say(f"{night.tag} on {lease.worker}")
    return Running(night, lease, process)


def live(args: argparse.Namespace, folder: Path, leases: Sequence[Lease], device_kind: str, data: str) -> None:
    """Run the nights that are not over, and record each when it ends; raise Failed where one fails."""
    waiting = [night for night in planned(args, folder) if not night.mark.exists()]
    free, running, failed = [*leases], list[Running](), list[Planned]()
    try:
        while waiting or running:
            while waiting and free:
                running.append(start(args, waiting.pop(0), free.pop(0), device_kind, data))
            time.sleep(POLL_S)
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                free.append(each.lease)
                record(folder, each.night)
                if each.process.returncode == 0:
                    each.night.mark.touch()
                else:
                    failed.append(each.night)
                say(f"{each.night.tag} ended with exit code {each.process.returncode}")
    finally:
        end(folder, running)
    if failed:
        raise measure.Failed("failed, as these say: " + ", ".join(str(night.log) for night in failed))


def end(folder: Path, running: Sequence[Running]) -> None:
    """End nights now; a run that is cut off is made again when its night goes on."""
    for _ in range(2 if running else 0):  # the first wish would let the run end
        for each in running:
            each.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    deadline = time.monotonic() + GRACE_S
    for each in running:
        with suppress(subprocess.TimeoutExpired):
            each.process.wait(max(0.1, deadline - time.monotonic()))
        each.process.kill()
        each.process.wait()
        record(folder, each.night)


def say(text: str) -> None:
    measure.say(f"{time.strftime('%H:%M:%S')} {text}")


def record(folder: Path, night: Planned) -> None:
    """Ship a night, and put its rows into a ledger of all nights; one without a result has no record."""
    rows = folder / "results.tsv"
    try:
        ship(night.place.repo, night.place.journal(night.tag), folder / night.tag)
        with Journal.read(night.place.journal(night.tag)) as journal:
            facts = journal.night()
            write_plain(rows, arranged(read_plain(rows), {facts.tag: lines_of(facts, journal.attempts())}))
    except NightError as error:
        measure.say(f"{night.tag}: {error}")


def compare(args: argparse.Namespace, folder: Path) -> measure.Flat:
    if args.report:
        for journal in sorted(folder.glob("work/*/experiments/nights/*/journal.sqlite")):
            tag = journal.parent.name
            record(folder, Planned(tag, "", 0, folder / "work" / tag))
        return real_outcomes.flatten(real_outcomes.read_all(folder))
    if args.minutes is None and args.experiments is None:
        raise measure.Misuse("a night needs an end: give --minutes or --experiments")
    if ("author" in {arm for arm, _ in args.arms}) != bool(args.author):
        raise measure.Misuse("--arms author and --author WORDS belong together: give both, or neither")
    facts = measure.describe(measure.SCRIPT)
    device_kind = facts["device"]["kind"]
    leases = leases_of_machine(device_kind, args.at_once, None)
    (folder / "work").mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    live(args, folder, leases, device_kind, facts["corpus"]["folder"])
    return real_outcomes.flatten(real_outcomes.read_all(folder))


# ---- command line ----------------------------------------------------------------------------------------------------


def arm_of(word: str) -> tuple[str, int | None]:
    """Read one word of --arms: mix, or mix=3."""
    match = re.fullmatch(rf"({'|'.join(ARMS)})(?:=([1-9]\d*))?", word)
    if match is None:
        raise argparse.ArgumentTypeError(f"{word!r} is no arm; write {', '.join(ARMS)}, or as in mix=3")
    return match[1], int(match[2]) if match[2] else None


def add_options(parser: argparse.ArgumentParser) -> None:
    about = "what proposes, and how many nights where --nights is not meant (default: mix search random)"
    parser.add_argument("--arms", nargs="+", type=arm_of, metavar="ARM[=N]", help=about)
    parser.add_argument("--author", default="", metavar="WORDS", help="of `nightshift run`: --llm … or --command …")
    parser.add_argument("--nights", type=measure.count, metavar="N", help="of each arm (default: 2; quick: 1)")
    parser.add_argument("--at-once", type=measure.count, default=1, metavar="N", help="nights (default: %(default)s)")
    parser.add_argument("--budget-s", type=measure.amount, metavar="S", help="of each run (default: 40; quick: 0.05)")
    parser.add_argument("--minutes", type=measure.amount, metavar="M", help="of each night, its dawn included")
    parser.add_argument("--experiments", type=measure.count, metavar="N", help="of each night (quick: 2)")
    about = "runs kept for each dawn: the first eight are four fresh seeds a side (default: 8; quick: 4)"
    parser.add_argument("--dawn", type=int, metavar="RUNS", help=about)
    parser.add_argument("--script", type=Path, metavar="FILE", help="in place of train_mlx.py, as attempt 0")
    parser.add_argument("--name", metavar="NAME", help="how the nights' tags begin (default: the date)")
    parser.add_argument("--seed", type=int, default=0, help="of the first night of each arm (default: %(default)s)")
    parser.add_argument("--night-options", metavar="WORDS", help="more words for `nightshift run`")
    parser.add_argument("--report", action="store_true", help="print what lies in --folder, run nothing")


DEFAULTS = {
    "arms": ([("mix", None), ("search", None), ("random", None)], [("search", None), ("random", None)]),
    "nights": (2, 1),
    "budget_s": (40.0, 0.05),
    "experiments": (None, 2),
    "dawn": (8, 4),
    "script": (None, TOY),
    "name": (time.strftime("%b%d").lower(),) * 2,
    "night_options": ("", "--judge greedy"),  # greedy: one run of each attempt
}
PROGRAM = measure.Program(
    __doc__ or "", compare, lambda args, flat: real_outcomes.print_results(flat), add_options, DEFAULTS
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
