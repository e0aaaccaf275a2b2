"""Read a night: from its journal, else its shipped record, else its commits alone."""

import re
from contextlib import suppress

from agent.errors import NightError
from agent.experiment import Attempt, Decision, Kind, Night, Proposal
from agent.git import Repo, is_of_night, valid_tag
from agent.records.journal import Journal
from agent.records.place import Place, check_unpacked
from agent.records.record import Home, Record, of_journal
from agent.records.shipped import DAMAGED, facts_of, of_folder

NUMBER = re.compile(r"[0-9]{1,9}")  # of an attempt


def read_night(place: Place, tag: str, *, with_dials: bool = True) -> Record:
    """Return all that is recorded of a night; raise NightError for a tag that nothing here knows.

    with_dials: also read the scripts of a journal, for the dials that were turned.
    """
    if valid_tag(tag):  # which names a folder: exports write to folders that are named after the night
        if place.journal(tag).exists():
            with Journal.read(place.journal(tag)) as journal:
                return of_journal(journal, with_dials=with_dials)
        if (place.shipped / tag).is_dir():
            return _of_shipped(place, tag)
        check_unpacked(place, tag)
        record = of_refs(place.repo, tag)
        if record is not None:
            return record
    raise NightError(f"no night {tag} is known here; there are: {', '.join(known_tags(place)) or 'none'}")


def _of_shipped(place: Place, tag: str) -> Record:
    folder = place.shipped / tag
    try:
        record = of_folder(folder)
        if record.tag != tag:
            raise ValueError(f"it is the record of another night, {record.tag!r}")
    except DAMAGED as error:
        raise NightError(f"{folder} is damaged ({error}); write it again with nightshift export record") from error
    return record


def of_refs(repo: Repo, tag: str) -> Record | None:
    """Return what the commits of a night tell, as after a fetch, or in a linked worktree; None where none is here."""
    wanted = "--format=%(refname)%09%(objectname)%09%(parent)%09%(subject)"
    listed = repo.git("for-each-ref", wanted, f"refs/experiments/{tag}/", "refs/heads/experiments/")
    refs = [line.split("\t", 3) for line in listed.splitlines() if is_of_night(line.partition("\t")[0], tag)]
    kept = {commit for ref, commit, *_ in refs if ref.endswith(f"-{tag}")}
    numbers: dict[str, int] = {}  # by commit
    attempts = []
    for ref, commit, parent, title in refs:  # by number, as their names have zeros before it
        if not NUMBER.fullmatch(name := ref.rpartition("/")[2]):
            continue
        numbers[commit] = number = int(name)
        decision = Decision(Kind.KEPT if number else Kind.BASELINE, "") if commit in kept else None
        proposal = Proposal("", title, "", "")
        attempts.append(Attempt(number, numbers.get(parent), proposal, "", commit, decision=decision))
    night = Night(tag, "", "", "", 0.0, 0, "", "", "", "", "")
    return Record(night, tuple(attempts), home=Home.REFS) if attempts else None


def known_tags(place: Place) -> tuple[str, ...]:
    """Return the tags of all nights with a journal or a shipped record, oldest first.

    A record from elsewhere may have any text as its tag; only those that read_night reads are returned.
    """
    started: dict[str, str] = {}
    for folder in place.shipped.glob("*/"):
        with suppress(*DAMAGED):
            started[folder.name] = facts_of(folder).night.started
    for path in place.nights.glob("*/journal.sqlite"):
        with suppress(NightError), Journal.read(path) as journal:
            started[path.parent.name] = journal.night().started
    return tuple(sorted(filter(valid_tag, started), key=lambda tag: (started[tag], tag)))
