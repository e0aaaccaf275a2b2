"""From options to a laboratory: lock, box, night, journal, judge and proposer, opened in order and closed again."""

import argparse
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from rich.console import Console

from agent.clock import kept_awake
from agent.errors import NightError
from agent.experiment import Night, Proposer, incumbent, short
from agent.files import disk_is_full
from agent.judging.judge import JUDGES, choose_judge
from agent.night.lab import Lab
from agent.night.limits import Limits
from agent.night.lock import only_night
from agent.night.opening import Request, known_night, open_night, other_data
from agent.night.record import write_ledger
from agent.night.stop import Stop, like_ctrl_c
from agent.proposers.ahead import Outbox
from agent.proposers.registry import check_sources, patience_s, source_of
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.terms import Terms, changes, given, opened, resumed
from agent.runs.workshop import Workshop
from agent.sandbox.box import Mode, choose
from agent.sandbox.limits import limits_of_machine
from agent.script.contract import check_script
from agent.script.dials import read_dials, searched
from agent.text import harmless
from agent.view.screen import Screen, steadfast

DRY_RUN_FROM_S = 60.0  # of budget: below it, a dry run costs about what it saves
Source = Callable[[Night], Proposer]


@contextmanager
def open_lab(
    options: argparse.Namespace,
    limits: Limits,
    source: Source | None = None,  # None: as the night's terms say
    *,
    baseline: Callable[[Place], str] | None = None,
    aside: bool = False,  # what is said goes to stderr: stdout is for a program
) -> Iterator[Lab]:
    """Raises NightshiftError before anything is written where something does not fit.

    Sets options.tag to the tag of the night, for whoever tells how to go on.
    """
    place = Place.of(options.script)
    with ExitStack() as undo:
        # the lock comes before the tag: two nights begun at once must not find the same tag free
        tell = undo.enter_context(only_night(place.repo.common_dir()))
        with like_ctrl_c():
            before, terms = terms_of(place, options)
            if source is None:
                check_sources(terms, given(options))
            box = choose(Mode(terms.sandbox))
            request = Request(options.tag, options.budget_s, options.seed, terms, limits.hours)
            searches = source is None and terms.proposer == "search"
            night = open_night(place, request, searched if searches else read_dials)
        options.tag, folder = night.tag, place.folder(night.tag)
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
        if before is not None:
            go_on(before, night, journal, screen)
        outbox = Outbox(lambda: stop.after_run)
        shop = Workshop(night, folder, box, limits_of_machine(), terms.allowance_s, lambda: stop.now, screen.progressed)
        yield Lab(
            place=place,
            journal=journal,
            shop=shop,
            proposer=source(night) if source is not None else source_of(place)(night, outbox),
            outbox=outbox if source is None else None,
            judge=choose_judge(terms.judge, terms.confirm),
            watcher=screen,
            stop=stop,
            limits=limits,
            plausible_gain=terms.plausible_gain / 100,
            baseline=baseline,
            early_stop=terms.early_stop,
            dry_runs=terms.dry_run and night.budget_s >= DRY_RUN_FROM_S,
            patience_s=patience_s(terms) if source is None else 0.0,
        )


def terms_of(place: Place, options: argparse.Namespace) -> tuple[Night | None, Terms]:
    """The night that goes on, if one does, and its terms with what these options ask; raises NightError."""
    before = known_night(place, options.tag)
    if before is None:
        return None, opened(given(options))
    return before, resumed(before.tag, Terms.from_json(before.terms), given(options))


def go_on(before: Night, night: Night, journal: Journal, screen: Screen) -> None:
    """Keep the terms that were changed, and say what is otherwise than somebody may think."""
    if night.terms != before.terms:
        journal.record_terms(night.terms)
    for change in changes(Terms.from_json(before.terms), Terms.from_json(night.terms)):
        screen.said(f"night {night.tag} goes on with {change}")
    other = other_data(night)
    if other is not None:
        screen.said(other)


def greet(lab: Lab, limits: Limits) -> None:
    """Say what the night works with, and until when."""
    night, shop, say = lab.shop.night, lab.shop, lab.watcher.said
    terms = Terms.from_json(night.terms)
    until = [f"{limits.experiments} experiments after attempt 0"] if limits.experiments else []
    until += [f"{limits.hours:g} hours"] if limits.hours else []
    say(f"night {night.tag} on branch {short(night.branch)}")
    say(f"  script   {lab.place.script_path}")
    say(f"  device   {night.device} ({night.device_kind})")
    say(f"  budget   {night.budget_s:g} s of training a run; {', '.join(until) or 'until stopped'}")
    say(f"  data     {night.data} (protocol {night.protocol})")
    say(f"  judge    {JUDGES[terms.judge]}")
    say(f"  ideas    {_ideas(terms)}")
    say(f"  sandbox  {shop.box.name}")
    for gap in shop.box.uncovered:
        say(f"           not covered: {gap}")
    say(f"  logs     {shop.folder / 'runs'}")
    history = lab.journal.attempts()
    calibration = 0 if incumbent(history) else getattr(lab.judge, "calibration", 1)
    shortage = limits.shortage(lab.pace(history), calibration)
    if shortage:
        say(f"  hours    {shortage}")
    say("  Ctrl-C ends after the current run, a second one ends the run too")


def _ideas(terms: Terms) -> str:
    """Where they come from, and what is known of it."""
    named = [(terms.llm, "llm"), (terms.agent, "command")]
    who = [one for one, proposer in named if one is not None and terms.proposer in (proposer, "mix")]
    cap = [f"at most ${terms.max_cost:g} for language models"] if terms.llm in who and terms.max_cost else []
    return f"{terms.proposer}{': ' if who else ''}{', '.join(harmless(word) for word in (*who, *cap))}"


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
