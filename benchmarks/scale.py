"""What do more workers bring? Jobs an hour with 1 to 64 of them, where a run only sleeps.

    python benchmarks/scale.py [--workers 1 2 4 8 16 64] [--run-s 10] [--processes | --ray] [--quick] [--json FILE]

Plan, judge, journal, repository, ledger and pool are real. A run is one of three things:

by default       a worker's thread that sleeps, and scores that are answered at once: the harness itself is the limit
--ray            the same in tasks of a Ray cluster of this machine, to which a copy of the harness goes that does so
--processes      a training process that sleeps in the folder of its run, and a process that scores its weights; then
                 run_cpu_s tells the processor seconds of these processes (and of git) for an attempt, and
                 machine_jobs_hour how many jobs an hour this machine's cores could serve

Jobs an hour are counted while all workers have been given work: the seconds that runs slept, over the seconds that
passed. The efficiency of N workers is jobs an hour over N times those of one worker.

--sizes N … measures a driver of 16 workers whose runs take no time, in nights of so many attempts: its processor
seconds for an attempt, those of its git commands, those of the resume with its first attempt, and its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import asleep
import faults
import long_night
import measure
import psutil
from filled_night import grow, make_night

from agent.clock import utc_now
from agent.errors import Exhausted
from agent.experiment import Lease, Night, Proposal, Terms
from agent.judging.judges import choose_judge
from agent.night.limits import Limits
from agent.night.lock import Stop
from agent.night.loop import run_night
from agent.night.opening import Request, open_night
from agent.night.state import NightContext
from agent.pools.local import LocalPool
from agent.pools.pool import Pool
from agent.proposers.briefing import Briefing
from agent.records.journal import Journal
from agent.records.place import Place
from agent.runs.runner import Runner
from agent.sandbox.box import Open
from agent.sandbox.watch import limits_of_machine

sys.path.insert(0, str(measure.ROOT / "tests"))

from nights import make_repository

TAG, SLEEPER = "scale", measure.HERE / "sleeper.py"
WORKERS, QUICK_WORKERS = (1, 2, 4, 8, 16, 64), (1, 4)
RUN_S, QUICK_RUN_S = 10.0, 1.0
ROUNDS = 5  # of runs, at least, that each worker makes
ALLOWANCE_S = 60.0  # on a machine that is busy
LIMIT_S = 3600.0
LONG_WORKERS, LONG_STEPS = 16, 64
Interval = tuple[float, float]


# ---- one night, in a process of its own ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbered:
    """Proposes one script after another at once; each differs from the others by a number."""

    script: str
    most: int

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        number = len(briefing.history)
        if number > self.most:
            raise Exhausted("there are no more")
        tilt = random.Random(number).uniform(0.5, 2.0)
        text = self.script.replace("NOTE = 0", f"NOTE = {number}").replace("TILT = 1.0", f"TILT = {tilt:.4f}")
        return [Proposal(text, f"TILT to {tilt:.4f}", "It might be better.", "scale")]


def live(root: Path, args: argparse.Namespace) -> measure.Flat:
    """Make a night of so many workers, in this process."""
    place, runs = Place.of(root / "train_mlx.py"), args.live * args.rounds
    if not args.processes:
        long_night.replace_everywhere(asleep.train, asleep.score, asleep.audit)
    stop, watcher = Stop(place.folder(TAG)), long_night.Unseen()
    with opened_night(place, args) as (night, opened_pool), Journal.resume(place.journal(TAG)) as journal:
        runner = Runner(
            night, place.folder(TAG), Open("a benchmark"), limits_of_machine(), ALLOWANCE_S, lambda: stop.now,
            watcher.progressed,
        )  # fmt: skip
        proposer = Numbered(place.script_path.read_text(), runs)
        before = os.times()
        with closing(opened_pool(runner)) as pool:
            run_night(
                NightContext(
                    place, journal, runner, proposer, choose_judge("balanced"), watcher, stop,
                    Limits(experiments=runs), pool=pool,
                )
            )  # fmt: skip
        after = os.times()
    spent_s = after.user + after.system - before.user - before.system
    git_s = after.children_user + after.children_system - before.children_user - before.children_system
    driver_s, children_s = spent_s / runs, git_s / runs  # for an attempt
    return {
        "jobs_hour": jobs_an_hour(place.folder(TAG), args.live, night.budget_s),
        "driver_cpu_s": driver_s,
        # with --processes, those of runs and scores as well: of this machine, not of the driver, they are the limit
        **({} if args.ray else {"run_cpu_s" if args.processes else "git_cpu_s": children_s}),
        **({"machine_jobs_hour": 3600 * (os.cpu_count() or 1) / (driver_s + children_s)} if args.processes else {}),
        "settled": len(watcher.settled),
        "memory_mb": psutil.Process().memory_info().rss / 1e6,
    }


@contextmanager
def opened_night(place: Place, args: argparse.Namespace) -> Iterator[tuple[Night, Callable[[Runner], Pool]]]:
    """Open a night, and yield it with the function that makes its pool; more workers than cores share them."""
    if args.ray:
        from agent.pools.cluster.cluster import Cluster
        from agent.pools.cluster.pool import RayPool

        terms = Terms(sandbox="off", workers=args.live, pool="ray", cores_each=1)
        with closing(Cluster(None)) as cluster:
            cluster.open()
            night = open_night(Request(place, TAG, args.run_s), terms, cluster)
            yield night, lambda runner: RayPool(cluster, runner, args.live)
        return

    def local(runner: Runner) -> LocalPool:
        return LocalPool([replace(runner, lease=Lease(f"worker {number}")) for number in range(args.live)])

    terms = Terms(sandbox="off")  # whose one worker has the whole machine: the pool has as many as are wanted
    if args.processes:
        yield open_night(Request(place, TAG, args.run_s), terms), local
        return
    night = Night(
        tag=TAG, branch=f"refs/heads/experiments/{args.run_s:g}s-{TAG}", script=place.script,
        base=place.repo.find("HEAD") or "", budget_s=args.run_s, seed=0, device_kind="cpu", device="asleep",
        protocol="0" * 12, data=str(place.repo.root), started=utc_now(), terms=terms,
    )  # fmt: skip
    with Journal.create(place.journal(TAG), night):
        yield night, local


def jobs_an_hour(night: Path, workers: int, run_s: float) -> float:
    """Return the runs that sleep in an hour, from when all workers have been given work.

    At its end a night holds ideas back for merges, and its last workers rest: as many runs as there are workers, the
    last ones, do not count.
    """
    summaries = [file for file in night.glob("runs/*/seed*/out/summary.json") if file.parts[-4] != "0000"]
    runs: list[Interval] = sorted(json.loads(file.read_text())["slept"] for file in summaries)
    begins = sorted(began for began, _ in runs)
    since, until = begins[workers - 1], begins[-workers]
    if until <= since:
        raise measure.Failed(f"{len(runs)} runs of {workers} workers are too few: give more --rounds")
    asleep_s = sum(max(0.0, min(ended, until) - max(began, since)) for began, ended in runs)
    return 3600 * asleep_s / run_s / (until - since)


# ---- a driver of a long night ----------------------------------------------------------------------------------------


def live_long(root: Path, known: int) -> measure.Flat:
    """Go on with a night of so many attempts, with 16 workers whose runs take no time."""
    before = os.times()
    found = long_night.live_on(root, known, LONG_STEPS, workers=LONG_WORKERS)
    after = os.times()
    git_s = after.children_user + after.children_system - before.children_user - before.children_system
    wanted = ("driver_cpu_s", "resume_cpu_s", "memory_mb")
    return {**{name: found[name] for name in wanted}, "git_cpu_s": git_s / LONG_STEPS}


# ---- the program -----------------------------------------------------------------------------------------------------


def in_a_process(program: Path, folder: Path, args: argparse.Namespace, *words: str) -> measure.Flat:
    kind = ["--processes"] if args.processes else ["--ray"] if args.ray else []
    options = [*kind, "--run-s", f"{args.run_s:g}", "--rounds", str(args.rounds)]
    command = [sys.executable, program, *words, *options, "--folder", folder]
    watched = measure.watch(command, env=with_path(program), cwd=folder, limit_s=LIMIT_S)
    return dict(json.loads(watched.lines[-1][1]))


def with_path(program: Path) -> dict[str, str]:
    """This environment, the repository of the program first on Python's path."""
    env = measure.with_path()
    return env | {"PYTHONPATH": os.pathsep.join([str(program.parents[1]), env["PYTHONPATH"]])}


