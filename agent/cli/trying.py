"""One edit of a person's or an agent's own, to its verdict: nightshift try."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agent.cli.answer import Answer
from agent.cli.find import holder_here, place_meant
from agent.cli.options import Message, NightOptions, Positive
from agent.cli.tries import Try, TryState, look, under_way
from agent.clock import utc_now
from agent.errors import NightError
from agent.experiment import Doing, Proposal
from agent.files import ignore_all, read_end
from agent.invocation import own_command, typed
from agent.judging.noise import noise
from agent.night.lock import is_held
from agent.night.opening import check_kept, committed, terms_of
from agent.proposers import queue
from agent.proposers.briefing import check_proposal
from agent.records.journal import Journal
from agent.records.place import Place, run_folder
from agent.records.terms import as_words
from agent.runs.outputs import read_progress
from agent.script.contract import check_script, no_script, read_text
from agent.script.dials import fingerprint
from agent.script.merge import Basis, basis_of, is_patch
from agent.text import SAID_CHARS, one_line
from agent.view.answer import plain
from agent.view.live import Moment
from agent.view.screen import print_folded
from agent.view.verdict import TriedEdit, missing_edits

LOG = "drain.log"  # in the queue's folder: what the process says that works on it
LOG_BYTES = 4000
POLL_S = 0.2
NO_VERDICT = "no verdict yet"


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
        tried = look(where, cancels)
        if tried.state is not TryState.WAITING:
            raise NightError(f"try {cancels} is {tried.state}; only one that waits can be taken out of the queue")
        queue.put_aside(tried.path, queue.REFUSED, f"try {cancels} was cancelled")
        return Answer({"id": cancels, "state": "cancelled"}, lambda: print(f"{cancels} is out of the queue"))
    where.check_own_queue()
    if wait is None:
        if text is None:
            text = read_text(edit) if edit is not None else _script_of(place)
            file = str(edit or place.script)
        else:
            file = "script_text"
        wait = _submit(where, file, text, message, tag, night, anyway=anyway)
    return _waited(where, wait, 0.0 if start else for_s)


def _script_of(place: Place) -> str:
    if not place.script_path.exists():
        raise no_script(place.script_path)
    return read_text(place.script_path)


# ---- into the queue --------------------------------------------------------------------------------------------------


def _submit(
    place: Place, file: str, script: str, message: str, tag: str | None, options: NightOptions, *, anyway: bool
) -> str:
    """Put an edit into the queue and return its id; raise NightshiftError for what cannot be tried.

    All that can be known is checked before a night is opened: one that came of a slip would be in the way of the next.
    """
    tag = tag or next(iter(place.tags()[::-1]), None)
    before, _ = terms_of(place, tag, options.terms)  # first: a night with other terms can try no edit
    if before is not None:
        check_kept(before, options.budget_s, options.seed)
    title, _, why = message.strip().partition("\n")
    if not title.strip():
        raise NightError("--message is empty; say what is tried and why")
    proposal = Proposal.of(script, title, why or title, queue.SOURCE)
    check_script(script, file)
    base, basis = committed(place), Basis(0)  # without a night, attempt 0 will be the committed script
    if fingerprint(script) == fingerprint(base):
        raise NightError(f"{place.script} is as it was committed; edit it first, or name another file with --edit")
    for one in under_way(place):
        if not is_patch(one.entry.text) and fingerprint(one.entry.text) == fingerprint(script):
            follow = typed("try", "--wait", one.id)
            raise NightError(f"{one.id}, which waits for its verdict, has the same script; follow it with: {follow}")
    if before is not None:
        with Journal.read(place.journal(before.tag)) as journal:
            history = journal.attempts()
        check_proposal(proposal, history, place.script)
        basis = basis_of(script, history, base) if history else basis
        if basis.missing and not anyway:
            raise _stale(file, basis)
    asked = {"tag": tag, "budget_s": options.budget_s, "seed": options.seed}
    words = as_words({name: value for name, value in asked.items() if value is not None} | options.terms)
    path = queue.submit(
        *(place.queue, script, message), script=place.script, now=utc_now(),
        based_on=None if anyway else basis.number, made_for=tag, words=words,
    )  # fmt: skip
    return f"t{path.stem}"


def _stale(file: str, basis: Basis) -> NightError:
    """Return the error for an edit that was made from a script that is no longer the best."""
    edits = ", ".join(f"#{one.number} {one.proposal.title}" for one in basis.missing)
    what = "the kept edit" if len(basis.missing) == 1 else "the kept edits"
    base = "the committed script" if basis.number is None else f"attempt {basis.number}"
    take = typed("take", "best")  # which keeps a copy of the edit
    remedy = f"take the best script with: {take}, and make your edit again; or try it as it stands, with --anyway"
    sentence = f"{file} lacks {what} {edits}: it was made from {base}; {remedy}"
    missing = plain(missing_edits(basis))
    return NightError(sentence, state=TryState.STALE, based_on=basis.number, missing_edits=missing, next=remedy)


# ---- out of the queue ------------------------------------------------------------------------------------------------


def _waited(place: Place, number: str, for_s: float | None) -> Answer:
    """Wait for the verdict on a try, and see to it that somebody works on the queue."""
    began_s, process = time.monotonic(), None
    wait = typed("try", "--wait", number)
    facts: dict[str, object] = {"id": number, "try_log": str(place.queue / LOG)}
    unfinished = facts | {"state": TryState.UNFINISHED, "go_on_with": wait}
    try:
        while True:
            is_worked = is_held(place.repo.common_dir) or (process is not None and process.poll() is None)
            tried = look(place, number)  # after the look at who works on it, who writes the verdict before ending
            if tried.state is TryState.DONE:
                return _verdict(place, tried)
            if tried.state is TryState.REFUSED:
                return Answer({"id": number, "state": tried.state}, error=tried.why, exit_code=2)
            if not is_worked and process is not None:
                why = _last_words(place)
                sentence = f"{NO_VERDICT}: who worked on the queue has ended{why and f' ({why})'}"
                return Answer(unfinished, error=sentence, exit_code=130)
            if not is_worked:
                process = _start_draining(place, tried)
            if for_s is not None and time.monotonic() - began_s >= for_s:
                return _standing(place, tried, facts | {"wait_with": wait})
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return Answer(unfinished, error=f"{NO_VERDICT}, and the try goes on", exit_code=130)


def _start_draining(place: Place, tried: Try) -> "subprocess.Popen[bytes]":
    """Start the process that tries what waits, in a new session, with the options of a night that it may open."""
    ignore_all(place.queue)
    (place.queue / LOG).unlink(missing_ok=True)  # it may be a link
    with (place.queue / LOG).open("xb") as log:
        return subprocess.Popen(
            own_command("run", "--drain", "--script", place.script, *tried.entry.words),
            cwd=place.repo.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # the shell of an agent takes its processes along when it ends
        )


def _last_words(place: Place) -> str:
    """Return what that process said last, which is why it has ended; empty where it said nothing."""
    with suppress(OSError):
        words = read_end(place.queue, LOG, LOG_BYTES).decode(errors="replace").strip()
        return one_line(words.rpartition("\n")[2].removeprefix("nightshift: "), SAID_CHARS)
    return ""


def _standing(place: Place, tried: Try, facts: dict[str, object]) -> Answer:
    """Say where a try without a verdict stands, and for the first of the queue, what the night does now."""
    ids = [one.id for one in under_way(place)]
    before = ids.index(tried.id) if tried.id in ids else 0
    facts |= {"state": tried.state, "in_line": before, "title": tried.entry.title}
    facts |= dict.fromkeys(("tag", "attempt", "doing", "fraction", "step", "loss"))
    said = f"{tried.state}{f', {before} before it' if before else ''}"
    who = None if before else holder_here(place)
    if who is not None:
        tag = who.tag
        with Journal.read(place.journal(tag)) as journal:
            now = Moment.read(journal)
        facts |= {"tag": tag, "attempt": now.attempt, "doing": now.doing}
        said += f", {now.doing} of attempt {now.attempt}"
        if now.doing == Doing.TRAINING and now.seed is not None:
            point = read_progress(run_folder(place.folder(tag), now.attempt, now.seed) / "out")
            if point is not None:
                facts |= {"fraction": point.fraction, "step": point.step, "loss": point.loss}
                loss = "" if point.loss is None else f", loss {point.loss:.3f}"
                said += f", {point.fraction:.0%} of its budget{loss}"
    facts |= {"progress": said}
    return Answer(facts, lambda: print_folded([f"{tried.id}: {said}", f"its verdict: {facts['wait_with']}"]))


def _verdict(place: Place, tried: Try) -> Answer:
    """Tell what became of a try that is done."""
    assert tried.entry.night is not None
    assert tried.attempt is not None
    with Journal.read(place.journal(tried.entry.night)) as journal:
        night, history = journal.night(), journal.attempts()
    entry, parent, before = tried.entry, tried.attempt.parent, history[: tried.attempt.number]
    is_merged = entry.based_on is not None and fingerprint(entry.text) != fingerprint(tried.attempt.proposal.script)
    basis = Basis(parent) if is_merged else basis_of(entry.text, before, committed(place))
    folder, merged_onto = place.folder(night.tag), parent if is_merged else None
    verdict = TriedEdit(night, history, tried.attempt.number, folder, noise(history), basis, merged_onto)
    return Answer(plain(verdict.answer(tried.id, TryState.DONE)), lambda: print_folded(verdict.lines()))
