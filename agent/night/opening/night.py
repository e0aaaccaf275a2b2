"""Open a night, or resume one. All refusals come before anything is written."""

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.clock import utc_now
from agent.errors import MachineError, NightError, RepoError
from agent.experiment import WHOLE, Lease, Night
from agent.files import ignore_all
from agent.invocation import typed
from agent.night.opening.corpus import check_corpus
from agent.night.opening.limits import Pace, check_hours
from agent.night.opening.tags import new_tag
from agent.pools.leases import leases_of_machine, leases_of_night
from agent.records import checksums
from agent.records.journal import Journal
from agent.records.place import Place, known_night, new_id, read_script
from agent.records.terms import Terms
from agent.runs.fixed import check_same_machine, device_kind, keep_machine, probe, protocol
from agent.script.contract import fixed_files
from agent.script.dials import read_dials
from hardware import cache_root

MIN_FREE_BYTES = 1 << 30  # logs, weights of the kept attempts and git objects of a night, with room to spare


@dataclass(frozen=True, slots=True)
class Request:
    """The user's choices for a night; None leaves the choice to the harness, or to the night that is resumed."""

    tag: str | None = None
    budget_s: float | None = None
    seed: int | None = None
    terms: Terms | None = None  # those of the night, with the changes that were asked for
    hours: float | None = None  # of this call
    dataset: str | None = None  # to be prepared; None: the corpus that is selected
    devices: Callable[[Path, Sequence[str], Mapping[str, Any], str | None], Mapping[str, Any]] | None = None
    """Return these facts of this machine, with the device of a cluster in place of its own; None: there is none."""


def open_night(place: Place, request: Request, check_dials: Callable[[str, str], object] = read_dials) -> Night:
    """Resume the night of this tag, or open a new one; raise NightshiftError with the remedy.

    check_dials(script, device_kind) raises ScriptError if the proposer cannot work with the script's dials.
    """
    check_disk(place.repo.root)
    before = known_night(place, request.tag)
    if before is not None:
        return _resume(place, request, before)
    return _begin(place, request, check_dials)


def other_data(night: Night) -> str | None:
    """Return a warning if $NIGHTSHIFT_DATA names other data than the resumed night's; else None."""
    named = os.environ.get("NIGHTSHIFT_DATA")
    if not named or Path(named).expanduser().resolve() == Path(night.data).resolve():
        return None
    return f"NIGHTSHIFT_DATA is {named}, but night {night.tag} keeps the data that it began with: {night.data}"


def check_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise MachineError(
            f"{free / 2**30:.2f} GB are free on the disk of {folder}, a night wants "
            f"{MIN_FREE_BYTES / 2**30:.0f} GB; see what earlier nights take with {typed('nights')}, and free it with "
            f"{typed('archive', '--tag', 'TAG', '--prune-weights')}; then give the same command again"
        )


def branch_name(budget_s: float, tag: str) -> str:
    minutes, rest = divmod(budget_s, 60)
    # 300 → 5min, 600 → 10min, but 90 → 90s
    length = f"{minutes:.0f}min" if rest == 0 and minutes >= 1 else f"{budget_s:g}s"
    return f"refs/heads/experiments/{length}-{tag}"


def _begin(place: Place, request: Request, check_dials: Callable[[str, str], object]) -> Night:
    script = read_script(place)
    fixed = fixed_files(place.script_path.parent, script)
    tag = new_tag(place, request.tag)
    place.check_own(tag)  # notes and compiled code of somebody else's would count as the night's
    if place.repo.find("refs/heads/experiments"):
        raise RepoError(
            "a branch called 'experiments' is in the way of experiments/…; rename it: "
            "git branch -m experiments experiments-old"
        )
    terms, lease = _first_lease(place.script_path.parent, request.terms or Terms())
    facts = probe(place.script_path.parent, dataset=request.dataset, lease=lease)
    if request.devices is not None:
        facts = dict(request.devices(place.script_path.parent, fixed, facts, None))
    check_dials(script, facts["device_kind"])
    budget_s = request.budget_s or float(facts["budget_s"])
    check_hours(request.hours, Pace.of((), (), budget_s))
    _lay_out_fixed(place, tag, fixed)
    night = Night(
        tag=tag,
        branch=branch_name(budget_s, tag),
        script=place.script,
        base=place.repo.find("HEAD") or "",
        budget_s=budget_s,
        seed=request.seed or 0,
        device_kind=facts["device_kind"],
        device=facts["device"],
        protocol=protocol(facts, budget_s),
        data=facts["data"],
        started=utc_now(),
        pins=checksums.take(place.folder(tag) / "fixed", Path(facts["data"])),
        terms=terms.as_json(),
        id=new_id(),
    )
    keep_machine(place.folder(tag), facts)
    with Journal.create(place.journal(tag), night):  # last: a folder without a journal is no night
        pass
    return night


