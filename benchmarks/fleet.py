"""Nights side by side: where each runs, its clone of this tree, and their processes: for real_nights.py, authors.py."""

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
from types import FrameType

import measure

from agent.errors import NightError
from agent.records.journal import Journal
from agent.records.place import Place

RANDOM = measure.HERE / "random_dials.py"
RANDOM_MINUTES = 0.5  # for one call to it: a night keeps this time free, and the usual ten would fill a short one
# what is copied of a tree that is no clean clone: folders, and the files of these kinds beside them
NEEDED = ("agent", "benchmarks", "experiments/shipped", "tests/scripts")
TEXTS = (".md", ".py", ".toml", ".tsv")
SEEDS_APART = 100  # between the nights of an arm
GRACE_S = 20.0  # from the wish to end a night to the end of its process


# ---- where nights run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """A place for one night at a time; cores: None leaves the choice to the system."""

    name: str
    gpu: int | None = None
    cores: tuple[int, ...] | None = None

    def env(self) -> dict[str, str]:
        found = {} if self.name == "machine" else {"CUDA_VISIBLE_DEVICES": "" if self.gpu is None else str(self.gpu)}
        if self.cores is not None and self.gpu is None:
            found |= {name: str(len(self.cores)) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        return found


def slots_of(text: str) -> tuple[Slot, ...]:
    """Read --slots; raise Misuse for what cannot be read, for cores that are not here, and for slots of two kinds."""
    found = tuple(slot for word in text.split(",") for slot in _slots(word.strip()))
    cores = [core for slot in found for core in slot.cores or ()]
    here = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if cores and not set(cores) <= here:
        raise measure.Misuse(f"--slots {text}: this machine lends the cores {_spelled(here)}; name some of these")
    if len(set(cores)) < len(cores) or len({slot.name for slot in found}) < len(found):
        raise measure.Misuse(f"--slots {text} names a core or a GPU twice; name each once")
    if len({slot.gpu is None for slot in found}) > 1:
        raise measure.Misuse(f"--slots {text}: nights on GPUs and on cores do not compare; give each a call of its own")
    return found


def _slots(word: str) -> Iterator[Slot]:
    match = re.fullmatch(r"(?:(gpu):|cores:)(\d+)(?:-(\d+))?(?(1)(?:@(\d+)-(\d+))?|(?:/([1-9]\d*))?)", word)
    if match is None or int(match[3] or match[2]) < int(match[2]):
        raise measure.Misuse(f"--slots {word} cannot be read; write gpu:0-7, gpu:0-7@0-31 or cores:0-15/4")
    numbers = range(int(match[2]), int(match[3] or match[2]) + 1)
    if match[1]:
        shared = range(int(match[4]), int(match[5]) + 1) if match[4] else range(0)
        each = len(shared) // len(numbers)
        for place, gpu in enumerate(numbers):
            cores = tuple(shared[place * each : (place + 1) * each]) or None
            yield Slot(f"gpu:{gpu}", gpu, cores)
        return
    each = int(match[6] or len(numbers))
    for start in range(0, len(numbers) - each + 1, each):
        cores = tuple(numbers[start : start + each])
        yield Slot(f"cores:{cores[0]}-{cores[-1]}", None, cores)


def _spelled(cores: set[int]) -> str:
    return f"{min(cores)} to {max(cores)}" if cores else "none by number"


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


def planned(args: argparse.Namespace) -> list[Planned]:
    """Return the nights, the first of each arm first: a cut then leaves as many of each."""
    arms = [(arm, args.nights if count is None else count) for arm, count in args.arms]
    most = max(count for _, count in arms)
    pairs = ((arm, number) for number in range(most) for arm, count in arms if number < count)
    tags = ((f"{args.name}-{arm}-{number}", arm, args.seed + SEEDS_APART * number) for arm, number in pairs)
    return [Planned(tag, arm, seed, args.out / "work" / tag) for tag, arm, seed in tags]


def command(args: argparse.Namespace, night: Planned, device_kind: str) -> list[str]:
    words = [sys.executable, "-m", "agent", "run", "--tag", night.tag, "--seed", str(night.seed)]
    words += ["--budget-s", f"{args.budget_s:g}", "--dawn", str(args.dawn), *shlex.split(args.night_options)]
    if args.minutes is not None:
        words += ["--hours", f"{seconds_left(args, night) / 3600:.6f}"]
    if args.experiments is not None:
        words += ["--experiments", str(args.experiments)]
    if night.arm != "random":
        return [*words, *args.words.get(night.arm, ["--proposer", night.arm])]
    agent = [sys.executable, str(RANDOM), "--device", device_kind, "--seed", str(night.seed)]
    words += ["--proposer", "command", "--command", shlex.join(agent)]
    return [*words, "--agent-minutes", f"{RANDOM_MINUTES:g}"]


def seconds_left(args: argparse.Namespace, night: Planned) -> float:
    """Return a night's time, less that of the runs which it has had before it was cut off; enough for its dawn."""
    least_s = 1.5 * (args.dawn + 1) * (args.budget_s + 10)
    spent_s = 0.0
    with suppress(NightError, OSError), Journal.read(night.place.journal(night.tag)) as journal:
        spent_s = sum(run.spent_s for attempt in journal.attempts() for run in attempt.runs)
        spent_s += sum(ask.wall_s for ask in journal.asks())
    return max(60 * args.minutes - spent_s, least_s) if spent_s else 60 * args.minutes


def origin(args: argparse.Namespace) -> Path:
    """Return a repository to clone: this tree's, or where that is none or was edited, one that is made of the tree."""
    ours = subprocess.run(
        ["git", "status", "--porcelain", "-uno"], cwd=measure.ROOT, capture_output=True, text=True, check=False
    )
    if ours.returncode == 0 and not ours.stdout.strip() and (measure.ROOT / ".git").exists():
        return measure.ROOT
    made = args.out / "work" / "origin"
    if not made.exists():
        aside = made.with_name("origin.new")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for part in NEEDED:
            if (measure.ROOT / part).is_dir():
                shutil.copytree(measure.ROOT / part, aside / part, ignore=shutil.ignore_patterns("__pycache__"))
        for path in measure.ROOT.iterdir():
            if path.is_file() and path.suffix in TEXTS:
                shutil.copy(path, aside)
        _git(aside, "init", "-q", "-b", "main")
        _git(aside, "add", "--force", ".")
        _git(aside, "commit", "-q", "-m", "the tree that is measured")
        aside.rename(made)
    return made


def make_clone(args: argparse.Namespace, night: Planned, source: Path) -> None:
    if night.clone.exists():
        return
    aside = night.clone.with_name(f"{night.tag}.new")
    shutil.rmtree(aside, ignore_errors=True)
    _git(args.out, "clone", "-q", str(source), str(aside))
    if not args.with_past:
        shutil.rmtree(aside / "experiments" / "shipped", ignore_errors=True)
    if args.script is not None:
        shutil.copy(args.script, aside / measure.SCRIPT.name)
    aside.rename(night.clone)


def _git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=nightshift", "-c", "user.email=nightshift@localhost")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise measure.Failed(f"git {words[0]} in {folder}: {done.stderr.strip()}")


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

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.signalled = True


@dataclass
class Fleet:
    """The nights that run now, and the slots that are free."""

    args: argparse.Namespace
    env: dict[str, str]
    device_kind: str
    free: list[Slot]
    running: dict[str, tuple[Planned, Slot, subprocess.Popen[bytes]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

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
        _say(f"{night.tag} on {slot.name}")

    def look(self, cut: Cut) -> list[Planned]:
        """Return the nights that have ended since the last look; one that a signal to all has ended is not over."""
        ended = []
        for tag, (night, slot, process) in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[tag]
            self.free.append(slot)
            ended.append(night)
            if process.returncode == 0 and not cut:
                night.mark.touch()
            elif process.returncode != 0:
                self.failed.append(tag)
            _say(f"{tag} ended with exit code {process.returncode}: {last_line(night.log)}")
        return ended

    def end(self) -> list[Planned]:
        """End all nights now; a run that is cut off is made again when its night goes on."""
        nights = [(night, process) for night, _, process in self.running.values()]
        if not nights:
            return []
        for _ in range(2):  # the first wish would let the run end
            for _, process in nights:
                process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
        deadline = time.monotonic() + GRACE_S
        for _, process in nights:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            process.kill()
            process.wait()
        self.running.clear()
        return [night for night, _ in nights]


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "(it said nothing)"


def _say(text: str) -> None:
    measure.say(f"{time.strftime('%H:%M:%S')} {text}")
