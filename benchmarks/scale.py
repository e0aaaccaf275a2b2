"""What do more workers bring? Jobs an hour with 1 to 64 of them, where a run only sleeps.

    python benchmarks/scale.py [--workers 1 2 4 8 16 64] [--run-s 10] [--ray] [--quick] [--json FILE]

The nights are those of the command line, in a copy of the harness whose machine seems to have as many cores as there
are workers, and whose training sleeps and scoring answers at once: plan, judge, search, journal, repository, results
and pool are real, so that the one driver is the limit. With --ray the workers are tasks of a Ray cluster of this
machine.

Jobs an hour are counted while all workers have been given work: the seconds that runs slept, over the seconds that
passed. The efficiency of N workers is jobs an hour over N times those of one worker.

Flat keys of --json, for each number N of workers, with ray_ before them on a cluster: jobs_hour_N, efficiency_N.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import measure
from measure import Count, Folder, Seconds
from nights import make_repository

TAG = "scale"
SCRIPT = """\
TILT = 1.0  # how much likelier the first tokens are than the last  [0.1, 10.0]
WIDTH = 64  # of nothing  [8, 4096]
def load_model(weights_path): "Never called."
def main(): "Never called."
if __name__ == "__main__": main()
"""
ROUNDS = 5  # runs of each worker


@dataclass(frozen=True)
class Slept:
    """A run that only slept, by the clock of the day."""

    began: float
    ended: float
    memory_mb: float  # memory of its process


def sleeping_copy(to: Path, cores: int, sleep_s: float | None = None) -> Path:
    """Copy the harness to a folder; its runs sleep, for their budget by default, and its machine has so many cores.

    The copy reaches the nodes of a cluster as any code of the harness does.
    """
    shutil.copytree(measure.ROOT / "agent", to / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(measure.ROOT / "prepare.py", to)
    asleep = (
        (measure.HERE / "asleep.py")
        .read_text(encoding="utf-8")
        .replace("SLEEP_S: float | None = None", f"SLEEP_S = {sleep_s}")
    )
    (to / "agent" / "runs" / "asleep.py").write_text(asleep, encoding="utf-8")
    replacements = {
        "runs/execute.py": dict.fromkeys(("train", "score", "audit"), "from agent.runs.asleep import {}"),
        "lab/hardware.py": {"usable_cores": f"{{}} = lambda: {cores}"},
        "pools/device_slots.py": {
            "cores_of_machine": f"{{}} = lambda: {tuple((core,) for core in range(cores))}",
            "pin": "{} = lambda _: None",
        },
    }
    for path, others in replacements.items():
        module = to / "agent" / path
        text = module.read_text(encoding="utf-8")
        for name, other in others.items():
            if name not in text:
                raise measure.Failed(f"agent/{path} has no {name} any more, which scale.py wants to replace")
            text += f"\n{other.format(name)}\n"
        module.write_text(text, encoding="utf-8")
    return to


def night(copy: Path, root: Path, *words: str) -> measure.Watched:
    """Run a command of the copy in a user's repository."""
    env = {**measure.with_path(), "PYTHONPATH": str(copy), "OPENBLAS_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
    return measure.watch([sys.executable, "-m", "agent", *words], env=env, cwd=root, limit_s=3600)


def slept(folder: Path) -> list[Slept]:
    """Return the runs of edits in a night's folder, by their beginnings."""
    files = (file for file in folder.glob("runs/*/seed*/out/summary.json") if file.parts[-4] != "0000")
    return sorted(
        (Slept(*json.loads(file.read_text(encoding="utf-8"))["slept"]) for file in files), key=lambda run: run.began
    )


def jobs_an_hour(runs: Sequence[Slept], workers: int, run_s: float) -> float:
    """Return the runs that sleep in an hour, from when all workers have been given work.

    At its end a night holds ideas back for merges, and its last workers rest: as many runs as there are workers, the
    last ones, do not count.
    """
    if len(runs) < workers or (since := runs[workers - 1].began) >= (until := runs[-workers].began):
        raise measure.Failed(f"{len(runs)} runs of {workers} workers are too few to tell: give more --run-s")
    asleep_s = sum(max(0.0, min(run.ended, until) - max(run.began, since)) for run in runs)
    return 3600 * asleep_s / run_s / (until - since)


@measure.program(workers=(1, 4), run_s=1.0)
def main(
    *, folder: Folder, workers: Sequence[Count] = (1, 2, 4, 8, 16, 64), run_s: Seconds = 10.0, ray: bool = False
) -> measure.Flat:
    """Run nights of each number of workers.

    Args:
        workers: how many
        run_s: seconds that a run sleeps
        ray: on a Ray cluster of this machine
    """
    os.environ["NIGHTSHIFT_DATA"] = str(measure.make_corpus(folder))
    copy = sleeping_copy(folder / "copy", max(workers))
    prefix, pool = ("ray_", ["--pool", "ray"]) if ray else ("", [])
    flat: measure.Flat = {}
    for count in workers:
        measure.say(f"workers: {count}, runs of {run_s:g} s")
        root = make_repository(folder / f"{count}", SCRIPT)
        limits = [
            "--experiments",
            str(count * ROUNDS),
            "--budget-s",
            f"{run_s:g}",
            "--confirmation-runs",
            "0",
            "--no-report",
        ]
        parallel = ["--workers", str(count), "--cores-each", "1", *pool]
        more = ["--proposer", "search", "--sandbox", "off", "--tag", TAG]
        night(copy, root, "run", *limits, *parallel, *more)
        runs = slept(root / "experiments" / "nights" / TAG)
        flat[f"{prefix}jobs_hour_{count}"] = jobs_an_hour(runs, count, run_s)
    for count in workers[1:] if workers[0] == 1 else ():
        alone, together = flat[f"{prefix}jobs_hour_1"], flat[f"{prefix}jobs_hour_{count}"]
        flat[f"{prefix}efficiency_{count}"] = measure.ratio(measure.ratio(together, alone), count)
    return flat


if __name__ == "__main__":
    raise SystemExit(main())
