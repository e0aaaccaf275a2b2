"""A repository with its script, the place of its nights, and their records."""

import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agent.errors import NightError, NoRepository
from agent.experiment import Night
from agent.git import Repo, valid_tag
from agent.invocation import SCRIPT, typed
from agent.records.journal import Journal
from agent.records.record import Record, of_journal
from agent.records.shipped import DAMAGED, night_in, of_folder
from agent.script.contract import check_script, modules_beside, no_script, read_text
from agent.text import harmless

UNPACKED = "unpacked"  # empty file in the folder of a night that was unpacked


@dataclass(frozen=True, slots=True)
class Place:
    """A repository with the script that is worked on, and the place of its nights."""

    repo: Repo
    script: str  # path inside the repository

    @classmethod
    def of(cls, script: Path) -> "Place":
        """Find the repository of a script; raise RepoError without one, ScriptError if the script is missing too."""
        try:
            repo = Repo.containing(script.parent.resolve())
        except NoRepository:
            if script.exists():
                # The error advises to make a repository, which what is no script should not get.
                check_script(read_text(script), str(script), None)
                raise
            raise no_script(script) from None
        return cls(repo, (script.parent.resolve() / script.name).relative_to(repo.root.resolve()).as_posix())

    @property
    def script_path(self) -> Path:
        return self.repo.root / self.script

    @property
    def nights(self) -> Path:
        return self.repo.root / "experiments" / "nights"

    @property
    def shipped(self) -> Path:
        return self.repo.root / "experiments" / "shipped"

    @property
    def queue(self) -> Path:
        return self.repo.root / "experiments" / "queue"

    @property
    def results(self) -> Path:
        return self.repo.root / "results.tsv"

    def folder(self, tag: str) -> Path:
        return self.nights / tag

    def journal(self, tag: str) -> Path:
        return self.folder(tag) / "journal.sqlite"

    def is_own(self, tag: str) -> bool:
        """Return whether a night with a journal here began here: it was not unpacked, and came with no clone."""
        folder = self.folder(tag)
        return not (folder / UNPACKED).exists() and not self.repo.tracks(folder.relative_to(self.repo.root).as_posix())

    def check_own(self, tag: str) -> None:
        """Raise NightError for a night that came with the repository: its programs would run with the user's rights."""
        self._check_untracked(self.folder(tag), "it names programs")

    def check_own_queue(self) -> None:
        """Raise NightError for a queue that came with the repository: its tries say what runs, and how."""
        self._check_untracked(self.queue, "it holds scripts")

    def check_own_results(self) -> None:
        """Raise NightError where a clone brought results.tsv as a link, which may lead to any file of the user."""
        if self.results.is_symlink() and self.repo.tracks(self.results.name):
            raise NightError(
                f"git tracks {self.results} as a link, so somebody else may have chosen what it would overwrite; "
                f"remove the link with: git rm {self.results.name}"
            )

    def _check_untracked(self, folder: Path, danger: str) -> None:
        named = folder.relative_to(self.repo.root).as_posix()
        if self.repo.tracks(named):
            raise NightError(
                f"git tracks {named}, so it may be somebody else's, and {danger} that would run with your rights; if "
                f"it is yours, run: git rm -r --cached {named}"
            )

    def packed(self, tag: str) -> Path:
        """Return the file that a night is packed away in by `nightshift pack --remove`."""
        return self.nights / f"{tag}.tar.gz"

    def tags(self) -> tuple[str, ...]:
        """List the nights with a journal here; the one that was last at work comes last."""
        journals = sorted(sorted(self.nights.glob("*/journal.sqlite")), key=_last_at_work)
        return tuple(path.parent.name for path in journals)


def run_folder(night: Path, number: int, seed: int) -> Path:
    """Return the folder of a run, given that of its night."""
    return night / "runs" / f"{number:04d}" / f"seed{seed}"


def _last_at_work(path: Path) -> str:
    """Read the time from the journal itself: the times of its files change when they are copied, or only read."""
    try:
        with Journal.read(path) as journal:
            night = journal.night()
            return night.called or night.started
    except NightError:
        return ""


def read_script(place: Place, metric: str | None = None) -> str:
    """Read the script from the working tree, uncommitted edits included, and check it against the contract.

    metric: the number that it reports itself, in place of the contract.
    """
    if not place.script_path.exists():
        raise no_script(place.script_path)
    return _checked(place, read_text(place.script_path), metric)