def _first_lease(folder: Path, terms: Terms) -> tuple[Terms, Lease]:
    """Return the terms, with the cores that each worker has, and a lease of the night's device.

    A night on a CPU keeps their number, so that it can go on with fewer workers, or with more.
    """
    if terms.pool != "local" or (terms.workers, terms.cores_each) == (1, None):
        return terms, WHOLE
    kind = device_kind(folder)
    lease = leases_of_machine(kind, terms.workers, terms.cores_each)[0]
    return (replace(terms, cores_each=len(lease.cores)) if kind == "cpu" else terms), lease


def _lay_out_fixed(place: Place, tag: str, files: Iterable[str]) -> None:
    """Copy the fixed files as they are now, and the machine code that earlier nights and the user's runs compiled."""
    folder = place.folder(tag)
    shutil.rmtree(folder / "fixed", ignore_errors=True)  # of an opening that was interrupted
    (folder / "fixed").mkdir(parents=True)
    ignore_all(place.nights)
    for name in files:
        (folder / "fixed" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(place.script_path.parent / name, folder / "fixed" / name)
    for name in ("kernels", "blas"):
        if (cache_root() / name).is_dir():
            shutil.copytree(cache_root() / name, folder / "warm" / "cache" / name, dirs_exist_ok=True)


def check_kept(night: Night, budget_s: float | None, seed: int | None) -> None:
    """Raise NightError where a night is asked to go on with another budget or seed; None: not asked for."""
    for option, asked, kept in (("--budget-s", budget_s, night.budget_s), ("--seed", seed, night.seed)):
        if asked is not None and asked != kept:
            raise NightError(
                f"night {night.tag} has {option} {kept:g}, not {asked:g}; leave the option out to resume it, "
                f"or choose another --tag"
            )


def _resume(place: Place, request: Request, night: Night) -> Night:
    tag = night.tag
    with Journal.read(place.journal(tag)) as journal:
        check_hours(request.hours, Pace.of(journal.attempts(), (), night.budget_s))
    check_kept(night, request.budget_s, request.seed)
    if place.script != night.script:
        named = os.path.relpath(place.repo.root / night.script)  # from a folder below the root, too
        raise NightError(f"night {tag} works on {night.script}, not {place.script}; pass --script {shlex.quote(named)}")
    _check_dataset(night, request.dataset)
    night = check_corpus(night, place.folder(tag))
    fixed = place.folder(tag) / "fixed"
    checksums.verify(night, fixed)
    goes_on = night if request.terms is None else replace(night, terms=request.terms.as_json())
    facts = probe(fixed, night.data, lease=leases_of_night(goes_on)[0])
    if request.devices is not None:
        facts = dict(request.devices(fixed, checksums.names_in(fixed), facts, night.device))
    check_same_machine(night, facts)
    keep_machine(place.folder(tag), facts)
    return goes_on


def _check_dataset(night: Night, asked: str | None) -> None:
    """Refuse another text than the night's."""
    with suppress(OSError, ValueError, KeyError):  # probe() says what is wrong with the data
        kept = json.loads((Path(night.data) / "manifest.json").read_text())["dataset"]
        if asked is not None and os.path.realpath(asked) != os.path.realpath(kept):
            raise NightError(
                f"night {night.tag} trains on {kept}, not {asked}, so scores would not compare; leave --dataset out to "
                f"resume it, or choose another --tag"
            )
