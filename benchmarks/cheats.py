"""Can a script fake its score, or break out? Every trick that we know, against the real box, scorer and audit.

    python benchmarks/cheats.py [--quick] [--json FILE] [--only NAME ...] [--sandbox auto|landlock|off]

The scripts are in tests/cheats: those in caught/ try to cheat, those in honest/ only look odd. Each is an attempt of a
real night, in a small world where a user has a repository, keys, a server and better weights from another night
(tests/arena.py). A cheat is caught when it was not kept and had no effect: nothing was sent, read, changed, left
running or left behind. An honest script passes when it was scored and its audit agrees. Those in known/ are expected to
get through: each says why, and what bounds it. With --sandbox off one can see that the tricks do work where nothing
holds them: use it on a machine that may come to harm.

Exit code 1 when a cheat got through or an honest script was refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
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
from agent.sandbox.box import Box, Landlock, Mode, candidates, choose  # noqa: E402

# one of each kind: peeking, lying, notes, processes, keys, network, disk, memory; and what an audit may dislike
QUICK = (
    "peeks_at_1_in_1000", "lies_in_cross_entropy", "shaves_a_hundredth", "leaves_a_note_in_files", "survives",
    "reads_keys", "phones_home_over_tcp", "writes_outside", "links_to_better_weights", "eats_memory",
    "trains_on_while_loading", "computes_in_bfloat16", "mixes_experts", "compiles_its_graphs",
)  # fmt: skip
FOLDERS = {
    "caught": ("a script that cheats", "caught", "GOT THROUGH"),
    "honest": ("an honest script", "passed", "REFUSED"),
    "known": ("a limit that is known", "discarded", "gets through"),
}
FILE_COLUMNS = 180
SHOWN_CHARS = 160


@dataclass
class Printing(Told):
    """Says each result as it comes; the tables wait for all."""

    console: Console
    trials: list[Trial] = field(default_factory=list)

    def __call__(self, trial: Trial) -> None:
        self.trials.append(trial)
        said = verdict(trial)
        self.console.print(f"{said:>12}  {trial.script.name}  {trial.seconds:.1f} s", highlight=False)
        if said.isupper():
            self.console.print(because(trial), markup=False, highlight=False)

    def of(self, folder: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.script.path.parent.name == folder]


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    start, console = time.monotonic(), Console()
    if not console.is_terminal:
        console = Console(width=FILE_COLUMNS)
    scripts = [script for script in (*CHEATS, *KNOWN, *HONEST) if is_wanted(script, options)]
    box = chosen_box(options.sandbox)
    if not scripts or box is None:
        missing = "no script of tests/cheats is called so" if box else "this kernel has no Landlock"
        print(f"cheats: {missing}; see {__file__}", file=sys.stderr)
        return 2
    console.print(f"{len(scripts)} scripts in: {box.name}", highlight=False)
    told = Printing(console)
    # however deep a cheat has dug
    with throwaway_folder() as aside, world(aside / "world", corpus(aside / "corpus")) as here:
        try_all(here, scripts, box, told)
    for name in FOLDERS:
        if told.of(name):
            console.print(table(name, told.of(name)))
    found = figures(told, time.monotonic() - start)
    console.print(
        f"{found['caught']} of {found['cheats']} cheats caught, {found['refused']} of {found['honest']} honest scripts "
        f"refused, in {found['seconds']:.0f} s",
        highlight=False,
    )
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if found["caught"] == found["cheats"] and not found["refused"] else 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("cheats.py", description="Try to cheat, and count what gets through.")
    top.add_argument("--quick", action="store_true", help="one of each kind, in under a minute")
    top.add_argument("--json", type=Path, metavar="FILE", help="write the totals there")
    top.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these scripts of tests/cheats")
    about = "which box holds the scripts; off shows that the tricks work where nothing does (default: %(default)s)"
    top.add_argument("--sandbox", choices=["auto", "landlock", "off"], default="auto", help=about)
    return top


def is_wanted(script: Script, options: argparse.Namespace) -> bool:
    return script.name in (options.only or (QUICK if options.quick else [script.name]))


def chosen_box(name: str) -> Box | None:
    if name == "landlock":
        return next((box for box in candidates() if isinstance(box, Landlock)), None)
    return choose(Mode(name))


def corpus(folder: Path) -> Path:
    folder.mkdir(parents=True)
    text = write_library_text(folder / "library.txt", chars=1_500_000)
    return prepare.prepare(str(text), TEST_SCALE, cache=folder / "cache", workers=1)


def verdict(trial: Trial) -> str:
    folder = trial.script.path.parent.name
    _, good, bad = FOLDERS[folder]
    return good if (trial.is_kept if folder == "honest" else trial.is_caught) else bad


def because(trial: Trial) -> str:
    return "; ".join((*trial.effects, trial.reason))


def table(folder: str, trials: Sequence[Trial]) -> Table:
    shown = Table(FOLDERS[folder][0], "what it does", "how", "because", "verdict", "s")
    for trial in trials:
        said = verdict(trial)
        shown.add_row(
            trial.script.name.replace("_", " "), trial.script.tries, trial.how, escape(because(trial)[:SHOWN_CHARS]),
            f"[red]{said}[/red]" if said.isupper() else said, f"{trial.seconds:.1f}",
        )  # fmt: skip
    return shown


def figures(told: Printing, seconds: float) -> dict[str, float]:
    """Flat keys."""
    return {
        "cheats": len(told.of("caught")),
        "caught": sum(trial.is_caught for trial in told.of("caught")),
        "honest": len(told.of("honest")),
        "refused": sum(not trial.is_kept for trial in told.of("honest")),
        "known": len(told.of("known")),
        "known_through": sum(not trial.is_caught for trial in told.of("known")),
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
