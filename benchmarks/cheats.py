"""Can a script fake its score, or break out? Every trick that we know, against the real box, scorer and audit.

    python benchmarks/cheats.py [--quick] [--json FILE] [--only NAME ...] [--sandbox NAME]

It tries every sandbox that this machine has, or the one that is named. The scripts are in tests/cheats: those in
caught/ try to cheat, those in honest/ only look odd. Each is an attempt of a real night, in a small world where a user
has a repository, keys, a server and better weights from another night (tests/arena.py). A cheat is caught when it was
not kept and had no effect: nothing was sent, read, changed, left running or left behind. An honest script passes when
it was scored and its audit agrees. Those in known/ are expected to get through: each says why, and what bounds it. With
--sandbox off one can see that the tricks do work where nothing holds them: use it on a machine that may come to harm.

LISTED names what one sandbox cannot close. Exit code 1 when another cheat got through or another honest script was
refused, and when one that is listed was not.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).parents[1]
sys.path[:0] = [str(PROJECT), str(PROJECT / "tests")]

from arena import world  # noqa: E402
from cheating import CHEATS, HONEST, KNOWN, Script  # noqa: E402
from conftest import TEST_SCALE, write_library_text  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.markup import escape  # noqa: E402
from rich.table import Table  # noqa: E402
from trials import Told, Trial, try_all  # noqa: E402

import prepare  # noqa: E402
from agent.files import throwaway_folder  # noqa: E402
from agent.runs.score import LOOK_ROW_STEP  # noqa: E402
from agent.sandbox.box import Box, Mode, candidates, choose  # noqa: E402

# one of each mechanism: what an audit may dislike, and what is kept before a cheat is judged; peeking, lying, notes,
# processes, keys, network, disk, files, log, memory
QUICK = (
    "mixes_experts", "calls_the_compiler", "uses_processes",
    "peeks_at_2_percent", "lies_in_cross_entropy", "shaves_a_hundredth", "leaves_a_note_in_files",
    "leaves_a_note_with_a_daemon", "survives", "reaches_for_the_harness", "forks_without_end",
    "reads_keys", "phones_home_over_tcp", "writes_outside", "links_to_better_weights",
    "fills_the_disk_with_small_files", "floods_the_log", "eats_memory", "trains_on_while_loading",
)  # fmt: skip
FOLDERS = {
    "caught": ("a script that cheats", "caught", "GOT THROUGH"),
    "honest": ("an honest script", "passed", "REFUSED"),
    "known": ("a limit that is known", "discarded", "gets through"),
}
# by sandbox: the cheats that get through and the honest scripts that are refused there alone, and why
LISTED = {
    "landlock": {
        "uses_processes": "semaphores are files in /dev/shm, which only a mount could make a run's own",
    },
}
AS_LISTED, STALE = "as listed", "LISTED IN VAIN"
FILE_COLUMNS = 180
SHOWN_CHARS = 160


@dataclass
class Printing(Told):
    """Says each result as it comes; the tables wait for all."""

    console: Console
    listed: Mapping[str, str]
    trials: list[Trial] = field(default_factory=list)

    def __call__(self, trial: Trial) -> None:
        self.trials.append(trial)
        said = self.verdict(trial)
        self.console.print(f"{said:>12}  {trial.script.name}  {trial.seconds:.1f} s", highlight=False)
        if said.isupper():
            self.console.print(because(trial), markup=False, highlight=False)

    def verdict(self, trial: Trial) -> str:
        """Return in a word what became of a trial, in capitals where that was not expected."""
        folder = trial.script.path.parent.name
        _, good, bad = FOLDERS[folder]
        is_good = trial.is_kept if folder == "honest" else trial.is_caught
        if trial.script.name in self.listed:
            return STALE if is_good else AS_LISTED
        return good if is_good else bad

    def is_as_expected(self, scripts: Sequence[Script]) -> bool:
        """Return whether all of these scripts were tried, and each ended as it should."""
        return len(self.trials) == len(scripts) and not any(self.verdict(trial).isupper() for trial in self.trials)

    def of(self, folder: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.script.path.parent.name == folder]

    def count(self, said: str) -> int:
        return sum(self.verdict(trial) == said for trial in self.trials)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_COLUMNS)
    scripts = [script for script in (*CHEATS, *KNOWN, *HONEST) if is_wanted(script, options)]
    boxes = chosen_boxes(options.sandbox)
    if not scripts or not boxes:
        missing = "no script of tests/cheats is called so" if boxes else "this machine has no such sandbox"
        print(f"cheats: {missing}; see {__file__}", file=sys.stderr)
        return 2
    found: dict[str, float] = {}
    is_as_expected = True
    with throwaway_folder() as aside:  # however deep a cheat has dug
        data = corpus(aside / "corpus")
        for name, box in boxes.items():
            start, told = time.monotonic(), Printing(console, LISTED.get(name, {}))
            console.print(f"{len(scripts)} scripts in: {box.name}", highlight=False)
            with world(aside / name, data) as here:
                try_all(here, scripts, box, told)
            own = figures(told, time.monotonic() - start)
            print_tables(console, box, told, own)
            found |= {f"{name}_{key}": value for key, value in own.items()}
            is_as_expected &= told.is_as_expected(scripts)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if is_as_expected else 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("cheats.py", description="Try to cheat, and count what gets through.")
    top.add_argument("--quick", action="store_true", help="one of each kind")
    top.add_argument("--json", type=Path, metavar="FILE", help="write the totals there")
    top.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these scripts of tests/cheats")
    about = "which box holds the scripts; off shows that the tricks work where nothing does (default: %(default)s)"
    top.add_argument(
        "--sandbox", choices=["all", "bubblewrap", "landlock", "seatbelt", "off"], default="all", help=about
    )
    return top


def is_wanted(script: Script, options: argparse.Namespace) -> bool:
    return script.name in (options.only or (QUICK if options.quick else [script.name]))


def chosen_boxes(name: str) -> dict[str, Box]:
    """Return sandboxes by their names in LISTED."""
    if name == "off":
        return {name: choose(Mode.OFF)}
    found = {type(box).__name__.lower(): box for box in candidates() if not isinstance(box, str)}
    return {one: box for one, box in found.items() if name in ("all", one)}


def corpus(folder: Path) -> Path:
    """Prepare a text of which a first look scores as many rows as an audit of 256 positions needs."""
    folder.mkdir(parents=True)
    text = write_library_text(folder / "library.txt", chars=3_000_000)
    scale = dataclasses.replace(TEST_SCALE, eval_tokens=LOOK_ROW_STEP * TEST_SCALE.eval_tokens)
    return prepare.prepare(str(text), scale, cache=folder / "cache", workers=1)


def because(trial: Trial) -> str:
    return "; ".join((*trial.effects, trial.reason))


def print_tables(console: Console, box: Box, told: Printing, own: dict[str, float]) -> None:
    for folder in FOLDERS:
        if told.of(folder):
            console.print(table(folder, told))
    console.print(
        f"{box.name}: {own['caught']} of {own['cheats']} cheats caught, {own['refused']} of {own['honest']} honest "
        f"scripts refused ({own['listed']} listed), in {own['seconds']:.0f} s",
        highlight=False,
    )


def table(folder: str, told: Printing) -> Table:
    shown = Table(FOLDERS[folder][0], "what it does", "how", "because", "verdict", "s")
    for trial in told.of(folder):
        said, why = told.verdict(trial), told.listed.get(trial.script.name, because(trial))
        shown.add_row(
            trial.script.name.replace("_", " "), trial.script.tries, trial.how, escape(why[:SHOWN_CHARS]),
            f"[red]{said}[/red]" if said.isupper() else said, f"{trial.seconds:.1f}",
        )  # fmt: skip
    return shown


def figures(told: Printing, seconds: float) -> dict[str, float]:
    """Return the counts of one sandbox."""
    return {
        "cheats": len(told.of("caught")),
        "through": sum(not trial.is_caught for trial in told.of("caught")),
        "caught": sum(trial.is_caught for trial in told.of("caught")),
        "honest": len(told.of("honest")),
        "refused": sum(not trial.is_kept for trial in told.of("honest")),
        "listed": told.count(AS_LISTED),
        "listed_in_vain": told.count(STALE),
        "known": len(told.of("known")),
        "known_through": sum(not trial.is_caught for trial in told.of("known")),
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
