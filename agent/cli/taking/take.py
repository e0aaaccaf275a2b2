"""The script of an attempt, put into the working tree: nightshift take."""

import argparse
import hashlib
import os
import secrets
import shlex
import stat
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from agent.cli.reading.which import BEST, CONFIRMED, attempt_word, here, night_place
from agent.cli.taking.taken import AttemptScript, changes, find, refs_of
from agent.cli.words.options import SCRIPT
from agent.cli.words.parser import Subcommand
from agent.errors import NightError, RepoError
from agent.experiment import attempt_ref
from agent.files import check_plain
from agent.git import Repo
from agent.invocation import typed
from agent.records.journal import Journal
from agent.records.place import Place
from agent.text import harmless
from agent.view.answer import Answer, AnswersTo
from agent.view.screen import print_folded

ASIDE = "before-take"  # the ending of the copy of a file that --anyway replaces
TAKE_TEXT = (
    "Put an attempt's script into the working tree. best: the one that dawn confirmed, or else the one that was kept "
    "last; confirmed: dawn's alone; N: any attempt's. Index and HEAD stay as they are. Refused where the script in the "
    "working tree has edits that neither HEAD nor an attempt of the night keeps."
)


@dataclass(frozen=True, slots=True)
class TakeOptions:
    attempt: int | str
    tag: str | None
    script: Path | None  # None: where the night has it
    anyway: bool
    answer: Answer


def take(options: TakeOptions) -> int:
    place = here(options.script or SCRIPT)
    taken = find(place, options.attempt, options.tag)
    file = place.script_path if options.script is not None else place.repo.root / taken.path
    _check(file, place.repo)
    before = _content(file)
    undo, aside = None, None
    if before != taken.content:
        undo = f"rm {_shown(file)}" if before is None else _way_back(place, taken, file, before)
        if undo is None:
            aside = _set_aside(options, taken, file, before or b"")
            undo = f"mv {_shown(aside)} {_shown(file)}"
        _replace(file, before, taken.content)
    _say(options.answer, taken, file, undo, aside)
    return 0


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


