"""The script of an attempt, put into the working tree: nightshift take."""

import os
import shlex
import stat
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from agent.cli.answer import Answer
from agent.cli.attempts import BEST, address, attempt_in, facts_of, latest_tag, script_of
from agent.cli.find import here, night_place
from agent.cli.options import SCRIPT
from agent.errors import NightError, NothingYet, RepoError
from agent.experiment import attempt_ref
from agent.files import check_plain, write_plain
from agent.git import Repo, valid_tag
from agent.invocation import typed
from agent.records.journal import Journal
from agent.records.place import Place, check_unpacked
from agent.text import harmless
from agent.view.facts.nouns import AttemptFacts
from agent.view.facts.read import known_tags
from agent.view.screen import print_folded
from agent.view.status import confirmed_branch

ASIDE = "before-take"  # the ending of the copy of a script that is replaced
EXPERIMENTS = "refs/experiments/"


@dataclass(frozen=True, slots=True)
class Taken:
    """Hold the script that is taken, and where it comes from."""

    tag: str
    number: int | None  # None: a commit that no attempt's ref names
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
    before = _content(file)
    undo, aside = None, None
    if before != taken.content:
        undo, aside = _way_back(place, taken, file, before)
        _replace(file, before, taken.content)
    facts = {
        "tag": taken.tag,
        "attempt": taken.number,
        "title": taken.title,
        "val_bpb": taken.val_bpb,
        "ref": taken.ref,
        "commit": taken.commit,
        "script": str(file),
        "was_there": undo is None,
        "before_take": None if aside is None else str(aside),
        "undo_with": undo,
    }
    return Answer(facts, lambda: _say(taken, file, undo, aside))


def _say(taken: Taken, file: Path, undo: str | None, aside: Path | None) -> None:
    name = taken.ref if taken.number is None else f"attempt {taken.number}"
    named = f"{name} of night {taken.tag}: {harmless(taken.title)}"
    print_folded([f"{_shown(file)} {'was already' if undo is None else 'is now'} {named}"])
    if aside is not None:
        print(f"as it was before: {_shown(aside)}")
    if undo is not None:
        print(f"undo with: {undo}")


# ---- what is taken ---------------------------------------------------------------------------------------------------


def find(place: Place, text: str) -> Taken:
    """Return the script that an address means: by the facts of its night, or by its refs alone."""
    asked, which = address(text)
    if asked is not None and not valid_tag(asked):
        raise NightError(f"{asked!r} is no tag of a night; see: {typed('status')}")
    source = night_place(place, asked)
    tag = asked or _latest(source)
    numbers = _numbers(source.repo, tag)
    if tag not in known_tags(source):
        return _by_refs(source, tag, which)
    facts = facts_of(source, tag)
    if isinstance(which, int) and facts.attempt(which) is None and which in numbers.values():  # a ledger that was cut
        return _by_refs(source, tag, which)
    known = attempt_in(facts, which)
    if asked is None and not source.tags() and not numbers:
        _check_came_along(source, tag, known)
    path, ref = _path_of(source, tag), attempt_ref(tag, known.number)
    content = script_of(Place(source.repo, path), facts, known).encode(errors="surrogateescape")
    commit = source.repo.find(ref) or known.commit
    return Taken(tag, known.number, known.title, known.val_bpb, ref, commit, path, content)


def _latest(place: Place) -> str:
    """Return the tag of the night that was last at work in the repository."""
    if tags := place.tags():
        return tags[-1]
    newest = place.repo.git("for-each-ref", "--sort=-committerdate", "--count=1", "--format=%(refname)", EXPERIMENTS)
    return newest.split("/")[2] if newest else latest_tag(place)


def _numbers(repo: Repo, tag: str) -> dict[str, int]:
    """Return commit → number for the attempts of a night whose refs are here; the first where several have one."""
    lines = repo.git("for-each-ref", "--format=%(objectname) %(refname)", f"{EXPERIMENTS}{tag}/").splitlines()
    pairs = (line.split(" ", 1) for line in reversed(lines))
    return {commit: int(name) for commit, ref in pairs if (name := ref.rpartition("/")[2]).isdecimal()}


def _check_came_along(place: Place, tag: str, attempt: AttemptFacts) -> None:
    """Raise NightError in a clone where no night has run, and which has only the records of nights from elsewhere."""
    if attempt.commit is not None and place.repo.find(attempt.commit) is not None:
        return
    check_unpacked(place, tag)
    raise NothingYet(
        f"no night has run here yet: edit {place.script} as it stands, and try it; of night {tag}, which ran "
        f"elsewhere, only the record is here"
    )


