"""Open a night, or go on with one, and put together the parts that it works with; all of it is closed again.

All refusals come before anything is written.
"""

import itertools
import math
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.archive import MANIFEST, at_home, missing_base, missing_corpus
from agent.clock import kept_awake, utc_now
from agent.errors import MachineError, NightError, NightHalted, RepoError
from agent.experiment import Night, Options, is_first_look
from agent.files import check_disk, home_folder, ignore_all, steadfast
from agent.git import refs_of_night
from agent.judging.judges import choose_judge
from agent.judging.studies import EverySeed
from agent.lab.data import load_data
from agent.night.limits import Limits, Pace, check_hours
from agent.night.lock import Stop, like_ctrl_c, only_night, tell_end
from agent.night.state import NightContext
from agent.pools.device_slots import slots_of_machine, slots_of_night
from agent.pools.pool import LocalPool, Pool
from agent.proposers.proposer import Around, Messages, Proposer
from agent.proposers.queue import waiting
from agent.proposers.registry import check_proposers, dial_check, patience_s, proposers_of
from agent.records.journal import Journal
from agent.records.options import changes, kept_as_it_is, opened, resumed
from agent.records.place import Place, known_night, new_id, read_script
from agent.records.results import tags_in
from agent.runs.fixed import (
    check_same_machine,
    device_kind,
    laid_out,
    lay_out_fixed,
    lay_out_warm,
    pins_of,
    probe,
    protocol,
    verify_pins,
)
from agent.runs.reported import takes
from agent.runs.runner import Runner
from agent.sandbox.places import check_shown, places_of
from agent.sandbox.sandboxes import choose
from agent.sandbox.supervisor import limits_of_machine
from agent.script.contract import fixed_files
from agent.script.dials import read_dials
from agent.text import budget, plainly
from agent.view.live import NightScreen
from agent.view.screen import at_work, console_on
from agent.view.writer import PageWriter
from agent.work import WHOLE, DeviceSlot

if TYPE_CHECKING:
    from agent.pools.cluster import Cluster

REPORT_FROM_S = 5.0  # s of budget; in a night of shorter runs, writing the page would take as long as a run


@dataclass(frozen=True, slots=True)
class Request:
    """The choices of a command for its night; None leaves one to the harness, or to the resumed night."""

    place: Place
    tag: str | None = None
    budget_s: float | None = None
    seed: int | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)  # options that the user named
    limits: Limits = field(default_factory=Limits)
    proposers: Sequence[Proposer] | None = None  # None: the night's options name them
    baseline: Callable[[Place, str | None], str] = read_script  # attempt 0's script
    dataset: str | None = None  # data set to prepare for a new night; None: the corpus that the folder uses
    goes_on: bool = False  # the Ray cluster was lost: wait for it, and keep earlier wishes to end the night


