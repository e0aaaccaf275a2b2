"""Bring one edit of a person or an agent into the queue and to its verdict: nightshift try."""

import subprocess
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agent.cli.find import holder_here, place_meant
from agent.cli.options import Message, NightOptions, Positive, UserPath
from agent.cli.status import CONFIRM, following
from agent.cli.tries import Try, TryState, find_try, under_way
from agent.clock import utc_now
from agent.errors import NightError
from agent.experiment import Attempt, History, Kind, Night, Status
from agent.files import ignore_all, read_end
from agent.invocation import own_command, typed
from agent.night.lock import is_held
from agent.night.opening import check_kept, check_no_study, options_of
from agent.proposers import queue
from agent.records.journal import Journal
from agent.records.options import as_words
from agent.records.place import Place, committed, known_night, place_of_night, read_night
from agent.records.record import Record
from agent.records.summary import Scored
from agent.script.contract import no_script, read_text
from agent.script.dials import fingerprint
from agent.script.merge import Basis, basis_of, is_patch
from agent.text import SAID_CHARS, harmless, one_line, plain_lines
from agent.view.answer import Answer, TryAnswer
from agent.view.run_files import log_of, traceback_of, training_progress
from agent.view.screen import is_watched, print_folded, print_lines, print_next
from agent.view.words import SURE, Form, progress_words, verdict_on

LOG = "drain.log"  # log of the process that works on the queue, in the queue's folder
LOG_BYTES = 4000
POLL_S = 0.2
NO_VERDICT = "no verdict yet"
WHY_NOT: Mapping[Kind | None, str] = {
    Kind.LUCK: "that is too little to keep it",
    Kind.OVERTAKEN: "another edit was kept meanwhile, and the night merges this one onto it",
}


def try_edit(
    *,
    message: Message = "",
    edit: UserPath | None = None,
    anyway: bool = False,
    start: bool = False,
    only_queue: Annotated[bool, Parameter(name="--queue")] = False,
    wait: str | None = None,
    for_s: Annotated[Positive | None, Parameter(name="--for")] = None,
    cancels: Annotated[str | None, Parameter(name="--cancel")] = None,
    tag: str | None = None,
    night: NightOptions = NightOptions(),  # noqa: B008, it is frozen
    text: Annotated[str | None, Parameter(parse=False)] = None,  # the edited script itself, of a tool
) -> Answer:
    """Try one edit of yours: commit, train, score, judge and record it, and print the verdict.

    The edit goes into the queue. A running night takes it in its turn. If no night runs, a process of its own tries it:
    it resumes the night that is here, or begins one from the committed script. An edit that cannot be tried opens no
    night. An edit of an older script, without the edits kept since, is refused before it is run. Ctrl-C ends the
    waiting, not the try.

    Args:
        message: what the edit changes and why; its first line is the title
        edit: the edited script, or a patch (.patch, .diff) of the best script (default: --script itself)
        anyway: try it as it stands, even if it lacks kept edits
        start: put it into the queue, print its id and return; get the verdict with --wait
        only_queue: the same, but start no process: the next night that asks the queue tries it first
        wait: wait for the verdict on an earlier try, by its id
        for_s: return after this many seconds, even without a verdict
        cancels: remove a try that still waits from the queue, by its id
        tag: the night's name (default: the latest, or a new one)
    """
    if sum((start, only_queue, wait is not None, cancels is not None)) > 1:
        raise NightError("--start, --queue, --wait and --cancel exclude each other; give one of them")
    place = Place.of(night.script)
    where = place_meant(place=place)  # a night that runs in another working tree reads the queue there
    if cancels is not None:
        return _cancelled(where, cancels)
    where.check_own_queue()
    if wait is None:
        tag = tag or _latest(where)
        place = place_of_night(night.script, tag, where)
        where = replace(where, script=place.script)
        if text is None and edit is None and not place.script_path.exists():
            raise no_script(place.script_path)
        file = Path("script_text") if text is not None else edit or Path(place.script)
        text = read_text(edit or place.script_path) if text is None else plain_lines(text)
        wait = _submit(place, where, file, text, message, tag, night, anyway=anyway)
    if only_queue:
        return _standing(where, find_try(where, wait))
    return _waited(where, wait, 0.0 if start else for_s)