def _say(answer: Answer, taken: AttemptScript, file: Path, undo: str | None, aside: Path | None) -> None:
    if answer.on_stdout:
        answer.give(
            {
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
        )
        return
    name = taken.ref if taken.number is None else f"attempt {taken.number}"
    named = f"{name} of night {taken.tag}: {harmless(taken.title)}"
    if undo is None:
        print_folded([f"{_shown(file)} was already {named}"])
        return
    print_folded([f"{_shown(file)} is now {named}"])
    if aside is not None:
        print(f"as it was before: {_shown(aside)}")
    print(f"undo with: {undo}")


# ---- what was there --------------------------------------------------------------------------------------------------


def _way_back(place: Place, taken: AttemptScript, file: Path, before: bytes) -> str | None:
    """Return the command that restores a script that HEAD, an attempt or the night's base keeps; None if none does."""
    repo, path = place.repo, file.relative_to(place.repo.root).as_posix()
    head = repo.find("HEAD") or ""
    blob = _blob(before, head)
    base = f"{attempt_ref(taken.tag, 0)}^"
    if _blob_at(repo, f"HEAD:{path}") == blob:
        return _restore(repo, "HEAD", path, path, file)
    number = _attempt_with(place, taken, before, blob)
    if number is not None:
        where = ("--script", os.path.relpath(file)) if path != taken.path else ()
        return typed("take", str(number), "--tag", taken.tag, *where)
    if _blob_at(repo, f"{base}:{taken.path}") == blob:
        return _restore(repo, base, taken.path, path, file)
    return None


def _attempt_with(place: Place, taken: AttemptScript, before: bytes, blob: str) -> int | None:
    """Return the attempt of the night that has this script: by its refs, else by its journal."""
    numbers = refs_of(place.repo, taken.tag)
    for commit, changed, path in changes(place.repo, taken.tag):
        if changed == blob and path == taken.path and commit in numbers:
            return numbers[commit]
    if _blob_at(place.repo, f"{attempt_ref(taken.tag, 0)}:{taken.path}") == blob:
        return 0
    journal = night_place(place, taken.tag).journal(taken.tag)
    if not journal.exists():
        return None
    with Journal.read(journal) as opened:
        attempts = opened.attempts()
    return next((one.number for one in attempts if one.proposal.script.encode(errors="surrogatepass") == before), None)


def _blob(content: bytes, commit: str) -> str:
    """Return the name that git gives a content, by the hash that the repository's commits have."""
    data = b"blob %d\0%s" % (len(content), content)
    return (hashlib.sha256(data) if len(commit) == 64 else hashlib.sha1(data, usedforsecurity=False)).hexdigest()


def _blob_at(repo: Repo, revision: str) -> str | None:
    with suppress(RepoError):
        return repo.git("rev-parse", "--verify", "--quiet", revision)
    return None


def _restore(repo: Repo, revision: str, path: str, to: str, file: Path) -> str:
    """Return the command that writes a committed file into the working tree, and leaves the index as it is."""
    if path == to and Path.cwd().is_relative_to(repo.root):
        return shlex.join(["git", "restore", f"--source={revision}", "--", os.path.relpath(file)])
    return f"{shlex.join(['git', '-C', str(repo.root), 'show', f'{revision}:{path}'])} > {_shown(file)}"


def _shown(file: Path) -> str:
    return shlex.quote(os.path.relpath(file))


# ---- what is written -------------------------------------------------------------------------------------------------


def _set_aside(options: TakeOptions, taken: AttemptScript, file: Path, before: bytes) -> Path:
    """Keep a script that would be lost beside it, under a name that is free; raise NightError without --anyway."""
    if not options.anyway:
        name = _shown(file)
        raise NightError(
            f"{name} has edits that neither HEAD nor an attempt of night {taken.tag} keeps; commit or stash them "
            f"(git stash push -- {name}), or add --anyway, which keeps them as {name}.{ASIDE}"
        )
    mode = _mode(file)
    for number in count(1):
        aside = file.with_name(f"{file.name}.{ASIDE}" + (f"-{number}" if number > 1 else ""))
        with suppress(FileExistsError):
            _fill(aside, before, mode)
            break
    return aside


def _replace(file: Path, before: bytes | None, content: bytes) -> None:
    """Write a script whole, with the permissions that it has; raise NightError if an editor saved it meanwhile."""
    aside = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        _fill(aside, content, _mode(file))
        if _content(file) != before:
            raise NightError(f"{_shown(file)} was edited just now; give the command again")
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def _mode(file: Path) -> int | None:
    return stat.S_IMODE(file.stat().st_mode) if file.exists() else None


def _fill(path: Path, content: bytes, mode: int | None) -> None:
    """Write a new file to disk; raise FileExistsError where there is one."""
    with path.open("xb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _wanted(text: str) -> int | str:
    return text if text == CONFIRMED else attempt_word(text)


def _take_words(words: argparse.ArgumentParser) -> None:
    told = "its number, best (default), or confirmed"
    words.add_argument("attempt", nargs="?", type=_wanted, default=BEST, metavar="N", help=told)
    words.add_argument("--tag", metavar="TAG", help="of this night (default: the latest)")
    words.add_argument("--script", type=Path, metavar="PATH", help="write it there (default: where the night has it)")
    words.add_argument(
        "--anyway", action="store_true", help=f"replace edits that would be lost, too, and keep them as *.{ASIDE}"
    )
    words.add_argument("--json", action="store_true", help="say as JSON what was done: nothing else on stdout")


TAKE = Subcommand(
    "take",
    "put an attempt's script into the working tree",
    TakeOptions,
    take,
    _take_words,
    TAKE_TEXT,
    answers=AnswersTo.STDOUT,
)
