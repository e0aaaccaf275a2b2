"""What --early-stop would have done to nights that ran without it: runs stopped, time saved, and good edits lost.

    python benchmarks/early_stop.py --nights DIR... [--sure 0.99] [--json FILE]
    python benchmarks/early_stop.py --simulate 200
    python benchmarks/early_stop.py --quick

A night is replayed attempt by attempt with what was known when each began: the curves and scores of the runs before it
that the rule would have let finish, and the incumbent of that moment. A DIR is a night's folder, or any folder with
nights somewhere below it. A run is stopped at the first fraction of its budget where its loss exceeds the bound of
agent/judging/early_stop.py. A stop is a false kill where the attempt was kept in truth, or has a better score than the
incumbent of its time. What a night would have tried instead of what it lost is beyond a replay; so is the time that a
script takes to flush its curve (up to five seconds in train_mlx.py).

--simulate replays nights of 60 attempts whose losses and scores come from a random generator, in four worlds: losses
that tell much of scores; losses that tell little; much, but 5 % of the edits that are no better are wrecks; and much,
but 5 % of all edits change what the training loss means, as label smoothing does. --quick is a few of each.

Flat keys of --json, of nights as they are, of a world with WORLD_ before them: of (attempts with a score), stopped,
false_kills, false_kill_rate (false kills among the stopped), better (attempts that were kept or better), lost_rate
(false kills among these), both rates with _high (95 %, Clopper-Pearson), saved_share (of the nights' time, scoring
included).
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import measure
import numpy as np

from agent.experiment import Attempt, Ending, Status
from agent.judging.early_stop import FRACTIONS, SURE, Finished, bounds
from agent.records.journal import Journal
from agent.runs.runner import Runner
from agent.runs.train import first_finished
from agent.sandbox.box import Open
from agent.sandbox.watch import limits_of_machine

SIMULATED_ATTEMPTS = 60


@dataclass(frozen=True)
class Tried:
    """One attempt of a finished night, as far as the rule and its critic are concerned."""

    number: int
    incumbent: int | None  # of the moment when it began; None for attempt 0
    incumbent_bpb: float | None  # its mean over the runs known then
    first: Finished | None  # None where it has no score
    good: bool  # kept, or better than that incumbent
    spent_s: float  # of the night, for all its runs
    after_s: tuple[float, ...]  # what ending its first run at each of FRACTIONS saves


@dataclass(frozen=True)
class Stopped:
    number: int
    fraction: float
    saved_s: float
    good: bool


@dataclass(frozen=True)
class Replay:
    """What the rule would have done to some nights."""

    of: int  # attempts after the first that have a score
    better: int
    spent_s: float
    stopped: tuple[Stopped, ...]

    def __add__(self, other: Replay) -> Replay:
        return Replay(
            self.of + other.of, self.better + other.better, self.spent_s + other.spent_s, self.stopped + other.stopped
        )

    def flat(self) -> measure.Flat:
        killed, stopped = sum(one.good for one in self.stopped), len(self.stopped)
        return {
            "of": self.of, "stopped": stopped, "false_kills": killed, "better": self.better,
            "false_kill_rate": killed / stopped if stopped else None, "false_kill_rate_high": most(killed, stopped),
            "lost_rate": killed / self.better if self.better else None, "lost_rate_high": most(killed, self.better),
            "saved_share": sum(one.saved_s for one in self.stopped) / self.spent_s if self.spent_s else None,
        }  # fmt: skip


NONE = Replay(0, 0, 0.0, ())


def most(count: int, of: int) -> float | None:
    """Upper end of the 95 % interval of a share (Clopper and Pearson, 1934)."""
    from scipy import stats  # takes a second to import

    if of == 0:
        return None
    return float(stats.binomtest(count, of).proportion_ci(0.95, method="exact").high)


def replay(night: Sequence[Tried], sure: float) -> Replay:
    """Attempt by attempt; of one that is stopped, the rule does not learn the score."""
    known: dict[int, Finished] = {}
    stopped: list[Stopped] = []
    for tried in night:
        if tried.first is None:
            continue
        found = verdict(tried, known, sure) if tried.incumbent is not None else None
        if found is not None:
            stopped.append(found)
        if found is None or tried.good:  # the night that ran went on from it, and so must its replay
            known[tried.number] = tried.first
    later = [tried for tried in night if tried.incumbent is not None and tried.first is not None]
    spent_s = sum(tried.spent_s for tried in night)
    return Replay(len(later), sum(tried.good for tried in later), spent_s, tuple(stopped))


def verdict(tried: Tried, known: Mapping[int, Finished], sure: float) -> Stopped | None:
    if tried.first is None or tried.incumbent not in known or tried.incumbent_bpb is None:
        return None
    best = replace(known[tried.incumbent], val_bpb=tried.incumbent_bpb)
    for bound in bounds(tuple(known.values()), best, sure):
        if bound.verdict(tried.first.losses) is not None:
            saved_s = tried.after_s[FRACTIONS.index(bound.fraction)]
            return Stopped(tried.number, bound.fraction, saved_s, tried.good)
    return None


# ---- nights that ran -------------------------------------------------------------------------------------------------


def journals(folders: Iterable[Path]) -> list[Path]:
    """Raises Misuse for a folder without a night."""
    found = []
    for folder in folders:
        below = sorted(folder.rglob("journal.sqlite"))
        if not below:
            raise measure.Misuse(f"{folder} holds no night: no journal.sqlite is below it")
        found += below
    return found


def name_of(journal: Path) -> str:
    """Repository and tag, of REPOSITORY/experiments/nights/TAG/journal.sqlite."""
    night = journal.absolute().parent
    return f"{night.parents[2].name}/{night.name}"


def read_night(path: Path) -> list[Tried]:
    with Journal.read(path) as journal:
        night, history = journal.night(), journal.attempts()
    runner = Runner(night, path.parent, Open("read"), limits_of_machine(), None, lambda: False, lambda point, s: None)
    order = order_of_runs(path)
    return [as_tried(runner, history, attempt, order) for attempt in history if attempt.settled and attempt.is_idea]


def order_of_runs(path: Path) -> dict[tuple[int, int], int]:
    """(attempt, seed) → when that run began, counted over the night."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        return {(attempt, seed): run for run, attempt, seed in database.execute("SELECT id, attempt, seed FROM runs")}


