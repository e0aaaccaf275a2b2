"""Say at the start of a night what it works with, how fast it will go, and whether the machine is free for it."""

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import psutil

from agent.errors import MachineError
from agent.experiment import WHOLE, Lease, Night, Terms, is_look, short
from agent.invocation import typed
from agent.judging.judges import judge_in_words
from agent.night.limits import calibration_rounds, clock, expected_run_s, experience, pace_words
from agent.night.state import NightContext, State
from agent.pools.leases import gpu_in_use, gpus_of_machine, gpus_unused, leases_of_night, ranges
from agent.proposers.registry import ideas_from
from agent.records.place import Place
from agent.sandbox.watch import BUSY_SHARE, Counters, limits_of_machine, others_share
from agent.text import counted

LOOK_S = 0.5  # how long the machine is looked at
LOOKED_FROM_S = 5.0  # of budget: a night of shorter runs is a test or a toy


def greet(context: NightContext) -> None:
    """Say all of it, one line a fact."""
    night, runner, say = context.runner.night, context.runner, context.watcher.said
    terms, state = night.terms, context.state()
    say(f"night {night.tag} on branch {short(night.branch)}")
    for line in _earlier(context.place, night, state):
        say(f"  before   {line}")
    say(f"  script   {context.place.script_path}")
    say(f"  device   {night.device} ({night.device_kind})")
    say(f"  budget   {night.budget_s:g} s of training a run; {_until(context, state)}")
    if is_look(night.budget_s):
        say("  scores   of a quarter of the validation text, as a run is shorter than a minute: a first look")
    calibration = 0 if state.best else calibration_rounds(context.judge.calibration, terms.workers)
    for line in _pace(context, state, calibration):
        say(f"  {line}")
    leases = leases_of_night(night)
    for line in _on_cluster(context, terms) if terms.pool == "ray" else _workers(night, leases):
        say(f"  workers  {line}")
    trains_here = terms.ray_address is None  # on a cluster of other machines, this one's company says nothing
    for line in busy_lines(night, leases) if night.budget_s >= LOOKED_FROM_S and trains_here else ():
        say(f"  busy     {line}")
    battery = psutil.sensors_battery()
    if battery is not None and not battery.power_plugged:
        say(f"  power    on battery at {battery.percent:.0f}%: runs get fewer steps; connect the charger")
    say(f"  data     {night.data} (protocol {night.protocol})")
    say(f"  judge    {judge_in_words(terms.judge)}")
    say(f"  ideas    {ideas_from(terms)}")
    say(f"  sandbox  {runner.box.name}")
    for gap in runner.box.uncovered:
        say(f"           not covered: {gap}")
    say(f"  logs     {runner.folder / 'runs'}")
    shortage = context.limits.shortage(replace(state.pace, workers=terms.workers), calibration)
    if shortage:
        say(f"  hours    {shortage}")
    runs, them = ("current run", "the run") if terms.workers == 1 else ("runs in flight", "them")
    say(f"  Ctrl-C ends after the {runs}, a second one ends {them} too")


def _earlier(place: Place, night: Night, state: State) -> list[str]:
    """Return how the last night goes on, where this is a further one without a name from its user."""
    others = [tag for tag in place.tags() if tag != night.tag]
    if state.attempts or not others or not re.fullmatch(r"[a-z]{3}\d\d(-\d+)?", night.tag):
        return []
    return [
        f"{others[-1]} was the last night here; to go on with that one instead: {typed('run', '--tag', others[-1])}"
    ]


def _until(context: NightContext, state: State) -> str:
    limits, left = context.limits, context.limits.left(state.ideas)
    until = [f"{counted(limits.experiments, 'experiment')} after attempt 0"] if limits.experiments else []
    if limits.hours and left.seconds is not None:
        until += [f"{counted(limits.hours, 'hour')}, until {clock(datetime.now(), left.seconds)}"]
    return ", ".join(until) or "until stopped"


def _pace(context: NightContext, state: State, calibration: int) -> list[str]:
    """Return the lines on how fast the night will go, each with its label."""
    night, limits = context.runner.night, context.limits
    workers = night.terms.workers
    known = experience(context.place, night, state.attempts)
    if known is None:
        guess = workers * 3600 / expected_run_s(night.budget_s)
        return [f"pace     at a guess {guess:.0f} experiments an hour; the runs of attempt 0 will tell"]
    dawn = limits.runs_at_dawn(replace(state.pace, run_s=known.run_s, workers=workers))
    return [f"pace     {pace_words(known, limits.left(state.ideas), calibration, dawn, workers)}"]


def _on_cluster(context: NightContext, terms: Terms) -> list[str]:
    """Return the workers that a cluster has for the night now."""
    names = context.pool.workers if context.pool is not None else ()
    return [f"{len(names)}: {'; '.join(names)}, of the Ray cluster {terms.ray_address or 'on this machine'}"]


def _workers(night: Night, leases: Sequence[Lease]) -> list[str]:
    """Return the part of the machine that each worker has; for a single one, the other GPUs that there are."""
    if night.device_kind == "cuda" and leases == (WHOLE,):
        with suppress(MachineError):  # without nvidia-smi there is no telling
            return [f"1; {line}" for line in gpus_unused(gpus_of_machine(), night.tag)]
    if leases == (WHOLE,):
        return []
    each = [lease.worker for lease in leases]
    if leases[0].gpu is not None and leases[0].cores:
        each = [f"{lease.worker} with the cores {ranges(lease.cores)}" for lease in leases]
    memory_gb = limits_of_machine(leases[0].share).memory_bytes / 2**30
    of_each = " each" if len(leases) > 1 else ""
    return [f"{len(leases)}: {'; '.join(each)}; up to {memory_gb:.1f} GB of the machine's memory{of_each}"]


def busy_lines(night: Night, leases: Sequence[Lease] = (WHOLE,)) -> list[str]:
    """Look at the workers' part of the machine for a moment; return what else it does, with the remedy."""
    lent = [core for lease in leases for core in lease.cores]
    before = Counters.now(cores=lent)
    time.sleep(LOOK_S)
    others = others_share(before, Counters.now(cores=lent))
    lines = []
    if others is not None and others >= BUSY_SHARE:
        load, cores = os.getloadavg()[0], len(lent) or os.cpu_count() or 1
        lines.append(
            f"other programs take {others:.0%} of the processors (load {load:.1f}, {counted(cores, 'core')}): runs get "
            f"fewer steps, and some may be too slow; end them, or expect worse scores"
        )
    for lease in leases if night.device_kind == "cuda" else ():
        in_use, whose = gpu_in_use(lease.gpu), "" if lease.gpu is None else f"{lease.worker}: "
        if in_use is not None:
            lines.append(f"{whose}{in_use}; end what uses it, or choose another by CUDA_VISIBLE_DEVICES")
    return lines
