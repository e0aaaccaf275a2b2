"""Put a night's context together: lock, box, night, journal, judge and proposer, opened in order and closed again."""

import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console

from agent.clock import kept_awake
from agent.errors import NightError, NightHalted
from agent.experiment import Lease, Night, Proposer
from agent.files import disk_is_full
from agent.judging.judges.choice import choose_judge
from agent.night.opening.limits import Limits
from agent.night.opening.lock import only_night
from agent.night.opening.night import Request, open_night, other_data
from agent.night.opening.stop import Stop, like_ctrl_c
from agent.night.planning.context import NightContext
from agent.pools.leases import leases_of_night
from agent.pools.local import LocalPool
from agent.proposers.ahead import Outbox
from agent.proposers.registry import check_sources, dial_check, has_reader, patience_s, proposer_of
from agent.proposers.source import Surroundings
from agent.records.journal import Journal
from agent.records.ledger.ledger import Ledger
from agent.records.place import Place, known_night
from agent.records.terms import Terms, changes, opened, resumed
from agent.runs.runner import Runner
from agent.sandbox.box import Box, Mode, choose
from agent.sandbox.watch import limits_of_machine
from agent.script.contract import check_script
from agent.script.dials import read_dials
from agent.view.live.screen import Screen
from agent.view.page.writer import PageWriter
from agent.view.screen import steadfast

if TYPE_CHECKING:
    from agent.pools.cluster.cluster import Cluster

DRY_RUN_FROM_S = 60.0  # of budget: below it, a dry run costs about what it saves
PROFILE_FROM_S = 20.0  # of budget: below it, starting the profiler takes longer than a tenth of a run
REPORT_FROM_S = 5.0  # of budget: writing the page takes about as long as shorter runs


@dataclass(frozen=True, slots=True)
class Setup:
    """Hold the choices of a command for its night; None leaves one to the harness, or to the night that goes on."""

    place: Place
    tag: str | None
    budget_s: float | None
    seed: int | None
    asked: Mapping[str, Any]  # the terms that were named
    limits: Limits = field(default_factory=Limits)
    proposer: Proposer | None = None  # None: as the night's terms say
    baseline: Callable[[Place], str] | None = None  # attempt 0's script; None: as it stands in the working tree
    aside: bool = False  # print to stderr, since stdout is for a program
    dataset: str | None = None  # to be prepared for a new night; None: the corpus that is selected


@contextmanager
def _naming(tag: str) -> Iterator[None]:
    """Raise NightHalted, which names the night, for a failure of the machine."""
    try:
        yield
    except BrokenPipeError:  # of stdout: the machine is well
        raise
    except (OSError, sqlite3.OperationalError) as error:
        raise NightHalted(tag, error) from error


@contextmanager
def open_context(setup: Setup) -> Iterator[NightContext]:
    """Open the night and yield its context.

    Raise NightshiftError for a misuse, before anything is written, and NightHalted when the machine fails later.
    """
    place = setup.place
    with ExitStack() as undo:
        # the lock comes before the tag: two nights begun at once must not find the same tag free
        tell = undo.enter_context(only_night(place.repo.common_dir))
        with like_ctrl_c():
            before, terms = terms_of(place, setup.tag, setup.asked)
            cluster = undo.enter_context(cluster_of(terms))
            night, box = _open(setup, terms, cluster)
        undo.enter_context(_naming(night.tag))
        tell(night.tag, place.folder(night.tag), setup.limits.hours, setup.limits.experiments)
        stop = Stop(place.folder(night.tag))
        stop.forget()
        undo.enter_context(stop.on_signals())
        undo.enter_context(kept_awake())
        journal = undo.enter_context(Journal.resume(place.journal(night.tag)))
        journal.record_call(terms.workers)
        undo.enter_context(last_row(place, journal))
        stream = steadfast(sys.stderr if setup.aside else sys.stdout)
        runs = choose_judge(terms.judge, terms.confirm).calibration
        screen = Screen(
            *(Console(file=stream), night.budget_s, lambda: stop.after_run), stopping_now=lambda: stop.now,
            calibration=runs, for_author=setup.proposer is not None, workers=terms.workers, calls=journal.calls(),
        )  # fmt: skip
        undo.callback(screen.close)
        if before is not None:
            take_up_changes(before, night, journal, screen)
        context = _put_together(setup, terms, night, journal, box, stop, screen)
        if cluster is not None:
            context = undo.enter_context(_on_cluster(context, cluster, terms.workers))
        else:
            pool = undo.enter_context(closing(_pool(context.runner, leases_of_night(night))))
            context = replace(context, pool=pool)
        if terms.report and night.budget_s >= REPORT_FROM_S:
            page = undo.enter_context(PageWriter(place, night.tag, screen.said, lambda: stop.now))
            context = replace(context, attempt_settled=page.attempt_settled)
        yield context