def as_tried(
    runner: Runner, history: Sequence[Attempt], attempt: Attempt, order: Mapping[tuple[int, int], int]
) -> Tried:
    began = min((order[attempt.number, run.seed] for run in attempt.done_runs), default=0)

    def mean_bpb(of: Attempt, before: float) -> float | None:
        runs = tuple(run for run in of.runs if not run.dawn and order[of.number, run.seed] < before)
        return replace(of, runs=runs, decision=None).val_bpb

    best = None if attempt.parent is None else history[attempt.parent]
    incumbent_bpb = None if best is None else mean_bpb(best, began)
    own_bpb = mean_bpb(attempt, float("inf"))
    better = own_bpb is not None and incumbent_bpb is not None and own_bpb < incumbent_bpb
    first = next(iter(attempt.done_runs), None)
    scoring_s = first.score.wall_s if first and first.score else 0.0
    whole = first is not None and first.ending is Ending.FINISHED
    return Tried(
        number=attempt.number,
        incumbent=attempt.parent,
        incumbent_bpb=incumbent_bpb,
        first=first_finished(runner, attempt) if whole else None,
        good=attempt.status is Status.KEEP or better,
        spent_s=attempt.spent_s,
        after_s=tuple(runner.night.budget_s * (1 - mark) + scoring_s for mark in FRACTIONS),
    )


# ---- simulated nights ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Scores move by one sigma with the seed; losses, in nats, follow three times the score and stray by some sigma."""

    stray_sigma: float  # at 40 % of the budget; a quarter less at each later fraction
    wrecks: float = (
        0.0  # share of the edits that are 0.5 bpb worse on average; their losses rise by less than others' do
    )
    misleading: float = 0.0  # share of the edits whose loss is 0.1 nats higher, whatever they are worth


WORLDS = {
    "telling": World(0.7),
    "vague": World(4.0),
    "wrecks": World(0.7, wrecks=0.05),
    "misleading": World(0.7, misleading=0.05),
}
SIGMA_BPB, BUDGET_S = 0.006, 300.0


