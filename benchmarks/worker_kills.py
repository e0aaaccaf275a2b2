"""Is anything lost where several workers are at work? Nights of two workers whose processes are killed at random.

    python benchmarks/worker_kills.py [--kills 200] [--pool local|ray] [--quick] [--json FILE]

Every few seconds SIGKILL hits a process of the night: its driver, the supervisor of a run or of a scoring, a process in
the sandbox, or, with --pool ray, any process of the Ray cluster while a run goes on (a cluster that loses one as it
begins waits for it for a minute). After the driver's death the same command goes on with the night. After every end
journal, results, repository and the user's files are checked. At its end a night has to hold as many attempts and
runs as an undisturbed one, each counted once, and none of its processes may live on.

A process in the sandbox that is killed counts as a crash of its script, which may have done it itself, and so does a
supervisor whose attempt has used up its one invalid run. Such an attempt may have crashed; any other that has is an
error. Each night has two cores, and there is one at a time.

Exit code 1 when anything was lost, counted twice, or left running. Flat keys of --json: kills, kills_KIND; lost,
doubled, damaged, orphans, wrong_rows, tracebacks; empty_sandboxes, if there were any: bubblewrap's second process waits
without an end where its first one is killed in the milliseconds between fork and first word. Nothing runs in it.
"""

import itertools
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import measure
import psutil
from kills import ORPHAN_S, Fault, Laboratory, Tally, Victim, anything_lost, prepare_machine, running
from measure import CORES, Count, Folder

from agent.experiment import Attempt, Ending, Status
from agent.records.journal import Journal

WORKERS, EXPERIMENTS, BUDGET_S = 2, 8, 0.5
PAUSE_S = 0.1, 2.0  # s between two kills
SEARCH_S, SEARCH_AGAIN_S = 60.0, 0.5  # how long for a process of the kind that is to be killed, and how often at least
OF_RAY = ("ray::", "/ray/core/", "/ray/_private/", "/ray/autoscaler/", "/ray/dashboard/")  # words of Ray's processes
KINDS = [*["driver"] * 3, *["supervisor"] * 5, *["sandboxed"] * 2]  # processes to kill, each as often as it stands here
RAY = ["ray"] * 3  # additional kinds for a cluster


