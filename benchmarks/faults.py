"""Is anything ever lost? Nights that are killed a thousand times, and what else can go wrong on a machine.

    python benchmarks/faults.py [--quick] [--json FILE] [--kills N] [--minutes M] [--seed K]
                                [--only kills|commands|others]

kills    SIGKILL at every call with which the loop changes a file or makes a change durable, half of the writes torn;
         at every such call of the git commands that it starts, with the loop and without; at random moments, to the
         loop alone and to all of its processes. After every kill the same command resumes; journal, ledger,
         repository and the user's own files are looked at each time, and the night's end is compared with that of an
         undisturbed one.
commands the same kills for pack, unpack, archive, init, ship, submit, try and prepare. Afterwards each file is whole,
         and the second call ends as an undisturbed one does.
others   a full and a broken disk, torn files after a power cut, damaged corpora, clocks that jump, a second loop, a
         loop that is stopped for a while.

Exit code 1 when anything was lost, counted twice, damaged, left running or left unexplained. Linux, with a C compiler.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import killed_commands
import kills
import measure
import others
import sweeps
from kills import Tally
from others import Fault
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from sweeps import BUDGET_S, LONGER_S, Reference, Task

import prepare
from agent.lab import corpus

SCALE = corpus.Scale("faults", seq_len=128, vocab_size=512, eval_tokens=16384)
TEXT_CHARS = 1_500_000
QUICK_KILLS, MANY_KILLS = 10, 100
COUNTS = ("kills", "lost", "doubled", "damaged", "orphans", "wrong_rows", "tracebacks")


@dataclass(frozen=True)
class Lab:
    """Where nights run, and what they are compared with."""

    folder: Path
    references: dict[float, Reference]
    deadline: float  # of the monotonic clock

    @property
    def late(self) -> bool:
        return time.monotonic() > self.deadline


def make_corpus(folder: Path) -> Path:
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = folder / "library.txt"
    text.write_text("\n\n".join(module.read_text(errors="replace") for module in modules)[:TEXT_CHARS])
    return prepare.prepare(str(text), SCALE, cache=folder / "cache", workers=1)


def prepared(folder: Path, budgets_s: Sequence[float], minutes: float) -> Lab:
    kills.build_strike(folder)
    os.environ["NIGHTSHIFT_DATA"] = str(make_corpus(folder))
    os.environ["TMPDIR"] = str(folder / "tmp")  # what killed processes leave there goes with the folder
    (folder / "tmp").mkdir()
    kills.adopt_orphans()
    references = {length: Reference.of(folder / f"undisturbed-{length:g}", length) for length in budgets_s}
    return Lab(folder, references, time.monotonic() + 60 * minutes)


# ---- running ---------------------------------------------------------------------------------------------------------


def run_task(task: Task, folder: Path, lab: Lab) -> tuple[str, Tally]:
    return task.kind, task.run(folder, lab.references[task.budget_s])


def run_other(fault: Fault, folder: Path, lab: Lab) -> tuple[str, Tally]:
    folder.mkdir()
    return fault.name, fault.run(folder, lab.references[BUDGET_S])


def run_kills(count: int, seed: int, lab: Lab, pool: ProcessPoolExecutor, sums: dict[str, Tally]) -> None:
    """By the plan, then at random moments until there are as many as were asked for."""
    tasks = sweeps.plan(count, lab.references[BUDGET_S], seed)
    with bar(count) as advance:
        while tasks and not lab.late:
            folders = [lab.folder / f"night-{seed}-{number}" for number in range(len(tasks))]
            jobs = [pool.submit(run_task, task, at, lab) for task, at in zip(tasks, folders, strict=True)]
            for name, tally in collect(jobs, lab, sums):
                advance(tally.kills, f"kills: {name}")
                if count >= MANY_KILLS and sum(each.kills for each in sums.values()) >= count:
                    for job in jobs:
                        job.cancel()  # the nights are shuffled: those that are left are like the others
            missing = count - sum(tally.kills for tally in sums.values())
            seed += len(tasks)
            tasks = sweeps.more(missing, seed) if count >= MANY_KILLS else []


def run_faults(kind: str, faults: list[Fault], lab: Lab, pool: ProcessPoolExecutor, sums: dict[str, Tally]) -> None:
    with bar(len(faults)) as advance:
        folders = [lab.folder / f"{kind}-{number}" for number in range(len(faults))]
        jobs = [pool.submit(run_other, fault, at, lab) for fault, at in zip(faults, folders, strict=True)]
        for name, _ in collect(jobs, lab, sums):
            advance(1, name)


def collect(jobs: list[Future[tuple[str, Tally]]], lab: Lab, sums: dict[str, Tally]) -> Iterator[tuple[str, Tally]]:
    """As they end; when time is up, those that have begun end, and no other begins."""
    for job in as_completed(jobs):
        if lab.late:
            for other in jobs:
                other.cancel()
        if not job.cancelled():
            name, tally = job.result()
            sums.setdefault(name, Tally()).add(tally)
            yield name, tally


class bar:  # noqa: N801, used like a function
    """A progress bar on a terminal, a line for every night elsewhere."""

    def __init__(self, total: int) -> None:
        columns = (
            TextColumn("{task.description}", style="bold"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
        )
        console = Console(stderr=True)
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
        self._task = self._progress.add_task("preparing", total=total)

    def __enter__(self) -> Callable[[int, str], None]:
        self._progress.start()
        return self._advance

    def _advance(self, count: int, name: str) -> None:
        self._progress.update(self._task, advance=count, description=name)
        if self._progress.disable:
            task = self._progress.tasks[0]
            measure.say(f"{time.strftime('%H:%M:%S')} {task.completed:.0f}/{task.total:.0f} {name}")

    def __exit__(self, *error: object) -> None:
        self._progress.stop()


# ---- what comes of it ------------------------------------------------------------------------------------------------


def report(sums: dict[str, Tally], lab: Lab) -> measure.Flat:
    names = {
        "sweep": f"the loop's own calls ({len(lab.references[BUDGET_S].points)} in a night)",
        "git": "calls of its git commands",
        "moments": "random moments",
    }
    rows = []
    for name, tally in sums.items():
        times = tally.kills if name in names else tally.times
        rows.append([names.get(name, name), str(times), *(str(getattr(tally, count)) for count in COUNTS[1:])])
    measure.print_table("What was lost", ["fault", "times", *(count.replace("_", " ") for count in COUNTS[1:])], rows)
    total = Tally()
    for tally in sums.values():
        total.add(tally)
    flat: measure.Flat = {name: getattr(total, name) for name in COUNTS}
    flat["kills"] = sum(sums[name].kills for name in names if name in sums)
    flat["command_kills"] = sum(tally.times for name, tally in sums.items() if name.startswith(killed_commands.KILLED))
    flat["points_of_a_night"] = len(lab.references[BUDGET_S].points)
    for name, tally in sums.items():
        key = name.replace(" ", "_").replace(",", "")
        flat[f"{key}_times"] = tally.kills if name in names else tally.times
        flat[f"{key}_wrong"] = len(tally.notes)
    for note in total.notes:
        measure.say(note)
    return flat


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)

    def body() -> int:
        measure.check_writable(options.json)
        if sys.platform != "linux":
            raise measure.Misuse("processes that survive a kill are counted as Linux does it: run it there")
        count = options.kills or (QUICK_KILLS if options.quick else 1000)
        sums: dict[str, Tally] = {}
        with measure.work_folder(options.out) as folder:
            lab = prepared(folder, (BUDGET_S, LONGER_S) if count >= MANY_KILLS else (BUDGET_S,), options.minutes)
            with ProcessPoolExecutor(options.workers, initializer=kills.adopt_orphans) as pool:
                if options.only in (None, "kills"):
                    run_kills(count, options.seed, lab, pool, sums)
                for kind, module in (("commands", killed_commands), ("others", others)):
                    if options.only in (None, kind):
                        run_faults(kind, module.every_fault(options.quick), lab, pool, sums)
            flat = report(sums, lab)
        measure.write_json(options.json, flat)
        return int(any(flat[name] for name in COUNTS[1:]))

    return measure.guarded("faults", body)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("faults.py", description="Is anything ever lost?")
    top.add_argument("--quick", action="store_true", help="some minutes: a few kills of each kind")
    top.add_argument("--json", type=Path, metavar="FILE", help="write the counts there, too")
    top.add_argument("--kills", type=int, metavar="N", help="about how many (default: 1000)")
    top.add_argument("--minutes", type=float, default=600, metavar="M", help="begin no night after that (default: 600)")
    top.add_argument("--workers", type=int, default=2, metavar="N", help="nights at a time (default: %(default)s)")
    top.add_argument("--seed", type=int, default=0, metavar="K", help="of the random moments (default: %(default)s)")
    top.add_argument("--only", choices=["kills", "commands", "others"], help="one of its three parts")
    top.add_argument("--out", type=Path, metavar="DIR", help="keep the nights there (default: removed)")
    return top


if __name__ == "__main__":
    sys.exit(main())
