"""The script of an attempt, put into the working tree: nightshift take."""

import os
import shlex
import stat
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from agent.cli.answer import Answer
from agent.cli.find import CONFIRMED, address, attempt_in, here, night_place, record_of, script_of
from agent.cli.options import SCRIPT
from agent.errors import NightError, NothingYet, RepoError
from agent.experiment import attempt_ref
from agent.files import check_plain, write_plain
from agent.git import Repo, refs_of_night, valid_tag
from agent.invocation import typed
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.reading import known_tags
from agent.text import harmless
from agent.view.screen import print_folded
from agent.view.status import confirmed_branch

EXPERIMENTS = "refs/experiments/"


@dataclass(frozen=True, slots=True)
class Taken:
    """Hold the script that is taken, and where it comes from."""

    tag: str
    attempt: int | None  # None: a commit that no attempt's ref names
    title: str
    val_bpb: float | None
    ref: str
    commit: str | None  # None: not made yet
    path: str  # where the night has the script, in the repository
    content: bytes


def take(attempt: str = "best", /, *, script: Path | None = None) -> Answer:
    """Put an attempt's script into the working tree.

    best: the one that dawn confirmed, or else the one that was kept last; confirmed: dawn's alone; a number: any
    attempt's. Index and HEAD stay as they are. A script with edits that neither HEAD nor an attempt of the night keeps
    is kept beside it, as *.before-take.

    Args:
        attempt: as in best (default), confirmed, 4, wide:4, wide:best
        script: write it there (default: where the night has it)
    """
    place = here(script or SCRIPT)
    taken = find(place, attempt)
    file = place.script_path if script is not None else place.repo.root / taken.path
    _check(file, place.repo)
    kept = _kept(place, taken.tag, file)
    before = file.read_bytes() if file.exists() else None
    aside = None
    if before != taken.content:
        mode = None if before is None else stat.S_IMODE(file.stat().st_mode)
        if before is not None and before not in kept:
            names = chain((f"{file}.before-take",), (f"{file}.before-take-{number}" for number in count(2)))
            aside = Path(next(name for name in names if not os.path.lexists(name)))
            _write(aside, before, mode)
        _write(file, taken.content, mode)
    facts = {
        "tag": taken.tag,
        "attempt": taken.attempt,
        "title": taken.title,
        "val_bpb": taken.val_bpb,
        "ref": taken.ref,
        "commit": taken.commit,
        "script": str(file),
        "was_there": before == taken.content,
        "before_take": None if aside is None else str(aside),
    }
    name = taken.ref if taken.attempt is None else f"attempt {taken.attempt}"
    is_now = "was already" if before == taken.content else "is now"
    said = [f"{_shown(file)} {is_now} {name} of night {taken.tag}: {harmless(taken.title)}"]
    said += [] if aside is None else [f"as it was before: {_shown(aside)}"]
    return Answer(facts, lambda: print_folded(said))


def _shown(file: Path) -> str:
    return shlex.quote(os.path.relpath(file))


def _write(file: Path, content: bytes, mode: int | None) -> None:
    write_plain(file, content)
    if mode is not None:
        file.chmod(mode)


def _kept(place: Place, tag: str, file: Path) -> set[bytes]:
    """Return what need not be kept beside the script: HEAD's own, and the scripts of the night's attempts."""
    kept = set()
    with suppress(RepoError):
        kept.add(place.repo.read("HEAD", file.relative_to(place.repo.root).as_posix()).encode(errors="surrogateescape"))
    journal = night_place(place, tag).journal(tag)
    if journal.exists():
        with Journal.read(journal) as opened:
            kept |= {one.proposal.script.encode(errors="surrogatepass") for one in opened.attempts()}
    return kept


