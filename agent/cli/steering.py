"""Steer a night from outside, by a note to its authors or a wish to end: nightshift note, nightshift stop."""

from agent.cli.answer import Answer
from agent.cli.find import find_night, none_yet, place_meant
from agent.clock import utc_now
from agent.errors import NothingYet
from agent.invocation import typed
from agent.night.lock import AFTER_RUN, NOW, Stop, holder, is_held
from agent.proposers.notes import add_note
from agent.view.screen import print_folded


def note(text: str, /, *words: str, tag: str | None = None) -> Answer:
    """Tell a model or an agent something, from its next proposal on.

    Args:
        text: as in: nightshift note "leave the depth alone"
        words: more of it, where it is not quoted
        tag: of this night (default: the running one, else the latest)
    """
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