@contextmanager
def open_context(request: Request) -> Iterator[NightContext]:
    """Open the night and yield its context.

    Raise NightshiftError for a misuse, before anything is written, and NightHalted when the machine fails later.
    """
    place, limits, by_options = request.place, request.limits, request.proposers is None
    say_opened: Callable[[bytes], object] | None = None
    place.check_own_results()
    with ExitStack() as undo:
        undo.enter_context(redirect_stdout(steadfast(sys.stdout)))
        if options_of(place, request.tag, request.asked)[1].pool == "ray":
            from agent.pools.cluster import outlive_cluster

            tag, say_opened = outlive_cluster()
            request = replace(request, tag=tag or request.tag, goes_on=tag is not None)
        # the lock comes before the tag: two nights begun at once must not find the same tag free
        tell = undo.enter_context(only_night(place.repo.common_dir))
        with like_ctrl_c():
            before, options = options_of(place, request.tag, request.asked)
            if before is not None and request.proposers:
                check_no_study(before)
            cluster = undo.enter_context(_cluster_of(options, request))
            if by_options:
                check_proposers(options, request.asked)
            sandbox = choose(options.sandbox)
            with at_work("opening the night: checking script, device and data"):
                night = open_night(request, before, options if cluster is None else cluster.divided(options), cluster)
        folder, budget_s = place.folder(night.tag), night.budget_s
        journal = undo.enter_context(_open_journal(place, night.tag))
        tell(night.tag, folder, limits)
        if say_opened is not None:
            say_opened(night.tag.encode())
        stop = Stop(folder)
        if not request.goes_on:
            stop.forget()
        undo.enter_context(stop.on_signals())
        undo.enter_context(kept_awake())
        journal.record_call()
        screen = NightScreen(console_on(sys.stdout), folder, limits.left, lambda: stop.after_run, lambda: stop.now)
        undo.callback(screen.close)
        if before is not None:
            # these facts may have changed
            journal.record_facts(options=night.options, data=night.data, pins=night.pins)
            for change in changes(before.options, night.options):
                screen.said(f"night {night.tag} goes on with {change}")
        slots = slots_of_night(night)
        machine = limits_of_machine(slots[0].share)
        runner = Runner(night, folder, sandbox, machine, lambda: stop.now, screen.progressed, slot=slots[0])
        messages = Messages(journal.record_ask, lambda: stop.after_run)
        context = NightContext(
            place=place,
            journal=journal,
            runner=runner,
            pool=undo.enter_context(closing(_pool(runner, slots, cluster, options))),
            proposers=proposers_of(Around(place, night, options, messages))
            if request.proposers is None
            else request.proposers,
            judge=choose_judge(options.judge, options.confirm) if options.study is None else EverySeed(options.study),
            watcher=screen,
            stop=stop,
            limits=limits,
            baseline=request.baseline,
            # In a first look, a dry run would cost as much as it saves, and only our contract has a way to make one.
            dry_runs=options.dry_run and not is_first_look(budget_s) and not options.metric,
            patience_s=patience_s(options) if by_options else 0.0,
            messages=messages,
        )
        if options.report and budget_s >= REPORT_FROM_S:
            page = undo.enter_context(PageWriter(place, night.tag, screen.said, lambda: stop.now))
            undo.callback(
                tell_end, place.repo.common_dir
            )  # The last page is drawn after this, and no longer loads itself.
            context = replace(context, record_changed=page.record_changed)
        yield context


def options_of(place: Place, tag: str | None, asked: Mapping[str, Any]) -> tuple[Night | None, Options]:
    """Return the night that goes on, if one does, and its options with those asked; raise NightError if they clash."""
    before = known_night(place, tag)
    return before, opened(asked) if before is None else resumed(before.tag, before.options, asked)


@contextmanager
def _cluster_of(options: Options, request: Request) -> Iterator["Cluster | None"]:
    """Yield the Ray cluster that the options name, connected; None where the workers are on this machine.

    One that is gone is waited for until the night's hours are over, or it is to end.
    """
    if options.pool != "ray":
        yield None
        return
    from agent.pools.cluster import Cluster

    patience_s: float | None = 0.0
    if request.goes_on and not Stop(request.place.folder(str(request.tag))).after_run:
        patience_s = request.limits.left(0).seconds
    with closing(Cluster(options.ray_address)) as cluster:
        cluster.open(math.inf if patience_s is None else patience_s)
        yield cluster


def _pool(runner: Runner, slots: Sequence[DeviceSlot], cluster: "Cluster | None", options: Options) -> Pool:
    """Return the workers of a cluster, or of this machine, where each has its own cores or GPU."""
    if cluster is None:
        return LocalPool([replace(runner, slot=slot) for slot in slots])
    from agent.pools.ray_pool import RayPool

    return RayPool(cluster, runner, options.workers)


