"""What the search finds in a night: real nights of short experiments, beside random dials and beside doing nothing.

    python benchmarks/search.py --work DIR [--at-once 6] [--cores-each 2] [--json FILE]
    python benchmarks/search.py --work DIR --report
    python benchmarks/search.py --quick

Every night is a repository of its own under --work with the project's script in it, and goes through the whole
harness: commits, the box, the trusted score, the audit, the judge. What proposes is all that differs:

    search     agent/proposers/search/search.py, the default of `nightshift run`
    random     one to three dials at a time, uniformly from their whole ranges (log-uniformly where they say log)
    nothing    no edit at all: what it gains is luck, and shows how far the figures can be trusted

After a night its champion and attempt 0 are trained again, alternating, each with --dawn-runs seeds that nothing was
chosen by: their mean difference is the honest gain, in bits per byte of the validation text and of the holdout.
Recorded is what the night believed by the scores that it chose by. Intervals are 95 %, by Student's t: of a night from
its runs at dawn (Welch); of an arm from the runs of all its nights, so they speak of these nights; of search over
random from the nights themselves, which also differ by what was drawn.

Each night is pinned to cores of its own. The program may be killed at any time: the same --work goes on where it was.

Flat keys of --json, for each ARM: ARM_gain, ARM_gain_low, ARM_gain_high (validation), ARM_holdout_gain,
ARM_recorded_gain, ARM_attempts, ARM_runs, ARM_keeps, ARM_crashes; search_over_random with _low and _high; nights,
budget_s, attempts, dawn_runs, device, judge.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import measure
from gains import FRESH, Fresh, Mean, between, gain, over, pooled, put, show

from agent.errors import Exhausted
from agent.experiment import Attempt, Briefing, Ending, Night, Progress, Proposal, Proposer, Status, incumbent
from agent.files import write_plain
from agent.judging.judge import choose_judge
from agent.night.driver import run_night
from agent.night.lab import Lab
from agent.night.limits import Limits
from agent.night.lock import only_night
from agent.night.opening import Request, open_night
from agent.night.stop import Stop, like_ctrl_c
from agent.proposers.search.search import Search
from agent.records.journal import Journal
from agent.records.place import Place
from agent.runs.score import FIRST_LIMIT_S, score
from agent.runs.train import FIRST_ALLOWANCE_S, train
from agent.runs.workshop import Workshop
from agent.sandbox.box import Mode, choose
from agent.sandbox.limits import caps_of_machine
from agent.script.contract import fixed_files
from agent.script.dials import Choices, Dial, Interval, Value, normalised, searched, set_dials

ARMS = ("search", "random", "nothing")
SEEDS_APART = 100  # between the first seeds of two nights
TOY = measure.ROOT / "tests" / "scripts" / "unigram.py"  # what --quick trains


# ---- who proposes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Random:
    """One to three dials of the incumbent, drawn from their whole ranges."""

    device_kind: str
    seed: str

    def propose(self, briefing: Briefing) -> Proposal:
        rng = random.Random(f"{self.seed} {len(briefing.history)}")
        script = briefing.parent.proposal.script
        dials = searched(script, self.device_kind)
        tried = {normalised(attempt.proposal.script) for attempt in briefing.history}
        for _ in range(1000):
            turned = {dial.name: anywhere(dial, rng) for dial in rng.sample(dials, min(len(dials), rng.randint(1, 3)))}
            candidate = set_dials(script, self.device_kind, turned)
            if normalised(candidate) not in tried:
                return Proposal(candidate, ", ".join(turned), "Drawn from the whole ranges.", "random")
        raise Exhausted("random finds no untried setting")


def anywhere(dial: Dial, rng: random.Random) -> Value:
    match dial.span:
        case Choices(values):
            return rng.choice(values)
        case Interval(low, high, whole=True):
            return rng.randint(int(low), int(high))
        case Interval(low, high, log=True):
            return low * (high / low) ** rng.random()
        case Interval(low, high):
            return rng.uniform(low, high)
    raise ValueError(f"{dial.name} has no range")


class Nothing:
    def propose(self, briefing: Briefing) -> Proposal:
        raise Exhausted("nothing is proposed")


def proposer(arm: str, night: Night) -> Proposer:
    seed = f"{night.tag} {night.seed}"
    if arm == "search":
        return Search(night.device_kind, seed)
    return Random(night.device_kind, seed) if arm == "random" else Nothing()


# ---- one night, in a process of its own ------------------------------------------------------------------------------


class Unseen:
    """Watches a night that nobody looks at."""

    def asking_began(self, number: int) -> None: ...
    def attempt_began(self, attempt: Attempt) -> None: ...
    def dry_run_began(self, attempt: Attempt) -> None: ...
    def run_began(self, attempt: Attempt, seed: int) -> None: ...
    def progressed(self, progress: Progress | None, elapsed_s: float) -> None: ...
    def scoring_began(self, attempt: Attempt) -> None: ...
    def audit_began(self, attempt: Attempt) -> None: ...

    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None:
        score = "no score" if attempt.val_bpb is None else f"{attempt.val_bpb:.4f}"
        measure.say(f"{time.strftime('%H:%M:%S')} {attempt.number} {attempt.status} {score} {attempt.proposal.title}")

    def said(self, sentence: str) -> None:
        measure.say(sentence)


def live_through(args: argparse.Namespace, name: str) -> int:
    """A night and its dawn; what is there already is not done again."""
    if args.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, args.cores)
    arm, _, number = name.partition("-")
    place = make_repository(args.work / name, TOY if args.quick else measure.SCRIPT)
    with open_lab(place, arm, SEEDS_APART * int(number), args) as lab:
        run_night(lab)
        if not lab.stop.after_run:
            confirm(lab, args.work / f"{name}.dawn.json", args.dawn_runs)
        return 130 if lab.stop.after_run else 0


def make_repository(root: Path, script: Path) -> Place:
    if not (root / ".git" / "refs" / "heads" / "main").exists():
        source = script.read_text()
        for name in fixed_files(measure.ROOT, source):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes((measure.ROOT / name).read_bytes())
        (root / measure.SCRIPT.name).write_text(source)
        who = ("-c", "user.name=nightshift", "-c", "user.email=nightshift@localhost")
        for command in (("init", "-q", "-b", "main"), ("add", "."), (*who, "commit", "-q", "-m", "start")):
            subprocess.run(["git", *command], cwd=root, check=True)
    return Place.of(root / measure.SCRIPT.name)


@contextmanager
def open_lab(place: Place, arm: str, seed: int, args: argparse.Namespace) -> Iterator[Lab]:
    watcher, box, caps = Unseen(), choose(Mode.AUTO), caps_of_machine()
    with only_night(
        place.repo.common_dir()
    ) as tell:  # a call of this program that was killed may have left one running
        night = open_night(place, Request(arm, args.budget_s, seed))
        tell(night.tag, place.folder(arm))
        stop = Stop(place.folder(arm))
        stop.forget()
        shop = Workshop(night, place.folder(arm), box, caps, None, lambda: stop.now, watcher.progressed)
        with Journal.resume(place.journal(arm)) as journal, stop.on_signals():
            yield Lab(
                place=place,
                journal=journal,
                shop=shop,
                proposer=proposer(arm, night),
                judge=choose_judge(args.judge),
                watcher=watcher,
                stop=stop,
                limits=Limits(args.attempts, args.minutes / 60 if args.minutes else None, dawn_runs=0),
                plausible_gain=1.0,  # a leap in twenty seconds of training is no sign of a cheat
            )


def confirm(lab: Lab, path: Path, runs: int) -> None:
    """Attempt 0 and the champion with fresh seeds, by turns, so that a machine that slows down is unfair to neither."""
    history = lab.journal.attempts()
    champion = incumbent(history)
    assert champion is not None
    known = read_dawn(path)
    for turn in range(runs):
        pair = [("baseline", history[0]), ("champion", champion)]
        for who, attempt in pair if turn % 2 else reversed(pair):
            seed = FRESH[who] + lab.shop.night.seed + turn
            if (who, seed) in {(run.who, run.seed) for run in known}:
                continue
            run = fresh_run(lab.shop, attempt, who, seed)
            if lab.stop.after_run:
                return
            known.append(run)
            write_plain(path, json.dumps([asdict(run) for run in known], indent=1))


def fresh_run(shop: Workshop, attempt: Attempt, who: str, seed: int) -> Fresh:
    script, number = attempt.proposal.script, attempt.number
    if train(shop, number, script, seed, FIRST_ALLOWANCE_S).ending is not Ending.FINISHED:
        return Fresh(who, seed, None, None)
    validation, holdout = (
        found.val_bpb if (found := score(shop, number, script, seed, FIRST_LIMIT_S, split)) else None
        for split in ("validation", "holdout")
    )
    shop.drop_weights(number, seed)
    measure.say(f"{time.strftime('%H:%M:%S')} dawn: {who} {number}, seed {seed}: {validation} {holdout}")
    return Fresh(who, seed, validation, holdout)


def read_dawn(path: Path) -> list[Fresh]:
    return [Fresh(**run) for run in json.loads(path.read_text())] if path.exists() else []


# ---- several nights at once ------------------------------------------------------------------------------------------


def run_nights(args: argparse.Namespace) -> None:
    """As many at once as asked for, each on its own cores; raises Failed after the others when one of them failed."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if args.at_once * args.cores_each > len(cores):
        raise measure.Misuse(f"--at-once {args.at_once} nights of {args.cores_each} cores want more than {len(cores)}")
    free = [cores[i * args.cores_each : (i + 1) * args.cores_each] for i in range(args.at_once)]
    waiting, failed = list(names(args)), []
    running: dict[str, tuple[subprocess.Popen[bytes], list[int]]] = {}
    try:
        while waiting or running:
            while waiting and free:
                own = free.pop(0)
                name = waiting.pop(0)
                running[name] = (start(args, name, own), own)
            time.sleep(0.2)
            for name, (process, own) in list(running.items()):
                if process.poll() is not None:
                    free.append(own)
                    del running[name]
                    failed += [name] if process.returncode else []
                    measure.say(f"{name} is over ({len(running) + len(waiting)} to go)")
    finally:
        for process, _ in running.values():
            for _ in range(2):  # the second wish ends the run, too
                process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
        for process, _ in running.values():
            process.wait()
    if failed:
        raise measure.Failed(f"{', '.join(failed)} failed; see {args.work / failed[0]}.log")


