"""Write a program for a script that reports its own score, and say what is understood of it."""

import os
from contextlib import suppress
from pathlib import Path

from agent.errors import ScriptError
from agent.files import write_plain
from agent.git import Repo, repo_around
from agent.invocation import typed
from agent.records.options import opened
from agent.runs.reported import RULE, SUMMARY, seeds_of, takes
from agent.script.contract import check_script, read_text
from agent.script.dials import searched
from agent.view.screen import print_folded, print_next

PROGRAM = "program.md"
TEXT = """\
# Program

Make `{script}` report a {better} `{name}`.

- Edit `{script}` alone, one idea at a time.
- It measures `{name}` as it does now, and reports it at its end: a line `{rule}`, and below it `{name}: NUMBER`.
  An edit that prints a better number without being better is worthless.
- Seeds: {seed}.
- Time: {budget}.

Write here what you want, what may change and what may not. Everybody who proposes edits is told it.
"""
MESSAGE = "Begin with a script"


def prepare(script: Path, metric: str) -> None:
    """Write program.md beside a script, make a repository where there is none, and say what comes next."""
    opened({"metric": metric})  # refuses a name that no line can have
    source, folder = read_text(script), script.parent.resolve()
    check_script(source, str(script), None)
    name, better, dials = metric.removeprefix("-"), "higher" if metric.startswith("-") else "lower", list[str]()
    with suppress(ScriptError):
        dials = [dial.name for dial in searched(source, "cpu", strict=False)]
    facts = {
        "metric": f"{name}, {better} is better: a line '{name}: NUMBER' below the last {RULE}, or in {SUMMARY}",
        "seed": seeds_of(source),
        "budget": "told by --budget-s" if takes(source, "--budget-s") else "a run ends by itself, or at --limit-s",
        "dials": ", ".join(dials) or "none: write constants at the top, as in LR = 0.1  # step size  [0.01, 1.0] log",
    }
    text = TEXT.format(script=script.name, name=name, better=better, rule=RULE, **facts)
    is_new = not os.path.lexists(folder / PROGRAM)
    if is_new:
        write_plain(folder / PROGRAM, text)
    repo = repo_around(folder)[0] or Repo.begin(folder)
    if repo.find("HEAD") is None:
        path = (folder / script.name).relative_to(repo.root.resolve())
        repo.commit_first({path.as_posix(): source}, MESSAGE)
    facts[PROGRAM] = "written: say in it what you want" if is_new else "is there already, and stays as it is"
    print_folded(f"{fact:<11}{words}" for fact, words in facts.items())
    given = ("--script", str(script), f"--metric={metric}")
    first = {} if dials else {typed("try", "--queue", *given, "--edit", "FILE", "-m", "WHY"): "an edit of your own"}
    runs = {typed("run", *given, "--experiments", "5"): "a first look", typed("run", *given, "--hours", "8"): "a night"}
    print_next(first | runs)