def committed(place: Place, metric: str | None = None) -> str:
    """Return the script as it stands in HEAD: edits of the working tree are measured against it."""
    return _checked(place, place.repo.read("HEAD", place.script), metric)


def _checked(place: Place, source: str, metric: str | None) -> str:
    beside = modules_beside(place.script_path.parent) if metric is None else None
    check_script(source, place.script, beside)
    return source


def known_night(place: Place, tag: str | None) -> Night | None:
    """Read the night of this tag from its journal; None where a new one is to be opened."""
    if tag is None:
        return None
    if not valid_tag(tag):
        raise NightError(f"{tag!r} is no tag; use letters, digits, '.', '_' and '-', as in nov20-wide")
    if not place.journal(tag).exists():
        check_unpacked(place, tag)
        return None
    place.check_own(tag)
    with Journal.read(place.journal(tag)) as journal:
        night = journal.night()
    _check_tag(place, tag, night)
    return night


def _check_tag(place: Place, tag: str, night: Night) -> None:
    """Raise NightError where a night's folder has another's journal: its tag would name what is written."""
    if night.tag != tag:  # a clone may bring any
        other = harmless(night.tag)
        raise NightError(f"the journal in {place.folder(tag)} is of another night, {other!r}; move its folder away")


def place_of_night(script: Path, tag: str | None, where: Place | None = None) -> Place:
    """Find the place of a script: the one that the user named, else that of the resumed night.

    where: place of the night, if that runs in another working tree.
    """
    place = Place.of(script)
    night = known_night(where or place, tag) if script == Path(SCRIPT) else None
    return place if night is None else replace(place, script=night.script)


def check_unpacked(place: Place, tag: str) -> None:
    """Raise NightError for a night that is packed away."""
    if place.packed(tag).exists():
        unpack = typed("unpack", tag)
        raise NightError(f"night {tag} is packed away in {place.packed(tag)}; unpack it first, with: {unpack}")


def new_id() -> str:
    """Return an id for a night, which no other has."""
    return secrets.token_hex(8)


# ---- what is recorded of the nights ----------------------------------------------------------------------------------

MOST_PAST = 2000  # attempts that are read of all journals


def read_night(place: Place, tag: str) -> Record:
    """Return all that is recorded of a night: in its journal, else its shipped record.

    Raise NightError for a tag that nothing here knows.
    """
    if valid_tag(tag):  # a tag becomes the name of a folder, in exports as well
        if place.journal(tag).exists():
            with Journal.read(place.journal(tag)) as journal:
                record = of_journal(journal)
            _check_tag(place, tag, record.night)
            return record
        folder = place.shipped / tag
        if folder.is_dir():
            try:
                return of_folder(folder, tag)
            except DAMAGED as error:
                again = typed("export", "record", tag)
                raise NightError(f"{folder} is damaged ({error}); write it again with: {again}") from error
        check_unpacked(place, tag)
    raise NightError(f"no night {tag} is here; known nights: {', '.join(known_tags(place)) or 'none'}")


def known_tags(place: Place) -> tuple[str, ...]:
    """Return the tags of all nights with a journal or a shipped record, oldest first.

    A record from elsewhere may have any text as its tag; only those that read_night reads are returned.
    """
    started: dict[str, str] = {}
    for folder in place.shipped.glob("*/"):
        with suppress(*DAMAGED):
            started[folder.name] = night_in(folder).started
    for tag in place.tags():
        with suppress(NightError), Journal.read(place.journal(tag)) as journal:
            started[tag] = journal.night().started
    return tuple(sorted(filter(valid_tag, started), key=lambda tag: (started[tag], tag)))


def past_nights(place: Place, except_tag: str) -> tuple[Record, ...]:
    """Return all other nights with a journal or a shipped record here, the oldest first; skip damaged ones.

    A night that has both is read from its journal.
    """
    nights: dict[tuple[str, str], Record] = {}  # key: start and tag
    for tag in reversed(place.tags()):
        if tag != except_tag and sum(len(record.attempts) for record in nights.values()) < MOST_PAST:
            with suppress(NightError, OSError), Journal.read(place.journal(tag)) as journal:
                record = of_journal(journal)
                nights[record.night.started, tag] = record
    for folder in place.shipped.glob("[!.]*/"):  # a killed writer leaves folders that begin with a dot
        with suppress(*DAMAGED):
            record = of_folder(folder)
            if record.tag != except_tag:
                nights.setdefault((record.night.started, record.tag), record)
    return tuple(nights[key] for key in sorted(nights))