@contextmanager
def _open_journal(place: Place, tag: str) -> Iterator[Journal]:
    """Yield the journal of a night. Where the machine fails, raise NightHalted, which names the night."""
    try:
        with Journal.resume(place.journal(tag)) as journal:
            yield journal
    except (OSError, sqlite3.OperationalError) as error:
        raise NightHalted(tag, error) from error


# ---- the facts of a night --------------------------------------------------------------------------------------------


def open_night(request: Request, before: Night | None, options: Options, cluster: "Cluster | None") -> Night:
    """Resume the night that was there before, with these options, or open a new one; raise NightshiftError."""
    check_disk(request.place.repo.root)
    if options.metric and request.dataset is not None:
        raise NightError(f"--dataset {request.dataset} is no text for this script; show it its data with --read PATH")
    check_shown(map(Path, options.read), filter(None, (home_folder(), request.place.repo.root)))
    if options.python is not None:
        places_of(options.python)
    return _begin(request, options, cluster) if before is None else _resume(request, before, options, cluster)


def _begin(request: Request, options: Options, cluster: "Cluster | None") -> Night:
    place, beside = request.place, request.place.script_path.parent
    metric = options.metric
    script = read_script(place, metric)
    names = fixed_files(beside, script, is_scored=metric is None)
    tag = _new_tag(place, request.tag)
    if place.repo.find("refs/heads/experiments"):
        raise RepoError(
            "a branch called 'experiments' is in the way of experiments/…; rename it: "
            "git branch -m experiments experiments-old"
        )
    folder, fixed = place.folder(tag), place.folder(tag) / "fixed"

    def lay_out() -> None:
        """Copy the fixed files as they are now, and lay out the machine code for the night's runs."""
        shutil.rmtree(fixed, ignore_errors=True)  # an interrupted opening may have left one
        fixed.mkdir(parents=True)
        ignore_all(place.nights)
        lay_out_fixed(beside, names, fixed)
        lay_out_warm(folder)

    with laid_out(beside, names) as asked:
        options, slot = _first_slot(asked, options)
        reported = _reported(place, options)
        facts: Mapping[str, Any] = probe(asked, None, request.dataset, slot, used_in=beside, reported=reported)
    if cluster is not None:
        lay_out()  # nodes get these files
        facts = cluster.facts(options, fixed, facts, None)
    is_fed = request.proposers is not None or waiting(place.queue)  # where edits wait, nothing has to be searched
    check = read_dials if is_fed else dial_check(options)
    check(script, facts["device_kind"], strict=metric is None)  # other scripts have other brackets in their comments
    budget_s = request.budget_s or _limit_as_budget(script, options) or float(facts["budget_s"])
    if options.limit_s is not None and options.limit_s < budget_s:
        raise NightError(f"--limit-s {options.limit_s:g} is less than the budget of {budget_s:g} s; raise it")
    data = facts.get("data", str(folder / "none"))
    check_hours(request.limits.hours, Pace.of((), (), budget_s))
    if cluster is None:
        lay_out()
    night = Night(
        tag=tag,
        branch=f"refs/heads/experiments/{budget(budget_s).replace(' ', '')}-{tag}",
        script=place.script,
        base=place.repo.find("HEAD") or "",
        budget_s=budget_s,
        seed=request.seed or 0,
        device_kind=facts["device_kind"],
        device=facts["device"],
        protocol=protocol(facts, budget_s),
        data=data,
        started=utc_now(),
        pins=pins_of(fixed, Path(data)),
        options=options,
        id=new_id(),
        cores=facts.get("cores"),
        memory_bytes=facts.get("memory_bytes"),
    )
    with Journal.create(place.journal(tag), night):  # last: a folder without a journal is no night
        pass
    return night


def _reported(place: Place, options: Options) -> str | None:
    """Return whose number a night compares, where its script reports that itself."""
    return f"{place.script} {options.metric}" if options.metric else None


def _limit_as_budget(script: str, options: Options) -> float | None:
    """Return the limit of a run as its budget, for a script that cannot be told one."""
    return None if not options.metric or takes(script, "--budget-s") else options.limit_s


