"""Choose the tag of a new night: one that no other night has, here or in the ledger."""

from datetime import datetime

from agent.errors import NightError
from agent.records.ledger.reading import tags_in
from agent.records.place import Place


def new_tag(place: Place, asked: str | None) -> str:
    """Return the tag of a new night, the date where none is asked for; raise NightError for one that is taken."""
    if asked is None:
        return free_tag(place, datetime.now().strftime("%b%d").lower())
    free = free_tag(place, asked)
    if free != asked:
        raise NightError(f"tag {asked} is taken by refs or ledger rows whose journal is not here; use --tag {free}")
    return asked


def free_tag(place: Place, wanted: str) -> str:
    """Return the first of wanted, wanted-2, wanted-3 … that no journal, ref or ledger row knows."""
    known = tags_in(place.ledger)
    tag, count = wanted, 1
    while tag in known or _traces(place, tag):
        count += 1
        tag = f"{wanted}-{count}"
    return tag


def _traces(place: Place, tag: str) -> bool:
    if place.journal(tag).exists() or place.packed(tag).exists() or place.repo.refs(f"refs/experiments/{tag}"):
        return True
    branches = place.repo.refs("refs/heads/experiments")
    return any(ref.rpartition("/")[2].partition("-")[2] == tag for ref in branches)  # after the budget
