"""Queue the scripts and patches that people or agents drop in while a night runs: first in, first tried.

check_submission() refuses a file that brings nothing new. An entry is one numbered file. It stays in the queue until a
journal has its attempt. So if a night is killed after taking an entry, the entry is taken again; and no entry is tried
twice.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from agent.errors import NightError, NightshiftError, NoIdea, RepoError, ScriptError
from agent.experiment import Attempt, History, Proposal, kept
from agent.files import ignore_all, read_end, write_plain
from agent.git import valid_tag
from agent.invocation import typed
from agent.proposers.catalogue.files import read_header
from agent.proposers.keys import check_without_keys
from agent.proposers.proposer import Around, Briefing, Proposer, check_proposal
from agent.records.journal import Journal
from agent.records.place import Place
from agent.script.contract import MAX_SCRIPT_BYTES, check_script, imports_of_edits, modules_beside
from agent.script.dials import fingerprint, first_with
from agent.script.merge import apply_patch, basis_of, check_patch, is_patch, merged
from agent.text import plain_lines

NOTHING = "change something first"
PROPOSER = "queue"
FIELDS = ("Title", "Why", "Submitted", "Night", "Basis", "For", "Options")  # fields of an entry's header
NAME = re.compile(r"[0-9]{4,}\.patch")
NUMBER = re.compile(r"[0-9]{1,9}")  # an attempt's number
DONE, REFUSED = "done", "refused"  # folders in the queue's folder; a .txt file beside each entry says why
MAX_ENTRY_BYTES = 2 * MAX_SCRIPT_BYTES
MAX_WAITING = 1000  # more come from a loop that has run away
LOCKED_S = 10.0  # a submission takes milliseconds
AGAIN = f"put it there with: {typed('try', '--queue', '--edit', 'FILE')}"


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A submission, and the night that last took it, which may not have tried it.

    Its file is one of the catalogue's: a header, and then the patch, or the script.
    """

    text: str
    title: str
    hypothesis: str
    submitted: str  # ISO 8601, UTC
    night: str | None = None  # tag of the night that took it
    based_on: int | None = None  # the attempt that a try was made from, in the night that it is for
    made_for: str | None = None  # tag of that night; None: one that it may open
    words: tuple[str, ...] = ()  # options of such a night
    proposer: str = PROPOSER  # proposer of the attempt that it becomes, such as queue: 0003

    @classmethod
    def parsed(cls, content: bytes, file: Path) -> "QueueEntry":
        """Parse an entry; raise NightError for a file that submit() cannot have written."""
        # the first blank line ends the header: a script may begin with what looks like a field
        header, _, text = plain_lines(content.decode(errors="replace")).partition("\n\n")
        fields, rest = read_header(header, FIELDS, file)
        night, made_for, basis = fields.get("Night"), fields.get("For"), fields.get("Basis", "")
        with suppress(ValueError):  # the options may have open quotes
            words = shlex.split(fields.get("Options", ""))
            tags = [tag for tag in (night, made_for) if tag is not None]
            is_entry = fields.get("Title") and text and not rest and all(map(valid_tag, tags))
            if is_entry and len(content) <= MAX_ENTRY_BYTES:
                return cls(
                    *(text, fields["Title"], fields.get("Why", ""), fields.get("Submitted", "")),
                    night,
                    based_on=int(basis) if NUMBER.fullmatch(basis) else None,
                    made_for=made_for,
                    words=tuple(words),
                    proposer=f"{PROPOSER}: {file.stem}",
                )
        raise NightError(f"it is no entry of a queue; {AGAIN}")

    def __str__(self) -> str:
        """Return the text of its file."""
        why, basis = self.hypothesis.replace("\n", "\n  "), "" if self.based_on is None else str(self.based_on)
        values = self.title, why, self.submitted, self.night, basis, self.made_for, shlex.join(self.words)
        header = [f"{name}: {value}\n" for name, value in zip(FIELDS, values, strict=True) if value]
        return f"{''.join(header)}\n{self.text}"


