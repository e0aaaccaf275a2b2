"""One edit of a person's or an agent's own, to its verdict, now or in the line of those that wait: nightshift try."""

import argparse
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.cli.repeat import try_again
from agent.cli.words.options import KEPT, TryOptions, add_night
from agent.cli.words.parser import Subcommand
from agent.cli.words.values import positive
from agent.clock import utc_now
from agent.errors import NightError
from agent.experiment import Doing
from agent.invocation import typed
from agent.night.lock import holder
from agent.records.journal import Journal
from agent.records.place import Place, run_folder
from agent.runs.outputs import read_progress
from agent.script.contract import no_script, read_text
from agent.script.dials import fingerprint
from agent.tries.attempt import NO_VERDICT, UNFINISHED, TryOutcome, attempt, check_no_night
from agent.tries.checks import Prepared, StaleEdit, prepare
from agent.tries.line import LineEntry, TryLine, TryState
from agent.tries.request import TryRequest
from agent.tries.turn import is_taken, turn
from agent.tries.worker import WORK, last_words, say_that_it_waits, start_worker, work
from agent.view.answer import AnswersTo
from agent.view.live.follow import Moment
from agent.view.screen import print_folded

TRY_TEXT = (
    "Try one edit of yours: commit, train, score, judge and record it, and print the verdict. The baseline is the "
    "script as it is committed; a night that is here already goes on, as it was opened. An edit that cannot be tried "
    "opens none. An edit of an older script, without the edits that were kept since, is refused before it is run."
)
POLL_S = 0.1


def try_edit(options: TryOptions) -> int:
    if options.for_s is not None and options.wait is None:
        raise NightError(f"--for {options.for_s:g} says how long to wait; name the try with --wait ID")
    if options.work:
        place = Place.of(options.night.script)
        work(_line(place), place.repo.root)
        return 0
    if options.cancel is not None:
        return _cancel(options, options.cancel)
    if options.wait is not None:
        return _wait(options, options.wait)
    return _start(options) if options.start else _try_now(options)


def _try_now(options: TryOptions) -> int:
    request, place = _request(options)
    again = partial(_try_again, options)
    try:
        prepare(request, place, again)  # before it may have to wait for others
        with turn(place.repo.common_dir, say_that_it_waits):
            outcome = attempt(prepare(request, place, again), place, again, aside=options.answer.on_stdout)
    except StaleEdit as error:
        outcome = TryOutcome.refused(error)
    return _tell(options, outcome)


def _request(options: TryOptions) -> tuple[TryRequest, Place]:
    night, place = options.night, Place.of(options.night.script)
    if options.edit is None and not place.script_path.exists():
        raise no_script(place.script_path)
    request = TryRequest(
        script=read_text(options.edit or night.script),
        file=str(options.edit or place.script),
        path=place.script,
        message=options.message,
        tag=night.tag,
        budget_s=night.budget_s,
        seed=night.seed,
        terms=dict(night.terms),
        anyway=options.anyway,
        submitted=utc_now(),
    )
    return request, place


def _tell(options: TryOptions, outcome: TryOutcome, **more: object) -> int:
    """Print how a try ended and return the exit code."""
    answer, facts = options.answer, {**more, **outcome.facts}
    if outcome.error is None:
        if not answer.on_stdout:
            print_folded(outcome.lines)
        answer.give(facts)
        return outcome.exit_code
    if outcome.exit_code == UNFINISHED:
        print(f"{outcome.error}; go on with: {outcome.facts['go_on_with']}", file=answer.for_people)
    else:
        print(f"nightshift: {outcome.error}", file=sys.stderr)
    answer.fail(outcome.error, outcome.exit_code, **facts)
    return outcome.exit_code


# ---- the line --------------------------------------------------------------------------------------------------------


def _line(place: Place) -> TryLine:
    place.check_own_tries()
    return TryLine(place.repo.root)


def _start(options: TryOptions) -> int:
    """Put an edit into the line, unless it is known already that it cannot be tried."""
    request, place = _request(options)
    line = _line(place)
    if not is_taken(place.repo.common_dir):
        check_no_night(place, request.file)
    try:
        prepared = prepare(request, place, partial(_try_again, options))
    except StaleEdit as error:
        return _tell(options, TryOutcome.refused(error))
    with line.changing():
        _check_not_in_line(prepared, line)
        entry = line.add(replace(prepared.request, tag=request.tag, based_on=prepared.basis.number))
        start_worker(line, place.repo.root)
    return _tell_state(options, line, entry)


def _check_not_in_line(prepared: Prepared, line: TryLine) -> None:
    wanted = fingerprint(prepared.proposal.script)
    for entry in line.waiting():
        if entry.request is not None and fingerprint(entry.request.script) == wanted:
            follow = typed("try", "--wait", entry.id)
            raise NightError(f"{entry.id}, which waits for its verdict, has the same script; follow it with: {follow}")