def simulate(world: World, rng: np.random.Generator) -> list[Tried]:
    """A greedy night: of the edits 70 % harm, 18 % do nothing and 12 % help, by 4 and 1.5 sigma on average."""
    night: list[Tried] = []
    best, best_bpb, merit_bpb = None, float("inf"), 1.8
    for number in range(SIMULATED_ATTEMPTS + 1):
        kind = rng.choice(3, p=(0.7, 0.18, 0.12)) if number else 1
        effect_bpb = (rng.exponential(4), 0.0, -rng.exponential(1.5))[kind] * SIGMA_BPB
        val_bpb = merit_bpb + effect_bpb + SIGMA_BPB * rng.standard_normal()
        good = val_bpb < best_bpb
        wreck_bpb = rng.exponential(0.5) * (number > 0 and not good and rng.random() < world.wrecks)
        shift = 0.1 * (rng.random() < world.misleading) + 1.2 * wreck_bpb
        stray = 3 * SIGMA_BPB * world.stray_sigma * rng.standard_normal(len(FRACTIONS))
        at_marks = 3 * val_bpb + shift + stray * 0.75 ** np.arange(len(FRACTIONS))
        losses = {mark: float(loss + 1 - mark) for mark, loss in zip(FRACTIONS, at_marks, strict=True)}
        after_s = tuple(BUDGET_S * (1 - mark) for mark in FRACTIONS)
        incumbent_bpb = None if best is None else best_bpb
        night.append(Tried(number, best, incumbent_bpb, Finished(losses, val_bpb + wreck_bpb), good, BUDGET_S, after_s))
        if good:
            best, best_bpb, merit_bpb = number, val_bpb, merit_bpb + effect_bpb
    return night


def simulated(world: World, nights: int, sure: float) -> Replay:
    rng = np.random.default_rng(0)
    return sum((replay(simulate(world, rng), sure) for _ in range(nights)), NONE)


# ---- the program -----------------------------------------------------------------------------------------------------


def show_all(replays: Sequence[tuple[str, Replay]]) -> None:
    rows = []
    for name, found in replays:
        flat = found.flat()
        share = [measure.show(flat[key], ".1%") for key in ("false_kill_rate_high", "lost_rate_high", "saved_share")]
        rows.append([name, *(str(flat[key]) for key in ("of", "stopped", "better", "false_kills")), *share])
    columns = "", "attempts", "stopped", "better", "false kills", "of stopped, at most", "of better, at most", "saved"
    measure.print_table("early stop, replayed (bounds: 95 %)", columns, rows)


def run(args: argparse.Namespace) -> int:
    measure.check_writable(args.json)
    if args.nights:
        found = [(name_of(path), replay(read_night(path), args.sure)) for path in journals(args.nights)]
        total = sum((one for _, one in found), NONE)
        show_all([*found, ("all", total)])
        for name, night in found:
            for one in night.stopped:
                print(f"{name} #{one.number} at {one.fraction:.0%}{': false kill' if one.good else ''}")
        flat = {"nights": len(found)} | total.flat()
    else:
        found = [(name, simulated(world, args.simulate, args.sure)) for name, world in WORLDS.items()]
        show_all(found)
        worlds = {f"{name}_{key}": value for name, one in found for key, value in one.flat().items()}
        flat = {"nights": args.simulate} | worlds
    measure.write_json(args.json, flat | {"sure": args.sure})
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=Path, nargs="+", metavar="DIR", help="replay these")
    parser.add_argument("--simulate", type=int, metavar="N", help="replay N nights of each simulated world")
    parser.add_argument("--sure", type=float, default=SURE, help="that a stopped run is worse (default: %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="under a minute on a CPU: 3 simulated nights of each world"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    args = parser.parse_args(argv)
    args.simulate = args.simulate or (3 if args.quick else 0)
    if bool(args.nights) == bool(args.simulate) or args.simulate < 0 or not 0.5 < args.sure < 1:
        parser.error("name --nights, or --simulate above zero, or --quick; and --sure between 0.5 and 1")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("early_stop", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
