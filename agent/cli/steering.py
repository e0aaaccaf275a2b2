"""The commands that steer a night from outside: an entry of the queue, a note, a wish to stop."""

from pathlib import Path

from agent.cli.answer import Answer
from agent.cli.find import find_night, night_in, none_yet, place_meant
from agent.cli.options import SCRIPT, Message
from agent.clock import utc_now
from agent.errors import NothingYet
from agent.invocation import typed
from agent.night.lock import AFTER_RUN, NOW, Stop, holder, is_held
from agent.proposers import queue
from agent.proposers.notes import add_note
from agent.proposers.queue import read_submission
from agent.proposers.registry import has_reader, ideas_from
from agent.records.journal import Journal
from agent.records.place import Place
from agent.view.screen import print_folded


def submit(file: Path, /, *, message: Message, script: Path = SCRIPT) -> Answer:
    """Put a script or a patch into the queue of --proposer queue and mix.

    Args:
        file: a whole script (.py), or a patch of it (.patch, .diff)
        message: what and why; its first line is the title
        script: the training script (default: train_mlx.py)
    """
    place = Place.of(script)
    where = place_meant()
    tag = find_night()[1] if where.tags() else ""
    history = night_in(where, tag)[1] if tag else ()
    # a night that runs in another working tree reads the queue there
    text = read_submission(file, place, where, history, tag)
    path = queue.submit(where.queue, text, message, script=place.script, now=utc_now())
    said = f"queued as {path.name}; a night with --proposer queue or mix tries it before all else"
    return Answer({"file": str(path)}, lambda: print(said))


def note(text: str, /, *words: str, tag: str | None = None) -> Answer:
    """Tell a model or an agent something, from its next proposal on.

    Args:
        text: as in: nightshift note "leave the depth alone"
        words: more of it, where it is not quoted
        tag: of this night (default: the running one, else the latest)
    """
    place, tag, _ = find_night(tag)
    add_note(place.folder(tag), " ".join((text, *words)), utc_now())
    with Journal.read(place.journal(tag)) as journal:
        terms = journal.night().terms
    said = f"night {tag} is told before its next proposal"
    if not has_reader(terms):
        said = (
            f"noted, but nothing reads it yet: night {tag} has its ideas from {ideas_from(terms)}; name a model or an "
            f"agent as it goes on, with: {typed('run', '--tag', tag, '--llm', 'PROVIDER:MODEL')}, or --command"
        )
    return Answer({"tag": tag}, lambda: print_folded([said]))


def stop(*, now: bool = False) -> Answer:
    """End the running night after its current run.

    Args:
        now: end the run too; it is redone when the night is resumed
    """
    place = place_meant()
    who = holder(place.repo.common_dir)
    if who is None and is_held(place.repo.common_dir):
        raise none_yet(place)
    if who is None or not place.folder(who.tag).is_dir():
        raise NothingYet(f"no night is running in this repository; see: {typed('status')}")
    Stop(place.folder(who.tag)).wish(NOW if now else AFTER_RUN)
    when = "now" if now else "after what it runs now"
    return Answer({"tag": who.tag}, lambda: print(f"night {who.tag} ends {when}"))