def _first_slot(folder: Path, options: Options) -> tuple[Options, DeviceSlot]:
    """Return the options, with the cores that each worker has, and a device slot of the night's device.

    A night on a CPU keeps their number, so that it can go on with fewer workers, or with more.
    """
    if options.pool != "local" or (options.workers, options.cores_each) == (1, None):
        return options, WHOLE
    kind = device_kind(folder)
    slot = slots_of_machine(kind, options.workers, options.cores_each)[0]
    return (replace(options, cores_each=len(slot.cores)) if kind == "cpu" else options), slot


def check_no_study(night: Night) -> None:
    """Raise NightError where a night that is to try edits is a study, whose arms are all that it runs."""
    if night.options.study is not None:
        raise NightError(
            f"night {night.tag} is a study, which runs the arms of its plan alone; leave --tag out, and another night "
            f"tries the edit"
        )


def check_kept(night: Night, budget_s: float | None, seed: int | None) -> None:
    """Raise NightError where a night is asked to go on with another budget or seed; None: not asked for."""
    for option, asked, kept in (("--budget-s", budget_s, night.budget_s), ("--seed", seed, night.seed)):
        if asked is not None and asked != kept:
            raise kept_as_it_is(night.tag, f"{option} {plainly(kept)}", plainly(asked))


def _resume(request: Request, night: Night, options: Options, cluster: "Cluster | None") -> Night:
    place, folder = request.place, request.place.folder(night.tag)
    with Journal.read(place.journal(night.tag)) as journal:
        check_hours(request.limits.hours, Pace.of(journal.attempts(), (), night.budget_s))
    check_kept(night, request.budget_s, request.seed)
    if place.script != night.script:
        raise kept_as_it_is(night.tag, f"--script {night.script}", place.script)
    obstacle = missing_base(place, night)
    if obstacle is not None:
        raise NightError(f"night {night.tag} cannot go on: {obstacle}")
    moved = at_home(night)
    if moved is None and (folder / MANIFEST).is_file():
        raise MachineError(f"{missing_corpus(night, folder)}; then give the same command")
    night = replace(moved or night, options=options)  # the checksums tell whether its corpus was deleted
    fixed = folder / "fixed"
    verify_pins(night, fixed)
    if request.dataset is not None:
        dataset = load_data(Path(night.data), verify=False).manifest["dataset"]
        if request.dataset != dataset:
            raise kept_as_it_is(night.tag, f"--dataset {dataset}", request.dataset)
    slot, reported = slots_of_night(night)[0], _reported(place, options)
    facts: Mapping[str, Any] = probe(fixed, night.data, slot=slot, reported=reported)
    if cluster is not None:
        facts = cluster.facts(options, fixed, facts, night.device)
    check_same_machine(night, facts)
    lay_out_warm(folder)  # a night that was packed has none, and a new machine only what the probe of it has compiled
    return night


# ---- its names -------------------------------------------------------------------------------------------------------


def _new_tag(place: Place, asked: str | None) -> str:
    """Return the tag of a new night: the one asked for, else the first of nov20, nov20-2 … that nothing here knows.

    Raise NightError where the one asked for is taken.
    """
    wanted, in_results = asked or datetime.now().strftime("%b%d").lower(), tags_in(place.results)
    for tag in itertools.chain([wanted], (f"{wanted}-{number}" for number in itertools.count(2))):
        traces = (place.journal(tag).exists(), place.packed(tag).exists(), refs_of_night(place.repo, tag))
        if tag not in in_results and not any(traces):
            break
    if asked not in (None, tag):
        raise NightError(
            f"tag {asked} is taken by refs or rows of results.tsv whose journal is not here; use --tag {tag}"
        )
    place.check_own(tag)  # notes and compiled code of somebody else's would count as the night's
    return tag
