"""Put the script of an attempt into the working tree: nightshift take."""

import os
from contextlib import suppress
from pathlib import Path

from agent.cli.find import BEST, attempt_meant, here, parts, script_of
from agent.errors import NightError, NothingYet, RepoError, ScriptError
from agent.experiment import attempt_ref
from agent.files import check_plain, put_beside, write_plain
from agent.git import Repo
from agent.invocation import typed
from agent.records.place import Place, committed, read_script
from agent.records.record import Record
from agent.records.shipped import scripts_in
from agent.text import harmless, plain_lines, saved_like
from agent.view.answer import Answer, TakeAnswer
from agent.view.screen import print_folded


def take(attempt: str = BEST, /) -> Answer:
    """Put an attempt's script into the working tree.

    best: the one that was confirmed, or else the one that was kept last; confirmed: only the one that was confirmed;
    a number: that attempt's. Index and HEAD stay as they are. Your own edits of the script, if neither HEAD nor an
    attempt has them, are saved beside it, as *.before-take.

    Args:
        attempt: best (default), confirmed, or an attempt as in 4, wide:4, wide:best
    """
    place = here()
    if parts(attempt)[0] is None and not place.tags():
        raise NothingYet(f"no night has run here yet: edit {place.script} as it stands, and try it")
    source, record, chosen = attempt_meant(attempt)
    ref = attempt_ref(record.tag, chosen.number)
    path = record.night.script
    script, file = script_of(Place(source.repo, path), record, chosen), place.repo.root / path
    _check(file, place.repo)
    before = file.read_bytes().decode(errors="surrogateescape") if file.exists() else None
    try:
        content = saved_like(script, before or "").encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise NightError(
            f"attempt {chosen.number} of night {record.tag} has no script that a file can hold ({error}); take another"
        ) from error
    is_reported = record.night.options.metric is not None
    if path != place.script and not (
        _is_script(place.repo, path) or (is_reported and _is_of_night(source, record, before))
    ):
        print_it = typed("show", f"{record.tag}:{chosen.number}", "--script")
        raise NightError(
            f"night {record.tag} has its script in {path}, where no training script is here; print it with: {print_it}"
        )
    old, aside = None if before is None else plain_lines(before), None
    if old != script:
        if old is not None and old not in _kept(place, record, file):
            aside = put_beside(file, "before-take")
        write_plain(file, content)
    answer = TakeAnswer(
        tag=record.tag,
        attempt=chosen.number,
        title=chosen.title,
        val_bpb=chosen.shown_bpb,
        is_reported=chosen.is_reported,
        ref=ref,
        commit=source.repo.find(ref) or chosen.commit,
        script=str(file),
        was_there=old == script,
        before_take=None if aside is None else str(aside),
    )
    is_now = "was already" if answer.was_there else "is now"
    lines = [
        f"{os.path.relpath(file)} {is_now} attempt {chosen.number} of night {record.tag}: {harmless(chosen.title)}"
    ]
    lines += [] if aside is None else [f"as it was before: {os.path.relpath(aside)}"]
    return Answer(answer, lambda: print_folded(lines))


def _kept(place: Place, record: Record, file: Path) -> set[str]:
    """Return what need not be kept beside the script: HEAD's own, and the scripts of the night's attempts."""
    kept = set()
    with suppress(RepoError):
        kept.add(place.repo.read("HEAD", file.relative_to(place.repo.root).as_posix()))
    return kept | _scripts(place, record)


def _scripts(place: Place, record: Record) -> set[str]:
    """Return the scripts of a night's attempts, of a shipped one those that follow from its record."""
    if record.is_here:
        return {attempt.proposal.script for attempt in record.attempts}
    return set(scripts_in(place.repo, place.shipped / record.tag, record).values())


def _is_of_night(place: Place, record: Record, before: str | None) -> bool:
    """Return whether the path that a night names is that of its own script, which need not keep the contract.

    So it is where the night began here. One from elsewhere brings its own commits, and has to know the text of the file
    as it stands here, or in HEAD.
    """
    if record.is_here and place.is_own(record.tag):
        return True
    scripts, texts = _scripts(place, record), (before, place.repo.text(f"HEAD:{record.night.script}"))
    return any(text is not None and plain_lines(text) in scripts for text in texts)


def _is_script(repo: Repo, path: str) -> bool:
    """Return whether a path holds a training script, as it is committed or as it stands.

    A night from elsewhere may name any other: a module that is imported outside of a sandbox.
    """
    for read in committed, read_script:
        with suppress(RepoError, ScriptError):
            read(Place(repo, path))
            return True
    return False


def _check(file: Path, repo: Repo) -> None:
    """Raise NightError where writing the file would change something outside of the working tree, or no script."""
    root, target = repo.root.resolve(), file.resolve()
    if file.is_symlink() or not target.is_relative_to(root):
        raise NightError(f"{file} leads to {target}, and take writes plain files in {root} only; remove the link")
    if any(part.casefold() == ".git" for part in target.relative_to(root).parts):
        raise NightError(f"{file} lies in git's own folder, where no script is; take another night's attempt")
    if file.is_dir() or not file.parent.is_dir():
        raise NightError(f"{file} is a folder, or lies in none; make it a file")
    check_plain(file)
