"""Whether this machine can run a night: nightshift doctor, which makes the checks of checks.py, then verify.py's."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from agent.cli.words.options import add_script
from agent.cli.words.parser import Subcommand
from agent.view.answer import Answer, AnswersTo


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    script: Path
    verify: bool
    answer: Answer


def doctor(options: DoctorOptions) -> int:
    from agent.cli.machine.checks import examine
    from agent.cli.machine.verify import verified

    return examine(Console(), options.script, options.answer, [verified] if options.verify else [])


def _doctor_words(words: argparse.ArgumentParser) -> None:
    add_script(words)
    words.add_argument("--json", action="store_true", help="print the checks as JSON: nothing else on stdout")
    words.add_argument(
        "--verify",
        action="store_true",
        help="also try out the machine, which takes minutes: operations and steps against float32, memory, sandbox, "
        "clocks, and a night of one experiment; writes verify.json",
    )


DOCTOR = Subcommand(
    "doctor",
    "check Python, MLX, BLAS, script, git, disk, memory and data",
    DoctorOptions,
    doctor,
    _doctor_words,
    answers=AnswersTo.STDOUT,
)
