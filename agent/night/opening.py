"""How a night opens: everything that can be refused is refused here, before anything is written."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.clock import utc_now
from agent.errors import MachineError, NightError, RepoError
from agent.experiment import Night
from agent.files import throwaway_folder
from agent.git.repo import valid_tag
from agent.invocation import typed
from agent.night.limits import Pace, check_hours
from agent.records import checksums as pins
from agent.records import ledger
from agent.records.journal import Journal
from agent.records.place import Place, read_script
from agent.records.terms import Terms
from agent.sandbox.process import end
from agent.script.contract import fixed_files
from agent.script.dials import read_dials
from hardware import cache_root

MIN_FREE_BYTES = 1 << 30  # logs, weights of the kept attempts and git objects of a night, with room to spare
PROBE = Path(__file__).parents[1] / "runs" / "probe.py"


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for; None leaves the choice to the harness, or to the night that is resumed."""

    tag: str | None = None
    budget_s: float | None = None
    seed: int | None = None
    terms: Terms | None = None  # what the night has and what was asked for, together
    hours: float | None = None  # of this call


def open_night(place: Place, request: Request, check_dials: Callable[[str, str], object] = read_dials) -> Night:
    """Resume the night of this tag, or open a new one; raises NightshiftError with the remedy.

    check_dials(script, device_kind) raises what the proposer would have to say about the script's dials.
    """
    before = known_night(place, request.tag)
    check_disk(place.repo.root)
    if before is not None:
        return _resume(place, request, before)
    return _begin(place, request, check_dials)


def known_night(place: Place, tag: str | None) -> Night | None:
    """The night of this tag, as its journal here has it; None where a new one is to be opened."""
    if tag is None:
        return None
    if not valid_tag(tag):
        raise NightError(f"{tag!r} is no tag; use letters, digits, '.', '_' and '-', as in nov20-wide")
    if not place.journal(tag).exists():
        return None
    with Journal.read(place.journal(tag)) as journal:
        return journal.night()


def other_data(night: Night) -> str | None:
    """What to say where $NIGHTSHIFT_DATA names other data than those of a night that goes on."""
    named = os.environ.get("NIGHTSHIFT_DATA")
    if not named or Path(named).expanduser().resolve() == Path(night.data).resolve():
        return None
    return f"NIGHTSHIFT_DATA is {named}, but night {night.tag} keeps the data that it began with: {night.data}"


def check_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise MachineError(
            f"{free / 2**30:.2f} GB are free on the disk of {folder}, a night wants "
            f"{MIN_FREE_BYTES / 2**30:.0f} GB; remove old weights in experiments/nights"
        )


def branch_name(budget_s: float, tag: str) -> str:
    minutes, rest = divmod(budget_s, 60)
    # 300 → 5min, 600 → 10min, but 90 → 90s
    length = f"{minutes:.0f}min" if rest == 0 and minutes >= 1 else f"{budget_s:g}s"
    return f"refs/heads/experiments/{length}-{tag}"


def free_tag(place: Place, wanted: str) -> str:
    """wanted, or wanted-2, wanted-3 … : the first that no journal, ref or ledger row knows."""
    known = ledger.tags_in(place.ledger)
    tag, count = wanted, 1
    while tag in known or _traces(place, tag):
        count += 1
        tag = f"{wanted}-{count}"
    return tag


def probe(folder: Path, data: str | None = None) -> dict[str, Any]:
    """Device, data and default budget as the fixed files here have them; data that is missing is prepared first."""
    environment = dict(os.environ) | ({"NIGHTSHIFT_DATA": data} if data else {})
    with throwaway_folder() as aside:
        answer = aside / "answer.json"
        command = [sys.executable, str(PROBE), str(answer)]
        status = _call(command, folder, environment)
        if status != 0 or not answer.exists():
            raise MachineError(f"device and data could not be read (exit code {status}); run: {typed('doctor')}")
        facts = json.loads(answer.read_text())
    if "error" in facts:
        raise MachineError(facts["error"].replace("nightshift doctor", typed("doctor")))  # it cannot know how we began
    return dict(facts)


