"""What real nights find, by the proposer: the mix, the search, the catalogue, a model.

    python benchmarks/real_nights.py --folder DIR --at-once 4 --budget-s 40 --minutes 13 --arms mix=2 search=2
    python benchmarks/real_nights.py --folder DIR --arms model search catalogue --experiments 20 \\
                                     --model "--llm openai:gpt-5 --price 1.25,10 --max-cost 5"
    python benchmarks/real_nights.py --report --folder experiments/shipped --name nov22-cpu
    python benchmarks/real_nights.py --quick

Every night is the real command line in a clone of this tree: commits, sandbox, scorer, audit, judge, and at its end a
the confirmation with fresh seeds, four of attempt 0 and four of the best script by default. What proposes is all that
differs:

    mix        the default proposers, without a language model
    search     one to many dials, by the built-in search
    catalogue  the known ideas of agent/ideas/
    model      a language model or a coding agent; --model has the words of `nightshift run` that say which one

The n-th nights of all arms have the same seeds. A night sees no record of other nights, so nights are independent.
Recorded is the gain by the scores that the night chose by, honest the gain on the confirmation's seeds; the interval
over nights is Student's. A night that keeps nothing has an honest gain of zero. The corpus is the one that is prepared
($NIGHTSHIFT_DATA). What a model takes to answer comes on top of the others' time where --experiments are equal; where
it has no idea, the search steps in: its attempts in the arm say how often.

Nights that run at once divide the machine as workers of a night do: a GPU each, or equal shares of the cores; taskset
and CUDA_VISIBLE_DEVICES narrow what there is. SIGTERM or Ctrl-C ends the nights, and the exit code is 130. A night that
was begun is not begun again. DIR/work has clones and logs; --report sums up the journals there, or the records that lie
in DIR, as `nightshift export record` writes them.

Flat keys of --json, for each ARM: ARM_nights, ARM_crashes, ARM_attempts, ARM_kept; ARM_recorded, ARM_honest,
ARM_holdout and ARM_over_search, each also with _low and _high; for each PROPOSER of its ideas ARM_PROPOSER_ before
attempts, kept, gain_bpb, hours, calls, failures, tokens_in, tokens_out, usd; device, device_kind, protocol, budget_s.
"""

import itertools
import math
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import measure
from measure import Count, Folder, Quick, Seconds

from agent.errors import NightError
from agent.findings import Interval
from agent.pools.device_slots import slots_of_machine
from agent.records.journal import Journal
from agent.records.record import Record, of_journal
from agent.records.shipped import FACTS, of_folder
from agent.records.summary import summary_of
from agent.sandbox.environment import slot_env
from agent.work import DeviceSlot

ARM = re.compile(r"(mix|search|catalogue|model)(=[1-9]\d*)?")
TAG = re.compile(r"-([a-z]+)-(\d+)$")  # arm and number, at its end
TOY = measure.ROOT / "tests" / "scripts" / "unigram.py"  # --quick trains this instead of train_mlx.py
NEEDED = ("agent", "tests/scripts")  # folders of the tree that are copied; and the kinds of files
TEXTS = (".md", ".py", ".toml", ".tsv")
SEEDS_APART = 100  # distance between the seeds of two nights of an arm
POLL_S, GRACE_S = 0.2, 20.0  # GRACE_S: from the wish to end a night to the end of its process
WHO = ("-c", "user.name=nightshift", "-c", "user.email=nightshift@localhost")
OF_A_PROPOSER = ("attempts", "kept", "gain_bpb", "hours", "calls", "failures", "tokens_in", "tokens_out", "usd")


# ---- running them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """One night that is to be run."""

    clone: Path  # named by its tag
    proposer: tuple[str, ...]  # words of `nightshift run`
    seed: int

    @property
    def log(self) -> Path:
        return self.clone.with_suffix(".log")

    def command(self, shared: Sequence[str]) -> list[str]:
        named = ("--tag", self.clone.name, "--seed", str(self.seed))
        return [sys.executable, "-m", "agent", "run", *named, *shared, "--proposer", *self.proposer]


