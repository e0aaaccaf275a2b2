"""Show one attempt in full, its edit, its script or its log, and two attempts side by side: nightshift show."""

import re

from agent.cli.find import BEST, Meant, attempt_meant, holder_here, not_here, not_in_record, script_of
from agent.errors import NightError, NothingYet
from agent.experiment import Attempt, Ending, attempt_ref, short
from agent.invocation import typed
from agent.model import find_weights
from agent.records.place import Place, run_folder
from agent.records.record import Record, turned_from
from agent.records.shipped import edit_in, scripts_in
from agent.records.summary import gain_over_baseline
from agent.sandbox.process import LOG
from agent.text import diff_lines, harmless, harmless_lines, plain_lines
from agent.view import terminal
from agent.view.answer import (
    Answer,
    DiffAnswer,
    LogAnswer,
    ScriptAnswer,
    ScriptsCompared,
    ShowAnswer,
)
from agent.view.comparison import Side, compared, rows
from agent.view.run_files import log_of, log_tail, scoring_log, traceback_of
from agent.view.screen import Column, print_folded, print_lines, print_text, table_lines, terminal_width

LEAST = 12  # places of a cell
VERDICT = re.compile(r"[^:;(]+")  # the beginning of the sentence
COLUMNS = Column(""), Column("A", least=LEAST), Column("B", least=LEAST)


def show(
    attempt: str = BEST,
    other: str | None = None,
    /,
    *,
    diff: bool = False,
    script: bool = False,
    log: bool = False,
) -> Answer:
    """Show everything about one attempt, or compare two.

    For two attempts, show the scores, gains, dials, sizes, speeds and times that differ, and say in one sentence how
    sure the difference is.

    Args:
        attempt: its number, best (default) or confirmed, as in 4, wide:4, wide:best; a tag alone is the night's best
        other: the attempt to compare it with
        diff: show its edit instead; for two attempts, the edit from the first script to the second
        script: print its script instead
        log: show the end of the training log of its last run instead
    """
    if other is not None:
        if script or log:
            raise NightError(f"--script and --log are of one attempt; leave {other} out")
        both = attempt_meant(attempt), attempt_meant(other)
        return _edit_between(*both) if diff else _compared(*both)
    if sum((diff, script, log)) > 1:
        raise NightError("--diff, --script and --log exclude each other; give one of them")
    place, record, chosen = attempt_meant(attempt)
    if diff:
        return _edit(place, record, chosen)
    if script:
        text = script_of(place, record, chosen)
        as_file = text.encode(errors="backslashreplace").decode()  # a script from elsewhere may be no UTF-8
        return Answer(ScriptAnswer(record.tag, chosen.number, text), lambda: print_text(as_file, end=""))
    if log:
        return _log(place, record, chosen)
    return _all(place, record, chosen)


def _all(place: Place, record: Record, attempt: Attempt) -> Answer:
    """Return all that is known of one attempt."""
    is_running = holder_here(place, record.tag) is not None
    night_folder = place.folder(record.tag)
    folder, log = run_folder(night_folder, attempt.number, seed=0).parent, log_of(night_folder, attempt)
    is_at_work = any(run.ending is Ending.RUNNING for run in attempt.runs)
    findings = record.findings
    weights = find_weights(place, record, attempt)
    answer = ShowAnswer.of(
        record,
        attempt,
        running=is_running and is_at_work,
        is_best=record.best_number == attempt.number,
        ref=attempt_ref(record.tag, attempt.number),
        branch=short(record.night.branch),
        gain=gain_over_baseline(record, attempt),
        confirmation=findings if findings is not None and attempt.number in (findings.best, findings.script) else None,
        folder=str(folder) if folder.exists() else None,
        weights=None if weights is None else str(weights.path),
        log=None if log is None else str(log),
        traceback=harmless_lines(traceback_of(night_folder, attempt) or "") or None,
    )

    def print_all() -> None:
        weights = [] if answer.weights is None else terminal.fact_lines("weights", answer.weights)
        shown = terminal.attempt_lines(record, attempt, folder if record.is_here else None, running=is_running)
        said = {run.seed: scoring_log(place, record.tag, attempt.number, run) for run in attempt.runs}
        logs = [line for seed, log in said.items() if log for line in terminal.fact_lines(f"scoring {seed}", log)]
        print_folded([*shown, *logs, *weights])

    return Answer(answer, print_all)


