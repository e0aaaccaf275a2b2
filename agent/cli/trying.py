"""One edit of a person's or an agent's own, to its verdict: nightshift try."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from agent.cli.answer import Answer
from agent.cli.find import place_meant, running_tag
from agent.cli.options import Message, NightOptions, Positive
from agent.cli.tries import Try, TryState, id_of, look, under_way
from agent.clock import utc_now
from agent.errors import NightError
from agent.experiment import Doing, Proposal
from agent.files import ignore_all, read_end
from agent.invocation import own_command, typed
from agent.judging.noise import noise
from agent.night.lock import is_held
from agent.night.opening import check_kept, committed, terms_of
from agent.proposers import queue
from agent.proposers.checked import check_proposal
from agent.records.journal import Journal
from agent.records.place import Place, run_folder
from agent.records.terms import as_words
from agent.runs.outputs import read_progress
from agent.script.contract import check_script, no_script, read_text
from agent.script.dials import fingerprint
from agent.script.merge import Basis, basis_of, is_patch
from agent.text import SAID_CHARS, one_line
from agent.view.live.follow import Moment
from agent.view.screen import print_folded
from agent.view.verdict import TriedEdit, basis_facts

LOG = "drain.log"  # in the queue's folder: what the process says that works on it
LOG_BYTES = 4000
POLL_S = 0.2
NO_VERDICT = "no verdict yet"


class StaleEdit(NightError):
    """Say that an edit was made from a script that is no longer the best."""

    def __init__(self, sentence: str, basis: Basis) -> None:
        super().__init__(sentence)
        self.basis = basis


@dataclass(frozen=True, slots=True)
class Edit:
    """Hold what `nightshift try` was given; None leaves the choice to the harness, or to the night that goes on."""

    file: str  # for messages
    script: str  # the whole text
    message: str
    tag: str | None
    budget_s: float | None
    seed: int | None
    terms: Mapping[str, Any]
    anyway: bool  # though it lacks kept edits


def try_edit(
    *,
    message: Message = "",
    edit: Path | None = None,
    anyway: bool = False,
    start: bool = False,
    wait: str | None = None,
    for_s: Annotated[Positive | None, Parameter(name="--for")] = None,
    cancels: Annotated[str | None, Parameter(name="--cancel")] = None,
    tag: str | None = None,
    night: NightOptions = NightOptions(),  # noqa: B008, it is frozen
    text: Annotated[str | None, Parameter(parse=False)] = None,  # the edited script itself, of a tool
) -> Answer:
    """Try one edit of yours: commit, train, score, judge and record it, and print the verdict.

    It goes into the queue. A night that runs takes it in its turn. Where none runs, a process of its own tries it: a
    night that is here goes on, as it was opened; without one, a new one begins from the script as it is committed. An
    edit that cannot be tried opens none. An edit of an older script, without the edits that were kept since, is refused
    before it is run. Ctrl-C ends the waiting, not the try.

    Args:
        message: what and why; title: its first line
        edit: the edited script, where it is not --script itself
        anyway: try it as it stands, even if it lacks kept edits
        start: put it into the queue, print its id and return; --wait has the verdict
        wait: for the verdict on a try that was started, by its id
        for_s: with --wait: return after so many seconds
        cancels: take a try out of the queue that is not at work yet, by its id
        tag: the night's name (default: the latest, or a new one where there is none)
    """
    if sum((start, wait is not None, cancels is not None)) > 1:
        raise NightError("--start, --wait and --cancel exclude each other; give one of them")
    if for_s is not None and wait is None:
        raise NightError(f"--for {for_s:g} says how long to wait; name the try with --wait ID")
    place = Place.of(night.script)
    where = place_meant() if place.tags() else place  # a night that runs in another working tree reads the queue there
    if cancels is not None:
        cancel(where, cancels)
        return Answer({"id": cancels, "state": "cancelled"}, lambda: print(f"{cancels} is out of the queue"))
    if wait is None:
        given = ("script_text", text) if text else _read(place, edit)
        try:
            wait = submit(where, Edit(*given, message, tag, night.budget_s, night.seed, night.terms, anyway))
        except StaleEdit as error:
            facts: dict[str, object] = {"state": TryState.STALE, **basis_facts(error.basis), "next": remedy()}
            return Answer(facts, error=str(error), exit_code=error.exit_code)
        if start:
            return _started(where, wait)
    return _waited(where, wait, for_s)


def _read(place: Place, edit: Path | None) -> tuple[str, str]:
    """Return the name and the text of an edited script: of this file, or of the script as it stands."""
    if edit is None and not place.script_path.exists():
        raise no_script(place.script_path)
    return (str(edit), read_text(edit)) if edit is not None else (place.script, read_text(place.script_path))


def _started(place: Place, number: str) -> Answer:
    """Have somebody work on the queue, and say where a try stands."""
    found = look(place, number)
    if not is_held(place.repo.common_dir):
        start_draining(place, found.entry.words)
    return _standing(place, found)


def _waited(place: Place, number: str, for_s: float | None) -> Answer:
    """Wait for the verdict on a try, and see to it that somebody works on the queue."""
    place.check_own_queue()
    began_s, process, entry = time.monotonic(), None, look(place, number).entry
    try:
        while True:
            is_worked = is_held(place.repo.common_dir) or (process is not None and process.poll() is None)
            found = look(place, number)  # after the look at who works on it, who writes the verdict before ending
            if found.state is TryState.DONE:
                return _decided(place, found)
            if found.state is TryState.REFUSED:
                return Answer({"id": number, "state": found.state}, error=found.why, exit_code=2)
            if not is_worked:
                if process is not None:
                    why = last_words(place)
                    return _stuck(place, found, f"{NO_VERDICT}: who worked on the queue has ended{why and f' ({why})'}")
                process = start_draining(place, entry.words)
            if for_s is not None and time.monotonic() - began_s >= for_s:
                return _standing(place, found)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return _stuck(place, look(place, number), f"{NO_VERDICT}, and the try goes on")


def _decided(place: Place, found: Try) -> Answer:
    verdict = verdict_on(found, place)
    facts = {"state": TryState.DONE, **verdict.facts(), "id": found.id}
    return Answer(facts, lambda: print_folded(verdict.lines()))


def _stuck(place: Place, found: Try, why: str) -> Answer:
    again = typed("try", "--wait", found.id)
    facts = {"id": found.id, "state": TryState.UNFINISHED, "go_on_with": again, "try_log": str(place.queue / LOG)}
    return Answer(facts, error=why, exit_code=130)


def _standing(place: Place, found: Try) -> Answer:
    """Say where a try without a verdict stands."""
    ids = [one.id for one in under_way(place)]
    before = ids.index(found.id) if found.id in ids else 0
    wait = typed("try", "--wait", found.id)
    now = _progress(place) if not before else {}
    facts = {"id": found.id, "state": found.state, "in_line": before, "title": found.entry.title}
    facts |= {"try_log": str(place.queue / LOG), "wait_with": wait}
    facts |= {name: now.get(name) for name in ("tag", "attempt", "doing", "fraction", "step", "loss")}
    behind = f", {before} before it" if before else ""
    doing = f", {now['doing']} of attempt {now['attempt']}" if now else ""
    share = f", {now['fraction']:.0%} of its budget" if now.get("fraction") is not None else ""
    said = [f"{found.id}: {found.state}{behind}{doing}{share}", f"its verdict: {wait}"]
    return Answer(facts, lambda: print_folded(said))


def _progress(place: Place) -> dict[str, object]:
    """Return what the night does now, for the first of the queue; empty where it does not do anything yet."""
    tag = running_tag(place)
    if tag is None:
        return {}
    with Journal.read(place.journal(tag)) as journal:
        now = Moment.read(journal)
    facts: dict[str, object] = {"tag": tag, "attempt": now.attempt, "doing": now.doing}
    if now.doing == Doing.TRAINING and now.seed is not None:
        point = read_progress(run_folder(place.folder(tag), now.attempt, now.seed) / "out")
        facts |= {} if point is None else {"fraction": point.fraction, "step": point.step, "loss": point.loss}
    return facts


# ---- into the queue --------------------------------------------------------------------------------------------------


def submit(place: Place, edit: Edit) -> str:
    """Put an edit into the queue and return its id; raise NightshiftError for what cannot be tried.

    All that can be known is checked before a night is opened: one that came of a slip would be in the way of the next.
    """
    place.check_own_queue()
    tag = edit.tag or next(iter(place.tags()[::-1]), None)
    before, _ = terms_of(place, tag, edit.terms)  # first: a night with other terms can try no edit
    if before is not None:
        check_kept(before, edit.budget_s, edit.seed)
    title, _, why = edit.message.strip().partition("\n")
    if not title.strip():
        raise NightError("--message is empty; say what is tried and why")
    proposal = Proposal.of(edit.script, title, why or title, queue.SOURCE)
    check_script(proposal.script, edit.file)
    base, basis = committed(place), Basis(0)  # without a night, attempt 0 will be the committed script
    if fingerprint(proposal.script) == fingerprint(base):
        raise NightError(f"{place.script} is as it was committed; edit it first, or name another file with --edit")
    for one in under_way(place):
        if not is_patch(one.entry.text) and fingerprint(one.entry.text) == fingerprint(proposal.script):
            follow = typed("try", "--wait", one.id)
            raise NightError(f"{one.id}, which waits for its verdict, has the same script; follow it with: {follow}")
    if before is not None:
        with Journal.read(place.journal(before.tag)) as journal:
            history = journal.attempts()
        check_proposal(proposal, history, place.script)
        basis = basis_of(proposal.script, history, base) if history else basis
        if basis.missing and not edit.anyway:
            raise StaleEdit(_stale(edit.file, basis), basis)
    words = ["--tag", tag] if tag is not None else []
    words += ["--budget-s", f"{edit.budget_s:g}"] if edit.budget_s is not None else []
    words += ["--seed", str(edit.seed)] if edit.seed is not None else []
    path = queue.submit(
        *(place.queue, edit.script, edit.message), script=place.script, now=utc_now(),
        based_on=None if edit.anyway else basis.number, made_for=tag, words=(*words, *as_words(edit.terms)),
    )  # fmt: skip
    return id_of(path)


def _stale(file: str, basis: Basis) -> str:
    edits = ", ".join(f"#{one.number} {one.proposal.title}" for one in basis.missing)
    what = "the kept edit" if len(basis.missing) == 1 else "the kept edits"
    base = "the committed script" if basis.number is None else f"attempt {basis.number}"
    return f"{file} lacks {what} {edits}: it was made from {base}; {remedy()}"


def remedy() -> str:
    """Return what to do about a stale edit."""
    take = typed("take", "best")  # which keeps a copy of the edit
    return f"take the best script with: {take}, and make your edit again; or try it as it stands, with --anyway"


def cancel(place: Place, number: str) -> None:
    """Take a try out of the queue; raise NightError for one that is at work or done."""
    found = look(place, number)
    if found.state is not TryState.WAITING:
        raise NightError(f"try {number} is {found.state}; only one that waits can be taken out of the queue")
    queue.put_aside(place.queue / f"{number[1:]}.patch", queue.REFUSED, f"try {number} was cancelled")


# ---- out of the queue ------------------------------------------------------------------------------------------------


def start_draining(place: Place, words: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start the process that tries what waits, in a new session; words: the options of a night that it may open."""
    place.check_own_queue()
    ignore_all(place.queue)
    (place.queue / LOG).unlink(missing_ok=True)  # it may be a link
    with (place.queue / LOG).open("xb") as log:
        return subprocess.Popen(
            own_command("run", "--drain", "--script", place.script, *words),
            cwd=place.repo.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # the shell of an agent takes its processes along when it ends
        )


def last_words(place: Place) -> str:
    """Return what the process said last, which is why it has ended; empty where it said nothing."""
    with suppress(OSError):
        words = read_end(place.queue, LOG, LOG_BYTES).decode(errors="replace").strip()
        return one_line(words.rpartition("\n")[2].removeprefix("nightshift: "), SAID_CHARS)
    return ""


def verdict_on(found: Try, place: Place) -> TriedEdit:
    """Return what became of a try that is done."""
    assert found.night is not None
    assert found.attempt is not None
    entry, parent, before = found.entry, found.attempt.parent, found.history[: found.attempt.number]
    is_merged = entry.based_on is not None and fingerprint(entry.text) != fingerprint(found.attempt.proposal.script)
    merged_onto = parent if is_merged else None
    basis = Basis(parent) if is_merged else basis_of(entry.text, before, committed(place))
    folder = place.folder(found.night.tag)
    return TriedEdit(found.night, found.history, found.attempt.number, folder, noise(found.history), basis, merged_onto)
