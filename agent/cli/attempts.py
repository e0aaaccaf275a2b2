"""Find the attempt that a command is about: [TAG:]N, [TAG:]best or [TAG:]confirmed."""

from agent.cli.find import none_yet, place_meant
from agent.errors import NightError, NothingYet
from agent.experiment import Attempt
from agent.invocation import typed
from agent.model.best_script import BestScript
from agent.records.journal import Journal
from agent.records.place import Place, check_unpacked
from agent.records.reading import known_tags, read_night
from agent.records.record import Record

BEST, CONFIRMED = "best", "confirmed"


def latest_tag(place: Place) -> str:
    """Return the tag of the latest night that ran here, or else of all that are known; raise NightError without one."""
    tags = place.tags() or known_tags(place)
    if not tags:
        raise none_yet(place)
    return tags[-1]


def facts_of(place: Place, tag: str | None) -> Record:
    """Return the facts of this night, or of the latest; raise NightError where there is none."""
    return read_night(place, latest_tag(place) if tag is None else tag)


def address(text: str) -> tuple[str | None, int | str]:
    """Read [TAG:]N, [TAG:]best or [TAG:]confirmed; return the tag, None for the latest night, and which attempt."""
    tag, _, which = text.rpartition(":")
    if which not in (BEST, CONFIRMED) and not (which.isdecimal() and len(which) < 10):
        raise NightError(
            f"{text!r} is no attempt; give its number, {BEST} or {CONFIRMED}, and TAG: before that for another night "
            f"than the latest"
        )
    return tag or None, int(which) if which.isdecimal() else which


def attempt_meant(text: str) -> tuple[Place, Record, Attempt]:
    """Return the attempt of this address with its night; raise NightError where there is none."""
    tag, which = address(text)
    place = place_meant(tag)
    facts = facts_of(place, tag)
    return place, facts, attempt_in(facts, which)


def attempt_in(facts: Record, which: int | str) -> Attempt:
    """Return an attempt of a night; raise NightError for one that it does not have."""
    if which == BEST:
        return BestScript.of(facts).attempt
    if which == CONFIRMED:
        found = facts.attempt(facts.findings.script) if facts.findings is not None else None
        if found is None:
            why = "has confirmed no script" if facts.findings is not None else "is still to come"
            raise NothingYet(f"dawn of night {facts.tag} {why}; measure it with: {typed('confirm', facts.tag)}")
        return found
    found = facts.attempt(int(which))
    if found is None:
        numbers = [one.number for one in facts.attempts]
        several = f"{min(numbers)} to {max(numbers)}" if len(numbers) > 1 else f"{numbers[0]} alone" if numbers else ""
        raise NightError(f"night {facts.tag} has no attempt {which}; there are: {several or 'none yet'}")
    return found


def script_of(place: Place, facts: Record, attempt: Attempt) -> str:
    """Return an attempt's script from the journal, else from its commit; raise NightError where neither is here."""
    journal = place.journal(facts.tag)
    if journal.exists():
        with Journal.read(journal) as opened:
            return opened.attempt(attempt.number).proposal.script
    commit = place.repo.find(attempt.commit) if attempt.commit else None
    if commit is None:
        check_unpacked(place, facts.tag)
        raise NightError(
            f"the script of attempt {attempt.number} of night {facts.tag} is not here: the night has no journal here, "
            f"and {not_here(facts.tag, attempt.commit)}"
        )
    return place.repo.read(commit, place.script)


def not_here(tag: str, commit: str | None) -> str:
    """Say that a commit of a night is missing, and how to fetch it."""
    refs = f"refs/experiments/{tag}/*"
    return (
        f"commit {(commit or 'none')[:7]} is not in this repository; fetch it from where the night ran: "
        f"git fetch REMOTE '{refs}:{refs}'"
    )