def _cancelled(place: Place, try_id: str) -> Answer:
    tried = find_try(place, try_id)
    if tried.state is not TryState.WAITING:
        raise NightError(f"try {try_id} is {tried.state}; only one that waits can be taken out of the queue")
    queue.put_aside(tried.path, queue.REFUSED, f"try {try_id} was cancelled")
    return Answer({"id": try_id, "state": "cancelled"}, lambda: print_lines([f"{try_id} was removed from the queue"]))


# ---- into the queue --------------------------------------------------------------------------------------------------


def _submit(
    place: Place, where: Place, file: Path, text: str, message: str, tag: str | None, options: NightOptions, *,
    anyway: bool,
) -> str:  # fmt: skip
    """Put an edit into the queue and return its id; raise NightshiftError for what cannot be tried.

    where: place of the night that may try it. Every check comes before a night is opened: a night opened by a slip
    would be in the way of the next one.
    """
    tag = tag or _latest(where)
    before, now = options_of(where, tag, options.named)  # first: a night with other options can try no edit
    history: History = ()
    if before is not None:
        check_no_study(before)
        check_kept(before, options.budget_s, options.seed)
        history = read_night(where, before.tag).attempts
    queue.check_submission(text, file, place, where, history, tag or "")
    based_on = None
    if not anyway and not is_patch(text):
        # Without a night, attempt 0 will be the committed script.
        base = committed(place, now.metric)
        basis = basis_of(text, history, base) if history else Basis(0)
        if basis.missing:
            raise _stale(file, basis)
        based_on = basis.number
    asked = {"tag": tag, "budget_s": options.budget_s, "seed": options.seed}
    words = as_words({name: value for name, value in asked.items() if value is not None} | options.named)
    path = queue.submit(
        *(where.queue, text, message), script=place.script, now=utc_now(),
        based_on=based_on, made_for=tag, words=words, metric=now.metric,
    )  # fmt: skip
    return f"t{path.stem}"


def _latest(place: Place) -> str | None:
    """Return the tag of the night last at work that takes edits, which a study does not; None where there is none."""
    nights = (known_night(place, tag) for tag in reversed(place.tags()))
    return next((night.tag for night in nights if night is not None and night.options.study is None), None)


def _stale(file: Path, basis: Basis) -> NightError:
    """Return the error for an edit that was made from a script that is no longer the best."""
    edits = ", ".join(f"#{attempt.number} {attempt.title}" for attempt in basis.missing)
    base = "the committed script" if basis.number is None else f"attempt {basis.number}"
    take = typed("take", "best")  # take keeps a copy of the edit
    remedy = f"take the best script with: {take}, and make your edit again; or try it as it stands, with --anyway"
    sentence = f"{file} was made from {base} and lacks what was kept since: {edits}; {remedy}"
    missing = [{"attempt": attempt.number, "title": attempt.title} for attempt in basis.missing]
    return NightError(sentence, state=TryState.STALE, based_on=basis.number, missing_edits=missing, next=remedy)


# ---- out of the queue ------------------------------------------------------------------------------------------------


