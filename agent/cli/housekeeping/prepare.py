"""The command that prepares a corpus: the command line of prepare.py, under another name."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from agent.cli.words.parser import Subcommand
from agent.git import Repo
from agent.invocation import STARTER, typed

FILE = "prepare.py"
# what is executed: the folder of prepare.py, what names a missing package, the name that its help shows, and its words;
# what it does not take is said in one sentence, as of all commands
CALL = """
import argparse, sys
argparse.ArgumentParser.error = lambda parser, why: parser.exit(2, f"nightshift: {why}; see: {parser.prog} --help\\n")
_, folder, doctor, *sys.argv = sys.argv
sys.path.insert(0, folder)
try:
    import prepare
    sys.exit(prepare.main())
except ImportError as error:
    print(f"nightshift: {error}; install the missing package, as {doctor} says", file=sys.stderr)
    sys.exit(2)
"""


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    words: tuple[str, ...]  # as prepare.py takes them


def prepare(options: PrepareOptions) -> int:
    """Become the process of prepare.py, so that signals and exit code are its own."""
    command = [sys.executable, "-c", CALL, str(_folder()), typed("doctor"), typed("prepare"), *options.words]
    sys.stdout.flush()
    os.execv(command[0], command)


def _folder() -> Path:
    """Return the folder of the prepare.py that a night here would use, else that of nightshift's own."""
    here = Path.cwd()
    repo = Repo.around(here)
    places = (here, repo.root) if repo is not None else (here,)
    return next((place for place in places if (place / FILE).is_file()), STARTER)


def _again(options: PrepareOptions, tag: str | None) -> str:
    return typed("prepare", *options.words)


PREPARE = Subcommand(
    "prepare", "prepare a text to train on, as prepare.py does", PrepareOptions, prepare, verbatim=True, resume=_again
)
