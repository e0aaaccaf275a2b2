"""What nightshift's care costs: the sandbox, the score from outside and the audit, beside the five minutes they guard.

    python benchmarks/night_cost.py [--runs 3] [--train-s 60] [--quick] [--json FILE]

Trains the project's own script in the sandbox and out of it, alternating, with the same seed and budget, and compares
their tokens a second after the first steps; then scores and audits the weights in the sandbox, as a night does.
`lay_out_s` is everything around a training process that is not the process: its folder, its copy of the kernels' cache,
its limits.

Flat keys of --json, medians over the runs: sandbox_ and open_ before tokens_s, lay_out_s, score_s and audit_s;
training_slower, the median of the pairs; worst_nats, the largest difference of an honest audit; share_of_each and
share_of_kept, of an experiment of 300 s: (slower training + lay out + score), and the audit on top of it for one that
is to be kept; device, sandbox.
"""

import json
import statistics
import time

import measure
from measure import Count, Folder, Seconds
from nights import make_repository

from agent.experiment import Ending, Options
from agent.night.opening import Request, open_night
from agent.records.place import Place
from agent.runs.jobs import AuditRun, Measure
from agent.runs.runner import Runner
from agent.runs.score import FIRST_LIMIT_S, audit, score
from agent.runs.train import FIRST_ALLOWANCE_S, train
from agent.sandbox.sandboxes import Open, choose
from agent.sandbox.supervisor import limits_of_machine

EXPERIMENT_S = 300.0


def sample(runner: Runner, number: int, script: str) -> dict[str, float]:
    """Make one experiment, and return its seconds by the clock of this process, and its tokens a second.

    Raise Failed where a night would have recorded a crash.
    """
    began = time.monotonic()
    job = Measure(attempt=number, script=script, seed=0, allowance_s=FIRST_ALLOWANCE_S)
    run, _ = train(runner, job)
    trained = time.monotonic()
    if run.ending is not Ending.FINISHED:
        raise measure.Failed(f"training {run.ending}: {run.last_lines}")
    curve = (runner.run_folder(number, 0) / "out" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = measure.after_the_first_few([json.loads(line) for line in curve])
    if len(rows) < 2:
        raise measure.Failed(f"steps of its curve: {len(curve)}, too few to tell the speed: give more --train-s")
    began_score = time.monotonic()
    scored = score(runner, job, FIRST_LIMIT_S)
    began_audit = time.monotonic()
    if scored.val_bpb is None:
        raise measure.Failed(f"scoring: {scored.failure}")
    reference = (0, 0) if number else None
    job_of_audit = AuditRun(attempt=number, script=script, seed=0, limit_s=FIRST_LIMIT_S, reference=reference)
    verdict = audit(runner, job_of_audit)
    if not verdict.passed:
        raise measure.Failed(f"audit: {verdict.failure}")
    return {
        "lay_out_s": trained - began - run.wall_s,
        "tokens_s": (rows[-1]["tokens"] - rows[0]["tokens"]) / (rows[-1]["t_s"] - rows[0]["t_s"]),
        "score_s": began_audit - began_score,
        "audit_s": time.monotonic() - began_audit,
        "worst_nats": verdict.worst_nats,
    }


@measure.program(runs=1, train_s=5.0)
def main(*, folder: Folder, runs: Count = 3, train_s: Seconds = 60.0) -> measure.Flat:
    """Run the script in the sandbox and out of it, in turns.

    Args:
        runs: in the sandbox, and as many out of it
        train_s: seconds of training of each
    """
    sandbox = choose("auto")
    place = Place.of(make_repository(folder / "user", measure.SCRIPT.read_text(encoding="utf-8")) / measure.SCRIPT.name)
    script = place.script_path.read_text(encoding="utf-8")
    night = open_night(Request(place, "cost", train_s), None, Options(), None)
    runners = {
        name: Runner(night, place.folder(night.tag), each, limits_of_machine(), lambda: False, lambda *_: None)
        for name, each in (("sandbox", sandbox), ("open", Open("compared with")))
    }
    sample(runners["sandbox"], 0, script)  # attempt 0 compiles what is missing, for all that follow
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in runners}
    for turn in range(1, runs + 1):
        for name in ("sandbox", "open") if turn % 2 else ("open", "sandbox"):
            measure.say(f"run {turn} of {runs}: {name}")
            samples[name].append(sample(runners[name], 2 * turn + (name == "sandbox"), script))
    return {"device": night.device, "sandbox": sandbox.name, **costs(samples)}


def costs(samples: dict[str, list[dict[str, float]]]) -> measure.Flat:
    flat = {
        f"{name}_{key}": statistics.median(run[key] for run in runs)
        for name, runs in samples.items()
        for key in ("tokens_s", "lay_out_s", "score_s", "audit_s")
    }
    pairs = zip(samples["sandbox"], samples["open"], strict=True)
    flat["training_slower"] = statistics.median(out["tokens_s"] / sandboxed["tokens_s"] - 1 for sandboxed, out in pairs)
    flat["worst_nats"] = max(run["worst_nats"] for runs in samples.values() for run in runs)
    each_s = EXPERIMENT_S * max(0.0, flat["training_slower"]) + flat["sandbox_lay_out_s"] + flat["sandbox_score_s"]
    flat["share_of_each"] = each_s / EXPERIMENT_S
    flat["share_of_kept"] = (each_s + flat["sandbox_audit_s"]) / EXPERIMENT_S
    return {**flat}


if __name__ == "__main__":
    raise SystemExit(main())
