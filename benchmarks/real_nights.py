"""What real nights find, by the source of their ideas: the mix, the search, random dials, the catalogue, an author.

    python benchmarks/real_nights.py --folder DIR --slots gpu:0-7 --budget-s 40 --minutes 13 --arms mix search random
    python benchmarks/real_nights.py --folder DIR --slots cores:0-15/4 --budget-s 20 --minutes 13
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

--slots names where nights run at once, one a slot:
    gpu:0-7          a night on each of these GPUs; gpu:0-7@0-31 pins them to equal shares of these cores
    cores:0-15/4     a night on each four of these cores

When it is cut off (SIGTERM, Ctrl-C, --most-minutes), the nights are ended, all that they have is reported, and the exit
code is 1 then. The same command goes on with nights that are not over. DIR/TAG is the record of each night, as
`nightshift export record` writes it, DIR/results.tsv has their rows for the ledger, DIR/work clones and logs.

Flat keys of --json, for each ARM: ARM_nights, ARM_attempts, ARM_runs, ARM_keeps, ARM_crashes, ARM_hours,
ARM_recorded, ARM_honest and ARM_holdout with _low and _high, ARM_over_search with _low and _high, ARM_times_search;
of the calls of its sources ARM_calls, ARM_failed_calls, ARM_tokens_in, ARM_tokens_cached, ARM_tokens_out, ARM_usd;
ARM_SOURCE_attempts, _keeps, _crashes, _busy_hours, _attempts_an_hour, _believed, _believed_an_hour; device,
device_kind, protocol, budget_s.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import measure
import real_outcomes

from agent.errors import NightError
from agent.files import read_plain, write_plain
from agent.night.limits import expected_run_s
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import arranged, lines_of
from agent.records.shipped import ship

ARMS = ("mix", "search", "random", "catalogue", "author")
TOY = measure.ROOT / "tests" / "scripts" / "unigram.py"
RANDOM = measure.HERE / "random_dials.py"
RANDOM_MINUTES = 0.5  # for one call to it: a night keeps this time free, and the usual ten would fill a short one
NEEDED = ("agent", "benchmarks", "tests/scripts")  # what is copied of the tree: folders, and files of these kinds
TEXTS = (".md", ".py", ".toml", ".tsv")
CALIBRATION = 3  # runs of attempt 0 before the first idea
SEEDS_APART = 100  # between the nights of an arm
POLL_S, GRACE_S = 0.2, 20.0  # GRACE_S: from the wish to end a night to the end of its process
WHO = ("-c", "user.name=nightshift", "-c", "user.email=nightshift@localhost")


# ---- where nights run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """A place for one night at a time; cores: None leaves the choice to the system."""

    name: str
    gpu: int | None = None
    cores: tuple[int, ...] | None = None

    def env(self) -> dict[str, str]:
        env = {} if self.name == "machine" else {"CUDA_VISIBLE_DEVICES": "" if self.gpu is None else str(self.gpu)}
        if self.cores is not None and self.gpu is None:
            env |= {name: str(len(self.cores)) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        return env


def slots_of(text: str) -> tuple[Slot, ...]:
    """Read --slots; raise Misuse for what cannot be read, for cores that are not here, and for slots of two kinds."""
    slots = tuple(slot for word in text.split(",") for slot in _slots(word.strip()))
    cores = [core for slot in slots for core in slot.cores or ()]
    here = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if not set(cores) <= here:
        raise measure.Misuse(f"--slots {text}: this machine lends the cores {sorted(here)}; name some of these")
    if len(set(cores)) < len(cores) or len({slot.name for slot in slots}) < len(slots):
        raise measure.Misuse(f"--slots {text} names a core or a GPU twice; name each once")
    if len({slot.gpu is None for slot in slots}) > 1:
        raise measure.Misuse(f"--slots {text}: nights on GPUs and on cores do not compare; give each a call of its own")
    return slots


def _slots(word: str) -> Iterator[Slot]:
    match = re.fullmatch(r"(?:(gpu):|cores:)(\d+)(?:-(\d+))?(?(1)(?:@(\d+)-(\d+))?|(?:/([1-9]\d*))?)", word)
    if match is None or int(match[3] or match[2]) < int(match[2]):
        raise measure.Misuse(f"--slots {word} cannot be read; write gpu:0-7, gpu:0-7@0-31 or cores:0-15/4")
    numbers = range(int(match[2]), int(match[3] or match[2]) + 1)
    if match[1]:
        shared = range(int(match[4]), int(match[5]) + 1) if match[4] else range(0)
        each = len(shared) // len(numbers)
        for place, gpu in enumerate(numbers):
            yield Slot(f"gpu:{gpu}", gpu, tuple(shared[place * each : (place + 1) * each]) or None)
        return
    each = int(match[6] or len(numbers))
    for start in range(0, len(numbers) - each + 1, each):
        cores = tuple(numbers[start : start + each])
        yield Slot(f"cores:{cores[0]}-{cores[-1]}", None, cores)


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


@dataclass
class Cut:
    """The wish to end: a signal, or the end of --most-minutes."""

    deadline: float | None
    signalled: bool = False

    def __bool__(self) -> bool:
        return self.signalled or (self.deadline is not None and time.monotonic() > self.deadline)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {number: signal.signal(number, self._hear) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: object) -> None:
        self.signalled = True


@dataclass
class Fleet:
    """The nights that run now, and the slots that are free."""

    args: argparse.Namespace
    folder: Path
    env: dict[str, str]
    device_kind: str
    free: list[Slot]
    running: dict[str, tuple[Planned, Slot, subprocess.Popen[bytes]]] = field(default_factory=dict)
    failed: list[Planned] = field(default_factory=list)

    def live(self, waiting: list[Planned], cut: Cut) -> None:
        """Run the nights, and record each when it ends."""
        try:
            while (waiting or self.running) and not cut:
                while waiting and self.free and not cut:
                    make_clone(self.args, waiting[0])
                    self.start(waiting.pop(0), self.free.pop(0))
                time.sleep(POLL_S)
                self.look(cut)
        finally:
            self.end()

    def start(self, night: Planned, slot: Slot) -> None:
        words, env = command(self.args, night, self.device_kind), {**self.env, **slot.env()}
        before = os.sched_getaffinity(0) if slot.cores is not None else set()
        with night.log.open("ab") as log:
            try:
                if slot.cores is not None:
                    os.sched_setaffinity(0, slot.cores)  # which the night's process inherits
                process = subprocess.Popen(
                    words, cwd=night.clone, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            finally:
                if before:
                    os.sched_setaffinity(0, before)
        self.running[night.tag] = night, slot, process
        say(f"{night.tag} on {slot.name}")

    def look(self, cut: Cut) -> None:
        """Record the nights that have ended since the last look; one that a signal to all has ended is not over."""
        for tag, (night, slot, process) in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[tag]
            self.free.append(slot)
            record(self.args, self.folder, night)
            if process.returncode == 0 and not cut:
                night.mark.touch()
            elif process.returncode != 0:
                self.failed.append(night)
            last = [line for line in night.log.read_text(errors="replace").splitlines() if line.strip()][-1:]
            say(f"{tag} ended with exit code {process.returncode}: {last}")

    def end(self) -> None:
        """End all nights now; a run that is cut off is made again when its night goes on."""
        for _ in range(2 if self.running else 0):  # the first wish would let the run end
            for _, _, process in self.running.values():
                process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
        deadline = time.monotonic() + GRACE_S
        for night, _, process in self.running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            process.kill()
            process.wait()
            record(self.args, self.folder, night)
        self.running.clear()


def say(text: str) -> None:
    measure.say(f"{time.strftime('%H:%M:%S')} {text}")


def record(args: argparse.Namespace, folder: Path, night: Planned) -> None:
    """Ship a night, and put its rows into a ledger of all nights; one without a result has no record."""
    rows = folder / "results.tsv"
    try:
        ship(night.place, night.tag, folder / night.tag)
        with Journal.read(night.place.journal(night.tag)) as journal:
            facts = journal.night()
            write_plain(rows, arranged(read_plain(rows), {facts.tag: lines_of(facts, journal.attempts())}))
        measure.write_json(args.json, real_outcomes.flatten(real_outcomes.read_all(folder)))
    except NightError as error:
        measure.say(f"{night.tag}: {error}")


def check_minutes(args: argparse.Namespace) -> None:
    """Say how many attempts the minutes allow; raise Misuse where they may be over before there is one."""
    run_s = expected_run_s(args.budget_s)
    attempts = int(60 * args.minutes / run_s) - CALIBRATION - args.dawn
    words = f"{args.minutes:g} minutes of runs of about {run_s:.0f} s, {CALIBRATION} for attempt 0, {args.dawn} at dawn"
    if attempts < 1:
        least = (CALIBRATION + args.dawn + 1) * run_s / 60
        raise measure.Misuse(f"{words}: no attempt in a night; give --minutes {least:.0f} at least, or less --budget-s")
    measure.say(f"{words}: {attempts} attempts in a night, or some more")


def compare(args: argparse.Namespace, folder: Path) -> measure.Flat:
    if args.report:
        for journal in sorted(folder.glob("work/*/experiments/nights/*/journal.sqlite")):
            tag = journal.parent.name
            record(args, folder, Planned(tag, "", 0, folder / "work" / tag))
        return real_outcomes.flatten(real_outcomes.read_all(folder))
    if args.minutes is None and args.experiments is None:
        raise measure.Misuse("a night needs an end: give --minutes or --experiments")
    if ("author" in {arm for arm, _ in args.arms}) != bool(args.author):
        raise measure.Misuse("--arms author and --author WORDS belong together: give both, or neither")
    if args.minutes is not None:
        check_minutes(args)
    slots = slots_of(args.slots) if args.slots else (Slot("machine"),)
    facts = measure.describe(measure.SCRIPT)
    kind, wanted = facts["device"]["kind"], "cpu" if slots[0].gpu is None else "cuda"
    if args.slots and kind != wanted:
        raise measure.Misuse(f"--slots {args.slots}: MLX runs on {kind} here; put a build for {wanted} on PYTHONPATH")
    (folder / "work").mkdir(exist_ok=True)
    parts = [str(Path(part).absolute()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    env = {**os.environ, "NIGHTSHIFT_DATA": facts["corpus"]["folder"], "PYTHONUNBUFFERED": "1"}
    env |= {"PYTHONPATH": os.pathsep.join(parts)} if parts else {}  # nights have other working folders
    cut = Cut(time.monotonic() + 60 * args.most_minutes if args.most_minutes else None)
    fleet = Fleet(args, folder, env, kind, list(slots))
    with cut.on_signals():
        fleet.live([night for night in planned(args, folder) if not night.mark.exists()], cut)
    flat = real_outcomes.flatten(real_outcomes.read_all(folder))
    if cut:
        measure.say("cut off; the same command goes on with the nights that are not over")
    elif fleet.failed:
        logs = ", ".join(str(night.log) for night in fleet.failed)
        raise measure.Failed(f"{', '.join(night.tag for night in fleet.failed)} failed; see {logs}")
    return {**flat, "cut_off": int(cut.signalled)}


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
    parser.add_argument("--budget-s", type=measure.amount, metavar="S", help="of each run (default: 40; quick: 0.05)")
    parser.add_argument("--minutes", type=measure.amount, metavar="M", help="of each night, its dawn included")
    parser.add_argument("--experiments", type=measure.count, metavar="N", help="of each night (quick: 2)")
    about = "of all; what has not ended then is cut off"
    parser.add_argument("--most-minutes", type=measure.amount, metavar="M", help=about)
    about = "runs kept for each dawn: the first eight are four fresh seeds a side (default: 8; quick: 4)"
    parser.add_argument("--dawn", type=int, metavar="RUNS", help=about)
    parser.add_argument("--slots", metavar="SLOTS", help="where nights run (default: one at a time, unpinned)")
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
    __doc__ or "",
    compare,
    lambda args, flat: real_outcomes.print_results(flat),
    add_options,
    DEFAULTS,
    lambda args, flat: bool(flat.get("cut_off")),
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
