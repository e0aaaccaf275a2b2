"""Find the night or the attempt that a command is about: TAG, and [TAG:]N, [TAG:]best or [TAG:]confirmed.

Where an attempt is wanted, a tag alone is the night's best one.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent.errors import NightError, NoRepository, NothingYet, ScriptError
from agent.experiment import Attempt
from agent.git import valid_tag
from agent.invocation import SCRIPT, typed
from agent.night.lock import Holder, holder, is_held
from agent.records.place import Place, check_unpacked, known_tags, read_night
from agent.records.record import Record
from agent.records.results import tags_in
from agent.records.shipped import edit_in, scripts_in

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
    """Return this place, or that of a running night in another working tree of the repository if it may be meant."""
    place = place or here()
    who = holder(place.repo.common_dir)
    if who is None or tag not in (None, who.tag):
        return place
    other = replace(place, repo=replace(place.repo, root=Path(who.folder).parents[2]))
    return other if other.journal(who.tag).is_file() else place


def none_yet(place: Place) -> NothingYet:
    """Return the error for a place without a night."""
    if is_held(place.repo.common_dir):  # the night may still prepare its text
        return NothingYet("a night has just begun here and has no name yet; give the command again in a moment")
    if packed_tags(place):
        return NothingYet(f"the nights here are packed away; see them with: {typed('nights')}")
    return NothingYet(f"no night has run here yet; begin with: {typed('run')}")


# ---- a night ---------------------------------------------------------------------------------------------------------


def find_night(tag: str | None = None, *, to_read: bool = False) -> tuple[Place, str, Holder | None]:
    """Return the place of a night with a journal, its tag, and the process that runs it, if one does.

    tag: None is the running night, or else the latest one; a wrong clock may have made another one the latest.
    to_read: a shipped record of a named night is enough. Raise NightError if there is none.
    """
    place = place_meant(tag)
    who = holder_here(place, tag)
    if who is None and to_read and tag is not None and is_known(place, tag):
        return place, tag, None
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
        if is_known(place, tag):
            see = typed("report", tag)
            raise NightError(f"night {tag} has no journal here, only its record; see it with: {see}")
        raise no_night(place, tag, tags)
    return tag or tags[-1]


def is_known(place: Place, tag: str) -> bool:
    """Return whether a night has a journal or a shipped record here."""
    return valid_tag(tag) and (place.journal(tag).exists() or (place.shipped / tag).is_dir())


def is_free(place: Place, tag: str) -> bool:
    """Return whether a night of this tag is not known here, and may begin."""
    return valid_tag(tag) and parts(tag)[1] is None and not is_known(place, tag)


def no_night(place: Place, tag: str, tags: Sequence[str]) -> NightError:
    """Return the error for an unknown name of a night, with the known ones; tags: of the possible nights."""
    night, which = parts(tag)
    if which is not None:
        see = typed("show", tag)
        whole = f"give its tag alone: {night}" if night is not None else "give the tag of a night"
        return NightError(f"{tag!r} is an attempt, and this command is about a whole night; {whole}; or see: {see}")
    if valid_tag(tag):
        check_unpacked(place, tag)
        if tag in tags_in(place.results):
            see = typed("results", tag)
            return NightError(f"of night {tag} only its rows in results.tsv are here; see them with: {see}")
    return NightError(f"no night {tag} is here; known nights: {', '.join(tags) or 'none'}")


def packed_tags(place: Place) -> set[str]:
    """Return the tags of the nights that are packed away here."""
    ending = place.packed("").name
    return {file.name.removesuffix(ending) for file in place.nights.glob(f"*{ending}")}


def tag_to_read(place: Place, tag: str | None) -> str:
    """Return this tag, or that of the night last at work, else of the latest record; raise NightError without any."""
    if tag is not None and not is_known(place, tag):
        raise no_night(place, tag, known_tags(place))
    tags = place.tags() or known_tags(place)
    if not tags:
        raise none_yet(place)
    return tag or tags[-1]


def record_of(place: Place, tag: str | None) -> Record:
    """Return the record of this night, or of the latest; raise NightError where there is none."""
    return read_night(place, tag_to_read(place, tag))


# ---- an attempt ------------------------------------------------------------------------------------------------------


Meant = tuple[Place, Record, Attempt]


def parts(text: str) -> tuple[str | None, str | None]:
    """Return the tag and the attempt of TAG:4, of 4 alone or of TAG alone; None for what it leaves out."""
    tag, _, which = text.rpartition(":")
    is_attempt = which in (BEST, CONFIRMED) or (which.isdecimal() and len(which) < 10)
    return (tag or None, which) if is_attempt else (text, None)


def attempt_meant(text: str) -> Meant:
    """Return the attempt of this address with its night, of a tag alone its best; raise NightError without any."""
    tag, which = parts(text)
    place = place_meant(tag)
    if which is None and not is_known(place, text) and text not in (*packed_tags(place), *tags_in(place.results)):
        raise NightError(
            f"{text!r} is neither an attempt (a number, {BEST} or {CONFIRMED}; of another night: TAG:4, "
            f"TAG:{BEST}) nor a night; known nights: {', '.join(known_tags(place)) or 'none'}"
        )
    record = record_of(place, tag)
    return place, record, attempt_in(record, which or BEST)


def attempt_in(record: Record, which: str) -> Attempt:
    """Return an attempt of a night, by its number, best or confirmed; raise NightError where it has none."""
    from agent.model import best_script

    if which == BEST:
        return best_script(record)[0]
    if which == CONFIRMED:
        findings = record.findings
        confirmed = record.attempt(findings.script) if findings is not None else None
        if confirmed is None:
            why = "not confirmed yet" if findings is None else "not confirmed: its confirmation found no sure gain"
            remedy = f"; where no night runs, measure it with: {typed('confirm', record.tag)}" if record.is_here else ""
            raise NothingYet(f"the best script of night {record.tag} is {why}{remedy}")
        return confirmed
    attempt = record.attempt(int(which))
    if attempt is None:
        there = f"0 to {len(record.attempts) - 1}" if record.attempts else "none yet"
        raise NightError(f"night {record.tag} has no attempt {which}; there are: {there}")
    return attempt


def script_of(place: Place, record: Record, attempt: Attempt) -> str:
    """Return an attempt's script from the journal, its commit or the record; raise NightError where none has it."""
    if record.is_here:
        return attempt.proposal.script
    if attempt.commit is not None and place.repo.find(attempt.commit) is not None:
        return place.repo.read(attempt.commit, place.script)
    scripts = scripts_in(place.repo, place.shipped / record.tag, record)
    if attempt.number not in scripts:
        raise not_in_record(place, record, attempt)
    return scripts[attempt.number]


def not_in_record(place: Place, record: Record, attempt: Attempt) -> NightError:
    """Return the error for a script or an edit that a shipped record lacks; it says what the record has."""
    check_unpacked(place, record.tag)
    tag, number, best = record.tag, attempt.number, record.to_take
    if best is None or not edit_in(place.shipped / tag):
        has = "no script, as no edit was kept"
    else:
        has = f"the edit of attempt {best.number} alone; see it with: {typed('show', f'{tag}:{best.number}', '--diff')}"
        if number in (0, best.number):
            return NightError(
                f"the script that night {tag} began with is not in this repository, and its record here has {has}; "
                f"a shallow clone gets it with: git fetch --unshallow"
            )
    commit = "" if attempt.commit is None else f", in commit {attempt.commit[:7]}"
    return NightError(
        f"the script of attempt {number} of night {tag} stayed where the night ran{commit}; the record here has {has}"
    )


def not_here(tag: str, commit: str | None) -> str:
    """Say that a commit of a night is missing, and how to fetch it."""
    refs = f"refs/experiments/{tag}/*"
    return (
        f"commit {(commit or 'none')[:7]} is not in this repository; fetch it from where the night ran: "
        f"git fetch REMOTE '{refs}:{refs}'"
    )