def _check(file: Path, repo: Repo) -> None:
    """Raise NightError where writing the file would change something outside of the working tree, or no script."""
    if file.is_symlink() or not file.parent.resolve().is_relative_to(repo.root.resolve()):
        raise NightError(
            f"{file} leads to {file.resolve()}; take writes plain files of the working tree only: remove the link, or "
            f"name another file with --script"
        )
    check_plain(file)
    if any(part.casefold() == ".git" for part in file.resolve().relative_to(repo.root.resolve()).parts):
        raise NightError(f"{file} lies in git's own folder, where no script is; name the script with --script")
    if file.is_dir() or not file.parent.is_dir():
        wrong = f"{file} is a folder" if file.is_dir() else f"{file.parent} is no folder"
        raise NightError(f"{wrong}; name the script with --script")


# ---- what is taken ---------------------------------------------------------------------------------------------------


def find(place: Place, text: str) -> Taken:
    """Return the script that an address means: by the facts of its night, or by its refs alone."""
    asked, which = address(text)
    if asked is not None and not valid_tag(asked):
        raise NightError(f"{asked!r} is no tag of a night; see: {typed('status')}")
    source = night_place(place, asked)
    tag = asked or _latest(source)
    if tag not in known_tags(source):
        return _by_refs(source, tag, which)
    facts = record_of(source, tag)
    attempt = attempt_in(facts, which)
    path, ref = _path_of(source, tag), attempt_ref(tag, attempt.number)
    content = script_of(Place(source.repo, path), facts, attempt).encode(errors="surrogateescape")
    commit = source.repo.find(ref) or attempt.commit
    return Taken(tag, attempt.number, attempt.title, attempt.val_bpb, ref, commit, path, content)


def _latest(place: Place) -> str:
    """Return the tag of the night that was last at work in the repository, also where only its refs are here."""
    if tags := place.tags():
        return tags[-1]
    newest = place.repo.git("for-each-ref", "--sort=-committerdate", "--count=1", "--format=%(refname)", EXPERIMENTS)
    if not newest:
        raise NothingYet(f"no night has run here yet: edit {place.script} as it stands, and try it")
    return newest.split("/")[2]


def _path_of(place: Place, tag: str) -> str:
    """Return where a night has its script in the repository: by its journal, else by what its first edit changes."""
    if place.journal(tag).exists():
        with Journal.read(place.journal(tag)) as journal:
            return journal.night().script
    with suppress(RepoError):
        changed = place.repo.git("diff-tree", "-r", "--name-only", "--no-commit-id", attempt_ref(tag, 1)).splitlines()
        if len(changed) == 1:
            return changed[0]
    return place.script


def _by_refs(place: Place, tag: str, which: int | str) -> Taken:
    """Return the script of a night of which only refs are here, as in a linked worktree or after a fetch."""
    repo, refs = place.repo, refs_of_night(place.repo, tag)
    numbers = {
        commit: int(ref.rpartition("/")[2]) for ref, commit in reversed(refs.items()) if ref.startswith(EXPERIMENTS)
    }
    if not numbers:
        fetch = f"git fetch REMOTE '{EXPERIMENTS}{tag}/*:{EXPERIMENTS}{tag}/*'"
        there = ", ".join(known_tags(place)) or "none"
        raise NightError(f"no night {tag} is known here; there are: {there}; fetch it from where it ran: {fetch}")
    branch = f"-{confirmed_branch(tag) if which == CONFIRMED else tag}"
    branches = (ref for ref in refs if ref.startswith("refs/heads/") and ref.endswith(branch))
    ref = attempt_ref(tag, which) if isinstance(which, int) else next(branches, "")
    if ref not in refs:
        there = f"{min(numbers.values())} to {max(numbers.values())}"
        raise NightError(f"night {tag} has no journal here, and no ref says which is attempt {which}; name {there}")
    commit, path = refs[ref], _path_of(place, tag)
    number = which if isinstance(which, int) else numbers.get(commit)
    title = repo.git("log", "-1", "--no-show-signature", "--format=%s", commit)
    content = repo.read(commit, path).encode(errors="surrogateescape")
    return Taken(tag, number, title, None, ref, commit, path, content)
