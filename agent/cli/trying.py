"""One edit of a person's or an agent's own, to its verdict, now or in the line of those that wait: nightshift try."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agent.cli.answer import Answer
from agent.cli.options import Message, NightOptions, Positive
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
from agent.view.live.follow import Moment
from agent.view.screen import print_folded

POLL_S = 0.1


def try_edit(
    *,
    message: Message = "",
    edit: Path | None = None,
    anyway: bool = False,
    start: bool = False,
    wait: str | None = None,
    for_s: Annotated[Positive | None, Parameter(name="--for")] = None,
    cancel: str | None = None,
    tag: str | None = None,
    works: Annotated[bool, Parameter(name=WORK, show=False)] = False,
    night: NightOptions = NightOptions(),  # noqa: B008, it is frozen
) -> Answer:
    """Try one edit of yours: commit, train, score, judge and record it, and print the verdict.

    The baseline is the script as it is committed; a night that is here already goes on, as it was opened, and keeps the
    options that it was opened with. An edit that cannot be tried opens none. An edit of an older script, without the
    edits that were kept since, is refused before it is run.

    Args:
        message: what and why; title: its first line
        edit: the edited script, where it is not --script itself
        anyway: try it as it stands, even if it lacks kept edits
        start: put it into the line, print its id and return; --wait has the verdict
        wait: for the verdict on a try that was started, by its id
        for_s: with --wait: return after so many seconds
        cancel: take a try out of the line that is not at work yet, by its id
        tag: the night's name (default: the latest, or a new one where there is none)
    """
    if sum((start, wait is not None, cancel is not None)) > 1:
        raise NightError("--start, --wait and --cancel exclude each other; give one of them")
    if for_s is not None and wait is None:
        raise NightError(f"--for {for_s:g} says how long to wait; name the try with --wait ID")
    place = Place.of(night.script)
    if works:  # the line's own process
        work(_line(place), place.repo.root)
        return Answer()
    if cancel is not None:
        entry = _line(place).cancel(cancel)
        return Answer({"id": entry.id, "state": entry.state}, lambda: print(f"{cancel} is out of the line"))
    if wait is not None:
        return _wait(place, wait, for_s)
    given = (read_text(edit), str(edit)) if edit is not None else None
    return started(request_of(place, message, given, tag, night, anyway=anyway), place, now=not start)


def request_of(
    place: Place,
    message: str,
    given: tuple[str, str] | None,
    tag: str | None,
    night: NightOptions,
    *,
    anyway: bool,
) -> TryRequest:
    """Return what is to be tried; given: a script and the name of its file; None: as it stands in the working tree."""
    if given is None:
        if not place.script_path.exists():
            raise no_script(place.script_path)
        given = read_text(night.script), place.script
    script, file = given
    return TryRequest(
        script=script,
        file=file,
        path=place.script,
        message=message,
        tag=tag,
        budget_s=night.budget_s,
        seed=night.seed,
        terms=night.terms,
        anyway=anyway,
        submitted=utc_now(),
    )


def started(request: TryRequest, place: Place, *, now: bool) -> Answer:
    """Try an edit now, or put it into the line, unless it is known already that it cannot be tried."""
    try:
        if now:
            prepare(request, place)  # before it may have to wait for others
            with turn(place.repo.common_dir, say_that_it_waits):
                return _told(attempt(prepare(request, place), place))
        line = _line(place)
        if not is_taken(place.repo.common_dir):
            check_no_night(place, request.file)
        prepared = prepare(request, place)
    except StaleEdit as error:
        return _told(TryOutcome.refused(error))
    with line.changing():
        _check_not_in_line(prepared, line)
        entry = line.add(replace(prepared.request, tag=request.tag, based_on=prepared.basis.number))
        start_worker(line, place.repo.root)
    return _state(place, line, entry)


def _told(outcome: TryOutcome, **more: object) -> Answer:
    facts = {**more, **outcome.facts}
    return Answer(facts, lambda: print_folded(outcome.lines), outcome.error, outcome.exit_code)


# ---- the line --------------------------------------------------------------------------------------------------------


def _line(place: Place) -> TryLine:
    place.check_own_tries()
    return TryLine(place.repo.root)


def _check_not_in_line(prepared: Prepared, line: TryLine) -> None:
    wanted = fingerprint(prepared.proposal.script)
    for entry in line.waiting():
        if entry.request is not None and fingerprint(entry.request.script) == wanted:
            follow = typed("try", "--wait", entry.id)
            raise NightError(f"{entry.id}, which waits for its verdict, has the same script; follow it with: {follow}")


def _wait(place: Place, number: str, for_s: float | None) -> Answer:
    """Wait for the verdict on a try of the line, and see to it that somebody works on it."""
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
                return _stuck(entry, ended)
            if for_s is not None and time.monotonic() - began_s >= for_s:
                return _state(place, line, entry)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return _stuck(entry, f"{NO_VERDICT}, and the try goes on")
    answer = entry.answer
    outcome = TryOutcome(answer["facts"], answer.get("lines", ()), answer["error"], answer["exit_code"])
    return _told(outcome, id=entry.id, state=entry.state)


def _stuck(entry: LineEntry, why: str) -> Answer:
    facts = {"state": TryState.UNFINISHED, "go_on_with": typed("try", "--wait", entry.id), "try_log": str(entry.log)}
    return Answer({"id": entry.id, **facts}, error=why, exit_code=UNFINISHED)


def _state(place: Place, line: TryLine, entry: LineEntry) -> Answer:
    """Say where a try without a verdict stands."""
    before = line.place_of(entry)
    wait = typed("try", "--wait", entry.id)
    facts: dict[str, object] = {"id": entry.id, "state": entry.state, "in_line": before}
    facts |= {"title": entry.request.title if entry.request else None, "try_log": str(entry.log), "wait_with": wait}
    now = _progress(place) if entry.state is TryState.RUNNING else {}
    facts |= {name: now.get(name) for name in ("tag", "attempt", "doing", "fraction", "step", "loss")}
    behind = f", {before} before it" if before else ""
    doing = f", {now['doing']} of attempt {now['attempt']}" if now else ""
    share = f", {now['fraction']:.0%} of its budget" if now.get("fraction") is not None else ""
    said = [f"{entry.id}: {entry.state}{behind}{doing}{share}", f"its verdict: {wait}"]
    return Answer(facts, lambda: print_folded(said))


def _progress(place: Place) -> dict[str, object]:
    """Return what the try at work does now; empty where it does not do anything yet."""
    who = holder(place.repo.common_dir)
    if who is None or not place.journal(who.tag).exists():
        return {}
    with Journal.read(place.journal(who.tag)) as journal:
        now = Moment.read(journal)
    facts: dict[str, object] = {"tag": who.tag, "attempt": now.attempt, "doing": now.doing}
    if now.doing == Doing.TRAINING and now.seed is not None:
        point = read_progress(run_folder(place.folder(who.tag), now.attempt, now.seed) / "out")
        facts |= {} if point is None else {"fraction": point.fraction, "step": point.step, "loss": point.loss}
    return facts
