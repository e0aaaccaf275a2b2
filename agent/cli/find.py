"""Find the night that a command is about: by its TAG, the one that runs, or the latest."""

from dataclasses import replace
from pathlib import Path

from agent.errors import NightError, NoRepository, NothingYet, ScriptError
from agent.experiment import Attempt, Night
from agent.git import valid_tag
from agent.invocation import SCRIPT, typed
from agent.night.lock import holder, is_held
from agent.records.journal import Journal
from agent.records.place import Place, check_unpacked
from agent.records.results import tags_in


def here(script: Path = Path(SCRIPT)) -> Place:
    """Return the place where the command was given; raise NightError where no night can have run."""
    try:
        return Place.of(script)
    except (NoRepository, ScriptError):
        raise NightError(
            f"no night has run in {Path.cwd()}; go to the folder of your script, or begin with: {typed('init')}"
        ) from None


def place_meant(tag: str | None = None) -> Place:
    """Return this place, or the other working tree of the repository whose running night may be meant."""
    return night_place(here(), tag)


def night_place(place: Place, tag: str | None) -> Place:
    """Return this place, or that of the night that runs in another working tree, if its tag is meant or none is."""
    who = holder(place.repo.common_dir)
    if who is None or tag not in (None, who.tag) or not Path(who.folder, "journal.sqlite").is_file():
        return place
    return replace(place, repo=replace(place.repo, root=Path(who.folder).parents[2]))


def running_tag(place: Place) -> str | None:
    """Return the tag of the night that runs here, if one does."""
    who = holder(place.repo.common_dir)
    return who.tag if who and place.journal(who.tag).exists() else None


def night_in(place: Place, tag: str | None) -> tuple[Night, tuple[Attempt, ...]]:
    """Return the night of this tag, or the latest, and its attempts; raise NightError where it has no journal here."""
    with Journal.read(place.journal(known_tag(place, tag))) as journal:
        return journal.night(), journal.attempts()


def known_tag(place: Place, tag: str | None) -> str:
    """Return this tag, or that of the latest night; raise NightError where it has no journal here."""
    tags = place.tags()
    if tag is None and not tags:
        raise none_yet(place)
    if tag is not None and tag not in tags:
        if valid_tag(tag):
            check_unpacked(place, tag)
            if (place.shipped / tag).is_dir() or tag in tags_in(place.ledger):
                see = typed("report", tag)
                raise NightError(f"night {tag} has no journal here, only its record or its rows; see it with: {see}")
        raise NightError(f"night {tag} has no journal here; there are: {', '.join(tags) or 'none'}")
    return tag or tags[-1]


def none_yet(place: Place, **known: object) -> NothingYet:
    """Return the error for a place without a night; known: goes into its answer."""
    if is_held(place.repo.common_dir):
        return just_begun(**known)
    return NothingYet(f"no night has run here yet; begin with: {typed('run')}", **known)


def just_begun(**known: object) -> NothingYet:
    """Return the error for a night that has no name yet: it may be preparing its text first."""
    return NothingYet("a night has just begun here and has no name yet; give the command again in a moment", **known)
