"""Find the facts that a command is about: of a night, of an attempt, and the script that it ran."""

from agent.cli.reading.which import none_yet, numbers_there
from agent.errors import NightError
from agent.records.journal import Journal
from agent.records.place import Place, check_unpacked
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.facts.read import known_tags, night_facts


def facts_of(place: Place, tag: str | None) -> NightFacts:
    """Return the facts of this night, or of the latest; raise NightError where there is none."""
    return night_facts(place, latest_tag(place) if tag is None else tag)


def latest_tag(place: Place) -> str:
    """Return the tag of the latest night that ran here, or else of all that are known; raise NightError without one."""
    tags = place.tags() or known_tags(place)
    if not tags:
        raise none_yet(place)
    return tags[-1]


def attempt_in(facts: NightFacts, number: int) -> AttemptFacts:
    """Return the facts of one attempt; raise NightError for a number that the night does not have."""
    found = facts.attempt(number)
    if found is None:
        there = numbers_there([one.number for one in facts.attempts])
        raise NightError(f"night {facts.tag} has no attempt {number}; there are: {there}")
    return found


def script_of(place: Place, facts: NightFacts, attempt: AttemptFacts) -> str:
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
