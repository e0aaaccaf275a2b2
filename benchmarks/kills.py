"""What faults.py, killed_commands.py and worker_kills.py share: nights that are killed, and what they must not lose.

A night is a real one: a repository with an edit under way, the command line, a script that trains in no time. After
every kill its journal, results and repository are checked; at its end it is compared with an undisturbed night.

Importing all of a command takes longer than the work between two kills. So a process of the laboratory imports it once,
and each command that is killed there is a fork of that process. The call that ends a night is a new interpreter.
"""

import ctypes
import gc
import itertools
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path

import measure
import psutil
from nights import command, exit_code, git, make_repository, unigram

from agent.cli.main import COMMANDS, command_named
from agent.errors import NightError
from agent.experiment import History, Night
from agent.records.journal import Journal
from agent.records.results import COLUMNS, rows_of

# Both are far beyond what an idle machine needs, as the proof may share its processors with other programs.
ORPHAN_S = 10.0  # s; a process that lives so long after its loop died is an orphan
LIMIT_S = 900.0  # s for one call of the loop, which usually takes a few
HEADER = "\t".join(COLUMNS)
FOREIGN = "\t".join(
    ["0000000", "1.000000", "1.0", "keep", "from a clone", "0", "old-night", *[""] * (len(COLUMNS) - 7)]
)
LIBRARY = measure.HERE / "strike.c"
PLAN = """\
question = "Is a sharper unigram better?"
margin = 0.002
seeds = 2
budget_s = 0.05
arm = [
    {name = "plain", dials = {JITTER = 0.002}},
    {name = "sharper", dials = {JITTER = 0.002, SHARPNESS = 0.9}},
]
"""


# ---- a machine that fails on demand ----------------------------------------------------------------------------------


def prepare_machine(folder: Path, *, own_tmp: bool = True) -> None:
    """Compile strike.c, prepare a corpus, and adopt what loses its parent. Raise Misuse where that cannot be done.

    own_tmp: what killed processes leave in their temporary folder goes with this one.
    """
    if sys.platform != "linux":
        raise measure.Misuse("processes that survive a kill are counted as Linux does it: run it there")
    build_strike(folder)
    os.environ["NIGHTSHIFT_DATA"] = str(measure.make_corpus(folder))
    if own_tmp:
        (folder / "tmp").mkdir(exist_ok=True)
        os.environ["TMPDIR"] = str(folder / "tmp")
    adopt_orphans()


def build_strike(folder: Path) -> None:
    """Compile strike.c; raise Misuse without a compiler."""
    library, compiler = folder / "strike.so", os.environ.get("CC", "cc")
    flags = ["-O1", "-shared", "-fPIC", "-o", str(library), str(LIBRARY), "-ldl"]
    if shutil.which(compiler) is None or subprocess.run([compiler, *flags], check=False).returncode != 0:
        raise measure.Misuse(f"{compiler} cannot compile {LIBRARY.name}: install gcc or clang")
    os.environ["NIGHTSHIFT_STRIKE"] = str(library)


