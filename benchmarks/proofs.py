"""Does nightshift keep its promises at this commit? Every proof, whole, and one table of what came out.

    python benchmarks/proofs.py [--quick] [--only NAME ...] [--json FILE]

A proof is another program of this folder. It falls short where it fails, or where one of its figures misses the goal
that stands beside it here. Whole, all of them take a good hour on two cores; --quick runs the short form of each, which
touches each mechanism once and whose figures are too few for goals. The table names commit, device and date:
put it into benchmarks/README.md.

Exit code 1 where a proof falls short, also because this machine lacks what it needs.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import measure
from kills import LOSSES
from measure import Folder, Quick

from agent.lab import hardware


@dataclass(frozen=True)
class Goal:
    """Bound a figure of a proof; both bounds are allowed."""

    key: str  # key in the proof's JSON
    words: str
    least: float = -math.inf
    most: float = math.inf
    form: str = ",.0f"

    def is_met(self, figure: object) -> bool:
        return isinstance(figure, int | float) and self.least <= figure <= self.most

    @property
    def bounds(self) -> str:
        least, most = (format(bound, self.form) for bound in (self.least, self.most))
        if self.most == math.inf:
            return f"at least {least}"
        return f"at most {most}" if self.least == -math.inf else most if least == most else f"{least} to {most}"


@dataclass(frozen=True)
class Proof:
    """Describe a program of this folder: what it shows, and its goals."""

    name: str
    shows: str
    goals: tuple[Goal, ...]


def proof(name: str, shows: str, *goals: Goal) -> Proof:
    return Proof(name, shows, goals)


NOTHING_LOST = tuple(Goal(key, key.replace("_", " "), 0, 0) for key in LOSSES)
PROOFS = (
    proof(
        "cheats",
        "every known cheat is caught, and no honest script is refused, except for what is listed by sandbox",
        Goal("bubblewrap_through", "cheats through bubblewrap", 0, 0),
        Goal("bubblewrap_refused", "honest scripts refused", 0, 0),
        Goal("landlock_through", "through Landlock", 0, 0),
        Goal("landlock_refused", "refused", 1, 1),
    ),
    proof(
        "whispers",
        "what a sandbox can tell a later one is within what SECURITY.md admits",
        Goal("bubblewrap_bits", "bits in one scoring, bubblewrap", most=197, form=".0f"),
        Goal("bubblewrap_unlisted", "numbers that move and are not listed", 0, 0),
        Goal("landlock_unlisted", "with Landlock", 0, 0),
    ),
    proof(
        "faults",
        "a night and every command go on after a kill at any write, a full disk, a torn file",
        Goal("kills", "kills of nights", least=1000),
        Goal("command_kills", "of commands", least=200),
        *NOTHING_LOST,
    ),
    proof("worker_kills", "with several workers as well", Goal("kills", "kills", least=200), *NOTHING_LOST),
    proof(
        "judge_power",
        "the judge gains nearly what greed gains, and knows what it has",
        Goal("balanced_over_greedy", "true gain over greedy's", least=0.97, form=".1%"),
        Goal("balanced_worthless", "worthless among balanced's keeps", most=0.30, form=".1%"),
        Goal("balanced_bias", "believed less true, σ", least=-0.2, most=0.2, form=".2f"),
        Goal("confirmed_worthless", "worthless after the confirmation", most=0.10, form=".1%"),
        Goal("confirmed_over_balanced", "true gain that the confirmation leaves", least=0.95, form=".1%"),
        Goal("strict_false_keeps_per_100", "strict: false keeps in 100", most=0.5, form=".2f"),
        Goal("async_cost_4", "gain that 4 workers lose", most=0.10, form=".1%"),
        Goal("async_cost_16", "16 workers", most=0.20, form=".1%"),
    ),
    proof(
        "study_errors",
        "the words of a study are wrong no more often than it says",
        *(
            Goal(f"{seeds}_{key}", f"{words}, {seeds.replace('_', ' ')} seeds", most=0.06, form=".1%")
            for seeds in ("3", "5", "8")
            for key, words in (("false_word", "better or worse without an effect"), ("false_equal", "equal wrongly"))
        ),
        Goal("5_found", "of the promised difference found, 5 seeds", least=0.78, form=".1%"),
    ),
    proof(
        "landscapes",
        "the search finds most of what is to be had",
        # 62.3 and 76.5 % on 28 November 2026, each less its standard error
        Goal("search_40_share", "share of the gain, 40 runs", least=0.61, form=".1%"),
        Goal("search_96_share", "share of the gain, 96 runs", least=0.75, form=".1%"),
        Goal("search_linux_40_worse", "worse proposals where dials were measured", most=1 / 3, form=".1%"),
        Goal("search_96_crashes", "crashes a night", most=4, form=".1f"),
    ),
    proof(
        "drift",
        "repeats that lose much are noticed, and few runs are accused",
        Goal("h200_none_false_alarms", "false alarms, H200", most=0.01, form=".2%"),
        Goal("cpu_none_false_alarms", "busy CPU", most=0.01, form=".2%"),
        Goal("h200_lost30_repeats_noticed", "repeats that lose 30 %, noticed, H200", least=0.98, form=".0%"),
        Goal("cpu_lost30_repeats_noticed", "busy CPU", least=0.85, form=".0%"),
    ),
    proof(
        "fair_clock",
        "a run gets its budget on a busy CPU",
        Goal("steps_least", "fewest steps beside 1, 2 and 4 processes a core, over those alone", least=0.9, form=".2f"),
        Goal("steps_most", "most", most=1.1, form=".2f"),
        Goal("sigma_most", "spread over seeds, over that alone", most=1.5, form=".1f"),
        Goal("invalid", "invalid runs", 0, 0),
    ),
    proof(
        "first_look",
        "a newcomer has a verdict in three minutes, and an idea that was kept",
        Goal("total_s", "seconds", most=180),
        Goal("with_a_keep", "of the looks that kept an idea", least=0.8, form=".0%"),
    ),
)


@dataclass(frozen=True)
class Outcome:
    """The end of a proof."""

    proof: Proof
    code: int
    seconds: float
    figures: measure.Flat

    @property
    def holds(self) -> bool:
        return self.code == 0 and all(goal.is_met(self.figures.get(goal.key)) for goal in self.proof.goals)

    def row(self) -> list[str]:
        words = [] if self.code == 0 else [f"exit code {self.code}"]
        for goal in self.proof.goals:
            figure = self.figures.get(goal.key)
            words.append(f"{goal.words} {'missing' if figure is None else format(figure, goal.form)} ({goal.bounds})")
        verdict = ("holds" if self.proof.goals else "ran") if self.holds else "FALLS SHORT"
        return [self.proof.name, self.proof.shows, "; ".join(words), f"{self.seconds / 60:.1f}", verdict]


def run(proof: Proof, folder: Path, *, quick: bool) -> Outcome:
    """Run a proof, its output as it comes, and read the figures that it leaves."""
    written, began = folder / f"{proof.name}.json", time.monotonic()
    command = [sys.executable, str(measure.HERE / f"{proof.name}.py"), "--json", str(written)]
    command += ["--quick"] if quick else []
    measure.say(f"---- {proof.name}: {proof.shows}")
    code = subprocess.run(command, cwd=measure.ROOT, env=measure.with_path(), stdin=subprocess.DEVNULL).returncode
    figures = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}
    return Outcome(proof, code, time.monotonic() - began, figures)


@measure.program(lambda flat: 0 in (flat.get(f"{proof.name}_holds") for proof in PROOFS), prints=False)
def main(*, folder: Folder, quick: Quick, only: Sequence[str] = ()) -> measure.Flat:
    """Run the proofs, and print their table as Markdown, for benchmarks/README.md.

    Args:
        only: these proofs
    """
    chosen = measure.chosen({proof.name: proof for proof in PROOFS}, only)
    described = ["git", "describe", "--always", "--exclude=*", "--dirty=, changed"]
    commit = subprocess.run(
        described, cwd=measure.ROOT, capture_output=True, encoding="utf-8", check=True
    ).stdout.strip()
    where = f"Commit {commit}, {hardware.device_name()}, {datetime.now(UTC):%d %B %Y}"  # at the start of the proofs
    # the figures of a quick form are too few for goals
    outcomes = [run(replace(proof, goals=()) if quick else proof, folder, quick=quick) for proof in chosen]
    print(f"\n{where}:\n\n| proof | shows | measured (goal) | minutes | |\n|---|---|---|---|---|")
    flat: measure.Flat = {"where": where}
    for outcome in outcomes:
        print(f"| {' | '.join(outcome.row())} |")
        flat |= {f"{outcome.proof.name}_{key}": figure for key, figure in outcome.figures.items()}
        flat[f"{outcome.proof.name}_holds"] = int(outcome.holds)
    return flat


if __name__ == "__main__":
    raise SystemExit(main())