def submit(
    folder: Path,
    text: str,
    message: str,
    *,
    script: str,
    now: str,
    based_on: int | None = None,
    made_for: str | None = None,
    words: Sequence[str] = (),
    metric: str | None = None,
) -> Path:
    """Put a script, or a patch of it, at the end of the queue; message is a title line and why it should help.

    metric: the number that the script reports itself, in place of the contract. Return the entry's file, whole and on
    disk. Raise ScriptError for what could never be tried, NightError for an empty message, for a key in it or in the
    script, and for a queue that is full or held up.
    """
    title, _, why = message.strip().partition("\n")
    if not title.strip():
        raise NightError(f"say what is tried and why, as in: {typed('try', '-m', 'wider MLP: it learns more a step')}")
    check_without_keys("this edit", message, text)
    if is_patch(text):
        check_patch(text, script)
    else:
        check_script(text, script, frozenset() if metric is None else None)
    idea = Proposal.of(text, title, why, PROPOSER)
    entry = QueueEntry(
        *(text, idea.title, idea.hypothesis, now), based_on=based_on, made_for=made_for, words=tuple(words)
    )
    folder.mkdir(parents=True, exist_ok=True)
    ignore_all(folder)
    try:
        with FileLock(folder / ".lock", timeout=LOCKED_S):
            path = folder / f"{_next_number(folder):04d}.patch"
            write_plain(path, str(entry))
    except Timeout as error:
        raise NightError(f"{folder / '.lock'} is held by another program; end it and try again") from error
    return path


def waiting(folder: Path) -> list[Path]:
    """List the files of the entries, the oldest first."""
    names = {path.name for path in folder.iterdir() if NAME.fullmatch(path.name)} if folder.is_dir() else set()
    return [folder / name for name in sorted(names, key=lambda name: int(name.partition(".")[0]))]


def entries(
    folder: Path, refuse: Callable[[Path, NightshiftError], None] = lambda path, why: None
) -> Iterator[tuple[Path, QueueEntry]]:
    """Read the entries, the oldest first; ignore links, pipes and files with other names.

    refuse: called for a file that is no entry.
    """
    folder = folder.resolve()
    for path in waiting(folder):
        try:
            content = read_end(folder, path.name, MAX_ENTRY_BYTES + 1)
        except OSError:
            continue
        try:
            yield path, QueueEntry.parsed(content, path)
        except (NightError, ScriptError) as error:
            refuse(path, error)


def _next_number(folder: Path) -> int:
    """Return a number higher than all before, so that no number is used twice."""
    queued = waiting(folder)
    if len(queued) >= MAX_WAITING:
        raise NightError(f"{len(queued)} entries wait in {folder}; remove those that need not be tried")
    # The order matters: an entry that moves meanwhile is seen in one place at least.
    everywhere = (*queued, *waiting(folder / DONE), *waiting(folder / REFUSED))
    return 1 + max((int(path.stem) for path in everywhere), default=0)


class Queue(Proposer):
    """Propose submitted scripts and patches, the oldest first.

    nights: the folder of all nights here, whose journals tell which entries were tried; say: told of refused entries.
    """

    name, help = PROPOSER, "what `nightshift try --queue` was given"
    is_person = True

    @classmethod
    def of(cls, around: Around) -> "Queue":
        return cls(around.place.queue, around.place.nights, around.messages.say)

    def __init__(self, folder: Path, nights: Path, say: Callable[[str], None] = lambda sentence: None) -> None:
        self._folder = folder.resolve()
        self._nights = nights
        self._say = say

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        """Return the oldest entry that can be tried, putting the others aside; raise NoIdea while there is none."""
        histories = {briefing.night.tag: briefing.history}
        for path, entry in entries(self._folder, self._refuse):
            attempt = became(entry, self._nights, histories)
            if attempt is not None:
                put_aside(path, DONE, f"attempt {attempt.number} of night {entry.night}")
                continue
            try:
                proposal = proposed(entry, briefing)
            except (ScriptError, NightError) as error:
                self._refuse(path, error)
                continue
            write_plain(path, str(replace(entry, night=briefing.night.tag)))
            return [proposal]
        raise NoIdea("the queue is empty")

    def _refuse(self, path: Path, why: NightshiftError) -> None:
        put_aside(path, REFUSED, str(why))
        self._say(f"{path.name} of the queue was refused: {why}")


def became(entry: QueueEntry, nights: Path, histories: dict[str, History]) -> Attempt | None:
    """Return the attempt that an entry became; None if it was never taken, or its night was killed first.

    histories: of nights that were read, by tag; that of the entry's night is added where it is missing.
    """
    if entry.night is None:
        return None
    if entry.night not in histories:
        histories[entry.night] = ()  # the journal may be gone: trying an entry twice is better than losing it
        with suppress(NightError), Journal.read(nights / entry.night / "journal.sqlite") as journal:
            histories[entry.night] = journal.attempts()
    # the title as well: numbers begin again where somebody has deleted all entries
    words = entry.proposer, entry.title
    history = histories[entry.night]
    return next((attempt for attempt in history if (attempt.proposer, attempt.title) == words), None)


