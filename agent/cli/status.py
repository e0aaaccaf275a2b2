"""Show a night from outside, once or live, and steer it: nightshift status, note and stop."""

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from agent.cli.find import find_night, here, holder_here, is_free, known_tag, none_yet, place_meant
from agent.cli.tries import Try, TryState, latest, tries_line
from agent.clock import utc_now
from agent.errors import NothingYet
from agent.experiment import Status, Study, is_first_look
from agent.invocation import typed
from agent.night.lock import AFTER_RUN, NOW, Holder, Stop, holder, is_held, like_ctrl_c
from agent.proposers.notes import add_note
from agent.records.journal import Journal
from agent.records.place import Place, read_night
from agent.records.record import Record
from agent.records.summary import NightSummary, summary_of
from agent.view.answer import Answer, Process, StatusAnswer, Workers
from agent.view.words import HEADS, left_words, moment, status_lines
from agent.work import Work

if TYPE_CHECKING:
    from agent.view.live import NightScreen

REFRESH_EVERY_S = 0.5


def status(tag: str | None = None, /, *, follow: bool = False) -> Answer:
    """Show what runs now, and how the latest night stands.

    Args:
        tag: the night (default: the one that runs, or the latest)
        follow: show a night that runs in another terminal or as a service, until it ends; if none runs, wait for one to
            begin; Ctrl-C ends only the watching
    """
    if follow:
        return _follow(*_awaited(tag))
    place, tag, who = find_night(tag, to_read=True)
    work: Sequence[Work] = ()
    if who is not None:
        with Journal.read(place.journal(tag)) as journal:
            work = journal.work()  # read before the attempts: each one that it names is then there
    record = read_night(place, tag)
    now, workers = summary_of(record), Workers.of(record, work)
    tries = latest(place)
    stopping = who is not None and Stop(place.folder(tag)).after_run
    answer = StatusAnswer(
        tag=tag,
        running=None if who is None else Process(who.pid, who.since, stopping),
        left=None if who is None else who.left(now.ideas),
        summary=now,
        workers=workers,
        tries=tuple(tried.in_line for tried in tries),
    )

    def print_all() -> None:
        from agent.view.screen import print_lines, print_next

        show_night(record, now, workers, who, stopping=stopping)
        if who is None:
            print_next(next_commands(record, now, tries))
        if (line := tries_line(tries)) is not None:
            print_lines([line])

    return Answer(answer, print_all)


def show_night(
    record: Record, now: NightSummary, workers: Workers, who: Holder | None = None, *, stopping: bool = False
) -> None:
    """Print where a night stands, and what its proposers have brought."""
    from agent.view.screen import print_folded, print_lines, terminal_width
    from agent.view.terminal import failure_lines, shares_lines

    limits = left_words(who.left(now.ideas)) if who is not None else []
    left = f"left: {', '.join(limits)}" if limits else None
    print_folded(status_lines(record, now, workers, pid=who.pid if who else None, stopping=stopping, left=left), HEADS)
    if now.proposers:
        print_lines(shares_lines(now, terminal_width()))
    print_folded(failure_lines(now.proposers))


CONFIRM = "is it really better? by fresh runs"


def next_commands(record: Record, now: NightSummary, tries: Sequence[Try] = ()) -> dict[str, str]:
    """Return the commands that come next for a night that does not run, each with what it is for; tries: the latest.

    The record of a night from elsewhere cannot go on, and has no logs.
    """
    tag, commands = record.tag, dict[str, str]()
    waiting = next((tried.id for tried in tries if tried.state is TryState.WAITING), None)
    if waiting is not None:
        commands[typed("try", "--wait", waiting)] = "try what waits in the queue"
    if now.night.options.study is not None:
        return commands | _of_study(record, now.night.options.study)
    if now.best is not None and now.gain is not None:
        commands |= _after_keep(now, now.best.number, is_here=record.is_here)
    elif now.ideas:
        commands[typed("results", tag)] = "all that was tried, one line each"
    if not record.is_here:
        return commands
    crashed = [attempt.number for attempt in record.attempts if attempt.status is Status.CRASH and attempt.counted_runs]
    if crashed:
        commands[typed("show", f"{tag}:{crashed[-1]}", "--log")] = f"see why #{crashed[-1]} crashed: the end of its log"
    if crashed[:1] == [0]:  # the night cannot go on
        return {**commands, typed("run"): "a new night, once the script is repaired"}
    if now.ideas and is_first_look(now.night.budget_s) and not now.night.options.metric:
        commands[typed("run")] = "start a real night: 5 min a run"
    return {**commands, typed("run", "--tag", tag): "go on with this night"}


def _of_study(record: Record, study: Study) -> dict[str, str]:
    """Return what comes next for a study: it goes on to its last run, and then tells what it has found."""
    from agent.judging.studies import results_of

    goes_on = record.is_here and not results_of(study, record.attempts).is_complete
    return {
        **({typed("study", "PLAN"): "go on with this study, by its plan"} if goes_on else {}),
        typed("study", record.tag): "what it has found",
        typed("report", record.tag, "--open"): "its page, with every run",
    }


