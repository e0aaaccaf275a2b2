"""Find the night or the attempt that a command is about: TAG, and [TAG:]N, [TAG:]best or [TAG:]confirmed."""

from dataclasses import replace
from pathlib import Path

from agent.errors import NightError, NoRepository, NothingYet, ScriptError
from agent.experiment import Attempt
from agent.git import valid_tag
from agent.invocation import SCRIPT, typed
from agent.night.lock import Holder, holder, is_held
from agent.records.place import Place, check_unpacked, known_tags, read_night
from agent.records.record import Record

BEST, CONFIRMED = "best", "confirmed"


def here() -> Place:
    """Return the place where the command was given; raise NothingYet where no night can have run."""
    try:
        return Place.of(Path(SCRIPT))
    except (NoRepository, ScriptError):
        raise NothingYet(
            f"no night has run in {Path.cwd()}; go to the folder of your script, or begin with: {typed('init')}"
        ) from None


def place_meant(tag: str | None = None, place: Place | None = None) -> Place:
    """Return this place; of a night that runs in another working tree of the repository, and may be meant, that one."""
    place = place or here()
    who = holder(place.repo.common_dir)
    if who is None or tag not in (None, who.tag):
        return place
    other = replace(place, repo=replace(place.repo, root=Path(who.folder).parents[2]))
    return other if other.journal(who.tag).is_file() else place


def none_yet(place: Place) -> NothingYet:
    """Return the error for a place without a night."""
    if is_held(place.repo.common_dir):  # it may be preparing its text first
        return NothingYet("a night has just begun here and has no name yet; give the command again in a moment")
    if packed_tags(place):
        return NothingYet(f"the nights here are packed away; see them with: {typed('nights')}")
    return NothingYet(f"no night has run here yet; begin with: {typed('run')}")


# ---- a night ---------------------------------------------------------------------------------------------------------


def find_night(tag: str | None = None) -> tuple[Place, str, Holder | None]:
    """Return the place of a night with a journal, its tag, and the process that runs it, if one does.

    tag: None is the night that runs, or else the latest: by a clock that was wrong, another may be the latest. Raise
    NightError where there is none.
    """
    place = place_meant(tag)
    who = holder_here(place, tag)
    return place, known_tag(place, tag) if who is None else who.tag, who


def holder_here(place: Place, tag: str | None = None) -> Holder | None:
    """Return the process that runs this night, or any if tag is None, where its journal is here; None if none does."""
    who = holder(place.repo.common_dir)
    return who if who is not None and tag in (None, who.tag) and place.journal(who.tag).exists() else None


def known_tag(place: Place, tag: str | None) -> str:
    """Return this tag, or that of the latest night; raise NightError where it has no journal here."""
    tags = place.tags()
    if tag is None and not tags:
        raise none_yet(place)
    if tag is not None and tag not in tags:
        if valid_tag(tag):
            check_unpacked(place, tag)
            if (place.shipped / tag).is_dir():
                see = typed("report", tag)
                raise NightError(f"night {tag} has no journal here, only its record; see it with: {see}")
        raise NightError(f"night {tag} has no journal here; there are: {', '.join(tags) or 'none'}")
    return tag or tags[-1]


def packed_tags(place: Place) -> set[str]:
    """Return the tags of the nights that are packed away here."""
    ending = place.packed("").name
    return {file.name.removesuffix(ending) for file in place.nights.glob(f"*{ending}")}


def latest_tag(place: Place) -> str:
    """Return the tag of the night that was last at work, else of the latest record; raise NightError without any."""
    tags = place.tags() or known_tags(place)
    if not tags:
        raise none_yet(place)
    return tags[-1]


def record_of(place: Place, tag: str | None) -> Record:
    """Return the record of this night, or of the latest; raise NightError where there is none."""
    return read_night(place, latest_tag(place) if tag is None else tag)


# ---- an attempt ------------------------------------------------------------------------------------------------------


Meant = tuple[Place, Record, Attempt]


def attempt_meant(text: str) -> Meant:
    """Return the attempt of this address with its night; raise NightError where there is none."""
    tag, _, which = text.rpartition(":")
    if which not in (BEST, CONFIRMED) and not (which.isdecimal() and len(which) < 10):
        raise NightError(
            f"{text!r} is no attempt; give its number, {BEST} or {CONFIRMED}; of another night than the latest: TAG:4, "
            f"TAG:{BEST}"
        )
    place = place_meant(tag or None)
    record = record_of(place, tag or None)
    return place, record, attempt_in(record, which)


def attempt_in(record: Record, which: str) -> Attempt:
    """Return an attempt of a night, by its number, best or confirmed; raise NightError where it has none."""
    from agent.model import best_script

    if which == BEST:
        return best_script(record)[0]
    if which == CONFIRMED:
        findings = record.findings
        confirmed = record.attempt(findings.script) if findings is not None else None
        if confirmed is None:
            why = "has not ended" if findings is None else "has confirmed no script"
            remedy = f"where no night runs, measure it with: {typed('confirm', record.tag)}"
            raise NothingYet(f"dawn of night {record.tag} {why}; {remedy}")
        return confirmed
    attempt = record.attempt(int(which))
    if attempt is None:
        there = f"0 to {len(record.attempts) - 1}" if record.attempts else "none yet"
        raise NightError(f"night {record.tag} has no attempt {which}; there are: {there}")
    return attempt


def script_of(place: Place, record: Record, attempt: Attempt) -> str:
    """Return an attempt's script from the journal, else from its commit; raise NightError where neither is here."""
    if record.is_here:
        return attempt.proposal.script
    if attempt.commit is None or place.repo.find(attempt.commit) is None:
        check_unpacked(place, record.tag)
        raise NightError(
            f"the script of attempt {attempt.number} of night {record.tag} is not here: the night has no journal here, "
            f"and {not_here(record.tag, attempt.commit)}"
        )
    return place.repo.read(attempt.commit, place.script)


def not_here(tag: str, commit: str | None) -> str:
    """Say that a commit of a night is missing, and how to fetch it."""
    refs = f"refs/experiments/{tag}/*"
    return (
        f"commit {(commit or 'none')[:7]} is not in this repository; fetch it from where the night ran: "
        f"git fetch REMOTE '{refs}:{refs}'"
    )