def adopt_orphans() -> None:
    """Make what loses its parent a child of this process, which can then count it."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def running() -> list[psutil.Process]:
    """Return the descendants that are alive; dead ones that were adopted are buried."""
    alive = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
            elif process.ppid() == os.getpid():
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
    return alive


def suspended(pid: int) -> list[psutil.Process]:
    """Stop a process and all of its descendants, and return them: what is stopped cannot fork before it is killed.

    Killed one after another while they run, they can leave a whole sandbox behind, which no reboot would: bubblewrap
    0.8 ties the sandbox to its first process only after it has mounted everything.
    """
    root, stopped = psutil.Process(pid), dict[psutil.Process, None]()
    while fresh := [process for process in (root, *root.children(recursive=True)) if process not in stopped]:
        stopped.update(dict.fromkeys(fresh))
        for process in fresh:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
    return [*stopped]


@dataclass(frozen=True)
class Strike:
    """A request to strike.c: fail or die at the calls of these numbers; 0: at none, only list them."""

    at: int = 0
    until: int = 0  # 0: the same
    errno: int = 0  # 0: SIGKILL
    torn: int = 0  # 1: half of a write goes out before the kill
    path: str = ""  # count calls on files alone whose path has this in it
    clock_s: int = 0  # how far the clock of the day jumps, back and forth

    def env(self, trace: Path) -> dict[str, str]:
        words = {f"STRIKE_{name.upper()}": str(value) for name, value in asdict(self).items() if value}
        return {**words, "STRIKE_TRACE": str(trace), "LD_PRELOAD": os.environ["NIGHTSHIFT_STRIKE"]}


# ---- a command -------------------------------------------------------------------------------------------------------


def begin(
    whole: Sequence[str], root: Path, said: Path, env: dict[str, str], *, fresh: bool = False
) -> subprocess.Popen[bytes]:
    """Start a command line in a folder, its output in a file.

    fresh: as a new interpreter, as other programs than `nightshift` are started, and all outside of the laboratory.
    """
    library = os.environ["NIGHTSHIFT_STRIKE"]
    is_in_laboratory = library and library in Path("/proc/self/maps").read_text(encoding="utf-8")
    is_fork = not fresh and is_in_laboratory and [*whole[: len(command())]] == command()
    with said.open("wb") as file:
        return subprocess.Popen(
            whole, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, restore_signals=False,
            preexec_fn=partial(_become, whole[len(command()) :], env) if is_fork else None,
        )  # fmt: skip


def _become(words: Sequence[str], env: dict[str, str]) -> None:
    """Be the command in the process that Popen has forked for it, which so never becomes a new interpreter."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # ends the pipe by which Popen waits for the start
    gc.enable()  # Popen disables it around a fork
    os.environ.clear()
    os.environ.update({name: value for name, value in env.items() if name != "LD_PRELOAD"})
    ctypes.CDLL(os.environ["NIGHTSHIFT_STRIKE"]).begin()
    try:
        code = exit_code(words)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


# ---- what came of it -------------------------------------------------------------------------------------------------


# In this order: facts that the journal lost; attempts that count twice; changes of the repository or the user's files;
# processes that outlive their loop; wrong rows of results.tsv; ends without an explanation.
LOSSES = ("lost", "doubled", "damaged", "orphans", "wrong_rows", "tracebacks")
DONE = ("kills", "command_kills", "other_faults")


@dataclass
class Tally:
    """Count what was done (DONE), and what came of it, which should be nothing (LOSSES)."""

    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)  # one on each loss

    def add(self, other: "Tally") -> None:
        self.counts.update(other.counts)
        self.notes += other.notes

    def blame(self, loss: str, note: str, count: int = 1) -> None:
        if count:
            self.counts[loss] += count
            self.notes.append(f"{loss}: {note}")


@dataclass(frozen=True)
class Ended:
    """The end of one call of a command."""

    code: int
    said: str
    points: Sequence[str] = ()  # each call and its file, in order, where it was traced

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


# all that a night leaves, except what the time of day or a kill may change: facts of attempts and runs, refs with their
# trees, and rows of the results
Outcome = Mapping[str, Counter[object]]
LOSSES_OF = {"facts": ("lost", "doubled"), "refs": ("damaged", "damaged"), "rows": ("wrong_rows", "wrong_rows")}


def facts_of(history: History) -> Iterator[tuple[object, ...]]:
    """Yield every fact that a night counts on, by itself; runs that are going on are none."""
    for attempt in history:
        yield attempt.number, "proposal", attempt.proposal, attempt.parent, attempt.started
        if attempt.commit is not None:
            yield attempt.number, "commit", attempt.commit
        for run in attempt.counted_runs:
            yield attempt.number, "run", run.seed, run.ending, run.wall_s
            if run.score is not None:
                yield attempt.number, "score", run.seed, run.score.val_bpb, run.score.wall_s
        for decision in attempt.decisions:
            yield attempt.number, "decision", decision
        if attempt.settled:
            yield attempt.number, "settled"


# ---- one night -------------------------------------------------------------------------------------------------------