def _after_keep(now: NightSummary, best: int, *, is_here: bool) -> dict[str, str]:
    """Return what comes next where an edit is the best script: it is to be confirmed, and then taken."""
    tag, confirmation = now.night.tag, now.confirmation
    about = {typed("show", f"{tag}:best"): "see the best script and its verdict"}
    if confirmation is not None and confirmation.best == best and confirmation.script is not None:
        return {typed("take", f"{tag}:confirmed"): "put the confirmed script into your tree"} | about
    into_tree = {typed("take", f"{tag}:{best}"): "put the best script into your tree"}
    if not is_here:
        return about | into_tree
    if confirmation is not None and confirmation.best == best and confirmation.honest is not None:
        back = {typed("take", f"{tag}:0"): "put the baseline back into your tree"}
        return {typed("confirm", tag): "more fresh seeds, which may tell"} | back | about
    return {typed("confirm", tag): CONFIRM} | into_tree | about


def _awaited(tag: str | None) -> tuple[Place, Holder]:
    """Return the night that runs, or the next one that begins, of this tag if one is named, and its process.

    Raise NightError where none of this tag can begin, or another night runs.
    """
    from agent.view.screen import print_folded

    place, waits = here(), False
    if tag is not None and not is_free(place, tag):
        known_tag(place, tag)
    with like_ctrl_c():
        while True:
            there = place_meant(tag, place)
            if (who := holder_here(there, tag)) is not None:
                return there, who
            if (running := holder(place.repo.common_dir)) is not None and tag not in (None, running.tag):
                see = typed("status", "--follow")
                raise NothingYet(
                    f"night {tag} is not running, and another is, {running.tag}; follow that one with: {see}"
                )
            if not waits:
                which = "a night" if tag is None else f"night {tag}"
                print_folded([f"no night runs here: waiting for {which} to begin; Ctrl-C ends the waiting"])
                sys.stdout.flush()
            waits = True
            time.sleep(REFRESH_EVERY_S)


def _follow(place: Place, who: Holder) -> Answer:
    """Draw the screen of a night that runs in another process until it ends, or Ctrl-C."""
    from agent.view.screen import print_folded

    print_folded([f"night {who.tag} (pid {who.pid}, since {moment(who.since)})"])
    last = f"night {who.tag} has ended; see: {typed('status')}, {typed('results')}"
    try:
        with like_ctrl_c(), closing(following(place)) as refreshes:
            while holder(place.repo.common_dir) == who:
                next(refreshes)
                time.sleep(REFRESH_EVERY_S)
            next(refreshes)
    except KeyboardInterrupt:
        last = f"night {who.tag} goes on; end it with: {typed('stop')}"
    print_folded([last])
    return Answer({"tag": who.tag})


def following(place: Place) -> Generator[bool, None, None]:
    """Draw, at each step, the screen of the night that another process runs here; yield whether one does."""
    while True:
        while (who := holder_here(place)) is None:
            yield False
        screen = _screen(place, who)
        try:
            while holder_here(place) == who:
                screen.refresh()
                yield True
            screen.refresh()  # the end of the night may have brought a verdict
        finally:
            screen.close()


def _screen(place: Place, who: Holder) -> "NightScreen":
    """Return the screen of a night; what draws it takes long to import."""
    from agent.view.live import NightScreen
    from agent.view.screen import console_on

    folder, console = place.folder(who.tag), console_on(sys.stdout)
    stop = Stop(folder)
    return NightScreen(console, folder, who.left, lambda: stop.after_run, lambda: stop.now, is_own=False)


# ---- steering --------------------------------------------------------------------------------------------------------


def note(text: str, /, *words: str, tag: str | None = None) -> Answer:
    """Leave a note that a model or an agent reads before its next proposal.

    Args:
        text: the note, as in: nightshift note "leave the depth alone"
        words: the rest of a note that is not in quotes
        tag: the night (default: the running one, else the latest)
    """
    from agent.view.screen import print_folded

    place, tag, _ = find_night(tag)
    add_note(place.folder(tag), " ".join((text, *words)), utc_now())
    sentence = f"noted; a model or an agent of night {tag} reads it before its next proposal; the search reads no notes"
    return Answer({"tag": tag}, lambda: print_folded([sentence]))


def stop(*, now: bool = False) -> Answer:
    """End the running night after its current run.

    Args:
        now: end the run too; it is redone when the night is resumed
    """
    place = place_meant()
    who = holder(place.repo.common_dir)
    if who is None and is_held(place.repo.common_dir):
        raise none_yet(place)
    if who is None:
        raise NothingYet(f"no night is running in this repository; see: {typed('status')}")
    Stop(place.folder(who.tag)).wish(NOW if now else AFTER_RUN)
    when = "now" if now else "after what it runs now"
    lines = [f"night {who.tag} ends {when}", f"resume it later with: {typed('run', '--tag', who.tag)}"]

    def print_both() -> None:
        from agent.view.screen import print_lines

        print_lines(lines)

    return Answer({"tag": who.tag}, print_both)