def _call(command: list[str], folder: Path, environment: Mapping[str, str]) -> int:
    """The exit status of a command; when a signal ends the waiting, the command is ended too."""
    # a session of its own: a Ctrl-C then goes to us alone, and not to every process that it prepares data with
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=sys.stderr, start_new_session=True)
    try:
        return process.wait()
    finally:
        end(process)


def protocol(facts: Mapping[str, Any], budget_s: float) -> str:
    """Fingerprint of what makes two scores comparable: data and evaluation rows, budget, device kind."""
    text = f"{facts['fingerprint']} {budget_s:g} {facts['device_kind']}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _begin(place: Place, request: Request, check_dials: Callable[[str, str], object]) -> Night:
    script = read_script(place)
    fixed = fixed_files(place.script_path.parent, script)
    tag = _new_tag(place, request.tag)
    if place.repo.find("refs/heads/experiments"):
        raise RepoError(
            "a branch called 'experiments' is in the way of experiments/…; rename it: "
            "git branch -m experiments experiments-old"
        )
    facts = probe(place.script_path.parent)
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
        pins=pins.take(place.folder(tag) / "fixed", Path(facts["data"])),
        terms=(request.terms or Terms()).as_json(),
    )
    with Journal.create(place.journal(tag), night):  # last: a folder without a journal is no night
        pass
    return night


def _lay_out_fixed(place: Place, tag: str, files: Iterable[str]) -> None:
    """The fixed files as they are now, and the machine code that earlier nights and runs of the user's own compiled."""
    folder = place.folder(tag)
    shutil.rmtree(folder / "fixed", ignore_errors=True)  # of an opening that was interrupted
    (folder / "fixed").mkdir(parents=True)
    (place.nights / ".gitignore").write_text("*\n")
    for name in files:
        (folder / "fixed" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(place.script_path.parent / name, folder / "fixed" / name)
    for name in ("kernels", "blas"):
        if (cache_root() / name).is_dir():
            shutil.copytree(cache_root() / name, folder / "warm" / "cache" / name, dirs_exist_ok=True)


def _resume(place: Place, request: Request, night: Night) -> Night:
    tag = night.tag
    with Journal.read(place.journal(tag)) as journal:
        check_hours(request.hours, Pace.of(journal.attempts(), (), night.budget_s))
    budget, seed = ("--budget-s", request.budget_s, night.budget_s), ("--seed", request.seed, night.seed)
    for option, asked, fixed in (budget, seed):
        if asked is not None and asked != fixed:
            raise NightError(
                f"night {tag} has {option} {fixed:g}, not {asked:g}; leave the option out to resume it, "
                f"or choose another --tag"
            )
    if place.script != night.script:
        raise NightError(f"night {tag} works on {night.script}, not {place.script}; pass --script {night.script}")
    pins.verify(night, place.folder(tag) / "fixed")
    _check_same_machine(night, probe(place.folder(tag) / "fixed", night.data))
    return night if request.terms is None else replace(night, terms=request.terms.as_json())


def _check_same_machine(night: Night, facts: Mapping[str, Any]) -> None:
    """The protocol knows only the kind of a device; within a night a slower one of the kind would spoil the scores."""
    if facts["device"] != night.device:
        raise NightError(
            f"night {night.tag} runs on {night.device}, this is {facts['device']}: it trains faster or slower, so "
            f"scores would not compare; use another --tag"
        )
    now = protocol(facts, night.budget_s)
    if now != night.protocol:
        raise NightError(
            f"night {night.tag} has protocol {night.protocol}, here and now it would be {now}: the data are others, "
            f"so scores would not compare; use another --tag"
        )


def _new_tag(place: Place, asked: str | None) -> str:
    if asked is None:
        return free_tag(place, datetime.now().strftime("%b%d").lower())
    free = free_tag(place, asked)
    if free != asked:
        raise NightError(f"tag {asked} is taken by refs or ledger rows whose journal is not here; use --tag {free}")
    return asked


def _traces(place: Place, tag: str) -> bool:
    if place.journal(tag).exists() or place.repo.refs(f"refs/experiments/{tag}"):
        return True
    branches = place.repo.refs("refs/heads/experiments")
    return any(ref.rpartition("/")[2].partition("-")[2] == tag for ref in branches)  # after the budget