def proposed(entry: QueueEntry, briefing: Briefing) -> Proposal:
    """Apply the entry to the best script; raise ScriptError or NightError where it cannot be tried.

    A script is used unchanged, and a patch is applied; a script made from an earlier best is merged with later keeps.
    """
    check_without_keys("this edit", str(entry))  # a file may come into the queue by hand
    script, why, best, night = entry.text, entry.hypothesis, briefing.parent, briefing.night
    is_for_this = entry.based_on is not None and entry.made_for in (None, night.tag)
    if is_patch(script):
        script = apply_patch(script, night.script, _kept_scripts(briefing.history))
    elif is_for_this and basis_of(script, briefing.history, "").missing:  # the entry lacks what was kept since
        script = _merged(entry, best, briefing)
        why += f"\n\nMerged onto attempt {best.number}, which was kept while it waited."
    proposal = Proposal.of(script, entry.title, why, entry.proposer)
    check_proposal(proposal, briefing.history, night.script)
    return proposal


def _merged(entry: QueueEntry, best: Attempt, briefing: Briefing) -> str:
    """Return the best script with the edit of a try, which was made from an earlier one."""
    number, night = entry.based_on or 0, briefing.night
    if number >= len(briefing.history):
        raise NightError(f"it was made from attempt {number}, which night {night.tag} does not have")
    base = briefing.history[number].proposal.script
    script = merged(best.proposal.script, base, entry.text, night.device_kind)
    if script is None:
        raise NightError(
            f"it was made from attempt {number}, and conflicts with attempt {best.number}, which was kept while it "
            f"waited; make it again from the best script"
        )
    return script


def _kept_scripts(history: History) -> list[tuple[int, str]]:
    """Return the scripts that a patch may have been made from: number and script of what is kept, the best first."""
    return [(attempt.number, attempt.proposal.script) for attempt in reversed(kept(history))]


def put_aside(path: Path, where: str, why: str) -> None:
    """Write the reason first, so that an entry never moves without one."""
    place = path.parent / where / path.name
    place.parent.mkdir(exist_ok=True)
    write_plain(place.with_suffix(".txt"), f"{why}\n")
    path.rename(place)


# ---- what is submitted -----------------------------------------------------------------------------------------------


def check_submission(text: str, file: Path, place: Place, where: Place, history: History, tag: str = "") -> None:
    """Raise ScriptError or NightError for a script that is committed, was tried or waits already: it is no edit.

    file: where the text is from. where, history and tag: of the night that may try it, which may run in another working
    tree. A patch is compared by the script that it makes of the best one, whatever lines are around its edit.
    """
    if not is_patch(text) and (file.suffix in (".patch", ".diff") or not text.strip()):
        raise ScriptError(
            f"{file} is no unified diff that changes anything; make it with: diff -u {place.script} IDEA.py"
        )
    committed = ""
    with suppress(RepoError):  # the script may never have been committed
        committed = place.repo.read("HEAD", place.script)
    script = _made(text, place.script, history, committed)
    if script is None:
        return
    # a file in the words of whoever named it, before it gets the script's own name
    beside = modules_beside(place.script_path.parent)
    may_import = beside if imports_of_edits(history[0].proposal.script if history else committed) is not None else None
    check_script(script, place.script if is_patch(text) else str(file), may_import)
    digest = fingerprint(script)
    if digest == _digest(committed, place.script, history, committed):
        raise NightError(f"{file} changes nothing that runs in the script as it was committed; {NOTHING}")
    earlier = first_with(digest, history)
    if earlier is not None:
        see, ended = typed("show", f"{tag}:{earlier}"), history[earlier].status or "without a verdict yet"
        raise NightError(f"{file} is attempt {earlier} of night {tag}, {ended} (see: {see}); {NOTHING}")
    histories = {tag: history}
    for path, entry in entries(where.queue):
        is_waiting = became(entry, where.nights, histories) is None  # other entries are put aside when it is read next
        if is_waiting and _digest(entry.text, place.script, history, committed) == digest:
            follow = typed("try", "--wait", f"t{path.stem}")
            raise NightError(f"{file} waits already ({entry.title}); {NOTHING}, or follow that one with: {follow}")


def _made(text: str, script: str, history: History, committed: str) -> str | None:
    """Return the script that a night would try; None for a patch that does not fit yet."""
    if not is_patch(text):
        return text
    with suppress(ScriptError):
        return apply_patch(text, script, _kept_scripts(history) or [(0, committed)])
    return None


def _digest(text: str, script: str, history: History, committed: str) -> str | None:
    """Return the fingerprint of the script that a night would try; None where there is none, or it does not parse."""
    with suppress(ScriptError, SyntaxError, ValueError):
        made = _made(text, script, history, committed)
        return None if made is None else fingerprint(made)
    return None
