"""Follow a night that runs elsewhere on this machine: nightshift status --follow."""

import time

from rich.console import Console

from agent.cli.answer import Answer
from agent.cli.find import just_begun, known_tag
from agent.errors import NightError, NothingYet
from agent.experiment import short
from agent.invocation import typed
from agent.judging.judges import choose_judge
from agent.night.lock import Holder, Stop, holder, is_held, like_ctrl_c
from agent.records.journal import Journal
from agent.records.place import Place
from agent.view.live.follow import Follower
from agent.view.live.screen import Screen
from agent.view.workers import workers_of_call

LOOK_EVERY_S = 0.5


def follow_night(place: Place, tag: str | None) -> Answer:
    """Draw the screen of a night until it ends, or Ctrl-C."""
    who = running_night(place, tag)
    with Journal.read(place.journal(who.tag)) as journal:
        night, workers = journal.night(), workers_of_call(journal)
        terms, stop = night.terms, Stop(place.folder(who.tag))
        calibration = choose_judge(terms.judge, terms.confirm).calibration
        screen = Screen(
            Console(),
            night.budget_s,
            lambda: stop.after_run,
            stopping_now=lambda: stop.now,
            calibration=calibration,
            heeds_ctrl_c=False,
            workers=workers,
        )
        screen.said(f"night {who.tag} (pid {who.pid}, since {who.since}) on branch {short(night.branch)}")
        follower = Follower(place.folder(who.tag), journal, screen)
        try:
            with like_ctrl_c():
                while holder(place.repo.common_dir) == who:
                    follower.look(who.left)
                    time.sleep(LOOK_EVERY_S)
                follower.look(who.left)
            last = f"night {who.tag} has ended; see: {typed('status')}, {typed('results')}"
        except KeyboardInterrupt:
            last = f"night {who.tag} goes on; end it with: {typed('stop')}"
        finally:
            screen.close()
        screen.said(last)
    return Answer({"tag": who.tag})


def running_night(place: Place, tag: str | None) -> Holder:
    """Return the process that runs this night, or any; raise NothingYet where there is none."""
    who = holder(place.repo.common_dir)
    if who is not None and tag in (None, who.tag) and place.journal(who.tag).exists():
        return who
    if who is not None and not place.journal(who.tag).exists():
        raise NightError(f"{who.tag} is a replay, which shows its progress where it was started")
    if tag is not None:
        known_tag(place, tag)  # which raises NightError for a tag that no night has
    if who is not None:
        follow = typed("status", "--follow")
        raise NothingYet(f"night {tag} is not running, but night {who.tag} is; see it with: {follow}")
    if is_held(place.repo.common_dir):
        raise just_begun()
    see = f"see how the latest stands with: {typed('status')}" if place.tags() else f"begin with: {typed('run')}"
    raise NothingYet(f"no night is running in this repository; {see}")