def _wait(options: TryOptions, number: str) -> int:
    """Wait for the verdict on a try of the line, and see to it that somebody works on it."""
    place = Place.of(options.night.script)
    line, began_s = _line(place), time.monotonic()
    entry, worker = line.entry(number), None
    if entry.answer is None:
        with line.changing():
            worker = start_worker(line, place.repo.root)
    try:
        while entry.answer is None:
            is_worked = line.is_worked() or (worker is not None and worker.poll() is None)
            entry = line.entry(number)  # after the look at its worker, which writes the answer before it ends
            if entry.answer is not None:
                break
            if not is_worked:
                why = last_words(line)
                ended = f"{NO_VERDICT}: the process that works through the line has ended{why and f' ({why})'}"
                return _tell_stuck(options, entry, ended)
            if options.for_s is not None and time.monotonic() - began_s >= options.for_s:
                return _tell_state(options, line, entry)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return _tell_stuck(options, entry, f"{NO_VERDICT}, and the try goes on")
    answer = entry.answer
    outcome = TryOutcome(answer["facts"], answer.get("lines", ()), answer["error"], answer["exit_code"])
    return _tell(options, outcome, id=entry.id, state=entry.state)


def _tell_stuck(options: TryOptions, entry: LineEntry, why: str) -> int:
    facts = {"state": TryState.UNFINISHED, "go_on_with": typed("try", "--wait", entry.id), "try_log": str(entry.log)}
    return _tell(options, TryOutcome(facts, (), why, UNFINISHED), id=entry.id)


def _tell_state(options: TryOptions, line: TryLine, entry: LineEntry) -> int:
    """Say where a try without a verdict stands."""
    before = line.place_of(entry)
    wait = typed("try", "--wait", entry.id)
    facts: dict[str, object] = {"id": entry.id, "state": entry.state, "in_line": before}
    facts |= {"title": entry.request.title if entry.request else None, "try_log": str(entry.log), "wait_with": wait}
    now = _progress(Place.of(options.night.script)) if entry.state is TryState.RUNNING else {}
    facts |= {name: now.get(name) for name in ("tag", "attempt", "doing", "fraction", "step", "loss")}
    if not options.answer.on_stdout:
        place = f", {before} before it" if before else ""
        doing = f", {now['doing']} of attempt {now['attempt']}" if now else ""
        share = f", {now['fraction']:.0%} of its budget" if now.get("fraction") is not None else ""
        print_folded([f"{entry.id}: {entry.state}{place}{doing}{share}", f"its verdict: {wait}"])
    options.answer.give(facts)
    return 0


def _progress(place: Place) -> dict[str, object]:
    """Return what the try at work does now; empty where it does not do anything yet."""
    who = holder(place.repo.common_dir)
    if who is None or not place.journal(who.tag).exists():
        return {}
    with Journal.read(place.journal(who.tag)) as journal:
        now = Moment.read(journal)
    facts: dict[str, object] = {"tag": who.tag, "attempt": now.attempt, "doing": now.work}
    if now.work is Doing.TRAINING and now.seed is not None:
        point = read_progress(run_folder(place.folder(who.tag), now.attempt, now.seed) / "out")
        facts |= {} if point is None else {"fraction": point.fraction, "step": point.step, "loss": point.loss}
    return facts


def _cancel(options: TryOptions, number: str) -> int:
    entry = _line(Place.of(options.night.script)).cancel(number)
    if not options.answer.on_stdout:
        print(f"{number} is out of the line")
    options.answer.give({"id": entry.id, "state": entry.state})
    return 0


# ---- words -----------------------------------------------------------------------------------------------------------


def _try_again(options: TryOptions, tag: str | None) -> str:
    if options.work:
        return typed("try", "--wait", "ID")
    return try_again(options if tag is None else replace(options, night=replace(options.night, tag=tag)))


def _try_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("-m", "--message", default="", metavar="TEXT", help="what and why; title: its first line")
    words.add_argument(
        "--json", action="store_true", help="print the verdict, or why there is none, as JSON: nothing else on stdout"
    )
    words.add_argument("--edit", type=Path, metavar="FILE", help="the edited script, where it is not --script itself")
    words.add_argument("--anyway", action="store_true", help="try it as it stands, even if it lacks kept edits")
    when = words.add_mutually_exclusive_group()
    when.add_argument(
        "--start", action="store_true", help="put it into the line, print its id and return; --wait has the verdict"
    )
    when.add_argument("--wait", metavar="ID", help="for the verdict on a try that was started")
    when.add_argument("--cancel", metavar="ID", help="take a try out of the line that is not at work yet")
    when.add_argument(WORK, dest="work", action="store_true", help=argparse.SUPPRESS)  # for the line's own process
    words.add_argument("--for", dest="for_s", type=positive, metavar="S", help="with --wait: return after S seconds")
    add_night(words, "the latest, or a new one where there is none")


TRY = Subcommand(
    "try",
    "train, score, judge and record one edit of yours",
    TryOptions,
    try_edit,
    _try_words,
    TRY_TEXT,
    KEPT,
    AnswersTo.STDOUT,
    _try_again,
)
