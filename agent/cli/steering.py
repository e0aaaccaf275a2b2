"""The commands that steer a night from outside: an entry of the queue, a note, a wish to stop."""

from pathlib import Path

from agent.cli.answer import Answer
from agent.cli.find import just_begun, night_in, place_meant, running_tag
from agent.cli.options import SCRIPT, Message
from agent.clock import utc_now
from agent.errors import NothingYet
from agent.invocation import typed
from agent.night.lock import AFTER_RUN, NOW, Stop, holder, is_held
from agent.proposers import queue
from agent.proposers.notes import add_note
from agent.proposers.submission import check_not_submitted, read_submission
from agent.records.journal import Journal
from agent.records.place import Place
from agent.view.workers import workers_of_call


def submit(file: Path, /, *, message: Message, script: Path = SCRIPT) -> Answer:
    """Put a script or a patch into the queue of --proposer queue and mix.

    Args:
        file: a whole script (.py), or a patch of it (.patch, .diff)
        message: what and why; its first line is the title
        script: the training script (default: train_mlx.py)
    """
    place = Place.of(script)
    where = place_meant()
    night, history = night_in(where, running_tag(where)) if where.tags() else (None, ())
    tag = night.tag if night else ""
    text = read_submission(file, place, history, tag)
    # a night that runs in another working tree reads the queue there
    check_not_submitted(file, text, where, history, tag)
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
    place = place_meant(tag)
    night, _ = night_in(place, tag or running_tag(place))
    add_note(place.folder(night.tag), " ".join((text, *words)), utc_now())
    return Answer({"tag": night.tag}, lambda: print(f"night {night.tag} is told before its next proposal"))


def stop(*, now: bool = False) -> Answer:
    """End the running night after its current run.

    Args:
        now: end the run too; it is redone when the night is resumed
    """
    place = place_meant()
    who = holder(place.repo.common_dir)
    if who is None and is_held(place.repo.common_dir):
        raise just_begun()
    if who is None or not place.folder(who.tag).is_dir():
        raise NothingYet(f"no night is running in this repository; see: {typed('status')}")
    Stop(place.folder(who.tag)).wish(NOW if now else AFTER_RUN)
    when = "now" if now else f"after its {_runs_of(place.journal(who.tag))}"
    return Answer({"tag": who.tag}, lambda: print(f"night {who.tag} ends {when}"))


def _runs_of(journal_path: Path) -> str:
    """Return what a night waits for before it ends; a replay has no journal here, nor has a night that just begins."""
    if not journal_path.exists():
        return "current run"
    with Journal.read(journal_path) as journal:
        return "current run" if workers_of_call(journal) == 1 else "runs in flight"