def sleeping_copy(to: Path, cores: int) -> Path:
    """Copy the repository and return this program in it: its runs sleep, and its machine seems to have so many cores.

    The copy reaches the nodes as any code of the harness does. Its workers share the cores that there are.
    """
    left_out = shutil.ignore_patterns(".*", "__pycache__", "experiments", "docs")
    shutil.copytree(measure.ROOT, to, ignore=left_out)
    shutil.copyfile(measure.HERE / "asleep.py", to / "agent" / "runs" / "asleep.py")
    with (to / "agent" / "runs" / "execute.py").open("a") as execute:
        execute.write("\n\nfrom agent.runs.asleep import audit, score, train\n")
    with (to / "agent" / "lab" / "hardware.py").open("a") as hardware:
        hardware.write(f"\n\ndef usable_cores():\n    return {cores}\n")
    with (to / "agent" / "pools" / "cluster" / "node.py").open("a") as node:
        node.write("\n\ndef core_sets(share):\n    return [], 0  # they are not pinned\n")
    return to / "benchmarks" / Path(__file__).name


def compare(args: argparse.Namespace) -> measure.Flat:
    with measure.work_folder(args.folder) as folder:
        return by_size(folder, args) if args.sizes else by_workers(folder, args)


def by_workers(folder: Path, args: argparse.Namespace) -> measure.Flat:
    prefix = "ray_" if args.ray else "process_" if args.processes else ""
    program = Path(__file__)
    if args.processes or args.ray:
        os.environ["NIGHTSHIFT_DATA"] = str(faults.make_corpus(folder))
    if args.ray:
        program = sleeping_copy(folder / "copy", max(args.workers))
    flat: measure.Flat = {}
    for workers in args.workers:
        measure.say(f"{workers} workers, runs of {args.run_s:g} s")
        root = make_repository(folder / f"{workers}", SLEEPER.read_text())
        found = in_a_process(program, root, args, "--live", str(workers))
        measure.say(", ".join(f"{name} {value:.3f}" for name, value in found.items()))
        flat |= {f"{prefix}{name}_{workers}": value for name, value in found.items() if name != "settled"}
    one = flat.get(f"{prefix}jobs_hour_1")
    for workers in args.workers[1:] if one else ():
        found = measure.ratio(flat[f"{prefix}jobs_hour_{workers}"], workers * one)
        flat[f"{prefix}efficiency_{workers}"] = found
    return {"run_s": args.run_s, **flat}