class Victim:
    """Run one night in its own repository, and keep all that is known about it after each kill."""

    def __init__(self, folder: Path, budget_s: float = 0.05, experiments: int = 2, options: Sequence[str] = ()) -> None:
        self.root, self.budget_s, self.experiments, self.options = folder / "user", budget_s, experiments, options
        self.said = folder / "said.txt"
        self.tally = Tally()
        self.facts: frozenset[tuple[object, ...]] = frozenset()
        self._others = {*running()}  # such as multiprocessing's own
        self._left: dict[psutil.Process, float] = {}  # process → when it becomes an orphan
        folder.mkdir(parents=True)
        make_repository(self.root, unigram())
        (self.root / "train_mlx.py").write_text(unigram(NOTE="an uncommitted edit"), encoding="utf-8")
        (self.root / "half.txt").write_text("staged", encoding="utf-8")
        git(self.root, "add", "half.txt")
        (self.root / "results.tsv").write_text(f"{HEADER}\n{FOREIGN}\n", encoding="utf-8")
        self.before = self.users_own()

    @property
    def folder(self) -> Path:
        return self.root / "experiments" / "nights" / "t"

    @property
    def kills(self) -> int:
        return self.tally.counts["kills"]

    def words(self) -> list[str]:
        """Return the command that begins the night, and goes on with it."""
        limits = ["--experiments", str(self.experiments), "--budget-s", f"{self.budget_s:g}"]
        # a killed night has to end as an undisturbed one: one run an attempt, whatever the scores, and no mix, which
        # draws by the hours that its proposers took
        return command("run", "--tag", "t", "--judge", "greedy", "--proposer", "search", *limits, *self.options)

    def start(self, *, fresh: bool = False, **env: str) -> subprocess.Popen[bytes]:
        env = {**measure.with_path(), "COLUMNS": "200", **env}
        return begin(self.words(), self.root, self.said, env, fresh=fresh)

    def ended(self, process: subprocess.Popen[bytes]) -> Ended:
        """Wait, and check everything that a night leaves."""
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            self.tally.blame("tracebacks", f"still running after {LIMIT_S:.0f} s")
            code = process.wait()
        end = Ended(code, self.said.read_text(encoding="utf-8", errors="replace"))
        self.tally.counts["kills"] += end.killed
        self._left = dict.fromkeys({*running()} - self._others, time.monotonic() + ORPHAN_S) | self._left
        self.count_orphans()
        self.check(end)
        return end

    def go_on(self, strike: Strike | None = None, *, fresh: bool = False, **env: str) -> Ended:
        """Begin or resume, and wait for the end; its points are known where a strike was asked for."""
        if strike is None:
            return self.ended(self.start(fresh=fresh, **env))
        trace = self.said.with_name("points.txt")
        trace.write_text("", encoding="utf-8")
        end = self.ended(self.start(fresh=fresh, **strike.env(trace), **env))
        return replace(end, points=trace.read_text(encoding="utf-8", errors="replace").splitlines())

    def kill_after(self, seconds: float, *, whole: bool) -> Ended:
        """Kill at a moment: the loop alone, or all of its processes as a reboot would."""
        loop = self.start()
        with suppress(subprocess.TimeoutExpired):
            loop.wait(seconds)
        if loop.poll() is None:
            for process in suspended(loop.pid) if whole else [loop]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        return self.ended(loop)

    def count_orphans(self) -> None:
        """Blame and end what has outlived its loop; it is a child of this process, so it cannot hide."""
        self._left = {process: self._left[process] for process in running() if process in self._left}
        for process in [process for process, until in self._left.items() if time.monotonic() > until]:
            del self._left[process]
            with suppress(psutil.NoSuchProcess):
                if process.name() == "bwrap" and not process.children():
                    # bubblewrap 0.8 was killed as it began, and its second process waits for the first without an end
                    self.tally.counts["empty_sandboxes"] += 1
                else:
                    self.tally.blame("orphans", f"{process.pid}: {' '.join(process.cmdline())[:200]}")
                process.kill()

    def check(self, end: Ended) -> None:
        """Check after every end, by a kill or not: is all that was known still known, and all that is there whole?"""
        if "Traceback" in end.said or end.code not in (0, 1, 2, -signal.SIGKILL):
            self.tally.blame("tracebacks", f"exit code {end.code}: {end.said.strip()[-600:]}")
        if end.code in (1, 2) and sum(line.startswith("nightshift: ") for line in end.said.splitlines()) != 1:
            self.tally.blame("tracebacks", f"no one sentence: {end.said.strip()[-600:]}")
        checked = ["git", "fsck", "--strict", "--no-dangling"]
        fsck = subprocess.run(checked, cwd=self.root, capture_output=True, encoding="utf-8", check=False)
        if fsck.returncode != 0 or fsck.stdout:
            self.tally.blame("damaged", f"git fsck: {fsck.stdout}{fsck.stderr}")
        if self.users_own() != self.before:
            self.tally.blame("damaged", "the user's files, index or HEAD changed")
        night, history = self.journal()
        facts = frozenset([*facts_of(history), *([("a night",)] if night else [])])
        missing = self.facts - facts
        self.tally.blame("lost", f"{sorted(map(str, missing))[:3]}", len(missing))
        self.facts = facts
        self.check_rows(night, history)

    def journal(self) -> tuple[Night | None, History]:
        if not (self.folder / "journal.sqlite").exists():
            return None, ()
        try:
            with Journal.read(self.folder / "journal.sqlite") as journal:
                return journal.night(), journal.attempts()
        except NightError as error:
            self.tally.blame("damaged", str(error))
            return None, ()

    def check_rows(self, night: Night | None, history: History) -> None:
        """Check that each settled attempt has its row, as the journal gives it, and that the clone's row stays."""
        lines = (self.root / "results.tsv").read_text(encoding="utf-8").split("\n")
        rows, ours = rows_of(night, history) if night else [], lines[2:-1]
        due = ["\t".join(row.values()) for row in rows]
        settled = sum(attempt.settled for attempt in history)
        wrong = int(lines[:2] != [HEADER, FOREIGN] or lines[-1] != "") + max(0, settled - len(ours))
        wrong += sum(row not in due for row in ours)
        self.tally.blame("wrong_rows", f"{lines!r:.300} instead of {due!r:.300}", wrong)

    def users_own(self) -> dict[str, bytes]:
        paths = [path for path in self.root.iterdir() if path.is_file() and path.name != "results.tsv"]
        paths += [self.root / ".git" / "index", self.root / ".git" / "HEAD"]
        # a results file caught between its two names belongs to no night
        return {path.name: path.read_bytes() for path in paths if not path.name.startswith(".results.tsv")}

    def finish(self, undisturbed: Outcome) -> Tally:
        """Let the night end by itself and compare."""
        self.end_well()
        self.compare(undisturbed)
        return self.tally

    def compare(self, undisturbed: Outcome) -> None:
        """Blame for each difference to an undisturbed night."""
        for name, own in self.outcome().items():
            due, (too_few, too_many) = undisturbed[name], LOSSES_OF[name]
            for loss, difference in ((too_few, due - own), (too_many, own - due)):
                self.tally.blame(loss, f"{[*difference][:1]} is on one side alone: {[*own]!s:.500}", difference.total())

    def end_well(self) -> None:
        """Let the night end by itself, and see that nothing is left over."""
        end = self.go_on(fresh=True)
        if end.code != 0:
            self.tally.blame("lost", f"the night does not end: exit code {end.code}, {end.said.strip()[-300:]}")
        while self._left:
            time.sleep(0.05)
            self.count_orphans()
        litter = [path.name for path in self.root.iterdir() if path.name.startswith(".results")]
        self.tally.blame("damaged", f"left behind: {litter}", len(litter))

    def outcome(self) -> Outcome:
        _, history = self.journal()
        lines = (self.root / "results.tsv").read_text(encoding="utf-8").splitlines()
        rows = [dict(zip(COLUMNS, line.split("\t"), strict=False)) for line in lines[2:]]
        refs = ("refs/experiments", f"refs/heads/experiments/{self.budget_s:g}s-t")
        facts = Counter[object]((at.number, "run") for at in history for _ in at.done_runs)
        facts.update((at.number, at.parent, at.proposal, at.decision, at.val_bpb, at.settled) for at in history)
        return {
            "facts": facts,
            "rows": Counter((row["attempt"], row["val_bpb"], row["status"], row["seeds"]) for row in rows),
            "refs": Counter(git(self.root, "for-each-ref", "--format=%(refname) %(tree)", *refs).splitlines()),
        }


