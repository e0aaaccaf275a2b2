"""The commands that steer a night from outside: an entry of the queue, a note, a wish to stop."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from agent.cli.reading.which import just_begun, night_in, place_meant
from agent.cli.words.options import add_script
from agent.cli.words.parser import Subcommand
from agent.clock import utc_now
from agent.errors import NothingYet
from agent.invocation import typed
from agent.night.lock import AFTER_RUN, NOW, Stop, holder, is_held
from agent.proposers import queue
from agent.proposers.notes import add_note
from agent.proposers.submission import check_not_submitted, read_submission
from agent.records.journal import Journal
from agent.records.place import Place
from agent.view.answer import Answer, AnswersTo
from agent.view.facts.workers import workers_of_call

AS_JSON = "say as JSON what was done: nothing else on stdout"

# ---- submit ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    file: Path
    message: str
    script: Path
    answer: Answer


def submit(options: SubmitOptions) -> int:
    place = Place.of(options.script)
    where = place_meant()
    night, history = night_in(where, _running(where)) if where.tags() else (None, ())
    tag = night.tag if night else ""
    text = read_submission(options.file, place, history, tag)
    # a night that runs in another working tree reads the queue there
    check_not_submitted(options.file, text, where, history, tag)
    path = queue.submit(where.queue, text, options.message, script=place.script, now=utc_now())
    said = f"queued as {path.name}; a night with --proposer queue or mix tries it before all else"
    options.answer.say(said, {"file": str(path)})
    return 0


def _submit_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("file", type=Path, metavar="FILE", help="a whole script (.py), or a patch of it (.patch, .diff)")
    words.add_argument(
        "-m", "--message", required=True, metavar="TEXT", help="what and why; its first line is the title"
    )
    add_script(words)
    words.add_argument("--json", action="store_true", help=AS_JSON)


SUBMIT_HELP = "put a script or a patch into the queue of --proposer queue and mix"
SUBMIT = Subcommand("submit", SUBMIT_HELP, SubmitOptions, submit, _submit_words, answers=AnswersTo.STDOUT)

# ---- note ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoteOptions:
    text: list[str]
    tag: str | None
    answer: Answer


def note(options: NoteOptions) -> int:
    place = place_meant(options.tag)
    night, _ = night_in(place, options.tag or _running(place))
    add_note(place.folder(night.tag), " ".join(options.text), utc_now())
    options.answer.say(f"night {night.tag} is told before its next proposal", {"tag": night.tag})
    return 0


def _running(place: Place) -> str | None:
    """Return the tag of the night that runs here, if one does."""
    who = holder(place.repo.common_dir)
    return who.tag if who and place.journal(who.tag).exists() else None


def _note_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("text", nargs="+", metavar="TEXT", help='as in: nightshift note "leave the depth alone"')
    words.add_argument("--tag", help="of this night (default: the running one, else the latest)")
    words.add_argument("--json", action="store_true", help=AS_JSON)


NOTE = Subcommand(
    "note",
    "tell a model or an agent something, from its next proposal on",
    NoteOptions,
    note,
    _note_words,
    answers=AnswersTo.STDOUT,
)

# ---- stop ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopOptions:
    now: bool
    answer: Answer


def stop(options: StopOptions) -> int:
    place = place_meant()
    who = holder(place.repo.common_dir)
    if who is None and is_held(place.repo.common_dir):
        raise just_begun()
    if who is None or not place.folder(who.tag).is_dir():
        raise NothingYet(f"no night is running in this repository; see: {typed('status')}")
    Stop(place.folder(who.tag)).wish(NOW if options.now else AFTER_RUN)
    when = "now" if options.now else f"after its {_runs_of(place.journal(who.tag))}"
    options.answer.say(f"night {who.tag} ends {when}", {"tag": who.tag})
    return 0


def _runs_of(journal_path: Path) -> str:
    """Return what a night waits for before it ends; a replay has no journal here, nor has a night that just begins."""
    if not journal_path.exists():
        return "current run"
    with Journal.read(journal_path) as journal:
        return "current run" if workers_of_call(journal) == 1 else "runs in flight"


def _stop_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("--now", action="store_true", help="end the run too; it is redone when the night is resumed")
    words.add_argument("--json", action="store_true", help=AS_JSON)


STOP = Subcommand(
    "stop", "end the running night after its current run", StopOptions, stop, _stop_words, answers=AnswersTo.STDOUT
)