def by_size(folder: Path, args: argparse.Namespace) -> measure.Flat:
    place, flat = make_night(folder / "user"), {}
    for size in args.sizes:
        measure.say(f"filling the night up to {size:,} attempts")
        grow(place, size)
        found = in_a_process(Path(__file__), place.repo.root, args, "--known", str(size))
        measure.say(", ".join(f"{name} {value:.3f}" for name, value in found.items()))
        flat |= {f"{name}_{size}": value for name, value in found.items()}
    first, last = args.sizes[0], args.sizes[-1]
    for name in ("driver_cpu_s", "memory_mb"):
        flat[f"{name}_growth"] = measure.ratio(flat[f"{name}_{last}"], flat[f"{name}_{first}"])
    return flat


def print_results(args: argparse.Namespace, flat: measure.Flat) -> None:
    rows = [[name.replace("_", " "), measure.show(value, ",.3f")] for name, value in flat.items()]
    measure.print_table("Workers that sleep", ("", "measured"), rows)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", metavar="N", help="default: 1 2 4 8 16 64; quick: 1 4")
    parser.add_argument("--run-s", type=float, metavar="S", help="that a run sleeps (default: 10; quick: 1)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each worker (default: %(default)s)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--processes", action="store_true", help="real processes that sleep and score")
    kind.add_argument("--ray", action="store_true", help="tasks that sleep, in a Ray cluster of this machine")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="the driver's cost with so many attempts")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="work here, and keep it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    parser.add_argument("--live", type=int, help=argparse.SUPPRESS)  # this program, in the measured process
    parser.add_argument("--known", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.workers = tuple(args.workers or (QUICK_WORKERS if args.quick else WORKERS))
    args.run_s = args.run_s or (QUICK_RUN_S if args.quick else RUN_S)
    if min(*args.workers, args.rounds - 1, args.run_s, *(args.sizes or [1])) <= 0:
        parser.error("--workers, --run-s and --sizes must be above zero, and --rounds above one")
    return args


def run(args: argparse.Namespace) -> int:
    if args.live is not None or args.known is not None:
        found = live(args.folder, args) if args.live is not None else live_long(args.folder, args.known)
        print(json.dumps(found))
        return 0
    return measure.reported(args, compare, print_results)


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("scale", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