class StudyVictim(Victim):
    """Run one study of two arms with two seeds each, in place of a night."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.root / "t.toml").write_text(PLAN, encoding="utf-8")
        self.before = self.users_own()

    def words(self) -> list[str]:
        return command("study", "t.toml", "--yes")


# ---- faults ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """An undisturbed night, or study."""

    kind: type[Victim]
    folder: Path
    outcome: Outcome
    points: Sequence[str]

    @classmethod
    def of(cls, folder: Path, kind: type[Victim] = Victim) -> "Reference":
        victim = kind(folder)
        end = victim.go_on(Strike())
        outcome = victim.outcome()
        again = victim.go_on()
        if again.code != 0 or victim.tally.notes or victim.outcome() != outcome or not outcome["rows"]:
            raise measure.Failed(f"a night left alone ended so: {victim.tally.notes} {end.said} {again.said}")
        return cls(kind, folder, outcome, end.points)


@dataclass(frozen=True)
class Fault:
    """One kind of trouble: body makes it in its own folder, and counts in the tally what came of it."""

    name: str
    body: Callable[..., None]  # folder, tally, *arguments
    arguments: tuple[object, ...]

    def run(self, folder: Path) -> tuple[str, Tally]:
        tally = Tally()
        folder.mkdir()
        self.body(folder, tally, *self.arguments)
        tally.counts.setdefault(self.name, sum(tally.counts[done] for done in DONE))
        if tally.notes:
            tally.notes = [f"{note}  [{self.name} {self.arguments[1:]}; see {folder}]" for note in tally.notes]
        else:
            shutil.rmtree(folder, ignore_errors=True)
        return self.name, tally


def _be_in_laboratory() -> None:
    adopt_orphans()
    for name in COMMANDS.keys() - {"mcp"}:  # mcp imports large libraries, and no kill hits it
        command_named(name)
    import_module("git")  # commands import it late


@dataclass
class Laboratory:
    """Make faults, several at a time, and count what has come of all of them."""

    folder: Path
    processes: int
    tally: Tally = field(default_factory=Tally)

    def make(self, faults: Iterable[Fault]) -> measure.Flat:
        """Make faults, the next one asked for when a process is free. Return what was done and what came of it."""
        numbered, jobs = enumerate(faults, 1), set[Future[tuple[str, Tally]]]()
        os.environ["LD_PRELOAD"] = os.environ["NIGHTSHIFT_STRIKE"]
        spawn = multiprocessing.get_context("spawn")  # a fork of this process would be without strike.c
        with ProcessPoolExecutor(self.processes, spawn, _be_in_laboratory) as pool:
            while True:
                for number, fault in itertools.islice(numbered, self.processes - len(jobs)):
                    jobs.add(pool.submit(fault.run, self.folder / f"{number}"))
                if not jobs:
                    break
                ended, jobs = wait(jobs, return_when=FIRST_COMPLETED)
                for name, tally in (job.result() for job in ended):
                    self.tally.add(tally)
                    done = ", ".join(f"{self.tally.counts[key]} {key.replace('_', ' ')}" for key in DONE)
                    measure.say("\n  ".join([f"{time.strftime('%H:%M:%S')} {name}: {done}", *tally.notes]))
        counts = self.tally.counts
        return {name: counts[name] for name in (*DONE, *LOSSES, *sorted(counts))}


def anything_lost(flat: measure.Flat) -> bool:
    return any(flat[loss] for loss in LOSSES)
