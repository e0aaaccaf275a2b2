"""Look at a night from outside, once or live, and steer it: nightshift status, note and stop."""

import sys
import time
from collections.abc import Sequence

from agent.cli.find import find_night, here, holder_here, is_free, known_tag, none_yet, place_meant
from agent.cli.tries import latest, tries_line
from agent.clock import utc_now
from agent.errors import NothingYet
from agent.experiment import Work, is_look
from agent.invocation import typed
from agent.night.lock import AFTER_RUN, NOW, Holder, Stop, holder, is_held, like_ctrl_c
from agent.proposers.notes import add_note
from agent.records.journal import Journal
from agent.records.place import Place, read_night
from agent.records.record import Record
from agent.records.summary import NightSummary, summary_of
from agent.view.answer import Answer, Crew, Process, StatusAnswer
from agent.view.words import HEADS, left_words, moment, status_lines

LOOK_EVERY_S = 0.5


def status(tag: str | None = None, /, *, follow: bool = False) -> Answer:
    """Say what runs now, and how the latest night stands.

    Args:
        tag: the night (default: the one that runs, or the latest)
        follow: show a night that runs in another terminal or as a service, until it ends; where none runs, wait for
            one to begin; Ctrl-C ends the watching alone
    """
    if follow:
        return _follow(*_awaited(tag))
    place, tag, who = find_night(tag, to_read=True)
    work: Sequence[Work] = ()
    if who is not None:
        with Journal.read(place.journal(tag)) as journal:
            work = journal.work()  # before the attempts that it names
    record = read_night(place, tag)
    now, crew = summary_of(record), Crew.of(record, work)
    tries = latest(place)
    stopping = who is not None and Stop(place.folder(tag)).after_run
    answer = StatusAnswer(
        tag=tag,
        running=None if who is None else Process(who.pid, who.since, stopping),
        left=None if who is None else who.left(now.ideas),
        summary=now,
        crew=crew,
        tries=tuple(tried.in_line for tried in tries),
    )

    def print_all() -> None:
        from agent.view.screen import print_next

        show_night(record, now, crew, who, stopping=stopping)
        if who is None:
            print_next(next_commands(now, goes_on=record.is_here))
        if (line := tries_line(tries)) is not None:
            print(line)

    return Answer(answer, print_all)


def show_night(
    record: Record, now: NightSummary, crew: Crew, who: Holder | None = None, *, stopping: bool = False
) -> None:
    """Print where a night stands, and what its sources have brought."""
    from agent.view.screen import print_folded, terminal_width
    from agent.view.terminal import failure_lines, shares_lines

    limits = left_words(who.left(now.ideas)) if who is not None else []
    left = f"left: {', '.join(limits)}" if limits else None
    print_folded(status_lines(record, now, crew, pid=who.pid if who else None, stopping=stopping, left=left), HEADS)
    for line in shares_lines(now.sources, terminal_width()) if now.sources else ():
        print(line)
    print_folded(failure_lines(now.sources))


def next_commands(now: NightSummary, *, goes_on: bool = True) -> dict[str, str]:
    """Return the commands that come next for a night that does not run, each with what it is for.

    goes_on: whether it can, which the record of a night from elsewhere cannot.
    """
    tag, dawn, commands = now.night.tag, now.dawn, dict[str, str]()
    is_a_look = is_look(now.night.budget_s)
    if now.ideas:
        commands[typed("show", f"{tag}:best")] = "the best script, and how it was judged"
        if dawn is not None and dawn.script is not None:
            commands[typed("take", f"{tag}:confirmed")] = "the confirmed script, into your working tree"
        elif goes_on and now.gain is not None and not is_a_look and (dawn is None or dawn.honest is None):
            commands[typed("confirm", tag)] = "is it better? by fresh seeds and another text"
        else:
            commands[typed("results", tag)] = "all that was tried, one line each"
        if is_a_look and goes_on:
            commands[typed("run")] = "a real night: 5 min a run"
    return {**commands, typed("run", "--tag", tag): "go on with this night"} if goes_on else commands


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
            time.sleep(LOOK_EVERY_S)


def _follow(place: Place, who: Holder) -> Answer:
    """Draw the screen of a night that runs in another process until it ends, or Ctrl-C."""
    from agent.view.live import NightScreen
    from agent.view.screen import console_on

    stop = Stop(place.folder(who.tag))
    screen = NightScreen(
        console_on(sys.stdout), place.folder(who.tag), who.left, lambda: stop.after_run, lambda: stop.now, is_own=False
    )
    screen.said(f"night {who.tag} (pid {who.pid}, since {moment(who.since)})")
    last = f"night {who.tag} has ended; see: {typed('status')}, {typed('results')}"
    try:
        with like_ctrl_c():
            while holder(place.repo.common_dir) == who:
                screen.look()
                time.sleep(LOOK_EVERY_S)
            screen.look()
    except KeyboardInterrupt:
        last = f"night {who.tag} goes on; end it with: {typed('stop')}"
    finally:
        screen.close()
    screen.said(last)
    return Answer({"tag": who.tag})


# ---- steering --------------------------------------------------------------------------------------------------------


def note(text: str, /, *words: str, tag: str | None = None) -> Answer:
    """Tell a model or an agent something, from its next proposal on.

    Args:
        text: as in: nightshift note "leave the depth alone"
        words: more of it, where it is not quoted
        tag: of this night (default: the running one, else the latest)
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
    return Answer({"tag": who.tag}, lambda: print(f"night {who.tag} ends {when}"))
