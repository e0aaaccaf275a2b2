"""Where the time of a training step goes: nightshift profile."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from agent.cli.words.options import add_script
from agent.cli.words.parser import Subcommand
from agent.cli.words.values import positive_int, seed
from agent.view.answer import STDOUT, Answer, AnswersTo


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    script: Path
    steps: int
    seed: int
    trace: Path | None
    answer: Answer


def profile(options: ProfileOptions) -> int:
    from agent.profile.profile import ProfileRequest
    from agent.profile.profile import profile as take_apart

    request = ProfileRequest(options.script, options.steps, options.seed, options.trace)
    take_apart(request, Console(stderr=options.answer.on_stdout), options.answer)
    return 0


def _profile_words(words: argparse.ArgumentParser) -> None:
    add_script(words)
    words.add_argument("--steps", type=positive_int, default=16, metavar="N", help="to train (default: %(default)s)")
    words.add_argument("--seed", type=seed, default=0, metavar="K", help="default: %(default)s")
    to = "write the figures there, too, or why there are none; without FILE: to stdout"
    words.add_argument("--json", nargs="?", type=Path, const=STDOUT, metavar="FILE", help=to)
    words.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="run once more under the GPU's own recorder: Metal System Trace (name a .trace file; unverified on a Mac) "
        "or Nsight Systems",
    )


PROFILE = Subcommand(
    "profile",
    "where the time of a training step goes, phase by phase",
    ProfileOptions,
    profile,
    _profile_words,
    answers=AnswersTo.FILE,
)