def _path_of(place: Place, tag: str) -> str:
    """Return where a night has its script in the repository: by its journal, else by what its first edit changes."""
    if place.journal(tag).exists():
        with Journal.read(place.journal(tag)) as journal:
            return journal.night().script
    with suppress(RepoError):
        changed = place.repo.git("diff-tree", "-r", "--name-only", "--no-commit-id", attempt_ref(tag, 1)).splitlines()
        if len(changed) == 1:
            return changed[0]
    return place.script if place.script_path.exists() else str(SCRIPT)


def _by_refs(place: Place, tag: str, which: int | str) -> Taken:
    """Return the script of a night of which only refs are here, as in a linked worktree or after a fetch."""
    repo, numbers = place.repo, _numbers(place.repo, tag)
    if not numbers:
        known = ", ".join(known_tags(place)) or "none"
        refs = f"{EXPERIMENTS}{tag}/*"
        fetch = f"git fetch REMOTE '{refs}:{refs}'"
        raise NightError(f"no night {tag} is known here; there are: {known}; fetch it from where it ran: {fetch}")
    ref = attempt_ref(tag, which) if isinstance(which, int) else _branch(place, tag, which)
    commit = repo.find(ref)
    if commit is None:
        there = f"{min(numbers.values())} to {max(numbers.values())}"
        raise NightError(f"night {tag} has no attempt {which} here; there are: {there}")
    path, number = _path_of(place, tag), which if isinstance(which, int) else numbers.get(commit)
    title = repo.git("log", "-1", "--no-show-signature", "--format=%s", commit)
    content = repo.read(commit, path).encode(errors="surrogateescape")
    return Taken(tag, number, title, None, ref, commit, path, content)


def _branch(place: Place, tag: str, which: str) -> str:
    """Return the branch of a night, or that of its confirmed script; raise NightError where it is not here."""
    wanted = tag if which == BEST else confirmed_branch(tag)
    refs = place.repo.refs("refs/heads/experiments") + place.repo.refs("refs/remotes/*/experiments")
    found = next((ref for ref in refs if ref.rpartition("/")[2].partition("-")[2] == wanted), None)
    if found is None:
        numbers = _numbers(place.repo, tag).values()
        raise NightError(
            f"which attempt of night {tag} is {which} is not known here: it has neither journal nor branch; name one "
            f"of {min(numbers)} to {max(numbers)}"
        )
    return found


# ---- what was there --------------------------------------------------------------------------------------------------


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
        wrong = file if file.is_dir() else file.parent
        raise NightError(f"{wrong} is {'a' if wrong is file else 'no'} folder; name the script with --script")


def _way_back(place: Place, taken: Taken, file: Path, before: bytes | None) -> tuple[str, Path | None]:
    """Return the command that restores what was there, and the copy where nothing else keeps it."""
    if before is None:
        return f"rm {_shown(file)}", None
    with suppress(RepoError):
        path = file.relative_to(place.repo.root).as_posix()
        if place.repo.read("HEAD", path).encode(errors="surrogateescape") == before:
            return shlex.join(["git", "restore", "--source=HEAD", "--", os.path.relpath(file)]), None
    number = _attempt_with(place, taken, before)
    if number is not None:
        where = ("--script", os.path.relpath(file)) if file != place.repo.root / taken.path else ()
        return typed("take", f"{taken.tag}:{number}", *where), None
    aside = _set_aside(file, before)
    return f"mv {_shown(aside)} {_shown(file)}", aside


def _attempt_with(place: Place, taken: Taken, content: bytes) -> int | None:
    """Return the attempt of the night that has this script, by its journal."""
    journal = night_place(place, taken.tag).journal(taken.tag)
    if not journal.exists():
        return None
    with Journal.read(journal) as opened:
        scripts = {one.number: one.proposal.script for one in opened.attempts()}
    same = (number for number, script in scripts.items() if script.encode(errors="surrogatepass") == content)
    return next(same, None)


def _set_aside(file: Path, before: bytes) -> Path:
    """Keep a script beside itself, under a name that is free."""
    names = (f"{file.name}.{ASIDE}" + (f"-{number}" if number > 1 else "") for number in count(1))
    aside = next(path for name in names if not os.path.lexists(path := file.with_name(name)))
    _write(aside, before, file.stat().st_mode)
    return aside


def _replace(file: Path, before: bytes | None, content: bytes) -> None:
    """Write a script, with the permissions that it has; raise NightError if an editor saved it meanwhile."""
    if _content(file) != before:
        raise NightError(f"{_shown(file)} was edited just now; give the command again")
    _write(file, content, file.stat().st_mode if before is not None else None)


def _write(file: Path, content: bytes, mode: int | None) -> None:
    write_plain(file, content)
    if mode is not None:
        file.chmod(stat.S_IMODE(mode))


def _shown(file: Path) -> str:
    return shlex.quote(os.path.relpath(file))


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None
