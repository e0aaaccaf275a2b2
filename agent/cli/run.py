"""Run a night, confirm its result, and draw a past one: nightshift run, confirm and replay."""

import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

import psutil
from rich.text import Text

from agent.cli.find import find_night, known_tag, place_meant, record_of
from agent.cli.options import Count, NightOptions, Positive, PositiveInt, RunOptions
from agent.cli.status import next_commands
from agent.cli.tries import latest
from agent.errors import MachineError, NightError, NothingYet
from agent.experiment import Night, is_first_look, short
from agent.invocation import typed
from agent.judging.judges import judge_in_words
from agent.lab.corpus import DATASETS
from agent.lab.hardware import user_path
from agent.night.confirmation import confirm_night, is_interrupted
from agent.night.limits import Limits
from agent.night.loop import run_night
from agent.night.opening import Request, open_context
from agent.night.state import NightContext
from agent.pools.device_slots import BUSY_SHARE, gpu_in_use, gpus_of_machine, gpus_unused, slots_of_night
from agent.proposers.proposer import Left
from agent.proposers.queue import Queue
from agent.proposers.registry import ideas_from
from agent.records.place import Place, committed, place_of_night, read_night
from agent.records.record import Record, of_journal
from agent.records.summary import summary_of
from agent.runs.reported import seeds_of
from agent.sandbox.supervisor import limits_of_machine
from agent.text import counted
from agent.view.answer import Answer
from agent.view.live import NightScreen
from agent.view.replay import Replay
from agent.view.screen import console_on, folded, next_lines, print_folded, print_next, terminal_width
from agent.view.terminal import LOG_WIDTH, failure_lines, tried_lines
from agent.view.words import confirmation_lines, found_lines, left_words, moment, reported_words
from agent.work import WHOLE, DeviceSlot

SAMPLE_S = 0.5  # s of watching the machine
CHECKED_FROM_S = 5.0  # s of budget; a night of shorter runs is a test
SCREEN_LINES, MOST_NEXT = 24, 3  # lines of the least terminal, which the end of a night fits; commands that it names
FRAME_S = 0.1  # s between two drawings of a replay

# ---- run -------------------------------------------------------------------------------------------------------------