def start(args: argparse.Namespace, name: str, cores: Sequence[int]) -> subprocess.Popen[bytes]:
    threads = str(len(cores))
    env = {**measure.with_path(), "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    own = ["--night", name, "--cores", ",".join(map(str, cores)), "--work", str(args.work), "--judge", args.judge]
    words = ("budget-s", "attempts", "dawn-runs", *(["minutes"] if args.minutes else []))
    options = [f"--{word}={getattr(args, word.replace('-', '_'))}" for word in words]
    command = [sys.executable, __file__, *own, *options, *(["--quick"] if args.quick else [])]
    with (args.work / f"{name}.log").open("a") as log:
        return subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def names(args: argparse.Namespace) -> Iterator[str]:
    """The long nights first; the nothings fit in where a place gets free."""
    for arm in args.arms:
        yield from (f"{arm}-{number}" for number in range(args.nights))


# ---- what came of it -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """A night and its dawn."""

    name: str
    history: Sequence[Attempt]
    device: str
    validation: Mean | None
    holdout: Mean | None

    @property
    def recorded(self) -> float | None:
        best, first = incumbent(self.history), self.history[0].val_bpb
        return first - best.val_bpb if best and first is not None and best.val_bpb is not None else None

    def count(self, status: Status) -> int:
        return sum(attempt.status is status for attempt in self.history[1:])


def read_outcome(work: Path, name: str) -> Outcome | None:
    place = work / name
    arm = name.partition("-")[0]
    journal_path = place / "experiments" / "nights" / arm / "journal.sqlite"
    if not journal_path.exists():
        return None
    with Journal.read(journal_path) as journal:
        history, device = journal.attempts(), journal.night().device
    dawn = read_dawn(work / f"{name}.dawn.json")
    return Outcome(name, history, device, gain(dawn, "validation_bpb"), gain(dawn, "holdout_bpb"))


def flatten(args: argparse.Namespace, outcomes: Sequence[Outcome]) -> measure.Flat:
    flat: measure.Flat = {
        "nights": args.nights, "budget_s": args.budget_s, "attempts": args.attempts, "dawn_runs": args.dawn_runs,
        "judge": args.judge, "device": outcomes[0].device if outcomes else None,
    }  # fmt: skip
    found = {arm: [one for one in outcomes if one.name.startswith(arm)] for arm in ARMS}
    for arm, nights in found.items():
        put(flat, f"{arm}_gain", pooled(known(nights)))
        holdout = [one.holdout for one in nights if one.holdout]
        flat[f"{arm}_holdout_gain"] = statistics.fmean(one.value for one in holdout) if holdout else None
        recorded = [one.recorded for one in nights if one.recorded is not None]
        flat[f"{arm}_recorded_gain"] = statistics.fmean(recorded) if recorded else None
        flat[f"{arm}_attempts"] = sum(len(one.history) - 1 for one in nights)
        flat[f"{arm}_runs"] = sum(len(attempt.done_runs) for one in nights for attempt in one.history)
        flat[f"{arm}_keeps"] = sum(one.count(Status.KEEP) for one in nights)
        flat[f"{arm}_crashes"] = sum(one.count(Status.CRASH) for one in nights)
    put(flat, "search_over_random", over(known(found["search"]), known(found["random"])))
    return flat


def known(nights: Sequence[Outcome]) -> list[Mean]:
    return [one.validation for one in nights if one.validation]


def print_results(args: argparse.Namespace, outcomes: Sequence[Outcome], flat: measure.Flat) -> None:
    rows = []
    for one in outcomes:
        runs = sum(len(attempt.done_runs) for attempt in one.history)
        counts = [str(len(one.history) - 1), str(runs), str(one.count(Status.KEEP)), str(one.count(Status.CRASH))]
        first = measure.show(one.history[0].val_bpb if one.history else None, ".4f")
        rows.append(
            [one.name, *counts, first, measure.show(one.recorded, ".4f"), show(one.validation), show(one.holdout)]
        )
    columns = (
        "night",
        "attempts",
        "runs",
        "keeps",
        "crashes",
        "attempt 0",
        "recorded",
        "gain at dawn",
        "on the holdout",
    )
    title = f"{flat['device']}, experiments of {args.budget_s:g} s, judge {args.judge}, gains in bpb"
    measure.print_table(title, columns, rows)
    rows = [[f"{arm}, {args.nights} nights", between(flat, f"{arm}_gain")] for arm in args.arms]
    rows.append(["search over random, nights being the sample", between(flat, "search_over_random")])
    measure.print_table("Honest gain, validation, bpb", ("", "mean [95 %]"), rows)


# ---- the command line ------------------------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, metavar="DIR", help="the nights live here, and go on from here")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, help="what proposes (default: all)")
    parser.add_argument("--nights", type=int, help="of each arm (default: 3; quick: 1)")
    parser.add_argument("--attempts", type=int, help="of each night, beyond attempt 0 (default: 40; quick: 2)")
    parser.add_argument("--minutes", type=float, help="of each night before its dawn, at most (default: no limit)")
    parser.add_argument("--budget-s", type=float, help="of each experiment (default: 20; quick: 0.05)")
    parser.add_argument(
        "--dawn-runs", type=int, help="of the champion, and as many of attempt 0 (default: 6; quick: 1)"
    )
    parser.add_argument("--judge", choices=("balanced", "greedy", "strict"), default="balanced")
    parser.add_argument("--at-once", type=int, default=1, help="nights (default: %(default)s)")
    parser.add_argument("--cores-each", type=int, default=2, help="of a night (default: %(default)s)")
    parser.add_argument("--report", action="store_true", help="print what is there, run nothing")
    parser.add_argument("--quick", action="store_true", help="under a minute: a toy script, one night of each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    parser.add_argument("--night", help=argparse.SUPPRESS)  # this process is that night
    parser.add_argument("--cores", type=lambda text: [int(core) for core in text.split(",")], help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    defaults = {"nights": (3, 1), "attempts": (40, 2), "budget_s": (20.0, 0.05), "dawn_runs": (6, 1)}
    for name, values in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, values[args.quick])
    if min(args.nights, args.attempts, args.budget_s, args.dawn_runs, args.at_once, args.cores_each) <= 0:
        parser.error("--nights, --attempts, --budget-s, --dawn-runs, --at-once and --cores-each must be above zero")
    if args.work is None and (args.report or not args.quick):
        parser.error("--work DIR is missing: the folder where the nights live")
    return args


def run(args: argparse.Namespace) -> int:
    measure.check_writable(args.json)
    with measure.workshop(args.work) as args.work:
        if not args.report:
            with like_ctrl_c():
                run_nights(args)
        outcomes = [found for name in names(args) if (found := read_outcome(args.work, name))]
        flat = flatten(args, outcomes)
        print_results(args, outcomes, flat)
        measure.write_json(args.json, flat)
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    if args.night:
        return measure.guarded("search", lambda: live_through(args, args.night))
    return measure.guarded("search", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