def _log(place: Place, record: Record, attempt: Attempt) -> Answer:
    """Return the end of the training log of the last run; raise NightError where there is none."""
    if not attempt.runs:
        raise NothingYet(f"attempt {attempt.number} of night {record.tag} has no run yet, and so no log")
    seed = attempt.runs[-1].seed
    text = log_tail(place, record.tag, attempt.number, seed)
    if text is None:
        see = typed("show", f"{record.tag}:{attempt.number}")
        raise NightError(f"the log of attempt {attempt.number} with seed {seed} is not here; what is kept is in: {see}")
    file = str(run_folder(place.folder(record.tag), attempt.number, seed) / LOG)
    answer = LogAnswer(record.tag, attempt.number, seed, file, text)
    return Answer(answer, lambda: print_lines([text or f"{file} is empty"]))


def _edit(place: Place, record: Record, attempt: Attempt) -> Answer:
    """Return how the script of the attempt's parent became its own."""
    if attempt.commit is None:
        raise NothingYet(f"attempt {attempt.number} of night {record.tag} is not committed yet; try again in a moment")
    commit = place.repo.find(attempt.commit)
    base = None if commit is None else place.repo.find(f"{commit}^")
    if commit is None and not record.is_here:
        return _edit_in_record(place, record, attempt)
    if commit is None or base is None:
        missing = not_here(record.tag, attempt.commit if commit is None else None)
        raise NightError(f"the edit of attempt {attempt.number} cannot be shown: {missing}")
    text = plain_lines(place.repo.diff(base, commit)).rstrip("\n")
    dials = record.turned.get(attempt.number, {})
    answer = DiffAnswer(record.tag, attempt.number, attempt.parent, base, commit, text, dials)
    same = f"attempt {attempt.number} is the script as it stands in {base[:7]}"
    return Answer(answer, lambda: print_text(harmless_lines(text) if text else same))


def _edit_in_record(place: Place, record: Record, attempt: Attempt) -> Answer:
    """Return how attempt 0's script became that of the best one, which is the edit that a shipped record holds."""
    if attempt.number == 0:
        has_script = 0 in scripts_in(place.repo, place.shipped / record.tag, record)
        see = typed("show", f"{record.tag}:0", *(["--script"] if has_script else []))
        what = "print its script" if has_script else "its script is not here; see its runs"
        raise NightError(f"night {record.tag} began with attempt 0, which is no edit; {what} with: {see}")
    first, text = record.attempts[0], edit_in(place.shipped / record.tag)
    if attempt is not record.to_take or not text or first.commit is None or attempt.commit is None:
        raise not_in_record(place, record, attempt)
    dials = turned_from(first, attempt)
    answer = DiffAnswer(record.tag, attempt.number, first.number, first.commit, attempt.commit, text, dials)
    title = f"attempt {attempt.number} against attempt 0, as the record of night {record.tag} has it:"
    return Answer(answer, lambda: print_lines([title, text.rstrip()]))


# ---- two of them -----------------------------------------------------------------------------------------------------


def _edit_between(a: Meant, b: Meant) -> Answer:
    """Return how the script of A becomes that of B."""
    before, after = (f"{record.tag}:{attempt.number}" for _, record, attempt in (a, b))
    lines = diff_lines(script_of(*a).splitlines(), script_of(*b).splitlines(), before, after)
    text = "".join(f"{line}\n" for line in lines)
    shown = harmless_lines(text.removesuffix("\n")) if text else f"{before} and {after} are the same script"
    return Answer(ScriptsCompared(before, after, text), lambda: print_text(shown))


def _compared(a: Meant, b: Meant) -> Answer:
    sides = Side(*a[1:]), Side(*b[1:])
    if sides[0].name == sides[1].name:
        raise NightError(f"{sides[0].name} cannot be compared with itself; name another attempt")
    answer = compared(*sides)

    def print_beside() -> None:
        print_folded(
            [f"{letter}  {side.name}: {harmless(side.attempt.title)}" for letter, side in zip("AB", sides, strict=True)]
        )
        print_lines(table_lines(COLUMNS, rows(*sides, answer.dials), terminal_width()))
        print_folded([answer.sentence], VERDICT)

    return Answer(answer, print_beside)
