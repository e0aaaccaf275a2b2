"""Read a file for the queue, tell script from patch, and refuse one that is no news: unchanged, queued or tried."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agent.errors import NightError, RepoError, ScriptError
from agent.experiment import TITLE_CHARS, Attempt, History, incumbent, kept
from agent.invocation import typed
from agent.proposers.queue import became, entries, on_kept
from agent.records.place import Place
from agent.script.contract import read_text
from agent.script.dials import fingerprint, first_with
from agent.script.merge import MORE_THAN_AN_EDIT, apply_patch, is_patch
from agent.text import one_line

# the lines of `diff -u` and git before the first hunk; of a patch of one file there is one such pair
PAIR = re.compile(r"^--- (.*)\n\+\+\+ (.*)\n(?=@@ )", re.MULTILINE)
OTHER_DIFF = re.compile(r"\A(?:\d+(?:,\d+)?[acd]\d+(?:,\d+)?$|\*\*\* .*\n--- )", re.MULTILINE)
NOTHING = "change something first"


def read_submission(file: Path, place: Place, where: Place, history: History, tag: str = "") -> str:
    """Read a script or patch from a file; give a patch the script's own name.

    where, history and tag: of the night that may try it, which may run in another working tree. Raise ScriptError or
    NightError for what is no edit: the script as it was committed, the best script, what was tried, and what waits in
    the queue. A patch is compared by the script that it makes of the best one, whatever lines are around its edit.
    """
    text = read_text(file)
    if not text.strip():
        raise ScriptError(f"{file} is empty; a diff of two equal files is, so {NOTHING}")
    if OTHER_DIFF.match(text) or (file.suffix in (".patch", ".diff") and not is_patch(text)):
        raise ScriptError(f"{file} is no unified diff; make it with: diff -u {place.script} IDEA.py")
    is_whole = not is_patch(text)
    text = text if is_whole else under_own_name(text, place)
    wanted = _fingerprint(_becomes(text, where, history))
    for name, base in _bases(place, history, tag):
        if wanted is not None and wanted == _fingerprint(base):
            raise NightError(f"{file} {'is' if is_whole else 'changes nothing that runs in'} {name}; {NOTHING}")
    known = None if wanted is None else first_with(wanted, history)
    if known is not None:
        see = typed("show", f"{tag}:{known}")
        raise NightError(
            f"{file} {_outcome(history[known], tag)}; {NOTHING}, or submit it while another night runs; "
            f"see the attempt with: {see}"
        )
    for path, entry in entries(where.queue):
        if became(entry, where.nights, tag, history) is not None:
            continue  # it is put aside when a night next asks the queue
        if entry.text == text or (wanted is not None and _fingerprint(_becomes(entry.text, where, history)) == wanted):
            raise NightError(
                f"{file} waits already, as {path.name} of the queue ({one_line(entry.title, TITLE_CHARS)}); "
                f"{NOTHING}, or take that one out by deleting {path}"
            )
    return text


def _becomes(text: str, place: Place, history: History) -> str | None:
    """Return the script that a night would try; None for a patch that does not fit yet.

    A patch that conflicts with the best script becomes what it made of the kept script that it fits.
    """
    if not is_patch(text):
        return text
    bases = kept(history)[::-1]
    if not bases:
        with suppress(RepoError):
            return _applied(text, place.script, place.repo.read("HEAD", place.script))
        return None
    with suppress(ScriptError):
        return on_kept(text, place.script, bases[0], history)
    made = (_applied(text, place.script, one.proposal.script) for one in bases)
    return next(filter(None, made), None)


def _outcome(attempt: Attempt, tag: str) -> str:
    named = f"attempt {attempt.number} of night {tag}"
    if attempt.status is None:
        return f"is {named}, which has no verdict yet"
    score = "" if attempt.val_bpb is None else f" at val_bpb {attempt.val_bpb:.6f}"
    return f"was tried as {named} and ended as {attempt.status}{score}"


def under_own_name(patch: str, place: Place) -> str:
    """Rename both sides of a patch whose old side is the script; return any other patch unchanged.

    `diff -u train_mlx.py ../idea.py` names two files, of which git would pick the wrong one.
    """
    pairs = list(PAIR.finditer(patch))
    if len(pairs) != 1 or MORE_THAN_AN_EDIT.search(patch[: pairs[0].start()]):
        return patch
    old, new = (_named(side) for side in pairs[0].groups())
    if new == "/dev/null" or not _is_script(old, place):
        return patch
    return f"--- a/{place.script}\n+++ b/{place.script}\n{patch[pairs[0].end() :]}"


def _named(side: str) -> str:
    """Return the path of one side, without its time and the quotes around odd characters."""
    path = side.rstrip("\r").partition("\t")[0]
    if path.startswith('"'):
        with suppress(ValueError, SyntaxError):
            return str(ast.literal_eval(path))
    return path


def _is_script(path: str, place: Place) -> bool:
    """Return whether a path names the script: from here, or from the repository's top after a/ or the like."""
    if not path.startswith(("/", "../")):
        names = {place.script, place.script_path.name}
        if names & {path, path.partition("/")[2]}:
            return True
    return (Path.cwd() / path).resolve() == place.script_path.resolve()


def _bases(place: Place, history: History, tag: str) -> Iterator[tuple[str, str]]:
    best = incumbent(history)
    with suppress(RepoError):  # it may never have been committed
        yield "the script as it was committed", place.repo.read("HEAD", place.script)
    if best is not None:
        yield f"attempt {best.number} of night {tag}, the best script so far", best.proposal.script


def _applied(patch: str, script: str, base: str) -> str | None:
    """Apply a patch; None where it does not fit yet, since the night may keep the edit that it needs later."""
    try:
        return apply_patch(patch, script, [(0, base)])
    except ScriptError:
        return None


def _fingerprint(script: str | None) -> str | None:
    """Return None where there is no script, or one that does not parse, which another check explains."""
    try:
        return None if script is None else fingerprint(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
