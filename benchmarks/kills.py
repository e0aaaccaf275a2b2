"""Nights that are killed: at a system call of their loop, of a git command of theirs, or at a moment of the clock.

A night is a real one: a repository with an edit under way, the command line, a script that trains in no time. After
every kill its journal, ledger and repository are looked at; at its end it is compared with an undisturbed night.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

import measure
import psutil

sys.path.insert(0, str(measure.ROOT / "tests"))

from nights import command, git, make_repository, unigram

from agent.errors import NightError
from agent.experiment import Attempt, History, Night
from agent.records.journal import Journal
from agent.records.results import COLUMNS, HEADER, lines_of

PR_SET_CHILD_SUBREAPER = 36
ORPHAN_S = 2.0  # what still lives so long after its loop died is an orphan
LIMIT_S = 120.0  # of one call of the loop, which takes seconds
FOREIGN = "0000000\t1.000000\t1.0\tkeep\tfrom a clone\t0\told-night" + "\t" * 13
LIBRARY = measure.HERE / "strike.c"
ALL_CALLS = "write,pwrite64,writev,sendfile,copy_file_range,fsync,fdatasync,ftruncate,mkdir,rmdir,unlink,unlinkat"
ALL_CALLS += ",rename,renameat,link,symlink"  # what strike.c counts, as strace calls it


@dataclass(frozen=True)
class Strike:
    """What strike.c is told: fail or die at the calls of these numbers; 0: at none, only tell them."""

    at: int = 0
    until: int | None = None
    failure: int = 0  # an errno; 0: SIGKILL
    torn: bool = False  # half of a write goes out before the kill
    only: str = ""  # count calls on files alone whose path has this in it
    clock_s: int = 0  # how far the clock of the day jumps, back and forth

    def env(self, trace: Path) -> dict[str, str]:
        numbers = {"AT": self.at, "UNTIL": self.until or self.at, "ERRNO": self.failure, "TORN": int(self.torn)}
        numbers["CLOCK_S"] = self.clock_s
        told = {f"STRIKE_{name}": str(value) for name, value in numbers.items()}
        return {
            **told,
            **({"STRIKE_PATH": self.only} if self.only else {}),
            "STRIKE_TRACE": str(trace),
            "LD_PRELOAD": os.environ["NIGHTSHIFT_STRIKE"],
        }


@dataclass
class Tally:
    """What was done to nights, and what came of it: all but `kills` and `times` should stay zero."""

    kills: int = 0
    times: int = 0  # of any other fault
    lost: int = 0  # attempts, commits, runs, scores or decisions that the journal knew and no longer knows
    doubled: int = 0  # attempts or runs that count twice
    damaged: int = 0  # the repository, a ref of the night, or anything of the user's
    orphans: int = 0  # processes that outlive their loop
    wrong_rows: int = 0  # of results.tsv
    tracebacks: int = 0  # ends that no sentence explains
    notes: list[str] = field(default_factory=list)  # on whatever is not zero

    def add(self, other: Tally) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def blame(self, what: str, note: str, count: int = 1) -> None:
        if count:
            setattr(self, what, getattr(self, what) + count)
            self.notes.append(f"{what}: {note}")

    @property
    def clean(self) -> bool:
        return not self.notes


@dataclass(frozen=True)
class Ended:
    """How one call of the loop ended."""

    code: int
    said: str
    points: tuple[tuple[str, str], ...] = ()  # (call, path) in order, where it was traced

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def forgot_stop(self) -> int:
        """The number of the last point that says where in its start the loop is; 0 where it did not come so far."""
        return 1 + next((at for at, (_, path) in enumerate(self.points) if Path(path).name == "stop"), -1)

    @property
    def greeting(self) -> int:
        """How many points come between that one and the work: words, and the memory that readers of SQLite share."""
        chatter = itertools.takewhile(
            lambda point: point[1].endswith(("-shm", "said.txt", "reserve")), self.points[self.forgot_stop :]
        )
        return len(list(chatter))


class Victim:
    """Hold one night in its own repository, and all that is known about it after each kill."""

    orphan_s, limit_s = ORPHAN_S, LIMIT_S

    def __init__(self, folder: Path, budget_s: float = 0.05, experiments: int = 2, options: Sequence[str] = ()) -> None:
        self.root, self.budget_s, self.experiments, self.options = folder / "user", budget_s, experiments, options
        self.said = folder / "said.txt"
        self.tally = Tally()
        self._left: list[tuple[psutil.Process, float]] = []
        self._facts: frozenset[tuple[object, ...]] = frozenset()
        folder.mkdir(parents=True)
        make_repository(self.root, unigram())
        (self.root / "train_mlx.py").write_text(unigram(NOTE="an uncommitted edit"))
        (self.root / "half.txt").write_text("staged")
        git(self.root, "add", "half.txt")
        (self.root / "results.tsv").write_text(f"{HEADER}\n{FOREIGN}\n")
        self.before = self.users_own()

    @property
    def folder(self) -> Path:
        return self.root / "experiments" / "nights" / "t"

    def command(self) -> list[str]:
        limits = ["--experiments", str(self.experiments), "--budget-s", f"{self.budget_s:g}"]
        # a killed night has to end as an undisturbed one: one run an attempt, whatever the scores, and no mix, which
        # draws by the hours that its sources took
        return command("run", "--tag", "t", "--judge", "greedy", "--proposer", "search", *limits, *self.options)

    def start(self, **env: str) -> subprocess.Popen[bytes]:
        environment = {**measure.with_path(), "COLUMNS": "200", **env}
        with self.said.open("wb") as said:
            return subprocess.Popen(
                self.command(), cwd=self.root, env=environment,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip

    def ended(self, process: subprocess.Popen[bytes]) -> Ended:
        """Wait, and look at everything that a night leaves."""
        try:
            code = process.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            self.tally.blame("tracebacks", f"still running after {self.limit_s:.0f} s", 1)
            code = process.wait()
        end = Ended(code, self.said.read_text(errors="replace"))
        self.tally.kills += end.killed
        self.watch_survivors()
        self.look(end)
        return end

    def go_on(self, strike: Strike | None = None, **env: str) -> Ended:
        """Begin or resume, and wait for the end; its points are known where a strike was asked for."""
        if strike is None:
            return self.ended(self.start(**env))
        trace = self.said.with_name("points.txt")
        trace.unlink(missing_ok=True)
        end = self.ended(self.start(**strike.env(trace), **env))
        return Ended(end.code, end.said, points_of(trace))

    def kill_after(self, seconds: float, *, whole: bool) -> Ended:
        """SIGKILL at a moment: to the loop alone, or to all of its processes as a reboot would."""
        loop = self.start()
        with suppress(subprocess.TimeoutExpired):
            loop.wait(seconds)
        if loop.poll() is None:
            family = psutil.Process(loop.pid).children(recursive=True) if whole else []
            loop.kill()
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        return self.ended(loop)

    def watch_survivors(self) -> None:
        """Orphans become children of this process (see adopt_orphans), so none can hide."""
        known = {process for process, _ in self._left}
        now = time.monotonic()
        self._left += [(process, now + self.orphan_s) for process in running() if process not in known]
        self.count_orphans()

    def count_orphans(self) -> None:
        alive = set(running())
        now = time.monotonic()
        late = [process for process, deadline in self._left if process in alive and now > deadline]
        for process in late:
            with suppress(psutil.NoSuchProcess):
                self.tally.blame("orphans", f"{process.pid}: {' '.join(process.cmdline())[:200]}")
                process.kill()
        self._left = [(process, until) for process, until in self._left if process in alive and process not in late]

    def look(self, end: Ended) -> None:
        """After every end, by a kill or not: is all that was known still known, and all that is there whole?"""
        if "Traceback" in end.said or end.code not in (0, 2, -signal.SIGKILL):
            self.tally.blame("tracebacks", f"exit code {end.code}: {end.said.strip()[-600:]}")
        if end.code == 2 and sum(line.startswith("nightshift: ") for line in end.said.splitlines()) != 1:
            self.tally.blame("tracebacks", f"no one sentence: {end.said.strip()[-600:]}")
        fsck = subprocess.run(
            ["git", "fsck", "--strict", "--no-dangling"], cwd=self.root, capture_output=True, text=True, check=False
        )
        if fsck.returncode != 0 or fsck.stdout:
            self.tally.blame("damaged", f"git fsck: {fsck.stdout}{fsck.stderr}")
        if self.users_own() != self.before:
            self.tally.blame("damaged", "the user's files, index or HEAD changed")
        night, history = self.journal()
        facts = frozenset(known(history))
        gone = self._facts - facts
        self.tally.blame("lost", f"{sorted(map(str, gone))[:3]}", len(gone))
        self._facts = facts
        self.tally.blame("wrong_rows", *self.check_rows(night, history))

    def journal(self) -> tuple[Night | None, History]:
        if not (self.folder / "journal.sqlite").exists():
            return None, ()
        try:
            with Journal.read(self.folder / "journal.sqlite") as journal:
                return journal.night(), journal.attempts()
        except NightError as error:
            self.tally.blame("damaged", str(error))
            return None, ()

    def facts(self) -> frozenset[tuple[object, ...]]:
        return self._facts

    def check_rows(self, night: Night | None, history: History) -> tuple[str, int]:
        """Every settled attempt has its row, no row is another than the journal would give, and the clone's stays."""
        lines = (self.root / "results.tsv").read_text().split("\n")
        due = lines_of(night, history) if night else []
        settled = sum(attempt.settled for attempt in history)
        whole = lines[:2] == [HEADER, FOREIGN] and lines[-1] == ""
        ours = lines[2:-1]
        wrong = (not whole) + sum(row not in due for row in ours) + max(0, settled - len(ours))
        return f"{lines!r:.300} instead of {due!r:.300}", wrong

    def users_own(self) -> dict[str, bytes]:
        paths = [path for path in self.root.iterdir() if path.is_file() and path.name != "results.tsv"]
        paths += [self.root / ".git" / "index", self.root / ".git" / "HEAD"]
        # a ledger caught between its two names belongs to no night
        return {path.name: path.read_bytes() for path in paths if not path.name.startswith(".results.tsv")}

    def finish(self, undisturbed: Outcome) -> Tally:
        """Let the night end by itself and compare."""
        self.end_well()
        self.outcome().compare(undisturbed, self.tally)
        return self.tally

    def end_well(self) -> None:
        """Let the night end by itself, and see that nothing is left over."""
        end = self.go_on()
        if end.code != 0:
            self.tally.blame("lost", f"the night does not end: exit code {end.code}, {end.said.strip()[-300:]}")
        while self._left:
            time.sleep(0.05)
            self.count_orphans()
        litter = [path.name for path in self.root.iterdir() if path.name.startswith(".results")]
        self.tally.blame("damaged", f"left behind: {litter}", len(litter))

    def outcome(self) -> Outcome:
        _, history = self.journal()
        lines = (self.root / "results.tsv").read_text().splitlines()
        rows = [dict(zip(COLUMNS, line.split("\t"), strict=False)) for line in lines[2:]]
        branch = f"refs/heads/experiments/{self.budget_s:g}s-t^{{tree}}"
        found = subprocess.run(["git", "rev-parse", branch], cwd=self.root, capture_output=True, text=True, check=False)
        refs = git(self.root, "for-each-ref", "--format=%(refname) %(tree)", "refs/experiments").splitlines()
        return Outcome(
            attempts=tuple(end_of(attempt) for attempt in history),
            runs=sum(len(attempt.done_runs) for attempt in history),
            rows=tuple((row["attempt"], row["val_bpb"], row["status"], row["seeds"]) for row in rows),
            tree=found.stdout.strip(),
            refs=tuple(refs),
        )