def run(
    *,
    experiments: PositiveInt | None = None,
    hours: Positive | None = None,
    confirmation_runs: Count | None = None,
    dataset: str | None = None,
    tag: str | None = None,
    drain: bool = False,
    night: NightOptions = NightOptions(),  # noqa: B008, it is frozen
    more: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Start a night, or resume one.

    A night keeps --budget-s, --seed, --dataset, and the options about judging, safety, devices and ideas: do not repeat
    them to resume it. --judge, --confirm, --plausible-gain, --allowance-s, --limit-s and --metric cannot change, since
    verdicts before and after would not compare; --sandbox can only become stronger. On a CPU a worker keeps its number
    of cores, for the same reason. Other options may be given again: the night takes the new value and keeps it.

    Args:
        experiments: end after so many proposals beyond attempt 0, counted over the whole night
        hours: begin no run and no question for an idea that would end later than this, judged by the longest so far;
            undecided attempts go on when the night is resumed
        confirmation_runs: runs at the end that confirm the result, like nightshift confirm, counted over the whole
            night (default: an eighth of --hours, else 0)
        dataset: prepare this text first and train this night on it: a path, or a name that prepare.py --help lists
            (default: what prepare.py has chosen)
        tag: the night's name; a night of this name is resumed (default: a new night, named by the date)
        drain: try the entries of the queue, ask no proposer, and end when the queue is empty; a new night begins from
            the committed script
    """
    limits = Limits(experiments, hours, confirmation_runs)
    place = place_of_night(night.script, tag)
    options, text = night.named | more.named, None if dataset is None else named_text(dataset)
    request = Request(place, tag, night.budget_s, night.seed, options, limits, dataset=text)
    if drain:
        place.check_own_queue()
        request = replace(request, proposers=(Queue(place.queue, place.nights, print),), baseline=committed)
    with open_context(request) as context:
        greet(context)
        run_night(context)
        state = context.state()
        runs = limits.reserved_runs(state.pace) if state.best is not None and state.best.is_edit else 0
        if (runs or is_interrupted(context)) and not context.stop.after_run:
            most = f"confirmation: up to {counted(runs, 'run')} to confirm what was found"
            context.watcher.said(most if runs else "the confirmation goes to its end")
            confirm_night(context, runs)
        record = of_journal(context.journal)
    _show_end(place, record)


def named_text(dataset: str) -> str:
    """Return a dataset's name, or a path that holds in every folder."""
    return dataset if dataset in DATASETS else str(user_path(dataset).absolute())


def _show_end(place: Place, record: Record) -> None:
    """Print what was tried, what to believe of it, and the commands that come next, on one screen."""
    now, width = summary_of(record), terminal_width()
    found = [*found_lines(record, now), *failure_lines(now.proposers)]
    commands = next_lines(dict(islice(next_commands(record, now, latest(place)).items(), MOST_NEXT)))
    below = sum(len(folded(Text(line), width or LOG_WIDTH)) for line in found) + len(commands)
    tried = tried_lines(record, width, SCREEN_LINES - 2 - below)  # two: a blank one above, and the shell's below
    print_folded(["", *tried, *found, *commands])


# ---- the beginning ---------------------------------------------------------------------------------------------------


def greet(context: NightContext) -> None:
    """Say what the night works with, how fast it will go, and whether the machine is free for it: one line a fact."""
    night, say = context.night, context.watcher.said
    before = len(context.state().attempts)
    named = f"night {night.tag} goes on after {counted(before, 'attempt')}," if before else f"new night {night.tag}"
    say(f"{named} on branch {short(night.branch)}")
    for name, fact in _facts(context):
        say(f"  {name:<9}{fact}")
    say("  Ctrl-C ends after the runs in flight, a second one ends these too")


def _facts(context: NightContext) -> Iterator[tuple[str, str]]:
    """Yield each fact with its name."""
    night, runner, place, state = context.night, context.runner, context.place, context.state()
    options, slots = night.options, slots_of_night(night)
    drains = options.study is None and all(proposer.is_person for proposer in context.proposers)
    others = [tag for tag in place.tags() if tag != night.tag]
    if others and not state.attempts:
        yield "before", f"{others[-1]}; to go on with it instead: {typed('run', '--tag', others[-1])}"
    yield "device", f"{night.device} ({night.device_kind})"
    limits = left_words(context.limits.left(state.proposals))
    end = "the queue is empty" if drains else "stopped" if options.study is None else "every run is made"
    until = f"left: {', '.join(limits)}" if limits else f"until {end}"
    what = "a run" if options.metric else "of training a run"
    yield "budget", f"{night.most}{night.budget_s:g} s {what}; {until}"
    if options.metric:
        first = state.attempts[0].proposal.script if state.attempts else context.baseline(place, options.metric)
        yield "scores", reported_words(night)
        yield "seeds", seeds_of(first)
    elif is_first_look(night.budget_s):
        yield "scores", "of a quarter of the validation text: runs are below a minute"
    yield "pace", context.limits.pace_words(state.pace)
    for line in _workers(context, slots):
        yield "workers", line
    trains_here = options.ray_address is None  # a cluster trains on other machines
    for line in busy_lines(night, slots) if night.budget_s >= CHECKED_FROM_S and trains_here else ():
        yield "busy", line
    battery = psutil.sensors_battery()
    if battery is not None and not battery.power_plugged:
        yield "power", f"on battery at {battery.percent:.0f}%: runs get fewer steps; connect the charger"
    yield "data", f"{Path(night.data).name} (protocol {night.protocol})"
    yield "judge", judge_in_words(options.judge) if options.study is None else context.judge.words
    yield "ideas", "the queue alone" if drains else ideas_from(options)
    for gap in runner.sandbox.uncovered:
        yield "sandbox", f"{runner.sandbox.name}; not covered: {gap}"
    yield "logs", os.path.relpath(runner.folder / "runs")


def _workers(context: NightContext, slots: Sequence[DeviceSlot]) -> list[str]:
    """Return the workers of a cluster, or the part of the machine that each has; of one alone, the other GPUs."""
    night, names = context.night, context.pool.workers
    of = f"up to {limits_of_machine(slots[0].share).memory_bytes / 2**30:.1f} GB of the machine's memory for each"
    if night.options.pool == "ray":
        of = f"of the Ray cluster {night.options.ray_address or 'on this machine'}"
    elif slots == (WHOLE,):
        with suppress(MachineError):  # nvidia-smi may be missing
            gpus = gpus_of_machine() if night.device_kind == "cuda" else ()
            return [f"1; {line}" for line in gpus_unused(gpus, night.tag)]
        return []
    return [f"{len(names)}: {'; '.join(names)}; {of}"]


def busy_lines(night: Night, slots: Sequence[DeviceSlot] = (WHOLE,)) -> list[str]:
    """Sample the use of the workers' part of the machine for a moment; return what else it does, with the remedy."""
    percents = psutil.cpu_percent(SAMPLE_S, percpu=True)
    lent = [core for slot in slots for core in slot.cores] or range(len(percents))
    others = statistics.fmean(percents[core] for core in lent if core < len(percents)) / 100
    lines = []
    if others >= BUSY_SHARE:
        cores = counted(len(lent), "core")
        cost = "longer runs" if night.device_kind == "cpu" else "worse scores"
        lines.append(f"other programs take {others:.0%} of {cores}: end them, or expect {cost}")
    for slot in slots if night.device_kind == "cuda" else ():
        in_use, whose = gpu_in_use(slot.gpu), "" if slot.gpu is None else f"{slot.worker}: "
        if in_use is not None:
            lines.append(f"{whose}{in_use}; end what uses it, or choose another by CUDA_VISIBLE_DEVICES")
    return lines


# ---- confirm ---------------------------------------------------------------------------------------------------------


def confirm(
    tag: str | None = None,
    /,
    *,
    runs: PositiveInt = 30,
    show: bool = False,
    night: NightOptions = NightOptions(),  # noqa: B008
) -> Answer:
    """Measure the best script of a night against its baseline, with fresh seeds and on text that judged no attempt.

    Remove doubtful edits to measure their effect. Put the script without useless edits on the branch ...-confirmed. If
    fresh seeds show no certain gain, make no branch.

    Args:
        tag: the night (default: the latest)
        runs: most runs to make, beyond earlier ones (default: 30)
        show: print the findings so far, and make no run
    """
    if show:
        return _findings(tag)
    tag = known_tag(Place.of(night.script), tag)
    place = place_of_night(night.script, tag)
    request = Request(place, tag, night.budget_s, night.seed, night.named, proposers=())
    with open_context(request) as context:
        context.watcher.said(
            f"confirmation of night {tag}: up to {counted(runs, 'run')} of {context.night.budget_s:g} s"
        )
        findings = confirm_night(context, runs)
        ended_early, record = context.stop.after_run, of_journal(context.journal)
    facts = {"tag": tag, "findings": findings, "state": "unfinished" if ended_early else "finished"}
    if ended_early:
        return Answer(
            facts | {"go_on_with": typed("confirm", tag)}, error="the confirmation was ended early", exit_code=130
        )
    if findings is None:
        raise NightError(f"night {tag} has kept no edit, so there is nothing to confirm; see: {typed('status', tag)}")
    return Answer(facts, lambda: print_next(next_commands(record, summary_of(record))))


def _findings(tag: str | None) -> Answer:
    place, tag, _ = find_night(tag, to_read=True)
    record = read_night(place, tag)
    confirmation = next(
        (confirmation for confirmation in reversed(record.confirmations) if confirmation.findings), None
    )
    if confirmation is None or record.findings is None:
        begin = f"; begin with: {typed('confirm', tag)}" if record.is_here else ", nor can its record get any"
        raise NothingYet(f"night {tag} has not been confirmed yet{begin}")
    ended = f"ended {moment(confirmation.ended)}" if confirmation.ended else "not at its end yet"
    found = confirmation_lines(record.findings, record.attempts, record.night, is_here=record.is_here)
    lines = [f"confirmation {confirmation.number} of night {tag}, {ended}", *found]
    facts = {"tag": tag, "findings": record.findings, "state": "finished" if confirmation.ended else "unfinished"}

    def print_all() -> None:
        print_folded(lines)
        print_next(next_commands(record, summary_of(record)))

    return Answer(facts, print_all)


# ---- replay ----------------------------------------------------------------------------------------------------------


def replay(tag: str | None = None, /, *, seconds: Positive = 30.0) -> None:
    """Draw a recorded night as it was, without data, GPU or key.

    The screen is that of a night that runs, with the clock of the record; long rests are cut short. Then comes the end
    screen of the night.

    Args:
        tag: the night (default: the latest)
        seconds: how long it takes (default: 30)
    """
    place = place_meant(tag)
    record = record_of(place, tag)
    past, folder, never = Replay(record), place.folder(record.tag), bool
    print_folded([f"night {record.tag} as it was from {moment(record.night.started)} to {moment(record.ended)}"])
    with closing(NightScreen(console_on(sys.stdout), folder, lambda ideas: Left(), never, never, past=past)) as screen:
        last = math.ceil(seconds / FRAME_S)
        for frame in range(last + 1):
            past.set(frame / last)
            for point, worker in past.progress():
                screen.progressed(point, worker)
            screen.refresh()
            time.sleep(FRAME_S)
    _show_end(place, record)