def _waited(place: Place, try_id: str, for_s: float | None) -> Answer:
    """Wait for the verdict on a try, and see to it that a process works on the queue."""
    began_s, process, has_reader, said = time.monotonic(), None, is_watched(), ""
    unfinished = {"id": try_id, "state": TryState.UNFINISHED, "go_on_with": typed("try", "--wait", try_id)}
    tried = find_try(place, try_id)
    if has_reader and tried.state in (TryState.WAITING, TryState.RUNNING) and for_s != 0.0:
        print_folded(_first_words(place, tried))
    try:
        with closing(following(place)) as refreshes:
            while True:
                is_worked = is_held(place.repo.common_dir) or (process is not None and process.poll() is None)
                # The process that works on it writes the verdict before it ends. So look for the process first.
                tried = find_try(place, try_id)
                if tried.state is TryState.DONE:
                    return _verdict(place, tried)
                if tried.state is TryState.REFUSED:
                    return Answer({"id": try_id, "state": tried.state}, error=tried.why, exit_code=2)
                if not is_worked and process is not None:
                    why = _last_words(place)
                    sentence = f"{NO_VERDICT}: the process that worked on the queue has ended{why and f' ({why})'}"
                    return Answer(unfinished, error=sentence, exit_code=130)
                if not is_worked:
                    process = _start_draining(place, tried)
                if for_s is not None and time.monotonic() - began_s >= for_s:
                    return _standing(place, tried)
                if has_reader and not next(refreshes) and process is not None and (words := _last_words(place)) != said:
                    said = words  # such as that a text is prepared first
                    print_folded([said])
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        goes_on = process is not None or find_try(place, try_id).state is TryState.RUNNING
        where = "the try goes on" if goes_on else "the try stays in the queue"
        return Answer(unfinished, error=f"{NO_VERDICT}, and {where}", exit_code=130)


def _first_words(place: Place, tried: Try) -> list[str]:
    """Say what comes before a try, and what Ctrl-C does, to somebody who waits for its verdict at a terminal."""
    again = f"Ctrl-C leaves it there; wait again with: {typed('try', '--wait', tried.id)}"
    if tried.state is TryState.RUNNING:
        return [f"{tried.id} is at work", again]
    who, tag = holder_here(place), tried.entry.made_for
    first = [f"what night {who.tag} runs now"] if who is not None else []
    history = read_night(place, tag).attempts if tag in place.tags() else ()
    if not any(attempt.settled for attempt in history[:1]):
        first.append("the committed script, to learn the noise")
    if before := _in_line(place, tried):
        first.append(f"{before} other {'try' if before == 1 else 'tries'}")
    return [f"{tried.id} is in the queue{'; before it: ' if first else ''}{'; '.join(first)}", again]


def _in_line(place: Place, tried: Try) -> int:
    """Return how many tries come before this one."""
    ids = [waiting.id for waiting in under_way(place)]
    return ids.index(tried.id) if tried.id in ids else 0


def _start_draining(place: Place, tried: Try) -> "subprocess.Popen[bytes]":
    """Start the process that tries what waits, in a new session, with the options of a night that it may open."""
    ignore_all(place.queue)
    path = place.queue / LOG
    if path.is_symlink() or not path.is_file():
        path.unlink(missing_ok=True)
    # two tries at one moment share it: one of their processes has the night, and the other says so
    with path.open("ab") as log:
        log.truncate(0)
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


def _standing(place: Place, tried: Try) -> Answer:
    """Say where a try without a verdict stands, and for the first of the queue, what the night does now."""
    before, wait = _in_line(place, tried), typed("try", "--wait", tried.id)
    facts: dict[str, object] = {"id": tried.id, "state": tried.state, "in_line": before, "title": tried.entry.title}
    facts |= {"try_log": str(place.queue / LOG), "wait_with": wait}
    progress = f"{tried.state}{f', {before} before it' if before else ''}"
    who = None if before else holder_here(place)
    if who is not None:
        with Journal.read(place.journal(who.tag)) as journal:
            work, budget_s = next(iter(journal.work()), None), journal.night().budget_s
        if work is not None:
            point = training_progress(place.folder(who.tag), work)
            pace = [] if point is None else progress_words(point, budget_s)
            progress = ", ".join([progress, f"{work.doing} of attempt {work.attempt}", *pace])
    return Answer(
        facts | {"progress": progress},
        lambda: print_folded([f"{tried.id}: {progress}", f"wait for the verdict with: {wait}"]),
    )


# ---- the verdict -----------------------------------------------------------------------------------------------------


