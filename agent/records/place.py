"""A repository with its script, and where its nights are kept."""

import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from agent.errors import NightError, NoRepository
from agent.experiment import Night
from agent.git import Repo, valid_tag
from agent.invocation import SCRIPT, typed
from agent.records.journal import Journal
from agent.script.contract import check_script, no_script, read_text


@dataclass(frozen=True, slots=True)
class Place:
    """Hold a repository with the script that is worked on, and where its nights are kept."""

    repo: Repo
    script: str  # path inside the repository

    @classmethod
    def of(cls, script: Path) -> "Place":
        """Find the repository of a script; raise RepoError without one, ScriptError if the script is missing too."""
        try:
            repo = Repo.containing(script.parent.resolve())
        except NoRepository:
            if script.exists():
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
    def ledger(self) -> Path:
        return self.repo.root / "results.tsv"

    def folder(self, tag: str) -> Path:
        return self.nights / tag

    def journal(self, tag: str) -> Path:
        return self.folder(tag) / "journal.sqlite"

    def check_own(self, tag: str) -> None:
        """Raise NightError for a night that came with the repository: it says what runs here with the user's rights."""
        self._check_untracked(self.folder(tag), "it names programs")

    def check_own_queue(self) -> None:
        """Raise NightError for a queue that came with the repository: its tries say what runs, and how."""
        self._check_untracked(self.queue, "it holds scripts")

    def check_own_ledger(self) -> None:
        """Raise NightError where a clone brought results.tsv as a link, which may lead to any file of the user."""
        if self.ledger.is_symlink() and self.repo.tracks(self.ledger.name):
            raise NightError(
                f"git tracks {self.ledger} as a link, so somebody else may have chosen what it would overwrite; "
                f"remove the link with: git rm {self.ledger.name}"
            )

    def _check_untracked(self, folder: Path, what: str) -> None:
        named = folder.relative_to(self.repo.root).as_posix()
        if self.repo.tracks(named):
            raise NightError(
                f"git tracks {named}, so it may be somebody else's, and {what} that would run with your rights; if it "
                f"is yours, run: git rm -r --cached {named}"
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
            return journal.last_at_work()
    except NightError:
        return ""


def read_script(place: Place) -> str:
    """Read the script from the working tree, uncommitted edits included, and check it against the contract."""
    if not place.script_path.exists():
        raise no_script(place.script_path)
    source = read_text(place.script_path)
    check_script(source, place.script)
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
        return journal.night()


def place_of_night(script: Path, tag: str | None) -> Place:
    """Find the place of a script; of a night that goes on and has another one, its own, unless the user named one."""
    place = Place.of(script)
    night = known_night(place, tag) if script == Path(SCRIPT) else None
    return place if night is None else replace(place, script=night.script)


def check_unpacked(place: Place, tag: str) -> None:
    """Raise NightError for a night that is packed away."""
    if place.packed(tag).exists():
        unpack = typed("unpack", tag)
        raise NightError(f"night {tag} is packed away in {place.packed(tag)}; unpack it first, with: {unpack}")


def new_id() -> str:
    """Return an id for a night, which no other has."""
    return secrets.token_hex(8)