@dataclass(frozen=True)
class Outcome:
    """Return all that a night leaves, except what an hour of the day or a kill may change."""

    attempts: tuple[tuple[object, ...], ...]
    runs: int
    rows: tuple[tuple[str, ...], ...]
    tree: str
    refs: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return len(self.attempts) == len(self.rows) == len(self.refs) == self.runs > 1

    def compare(self, undisturbed: Outcome, tally: Tally) -> None:
        missing = set(undisturbed.attempts) - set(self.attempts)
        tally.blame("lost", f"{sorted(map(str, missing))[:1]} is not in {self.attempts!s:.500}", len(missing))
        more = max(0, len(self.attempts) - len(undisturbed.attempts)) + max(0, self.runs - undisturbed.runs)
        tally.blame("doubled", f"{self.runs} runs of {len(self.attempts)} attempts", more)
        if (self.tree, self.refs) != (undisturbed.tree, undisturbed.refs):
            tally.blame("damaged", f"branch {self.tree}, refs {self.refs}; due {undisturbed.tree}, {undisturbed.refs}")
        wrong = sum((Counter(self.rows) - Counter(undisturbed.rows)).values()) + (self.rows != undisturbed.rows)
        tally.blame("wrong_rows", f"{self.rows} instead of {undisturbed.rows}", wrong)