@contextmanager
def cluster_of(terms: Terms) -> Iterator["Cluster | None"]:
    """Yield the Ray cluster that the terms name, connected; None where the workers are on this machine."""
    if terms.pool != "ray":
        yield None
        return
    from agent.pools.cluster.cluster import Cluster

    with closing(Cluster(terms.ray_address)) as cluster:
        cluster.open()
        yield cluster


@contextmanager
def _on_cluster(context: NightContext, cluster: "Cluster", workers: int) -> Iterator[NightContext]:
    """Yield the context with workers of a cluster; the time of a step's phases is not measured there."""
    from agent.pools.cluster.pool import RayPool

    first = next((attempt.done_runs for attempt in context.journal.attempts()), ())
    with closing(RayPool(cluster, context.runner, workers, first)) as pool:
        yield replace(context, pool=pool, measures_phases=False)


def _open(setup: Setup, terms: Terms, cluster: "Cluster | None") -> tuple[Night, Box]:
    """Check sources and sandbox, then open or resume the night: all refusals come from here."""
    if setup.proposer is None:
        check_sources(terms, setup.asked)
    box = choose(Mode(terms.sandbox))
    devices = None
    if cluster is not None:
        terms = cluster.divided(terms)
        devices = partial(cluster.facts, terms)
    request = Request(setup.tag, setup.budget_s, setup.seed, terms, setup.limits.hours, setup.dataset, devices)
    return open_night(setup.place, request, read_dials if setup.proposer else dial_check(terms)), box


def _put_together(
    setup: Setup, terms: Terms, night: Night, journal: Journal, box: Box, stop: Stop, screen: Screen
) -> NightContext:
    place, folder = setup.place, setup.place.folder(night.tag)
    outbox, asks_sources = Outbox(lambda: stop.after_run), setup.proposer is None
    lease = leases_of_night(night)[0]
    limits = limits_of_machine(lease.share)
    runner = Runner(night, folder, box, limits, terms.allowance_s, lambda: stop.now, screen.progressed, lease=lease)
    return NightContext(
        place=place,
        journal=journal,
        ledger=Ledger(place),
        runner=runner,
        proposer=setup.proposer or proposer_of(Surroundings(place, night, terms, outbox)),
        outbox=outbox if asks_sources else None,
        measures_phases=asks_sources and has_reader(terms) and night.budget_s >= PROFILE_FROM_S,
        asks_ahead=asks_sources and patience_s(terms) > 0,
        has_reader=asks_sources and has_reader(terms),
        judge=choose_judge(terms.judge, terms.confirm),
        watcher=screen,
        stop=stop,
        limits=setup.limits,
        plausible_gain=terms.plausible_gain / 100,
        baseline=setup.baseline,
        early_stop=terms.early_stop,
        dry_runs=terms.dry_run and night.budget_s >= DRY_RUN_FROM_S,
        patience_s=patience_s(terms) if asks_sources else 0.0,
    )


def _pool(runner: Runner, leases: Sequence[Lease]) -> LocalPool:
    """Return the workers of this machine; they divide its memory, and each has its own cores or GPU."""
    return LocalPool([replace(runner, lease=lease) for lease in leases])


def terms_of(place: Place, tag: str | None, asked: Mapping[str, Any]) -> tuple[Night | None, Terms]:
    """Return the night that goes on, if one does, and its terms with those asked for; raise NightError for a clash."""
    before = known_night(place, tag)
    if before is None:
        return None, opened(asked)
    return before, resumed(before.tag, Terms.from_json(before.terms), asked)


def take_up_changes(before: Night, night: Night, journal: Journal, screen: Screen) -> None:
    """Record the terms that were changed, and tell the user of them and of data in another place."""
    if night.terms != before.terms:
        journal.record_facts(terms=night.terms)
    if night.data != before.data:
        journal.record_facts(data=night.data, pins=night.pins)
        screen.said(f"night {night.tag} goes on with its corpus in {night.data}")
    for change in changes(Terms.from_json(before.terms), Terms.from_json(night.terms)):
        screen.said(f"night {night.tag} goes on with {change}")
    other = other_data(night)
    if other is not None:
        screen.said(other)


def committed(place: Place) -> str:
    """Return the script as it stands in HEAD: edits of the working tree are measured against it."""
    source = place.repo.read("HEAD", place.script).removeprefix("\ufeff")  # as Python reads it
    check_script(source, place.script)
    return source


@contextmanager
def last_row(place: Place, journal: Journal) -> Iterator[None]:
    """Write the ledger once more where a full disk ends the night, so that each attempt has its row."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        if disk_is_full(error):
            journal.give_reserve()
            with suppress(OSError, sqlite3.OperationalError, NightError):
                Ledger(place).write(live=(journal.night(), journal.attempts()))
        raise
