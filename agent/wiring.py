"""From options to a laboratory: lock, box, night, journal, judge and proposer, opened in order and closed again."""

import argparse
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from rich.console import Console

from agent.box import choose
from agent.caps import caps_of_machine
from agent.clock import kept_awake
from agent.contract import check_script
from agent.dials import read_dials, searched
from agent.errors import NightError
from agent.experiment import Judge, Night, Proposer
from agent.journal import Journal, disk_is_full
from agent.judge import choose_judge
from agent.lab import Lab, Limits
from agent.lock import only_night
from agent.opening import Place, Request, open_night
from agent.screen import Screen, steadfast
from agent.steps import write_ledger
from agent.stop import Stop, like_ctrl_c
from agent.workshop import Workshop

DRY_RUN_FROM_S = 60.0  # of budget: below it, a dry run costs about what it saves
Source = Callable[[Night, Journal, Stop, Screen], Proposer]


@contextmanager
def open_lab(
    options: argparse.Namespace,
    limits: Limits,
    source: Source,
    *,
    searches: bool = True,
    baseline: Callable[[Place], str] | None = None,
    aside: bool = False,  # what is said goes to stderr: stdout is for a program
) -> Iterator[Lab]:
    """Raises NightshiftError before anything is written where something does not fit."""
    place, judge = Place.of(options.script), judge_of(options)
    with ExitStack() as undo:
        # the lock comes before the tag: two nights begun at once must not find the same tag free
        tell = undo.enter_context(only_night(place.repo.common_dir()))
        with like_ctrl_c():
            box = choose(options.sandbox)
            request = Request(options.tag, options.budget_s, options.seed)
            night = open_night(place, request, searched if searches else read_dials)
        folder = place.folder(night.tag)
        tell(night.tag, folder)
        stop = Stop(folder)
        stop.forget()
        undo.enter_context(stop.on_signals())
        undo.enter_context(kept_awake())
        journal = undo.enter_context(Journal.resume(place.journal(night.tag)))
        undo.enter_context(last_row(place, journal))
        stream = steadfast(sys.stderr if aside else sys.stdout)
        screen = Screen(Console(file=stream), night.budget_s, lambda: stop.after_run)
        undo.callback(screen.close)
        shop = Workshop(night, folder, box, caps_of_machine(), options.allowance_s, lambda: stop.now, screen.progressed)
        yield Lab(
            place=place,
            journal=journal,
            shop=shop,
            proposer=source(night, journal, stop, screen),
            judge=judge,
            watcher=screen,
            stop=stop,
            limits=limits,
            plausible_gain=options.plausible_gain / 100,
            baseline=baseline,
            early_stop=options.early_stop,
            dry_runs=not options.no_dry_run and night.budget_s >= DRY_RUN_FROM_S,
        )


def judge_of(options: argparse.Namespace) -> Judge:
    if options.confirm and options.judge != "greedy":
        raise NightError(f"--confirm is for --judge greedy; {options.judge} decides by itself how often to measure")
    return choose_judge(options.judge, options.confirm)


def committed(place: Place) -> str:
    """The script as it stands in HEAD: what edits of the working tree are measured against."""
    source = place.repo.read("HEAD", place.script).removeprefix("\ufeff")  # as Python reads it
    check_script(source, place.script)
    return source


@contextmanager
def last_row(place: Place, journal: Journal) -> Iterator[None]:
    """A full disk ends a night, but not before the ledger has a row of everything that the journal knows."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        if disk_is_full(error):
            journal.give_reserve()
            with suppress(OSError, sqlite3.OperationalError, NightError):
                write_ledger(place, live=(journal.night(), journal.attempts()))
        raise