def end_of(attempt: Attempt) -> tuple[object, ...]:
    decision = attempt.decision
    return (attempt.number, attempt.parent, attempt.proposal, decision, attempt.val_bpb, attempt.settled)


def known(history: History) -> Iterator[tuple[object, ...]]:
    """Every fact that a night counts on, by itself; runs that are going on are none."""
    for one in history:
        yield one.number, "proposal", one.proposal, one.parent, one.started
        if one.commit is not None:
            yield one.number, "commit", one.commit
        for run in one.counted_runs:
            yield one.number, "run", run.seed, run.ending, run.wall_s
            if run.score is not None:
                yield one.number, "score", run.seed, run.score.val_bpb, run.score.wall_s
        if one.decision is not None:
            yield one.number, "decision", one.decision
        if one.settled:
            yield one.number, "settled"


def points_of(trace: Path) -> tuple[tuple[str, str], ...]:
    lines = trace.read_text(errors="replace").splitlines() if trace.exists() else []
    return tuple((call, path) for call, _, path in (line.partition(" ") for line in lines))


def adopt_orphans() -> None:
    """What loses its parent becomes a child of this process, which can then count it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def running() -> list[psutil.Process]:
    """Descendants that are alive; dead ones that were adopted are buried."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
            elif process.ppid() == os.getpid():
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
    return found


def build_strike(folder: Path) -> None:
    """Compile strike.c; raises Misuse without a compiler."""
    library, compiler = folder / "strike.so", os.environ.get("CC", "cc")
    flags = ["-O1", "-shared", "-fPIC", "-o", str(library), str(LIBRARY), "-ldl"]
    if shutil.which(compiler) is None or subprocess.run([compiler, *flags], check=False).returncode != 0:
        raise measure.Misuse(f"{compiler} cannot compile {LIBRARY.name}: install gcc or clang")
    os.environ["NIGHTSHIFT_STRIKE"] = str(library)