class SeveralWorkers(Victim):
    """Run a night of several workers, and keep what was killed of it."""

    def __init__(self, folder: Path, pool: str, rng: random.Random) -> None:
        workers = ("--workers", str(WORKERS), "--cores-each", "1", *(("--pool", "ray") if pool == "ray" else ()))
        super().__init__(folder, BUDGET_S, EXPERIMENTS, workers)
        self._rng, self._kinds = rng, KINDS + (RAY if pool == "ray" else [])
        self._hit: set[Path] = set()  # folders of runs and scorings whose supervisor was killed
        self._blamed: set[int] = set()  # attempts of which a sandboxed process was killed
        self.killed = 0

    def live(self, most: int) -> None:
        """Begin the night, kill at most so many processes, and let it end."""
        while self.killed < most:
            loop = self.start(fresh=True)
            while loop.poll() is None and self.killed < most:
                with suppress(subprocess.TimeoutExpired):
                    loop.wait(self._rng.uniform(*PAUSE_S))
                if loop.poll() is None:
                    self._kill_one(loop)
            if self.ended(loop).code == 0:
                break
        self.end_well()
        self._check_whole()

    def _kill_one(self, loop: subprocess.Popen[bytes]) -> None:
        """Kill a process of a kind that is drawn first, as soon as there is one; the driver, where none comes."""
        kind, until = self._rng.choice(self._kinds), time.monotonic() + SEARCH_S
        while not (candidates := [(each, folder) for of, each, folder in self._processes(loop.pid) if of == kind]):
            with suppress(subprocess.TimeoutExpired):
                loop.wait(self._rng.uniform(0, SEARCH_AGAIN_S))
            if loop.poll() is not None:
                return
            if time.monotonic() > until:
                kind = "driver"
        process, folder = self._rng.choice(candidates)
        with suppress(psutil.Error):
            process.kill()
            self.killed += 1
            self.tally.counts[f"kills_{kind}"] += 1
            if kind == "supervisor":
                self._hit.add(folder)
            if kind == "sandboxed":
                self._blamed.add(int(folder.parent.name))
            if kind == "driver":  # either the driver, or a process that it has forked for Ray
                with suppress(subprocess.TimeoutExpired):
                    loop.wait(ORPHAN_S)

    def _processes(self, pid: int) -> Iterator[tuple[str, psutil.Process, Path]]:
        """Yield the processes that may be killed: the kind of each, and the folder of its run or scoring."""
        driver, supervisors, others = (
            psutil.Process(pid),
            dict[psutil.Process, Path](),
            dict[psutil.Process, list[str]](),
        )
        yield "driver", driver, Path()
        for process in running():
            with suppress(psutil.Error):
                words = process.cmdline()
                if "supervisor.main(" in " ".join(words):
                    supervisors[process] = Path(process.cwd())
                else:
                    others[process] = words
        yield from (
            ("supervisor", supervisor, folder) for supervisor, folder in supervisors.items() if folder not in self._hit
        )
        for process, words in others.items():
            with suppress(psutil.Error):
                supervisor = next((above for above in process.parents() if above in supervisors), None)
                if supervisor is not None and supervisors[supervisor].parent.name != "0000":  # a night needs attempt 0
                    yield "sandboxed", process, supervisors[supervisor]
                elif process.ppid() == pid and words == driver.cmdline():
                    yield "driver", process, Path()  # a process that the driver has forked for Ray
                elif supervisor is None and supervisors and any(mark in " ".join(words) for mark in OF_RAY):
                    yield "ray", process, Path()

    def _may_crash(self, attempt: Attempt) -> bool:
        """Return whether what was killed of an attempt counts as a crash of its script."""
        was_hit = any(int(folder.parent.name) == attempt.number for folder in self._hit)
        # an earlier kill has made it invalid
        invalid_before = any(run.ending is Ending.INVALID for run in attempt.runs)
        return attempt.number in self._blamed or (was_hit and invalid_before)

    def _check_whole(self) -> None:
        """Compare with what an undisturbed night of greedy judging holds: one run an attempt, more of attempt 0."""
        _, history = self.journal()
        blame = self.tally.blame
        runs = [(attempt.number, run) for attempt in history for run in attempt.counted_runs]
        due = Counter({number: 1 if number else 1 + WORKERS for number in range(EXPERIMENTS + 1)})
        missing = due - Counter(number for number, _ in {(number, run.seed) for number, run in runs})
        doubled = Counter(number for number, _ in runs) - due
        blame("lost", f"runs by attempt: {missing}", missing.total())
        blame("doubled", f"runs by attempt: {doubled}", doubled.total())
        for loss, numbers in {
            "without an end": [attempt.number for attempt in history if not attempt.settled],
            "without a score": [number for number, run in runs if run.ending is Ending.FINISHED and run.score is None],
            "crashed": [each.number for each in history if each.status is Status.CRASH and not self._may_crash(each)],
        }.items():
            blame("lost", f"attempts {numbers}, {loss}", len(numbers))
        with Journal.read(self.folder / "journal.sqlite") as journal:
            (open_runs,) = journal.query("SELECT count(*) FROM runs WHERE ending = 'running'")[0]
        blame("lost", "runs without an end", open_runs)
        rows, refs = len(self.outcome()["rows"]), len(self.outcome()["refs"]) - 1  # one ref is the night's branch
        blame("wrong_rows", f"{rows} rows of {len(history)} attempts", abs(rows - len(history)))
        blame("damaged", f"{refs} refs of {len(history)} attempts", abs(refs - len(history)))


def lived(folder: Path, tally: Tally, pool: str, seed: int, most: int) -> None:
    """Live through one night."""
    victim = SeveralWorkers(folder / "night", pool, random.Random(seed))
    victim.live(most)
    victim.tally.counts.update(nights=1, kills=victim.killed - victim.kills)  # those of the driver are counted already
    tally.add(victim.tally)


@measure.program(anything_lost, kills=10)
def main(*, folder: Folder, kills: Count = 200, pool: Literal["local", "ray"] = "local") -> measure.Flat:
    """Kill nights until there were enough kills.

    Args:
        kills: at least so many
        pool: of the workers
    """
    if CORES < WORKERS:
        raise measure.Misuse(f"a night of {WORKERS} workers needs as many cores: this process may use {CORES}")
    prepare_machine(folder, own_tmp=pool == "local")  # sockets of Ray have short paths
    laboratory = Laboratory(folder, processes=1)

    def nights() -> Iterator[Fault]:
        for seed in itertools.count():
            if (missing := kills - laboratory.tally.counts["kills"]) <= 0:
                return
            yield Fault("nights", lived, (pool, seed, missing))

    return laboratory.make(nights())


if __name__ == "__main__":
    raise SystemExit(main())
