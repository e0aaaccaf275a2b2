"""What real nights find, by the source of their ideas: the built-in mix, the search, random dials, the catalogue.

    python benchmarks/real_nights.py --out DIR --slots gpu:0-7 --budget-s 40 --minutes 13 --arms mix search random
    python benchmarks/real_nights.py --out DIR --slots cores:0-15/4 --budget-s 20 --minutes 13
    python benchmarks/real_nights.py --report DIR
    python benchmarks/real_nights.py --quick

Every night is the real command line in a clone of this tree: commits, sandbox, scorer, audit, judge, and at its end a
dawn with fresh seeds, four of attempt 0 and four of the champion by default. What proposes is all that differs:

    mix        the default sources, without a language model
    search     one to many dials, by the built-in search
    random     one to three dials, from their whole ranges (random_dials.py)
    catalogue  the known ideas of ideas/

The n-th nights of all arms have the same seeds. A night sees no record of other nights unless --with-past is given, so
nights are independent. Recorded is the gain by the scores that the night chose by, honest the gain on dawn's seeds; the
interval over nights is Student's. A night that keeps nothing has an honest gain of zero.

--slots names where nights run at once, one a slot:
    gpu:0-7          a night on each of these GPUs; gpu:0-7@0-31 pins them to equal shares of these cores
    cores:0-15/4     a night on each four of these cores

When it is cut off (SIGTERM, Ctrl-C, --most-minutes), the nights are ended, and all that they have is reported. The same
command goes on with nights that are not over. DIR/TAG is the record of each night, as `nightshift export record`
writes it, DIR/results.tsv has their rows for the ledger, and DIR/work holds clones, journals and logs.

Flat keys of --json, for each ARM: ARM_nights, ARM_attempts, ARM_runs, ARM_keeps, ARM_crashes, ARM_hours,
ARM_recorded, ARM_honest and ARM_holdout with _low and _high, ARM_over_search with _low and _high, ARM_times_search;
ARM_SOURCE_attempts, _keeps, _crashes, _busy_hours, _attempts_an_hour, _believed, _believed_an_hour; device,
device_kind, protocol, budget_s.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import measure
import real_outcomes
from fleet import Cut, Fleet, Planned, Slot, make_clone, origin, planned, slots_of

from agent.errors import NightError
from agent.files import read_plain, write_plain
from agent.night.limits import expected_run_s
from agent.proposers.registry import choices
from agent.records.journal import Journal
from agent.records.results import arranged, lines_of
from agent.records.shipped import ship

ARMS = ("mix", "search", "random", "catalogue")
DEFAULT_ARMS = ("mix", "search", "random")
TOY = measure.ROOT / "tests" / "scripts" / "unigram.py"
CALIBRATION = 3  # runs of attempt 0 before the first idea
POLL_S = 0.2


def run_nights(args: argparse.Namespace, slots: Sequence[Slot], cut: Cut) -> list[str]:
    """Run all nights that are not over, and ship each; return those that failed."""
    data, device_kind = prepared(args)
    wanted = "cpu" if slots[0].gpu is None else "cuda"
    if args.slots and device_kind != wanted:
        told = f"--slots {args.slots}: MLX runs on {device_kind} here"
        raise measure.Misuse(f"{told}; put a build of it for {wanted} on PYTHONPATH, or name other slots")
    env = {**os.environ, "NIGHTSHIFT_DATA": data, "PYTHONUNBUFFERED": "1"}
    if path := os.environ.get("PYTHONPATH"):  # nights have other working folders
        env["PYTHONPATH"] = os.pathsep.join(str(Path(part).absolute()) for part in path.split(os.pathsep) if part)
    source = origin(args)
    waiting = [night for night in planned(args) if not night.mark.exists()]
    fleet = Fleet(args, env, device_kind, list(slots))
    try:
        while (waiting or fleet.running) and not cut:
            while waiting and fleet.free and not cut:
                make_clone(args, waiting[0], source)
                fleet.start(waiting.pop(0), fleet.free.pop(0))
            time.sleep(POLL_S)
            for night in fleet.look(cut):
                record(args, night)
    finally:
        for night in fleet.end():
            record(args, night)
    return fleet.failed


def check_minutes(args: argparse.Namespace) -> None:
    """Say how many attempts the minutes allow; raise Misuse where they may be over before there is one."""
    if args.minutes is None:
        return
    run_s = expected_run_s(args.budget_s)
    attempts = int(60 * args.minutes / run_s) - CALIBRATION - args.dawn
    told = f"{args.minutes:g} minutes of runs of about {run_s:.0f} s, {CALIBRATION} for attempt 0, {args.dawn} for dawn"
    if attempts < 1:
        least = (CALIBRATION + args.dawn + 1) * run_s / 60
        raise measure.Misuse(f"{told}: no attempt in a night; give --minutes {least:.0f} at least, or less --budget-s")
    measure.say(f"{told}: {attempts} attempts in a night, or some more")


def record(args: argparse.Namespace, night: Planned) -> None:
    """Ship a night, and put its rows into a ledger of all nights; one without a result has no record."""
    rows = args.out / night.place.ledger.name
    try:
        ship(night.place, night.tag, args.out / night.tag)
        with Journal.read(night.place.journal(night.tag)) as journal:
            found = journal.night()
            write_plain(rows, arranged(read_plain(rows), {found.tag: lines_of(found, journal.attempts())}))
        measure.write_json(args.json, args.flatten(args.out))
    except NightError as error:
        measure.say(f"{night.tag}: {error}")


def prepared(args: argparse.Namespace) -> tuple[str, str]:
    """Prepare the corpus, once for all nights; return its folder and the kind of device."""
    if args.corpus is not None and (args.corpus / "manifest.json").is_file():
        os.environ["NIGHTSHIFT_DATA"] = str(args.corpus.resolve())
    elif args.corpus is not None:
        os.environ.pop("NIGHTSHIFT_DATA", None)
        words = [sys.executable, measure.ROOT / "prepare.py", "--dataset", args.corpus.resolve()]
        said = measure.watch(words, env=measure.with_path(), cwd=measure.ROOT, limit_s=3600.0).text
        folder = re.search(r"(?m)^corpus: +(\S.*)$", said)
        assert folder is not None, said
        os.environ["NIGHTSHIFT_DATA"] = folder[1]
    description = measure.describe(measure.SCRIPT)
    return description["corpus"]["folder"], description["device"]["kind"]


# ---- command line ----------------------------------------------------------------------------------------------------


def arm_of(word: str) -> tuple[str, int | None]:
    """Read one word of --arms: mix, or mix=3."""
    match = re.fullmatch(rf"({'|'.join(ARMS)})(?:=([1-9]\d*))?", word)
    if match is None:
        raise argparse.ArgumentTypeError(f"{word!r} is no arm; write {', '.join(ARMS)}, or as in mix=3")
    return match[1], int(match[2]) if match[2] else None


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = nights_parser(__doc__)
    about = f"what proposes, and how many nights where --nights is not meant (default: {' '.join(DEFAULT_ARMS)})"
    parser.add_argument("--arms", nargs="+", type=arm_of, metavar="ARM[=N]", help=about)
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="of each night, its dawn included (default: no limit)"
    )
    args = completed(parser, parser.parse_args(argv), {"arms": DEFAULT_ARMS}, {"arms": ("search", "random")})
    args.arms = [(arm, None) if isinstance(arm, str) else arm for arm in args.arms]
    if args.report is None and not args.quick and args.minutes is None and args.experiments is None:
        parser.error("a night needs an end: give --minutes or --experiments")
    return args


def nights_parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that say where, how long and how often nights run."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(words={}, minutes=None, flatten=flatten, show=show)
    parser.add_argument("--out", type=Path, metavar="DIR", help="records, and below work/ clones and logs")
    parser.add_argument("--nights", type=int, default=None, metavar="N", help="of each arm (default: 2; quick: 1)")
    parser.add_argument("--budget-s", type=float, metavar="S", help="of each run (default: 40; quick: 0.05)")
    parser.add_argument("--most-minutes", type=float, metavar="M", help="of all; what has not ended then is cut off")
    parser.add_argument("--experiments", type=int, metavar="N", help="of each night, beyond attempt 0 (quick: 2)")
    about = "runs kept for each dawn: the first eight are four fresh seeds a side (default: 8; quick: 4)"
    parser.add_argument("--dawn", type=int, metavar="RUNS", help=about)
    parser.add_argument("--slots", metavar="SLOTS", help="where nights run (default: one at a time, unpinned)")
    parser.add_argument("--corpus", type=Path, metavar="PATH", help="a prepared corpus, or text for prepare.py")
    parser.add_argument("--script", type=Path, metavar="FILE", help="in place of train_mlx.py, as attempt 0")
    parser.add_argument("--name", metavar="NAME", help="how the nights' tags begin (default: the date)")
    parser.add_argument("--seed", type=int, default=0, help="of the first night of each arm (default: %(default)s)")
    parser.add_argument("--night-options", default="", metavar="WORDS", help="more words for `nightshift run`")
    parser.add_argument("--with-past", action="store_true", help="let nights learn from experiments/shipped/")
    parser.add_argument("--report", type=Path, metavar="DIR", help="print what lies there, run nothing")
    parser.add_argument("--quick", action="store_true", help="a minute on two cores: a toy script")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys, after each night")
    return parser


def completed(
    parser: argparse.ArgumentParser, args: argparse.Namespace, usual: Mapping[str, Any], quick: Mapping[str, Any]
) -> argparse.Namespace:
    """Return the options with their defaults, those of --quick where it is given; end with a sentence for a misuse."""
    usual = {"nights": 2, "budget_s": 40.0, "dawn": 8, "name": time.strftime("%b%d").lower(), **usual}
    quick = {"nights": 1, "budget_s": 0.05, "dawn": 4, "experiments": 2, "script": TOY, **quick}
    for name, value in {**usual, **(quick if args.quick else {})}.items():
        setattr(args, name, value if getattr(args, name) is None else getattr(args, name))
    if args.quick and not args.night_options:
        args.night_options = "--judge greedy"  # one run of each attempt
    if not args.budget_s > 0 or args.nights < 1 or args.dawn < 0:
        parser.error("--budget-s and --nights must be above zero, --dawn not below")
    if args.report is None and args.out is None and not args.quick:
        parser.error("--out DIR is missing: the folder for records, clones and logs")
    return args


def flatten(folder: Path) -> measure.Flat:
    return real_outcomes.flatten(real_outcomes.read_all(folder))


def show(folder: Path, flat: measure.Flat) -> None:
    real_outcomes.print_results(real_outcomes.read_all(folder), flat)


def report(args: argparse.Namespace, folder: Path) -> None:
    """Print what came of the nights in a folder, and write it as JSON."""
    flat = args.flatten(folder)
    args.show(folder, flat)
    measure.write_json(args.json, flat)


def report_again(args: argparse.Namespace) -> int:
    """Print what lies in a folder; nights whose journal is newer than their record are shipped first."""
    args.out = args.report
    for journal in sorted(args.out.glob("work/*/experiments/nights/*/journal.sqlite")):
        tag = journal.parent.name
        record(args, Planned(tag, "", 0, args.out / "work" / tag))
    report(args, args.out)
    return 0


def run(args: argparse.Namespace) -> int:
    measure.check_writable(args.json)
    if args.report is not None:
        return report_again(args)
    missing = [arm for arm, _ in args.arms if arm not in ("random", *args.words, *choices())]
    if missing:
        raise measure.Misuse(f"--arms {missing[0]}: nightshift has no such source; there are: {', '.join(choices())}")
    check_minutes(args)
    slots = slots_of(args.slots) if args.slots else (Slot("machine"),)
    cut = Cut(time.monotonic() + 60 * args.most_minutes if args.most_minutes else None)
    with measure.work_folder(args.out) as folder, cut.on_signals():
        args.out = folder
        (folder / "work").mkdir(exist_ok=True)
        failed = run_nights(args, slots, cut)
        report(args, folder)
        if cut:
            measure.say("cut off; the same command goes on with the nights that are not over")
        elif failed:
            logs = ", ".join(str(folder / "work" / f"{tag}.log") for tag in failed)
            raise measure.Failed(f"{', '.join(failed)} failed; see {logs}")
    return 130 if cut.signalled else 0


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("real_nights", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