def planned(arms: Sequence[str], model: str, name: str, folder: Path) -> list[Planned]:
    """Return the nights, the first of each arm first: a cut then leaves as many of each."""
    if other := [word for word in arms if not ARM.fullmatch(word)]:
        raise measure.Misuse(f"--arms {other[0]}: write mix, search, catalogue or model, or as in mix=3")
    if any(word.startswith("model") for word in arms) != bool(model):
        raise measure.Misuse("--arms model and --model WORDS belong together: give both, or neither")
    counts = {arm: int(count or 1) for arm, _, count in (word.partition("=") for word in arms)}
    words = ("llm" if "--llm" in model else "command", *shlex.split(model))
    return [
        Planned(folder / "work" / f"{name}-{arm}-{number}", words if arm == "model" else (arm,), SEEDS_APART * number)
        for number in range(max(counts.values()))
        for arm, count in counts.items()
        if number < count
    ]


def make_clone(clone: Path, script: Path) -> None:
    """Make a repository of the tree as it stands, in which the night runs."""
    for part in NEEDED:
        shutil.copytree(measure.ROOT / part, clone / part, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for path in measure.ROOT.iterdir():
        if path.is_file() and path.suffix in TEXTS:
            shutil.copy(path, clone)
    shutil.copy(script, clone / measure.SCRIPT.name)
    for words in (("init", "-q", "-b", "main"), ("add", "--force", "."), ("commit", "-q", "-m", "the measured tree")):
        subprocess.run(["git", *WHO, *words], cwd=clone, check=True)


def start(night: Planned, command: Sequence[str], slot: DeviceSlot, data: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, **slot_env(slot), "NIGHTSHIFT_DATA": data, "PYTHONUNBUFFERED": "1"}
    measure.say(f"{time.strftime('%H:%M:%S')} {night.clone.name} on {slot.worker}")
    with night.log.open("wb") as log:
        return subprocess.Popen(
            command, cwd=night.clone, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=lambda: os.sched_setaffinity(0, slot.cores or os.sched_getaffinity(0)),
        )  # fmt: skip


def live(
    nights: Sequence[Planned], shared: Sequence[str], script: Path, slots: Sequence[DeviceSlot], data: str
) -> None:
    """Run the nights that were not begun; raise Failed where one fails."""
    waiting = [night for night in nights if not night.clone.exists()]
    free, running, failed = [*slots], dict[Planned, tuple[subprocess.Popen[bytes], DeviceSlot]](), list[Planned]()
    try:
        while waiting or running:
            while waiting and free:
                night, slot = waiting.pop(0), free.pop(0)
                make_clone(night.clone, script)
                running[night] = start(night, night.command(shared), slot, data), slot
            time.sleep(POLL_S)
            for night, (process, slot) in list(running.items()):
                if (code := process.poll()) is not None:
                    del running[night]
                    free.append(slot)
                    failed += [night] if code else []
                    measure.say(f"{time.strftime('%H:%M:%S')} {night.clone.name} ended with exit code {code}")
    finally:
        end([process for process, _ in running.values()])
    if failed:
        raise measure.Failed("failed, as these say: " + ", ".join(str(night.log) for night in failed))


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End nights now."""
    for _ in range(2 if processes else 0):  # the first wish would let the run end
        for process in processes:
            process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
        process.kill()
        process.wait()


# ---- what came of them -----------------------------------------------------------------------------------------------


def read_all(folder: Path, name: str) -> dict[str, list[Record]]:
    """Return the nights that have a result, by arm: those whose journals lie in folder/work, else shipped ones.

    name: how their tags begin. Raise NightError for nights of two kinds, which do not compare.
    """
    records: list[Record] = []
    for path in folder.glob("work/*/experiments/nights/*/journal.sqlite"):
        with Journal.read(path) as journal:
            records.append(of_journal(journal))
    if not records:
        records = [of_folder(path.parent) for path in folder.glob(f"*/{FACTS}")]
    nights: dict[str, list[Record]] = {}
    kinds = set()
    for record in sorted(records, key=lambda record: record.tag):
        if record.tag.startswith(name) and (match := TAG.search(record.tag)) and record.attempts[0].decision:
            nights.setdefault(match[1], []).append(record)
            kinds.add(f"{record.device}, protocol {record.protocol}")
    if len(kinds) > 1:
        raise NightError(f"nights of {' and '.join(sorted(kinds))} do not compare: choose some by --name")
    return nights


def confirmed(record: Record, name: str) -> float | None:
    """Return the best script's gain on the confirmation's fresh seeds (honest), or on the holdout.

    It is 0 where nothing is kept, None where the night was cut off before its confirmation could tell.
    """
    if record.best_number == 0:
        return 0.0
    if record.findings is None or record.findings.best != record.best_number:
        return None
    interval: Interval | None = getattr(record.findings, name)
    return None if interval is None else interval.mean_bpb


def over_nights(values: Sequence[float]) -> Interval | None:
    """Return the mean and its 95 % interval by Student's t, the nights being the sample; None without any night.

    Of a single night the interval is unknown: infinite.
    """
    if len(values) < 2:
        return Interval(values[0], -math.inf, math.inf) if values else None
    error = statistics.stdev(values) / math.sqrt(len(values))
    return Interval.by_student(statistics.fmean(values), error, len(values) - 1)


def flatten(nights: Mapping[str, Sequence[Record]]) -> measure.Flat:
    """Return the flat keys; an interval that is not known has no keys."""
    flat: measure.Flat = {}
    gains: dict[str, list[float]] = {}
    for arm, records in nights.items():
        night, summaries = records[0].night, [summary_of(record) for record in records]
        for name in ("honest", "holdout"):
            gains[f"{arm}_{name}"] = [g for record in records if (g := confirmed(record, name)) is not None]
        gains[f"{arm}_recorded"] = [each.gain.mean_bpb if each.gain else 0.0 for each in summaries if each.best]
        flat |= {name: getattr(night, name) for name in ("device", "device_kind", "protocol", "budget_s")}
        flat |= {
            f"{arm}_nights": len(records),
            f"{arm}_attempts": sum(each.ideas for each in summaries),
            f"{arm}_kept": sum(each.kept for each in summaries),
            f"{arm}_crashes": sum(each.crashed for each in summaries),
        }
        shares = [share for each in summaries for share in each.proposers]
        for proposer, name in itertools.product(sorted({share.proposer for share in shares}), OF_A_PROPOSER):
            amounts = [getattr(share, name) for share in shares if share.proposer == proposer]
            flat[f"{arm}_{proposer}_{name}"] = (
                sum(filter(None, amounts)) if any(a is not None for a in amounts) else None
            )
    intervals = {name: over_nights(values) for name, values in gains.items()}
    for arm in nights.keys() - {"search"} if "search" in nights else ():
        # The figure is how much lower the gains of the search are.
        intervals[f"{arm}_over_search"] = Interval.of_scores(gains[f"{arm}_honest"], gains["search_honest"])
    for name, interval in intervals.items():
        flat[name] = None if interval is None else interval.mean_bpb
        if interval is not None and math.isfinite(interval.low_bpb):
            flat |= {f"{name}_low": interval.low_bpb, f"{name}_high": interval.high_bpb}
    return flat


# greedy: a run an attempt
@measure.program(
    arms=("mix", "search"), budget_s=0.05, experiments=2, night_options="--judge greedy --confirmation-runs 4"
)
def main(
    *,
    folder: Folder,
    quick: Quick,
    arms: Sequence[str] = ("mix=2", "search=2"),
    model: str = "",
    at_once: Count = 1,
    budget_s: Seconds = 40.0,
    minutes: Seconds | None = None,
    experiments: Count | None = None,
    name: str = "",
    night_options: str = "--confirmation-runs 8",
    report: bool = False,
) -> measure.Flat:
    """Run nights of every arm, or sum up those that are there.

    Args:
        arms: who proposes, and how many nights of it
        model: words of `nightshift run` for the arm model: --llm … or --command …
        at_once: nights at the same time
        budget_s: seconds of training of each run
        minutes: of each night, its confirmation included
        experiments: of each night
        name: how the nights' tags begin (default: with the date)
        night_options: more words for `nightshift run`
        report: sum up what lies in --folder, and run nothing
    """
    if not report:
        if minutes is None and experiments is None:
            raise measure.Misuse("a night needs an end: give --minutes or --experiments")
        nights = planned(arms, model, name or time.strftime("%b%d").lower(), folder)
        shared = ["--budget-s", f"{budget_s:g}", *shlex.split(night_options)]
        shared += [] if minutes is None else ["--hours", f"{minutes / 60:.6f}"]
        shared += [] if experiments is None else ["--experiments", str(experiments)]
        facts: Mapping[str, Mapping[str, str]] = measure.describe(measure.SCRIPT)
        slots = slots_of_machine(facts["device"]["kind"], at_once, None)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        live(nights, shared, TOY if quick else measure.SCRIPT, slots, facts["corpus"]["folder"])
    return flatten(read_all(folder, name))


if __name__ == "__main__":
    raise SystemExit(main())
