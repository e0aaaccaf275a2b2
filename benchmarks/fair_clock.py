"""Does a run get its budget on a busy CPU: as many steps, and as little noise, beside other programs as alone?

    python benchmarks/fair_clock.py [--seeds 6] [--budget-s 6] [--quick] [--json FILE]

train_mlx.py trains under the harness's clock on rows as long as those of a CPU's default text, each seed alone and
beside one, two and four processes a core that compute without end. What else the machine does is beside all of them.

Flat keys of --json: steps_alone, steps_K (beside K processes a core), medians over the seeds; taken_alone, taken_K: the
share of the processors that others took, as a run's record has it; steps_least and steps_most, the smallest and largest
median over that alone; sigma_alone, sigma_K: the spread of val_bpb over the seeds; sigma_most: the largest over that
alone; invalid: runs that a night would repeat or count as failures.
"""

import statistics
import sys
from pathlib import Path

import measure
from busy import beside
from measure import CORES, SCRIPT, Count, Folder, Seconds

from agent.experiment import Ending, Run
from agent.lab.corpus import Scale
from agent.runs.train import LEAST_ALLOWANCE_S, read_summary, slow
from agent.sandbox.process import supervise

LOADS = {"alone": 0, "1": 1, "2": 2, "4": 4}  # processes for each core
LIKE_TINY = Scale("like-tiny", seq_len=512, vocab_size=4096, eval_tokens=8192)


def train_beside(processes: int, seed: int, budget_s: float, folder: Path, env: dict[str, str]) -> tuple[Run, float]:
    """Train once beside others; return the run and its val_bpb, infinite where it has none."""
    folder.mkdir(parents=True)
    options = ("--budget-s", f"{budget_s:g}", "--seed", f"{seed}", "--out", "out")
    with beside(processes):
        outcome = supervise(
            [sys.executable, str(SCRIPT), *options],
            folder,
            env=env,
            limit_s=budget_s + LEAST_ALLOWANCE_S,
            is_fair=True,
            stopped=lambda: False,
        )
    if outcome.ending is not Ending.FINISHED:
        measure.say(f"seed {seed} beside {processes} processes: {outcome.ending}: {outcome.last_lines}")
    summary, facts = read_summary(folder / "out"), (outcome.exit_code, outcome.wall_s)
    run = Run(seed, outcome.ending, *facts, summary, outcome.last_lines, others_share=outcome.others_share)
    scores = (line.split()[1] for line in outcome.last_lines.splitlines() if line.startswith("val_bpb:"))
    return run, float(next(scores, "inf"))


def figures(runs: dict[str, list[tuple[Run, float]]]) -> measure.Flat:
    speeds = {load: statistics.median(run.steps_s or 0.0 for run, _ in each) for load, each in runs.items()}
    made = {load: [run.summary.num_steps or 0 if run.summary else 0 for run, _ in each] for load, each in runs.items()}
    steps = {load: statistics.median(each) for load, each in made.items()}
    sigmas = {load: statistics.stdev(bpb for _, bpb in each) if len(each) > 1 else None for load, each in runs.items()}
    over_alone = [measure.ratio(steps[load], steps["alone"]) or 0.0 for load in runs if load != "alone"]
    spreads = [measure.ratio(sigmas[load], sigmas["alone"]) for load in runs if load != "alone"]
    every = [run for each in runs.values() for run, _ in each]
    invalid = sum(run.ending is not Ending.FINISHED or slow(run, speeds["alone"]) is not None for run in every)
    flat: measure.Flat = {f"steps_{load}": steps[load] for load in runs}
    flat |= {f"taken_{load}": measure.median(run.others_share for run, _ in each) for load, each in runs.items()}
    flat |= {f"sigma_{load}": sigmas[load] for load in runs}
    flat |= {"steps_least": min(over_alone), "steps_most": max(over_alone)}
    return flat | {"sigma_most": max(filter(None, spreads), default=None), "invalid": invalid}


@measure.program(seeds=1, budget_s=1.0)
def main(*, folder: Folder, seeds: Count = 6, budget_s: Seconds = 6.0) -> measure.Flat:
    """Train alone and beside other programs.

    Args:
        seeds: runs beside each number of processes
        budget_s: seconds that each run is given
    """
    env = measure.fresh_caches(folder / "caches", measure.make_corpus(folder / "corpus", LIKE_TINY))
    train_beside(0, 0, budget_s, folder / "first", env)  # compiles
    runs: dict[str, list[tuple[Run, float]]] = {load: [] for load in LOADS}
    for seed in range(seeds):
        for load, each in runs.items():
            processes = LOADS[load] * CORES
            each.append(train_beside(processes, seed, budget_s, folder / f"{load}-{seed}", env))
            run, bpb = each[-1]
            steps = run.summary.num_steps if run.summary else None
            measure.say(f"seed {seed} beside {processes}: {steps} steps in {run.wall_s:.1f} s, {bpb:.4f}")
    return figures(runs)


if __name__ == "__main__":
    raise SystemExit(main())
