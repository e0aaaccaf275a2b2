"""What nightshift's care costs: the box, the score from outside and the audit, beside the five minutes they guard.

    python benchmarks/night_cost.py [--runs 3] [--train-s 60] [--quick] [--json FILE]

Trains the project's own script in the box and out of it, alternating, with the same seed and budget, and compares their
tokens a second after the first steps; then scores and audits the weights in the box, as a night does. `lay out` is
everything around a training process that is not the process: its folder, its copy of the kernels' cache, its limits.

The share is of an experiment of --experiment-s seconds: (slower training + lay out + score) for every experiment, and
the audit on top of it for one that is to be kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import measure

from agent.experiment import Ending, Night
from agent.night.opening import Request, open_night
from agent.records.place import Place
from agent.runs.runner import Runner
from agent.runs.score import FIRST_LIMIT_S, audit, score
from agent.runs.train import FIRST_ALLOWANCE_S, train
from agent.sandbox.box import Box, Mode, Open, choose
from agent.sandbox.watch import limits_of_machine
from agent.script.contract import fixed_files


@dataclass(frozen=True)
class Sample:
    """One training run, and how it was scored; seconds by the clock of this process."""

    lay_out_s: float
    tokens_s: float
    score_s: float
    audit_s: float
    worst_nats: float


def make_repository(root: Path) -> Place:
    """A user's repository that holds the project's script."""
    source = measure.SCRIPT.read_text()
    for name in (*fixed_files(measure.ROOT, source), measure.SCRIPT.name):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((measure.ROOT / name).read_bytes())
    who = ("-c", "user.name=nightshift", "-c", "user.email=nightshift@localhost")
    for command in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "start")):
        subprocess.run(["git", *command], cwd=root, check=True)
    return Place.of(root / measure.SCRIPT.name)


def runner_of(place: Place, night: Night, box: Box) -> Runner:
    folder = place.folder(night.tag)
    return Runner(night, folder, box, limits_of_machine(), None, lambda: False, lambda point, elapsed_s: None)


def sample(runner: Runner, number: int, script: str) -> Sample:
    """One experiment; raises Failed where a night would have recorded a crash."""
    began = time.monotonic()
    run, _ = train(runner, number, script, seed=0, allowance_s=FIRST_ALLOWANCE_S)
    around_s = time.monotonic() - began - run.wall_s
    if run.ending is not Ending.FINISHED:
        raise measure.Failed(f"training {run.ending}: {run.last_lines}")
    curve = (runner.run_folder(number, 0) / "out" / "metrics.jsonl").read_text().splitlines()
    rows = measure.after_the_first_few([json.loads(line) for line in curve])
    tokens_s = (rows[-1]["tokens"] - rows[0]["tokens"]) / (rows[-1]["t_s"] - rows[0]["t_s"])
    began = time.monotonic()
    found = score(runner, number, script, 0, FIRST_LIMIT_S)
    scored = time.monotonic()
    if found.val_bpb is None:
        raise measure.Failed(f"scoring: {found.failure}")
    verdict = audit(runner, number, script, 0, FIRST_LIMIT_S, incumbent=(0, 0) if number else None)
    if not verdict.passed:
        raise measure.Failed(f"audit: {verdict.failure}")
    return Sample(around_s, tokens_s, scored - began, time.monotonic() - scored, verdict.worst_nats)


def compare(args: argparse.Namespace) -> measure.Flat:
    """Medians over the runs, in the box and out of it."""
    box = choose(Mode.REQUIRE if args.require else Mode.AUTO)
    with measure.work_folder(args.folder) as folder:
        place = make_repository(folder / "repository")
        night = open_night(Request(place, "cost", args.train_s))
        script = place.script_path.read_text()
        runners = {"box": runner_of(place, night, box), "open": runner_of(place, night, Open("compared with"))}
        sample(runners["box"], 0, script)  # attempt 0 compiles what is missing, for all that follow
        found: dict[str, list[Sample]] = {"box": [], "open": []}
        for turn in range(1, args.runs + 1):
            for name in ("box", "open") if turn % 2 else ("open", "box"):
                measure.say(f"run {turn} of {args.runs}: {name}")
                found[name].append(sample(runners[name], 2 * turn + (name == "box"), script))
    return flatten(args, night, box, found)


def flatten(args: argparse.Namespace, night: Night, box: Box, found: dict[str, list[Sample]]) -> measure.Flat:
    def middle(name: str, field: str) -> float:
        return statistics.median(getattr(one, field) for one in found[name])

    slower = statistics.median(
        without.tokens_s / boxed.tokens_s - 1 for boxed, without in zip(found["box"], found["open"], strict=True)
    )
    each_s = args.experiment_s * max(0.0, slower) + middle("box", "lay_out_s") + middle("box", "score_s")
    kept_s = each_s + middle("box", "audit_s")
    return {
        "device": night.device, "box": box.name, "runs": args.runs, "experiment_s": args.experiment_s,
        "box_tokens_s": middle("box", "tokens_s"), "open_tokens_s": middle("open", "tokens_s"),
        "training_slower": slower, "lay_out_s": middle("box", "lay_out_s"),
        "score_s": middle("box", "score_s"), "audit_s": middle("box", "audit_s"),
        "open_score_s": middle("open", "score_s"), "open_audit_s": middle("open", "audit_s"),
        "worst_nats": max(one.worst_nats for samples in found.values() for one in samples),
        "share_of_each": each_s / args.experiment_s, "share_of_kept": kept_s / args.experiment_s,
    }  # fmt: skip


def print_results(flat: measure.Flat) -> None:
    def row(name: str, boxed: str, without: str, form: str) -> list[str]:
        return [name, measure.show(flat[boxed], form), measure.show(flat.get(without), form)]

    rows = [
        row("training, tokens/s", "box_tokens_s", "open_tokens_s", ",.0f"),
        row("slower in the box (median of pairs)", "training_slower", "", "+.2%"),
        row("lay out, s", "lay_out_s", "", ".2f"),
        row("score, s", "score_s", "open_score_s", ".2f"),
        row("audit, s", "audit_s", "open_audit_s", ".2f"),
        row("largest honest difference, nats", "worst_nats", "", ".2g"),
        row("share of each experiment", "share_of_each", "", ".2%"),
        row("share of one that is kept", "share_of_kept", "", ".2%"),
    ]
    title = f"{flat['device']}, {flat['box']}, {flat['runs']} runs, an experiment of {flat['experiment_s']:g} s"
    measure.print_table(title, ("", "in the box", "without"), rows)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help="in the box and out of it (default: 3; quick: 1)")
    parser.add_argument("--train-s", type=float, help="budget of each run (default: 60; quick: 5, a first look)")
    parser.add_argument("--experiment-s", type=float, default=300.0, help="that the shares are of (default: 300)")
    parser.add_argument("--require", action="store_true", help="fail where bubblewrap or Seatbelt cannot be used")
    parser.add_argument("--quick", action="store_true", help="under a minute on a CPU")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="work here, and keep it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    args = parser.parse_args(argv)
    args.runs = args.runs or (1 if args.quick else 3)
    args.train_s = args.train_s or (5.0 if args.quick else 60.0)
    if args.runs < 1 or args.train_s <= 0 or args.experiment_s <= 0:
        parser.error("--runs, --train-s and --experiment-s must be above zero")
    return args


def run(args: argparse.Namespace) -> int:
    measure.check_writable(args.json)
    flat = compare(args)
    print_results(flat)
    measure.write_json(args.json, flat)
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("night_cost", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