def _verdict(place: Place, tried: Try) -> Answer:
    """Tell what became of a try that is done."""
    entry, attempt = tried.entry, tried.attempt
    assert entry.night is not None
    assert attempt is not None
    is_changed = is_patch(entry.text) or fingerprint(entry.text) != attempt.outline.fingerprint
    merged_onto = attempt.parent if is_changed and entry.based_on is not None else None
    record = read_night(place, entry.night)
    answer = answer_of_try(tried.id, record, attempt, place.folder(record.tag), merged_onto)

    def print_all() -> None:
        print_folded(verdict_lines(answer, verdict_on(record, attempt), record.night))
        print_next(commands_after(answer), title=f"next: {answer.next.partition('; to begin')[0]}")

    return Answer(answer, print_all)


def answer_of_try(id_of_try: str, record: Record, attempt: Attempt, folder: Path, merged_onto: int | None) -> TryAnswer:
    """Return what `nightshift try --json` prints of a decided attempt.

    folder: of the night. merged_onto: the best attempt, which was kept while the edit waited; None: tried as submitted.
    """
    log, traceback, best = log_of(folder, attempt), traceback_of(folder, attempt), record.best
    better = None if best is None or best.number == attempt.number else best
    way_back = None if better is None else typed("take", f"{record.tag}:{better.number}")
    return TryAnswer.of(
        record,
        attempt,
        id=id_of_try,
        state="done",
        tag=record.tag,
        attempt=attempt.number,
        parent=attempt.parent,
        commit=attempt.commit,
        title=attempt.title,
        reason=attempt.words,
        next=_next(attempt, traceback, way_back, merged_onto),
        traceback=traceback,
        best=Scored.of(record, best),
        go_back_with=way_back,
        merged_onto=merged_onto,
        log=None if log is None else str(log),
    )


def _next(attempt: Attempt, traceback: str | None, way_back: str | None, merged_onto: int | None) -> str:
    """Return what to do now, in a sentence; way_back: the command to take the best script, where it is another one."""
    if way_back is not None:
        advice = f"{WHY_NOT.get(attempt.kind, 'it is not better')}: try another idea"
        if attempt.status is Status.CRASH:
            advice = f"it crashed: {'' if traceback is None else 'read traceback and log, and '}correct it"
        return f"{advice}; to begin from the best script: {way_back}"
    if merged_onto is None:
        return f"edit on from here: attempt {attempt.number} is the best script now"
    merged = f"attempt {attempt.number}, your edit merged onto attempt {merged_onto}, is the best script now"
    return f"{merged}: take it with: {typed('take', str(attempt.number))}, and edit on from there"


def verdict_lines(answer: TryAnswer, said: str, night: Night) -> list[str]:
    """Return the verdict as lines for people; said: what became of the attempt."""
    form = Form.of(night)
    measured = "" if answer.val_bpb is None else f" ({night.metric} {form.number(answer.val_bpb)})"
    lines = [f"{said}{measured}", *([SURE] if "sure of a gain" in said else [])]
    if answer.plain:
        lines.append(f"edited, and so without a kernel: {', '.join(answer.plain)}")
    if answer.best is not None and answer.best.number != answer.attempt:
        score = f"{night.metric} {form.number(answer.best.val_bpb)}"
        lines.append(f"best so far: #{answer.best.number} {answer.best.title}, {score}")
    return [harmless(line) for line in lines]


def commands_after(answer: TryAnswer) -> dict[str, str]:
    """Return the commands that come next after a verdict, each with what it is for."""
    tag, own, commands = answer.tag, f"{answer.tag}:{answer.attempt}", dict[str, str]()
    if answer.status is Status.KEEP:
        commands[typed("confirm", tag)] = CONFIRM
        commands[typed("take", own)] = "put its script into your working tree"
    if answer.traceback is not None and answer.seeds:
        commands[typed("show", own, "--log")] = "why it crashed: the end of its log"
    if answer.go_back_with is not None:
        commands[answer.go_back_with] = "put the best script into your working tree"
    commands[typed("show", own)] = "all about it"
    return commands | {typed("results", tag): "all that was tried, one line each"}
