"""Bring the rows of all nights together in the ledger, from their journals: a person may delete it and lose nothing."""

from contextlib import suppress
from pathlib import Path

from agent.errors import NightError
from agent.experiment import History, Night
from agent.records.journal import Journal
from agent.records.ledger.columns import tag_of
from agent.records.ledger.rendering import LedgerText, rendered, row_of
from agent.records.ledger.writing import LedgerFile, stamp_of
from agent.records.place import Place

LAST = "SELECT attempt, max(id) AS id FROM decisions GROUP BY attempt"
TOUCHED = f"""
    SELECT (SELECT count(status) FROM decisions WHERE id IN (SELECT id FROM ({LAST}))) AS decided,
        (SELECT count(*) FROM dawns) AS dawns,
        (SELECT attempt FROM decisions ORDER BY id DESC LIMIT 1) AS judged,
        (SELECT attempt FROM runs ORDER BY id DESC LIMIT 1) AS run
"""


class Ledger:
    """Write the rows of all nights here; what has not changed since the last writing is neither read nor rendered."""

    def __init__(self, place: Place) -> None:
        """Raise NightError where a clone brought results.tsv as a link, which may lead to any file of the user."""
        if place.ledger.is_symlink() and place.repo.tracks(place.ledger.name):
            raise NightError(
                f"git tracks {place.ledger} as a link, so somebody else may have chosen what it would overwrite; "
                f"remove the link with: git rm {place.ledger.name}"
            )
        self._nights = place.nights
        self._file = LedgerFile(place.ledger)
        self._others: dict[Path, tuple[tuple[int, ...], list[tuple[Night, LedgerText]]]] = {}  # by their journals

    def write(self, live: tuple[Night, History] | None = None) -> None:
        """Render results.tsv from every journal here; keep the rows of a journal that cannot be read.

        live: the running night and its attempts, whose journal may have been deleted meanwhile.
        """
        tag = None if live is None else live[0].tag
        journals = (at for at in sorted(self._nights.glob("*/journal.sqlite")) if at.parent.name != tag)
        nights = [
            one for at in journals for one in self._read(at) if one[0].tag != tag and not self._is_copy(at, one[0])
        ]
        if live is not None:
            nights.append((live[0], rendered(*live)))
        self._file.write(sorted(nights, key=lambda pair: pair[0].started))

    def _is_copy(self, path: Path, night: Night) -> bool:
        """Return whether a night has its own folder beside this one, which a person copied and which may be older."""
        own = self._nights / night.tag / path.name
        return path != own and own.exists()

    def _read(self, path: Path) -> list[tuple[Night, LedgerText]]:
        """Return the night of a journal; none if it cannot be read. Read it again only where its files have changed."""
        files = sorted(path.parent.glob(f"{path.name}*"))
        stamp = tuple(fact for file in files if not file.name.endswith("-shm") for fact in stamp_of(file))
        if path not in self._others or self._others[path][0] != stamp:
            self._others[path] = stamp, []
            with suppress(NightError), Journal.read(path) as journal:
                night = journal.night()
                self._others[path] = stamp, [(night, rendered(night, journal.outlines()))]
        return self._others[path][1]


def is_up_to_date(text: str, night: Night, journal: Journal) -> bool:
    """Return whether a ledger is up to date with a journal, so that it need not be rendered.

    Every rendering is of the whole night, so if the rows of the attempts changed last are there, all others are. A
    night with a dawn is always rendered, since dawn changes many attempts at once.
    """
    (touched,) = journal.query(TOUCHED)
    mine = {line for line in text.split("\n") if tag_of(line) == night.tag}
    if touched["dawns"] or len(mine) != touched["decided"]:
        return False
    latest = journal.attempts_among({touched["judged"], touched["run"]} - {None})
    others = {one.parent for one in latest if one.parent is not None} - {one.number for one in latest}
    commits = {one.number: one.commit for one in (*journal.attempts_among(others), *latest)}
    return mine.issuperset(
        row_of(night, one, commits.get(one.parent or 0)) for one in latest if one.decision is not None
    )
