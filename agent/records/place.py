"""A repository with its script, and where its nights are kept."""

from dataclasses import dataclass
from pathlib import Path

from agent.errors import NightError, NoRepository
from agent.git.repo import Repo
from agent.records.journal import Journal
from agent.script.contract import check_script, no_script, read_text


@dataclass(frozen=True, slots=True)
class Place:
    """A repository with the script that is worked on, and where its nights are kept."""

    repo: Repo
    script: str  # path inside the repository

    @classmethod
    def of(cls, script: Path) -> "Place":
        """Raises RepoError, and ScriptError where there is neither a repository nor the script."""
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
    def queue(self) -> Path:
        return self.repo.root / "experiments" / "queue"

    @property
    def ledger(self) -> Path:
        return self.repo.root / "results.tsv"

    def folder(self, tag: str) -> Path:
        return self.nights / tag

    def journal(self, tag: str) -> Path:
        return self.folder(tag) / "journal.sqlite"

    def tags(self) -> tuple[str, ...]:
        """Nights with a journal here; the one that was last at work comes last."""
        journals = sorted(sorted(self.nights.glob("*/journal.sqlite")), key=_last_at_work)
        return tuple(path.parent.name for path in journals)


def _last_at_work(path: Path) -> str:
    """From the journal itself: the times of its files say when somebody copied, or only read, them."""
    try:
        with Journal.read(path) as journal:
            return journal.last_at_work()
    except NightError:
        return ""


def read_script(place: Place) -> str:
    """The script as it stands in the working tree, uncommitted edits included; checked against the contract."""
    if not place.script_path.exists():
        raise no_script(place.script_path)
    source = read_text(place.script_path)
    check_script(source, place.script)
    return source
