"""One attempt in full, its log, and its edit: nightshift show."""

from agent.cli.answer import Answer
from agent.cli.find import attempt_meant, not_here
from agent.cli.options import PositiveInt, Seed
from agent.errors import NightError, NothingYet
from agent.experiment import Attempt, Ending, attempt_ref
from agent.night.lock import holder
from agent.records.place import Place, run_folder
from agent.records.record import Record
from agent.sandbox.process import LOG
from agent.text import harmless_lines
from agent.view import terminal
from agent.view.answer import DiffAnswer, LogAnswer, Measured, ShowAnswer, for_author, plain
from agent.view.run_files import LOG_LINES, log_tail
from agent.view.screen import print_lines, terminal_width

MOST_LINES = 10_000


def show(
    attempt: str = "best",
    /,
    *,
    diff: bool = False,
    log: bool = False,
    seed: Seed | None = None,
    lines: PositiveInt = LOG_LINES,
) -> Answer:
    """Tell everything about one attempt.

    Args:
        attempt: its number, best (default) or confirmed, as in 4, wide:4, wide:best
        diff: show its edit instead
        log: show the end of its training log instead
        seed: with --log: of the run with this seed (default: last)
        lines: with --log: at most so many (default: 60)
    """
    place, record, chosen = attempt_meant(attempt)
    if diff:
        return _edit(place, record, chosen)
    if log:
        return _log(place, record, chosen, seed, min(lines, MOST_LINES))
    if seed is not None:
        raise NightError("--seed chooses a log; add --log")
    who = holder(place.repo.common_dir)
    is_running = who is not None and who.tag == record.tag
    latest_seed = chosen.runs[-1].seed if chosen.runs else record.night.seed
    folder = run_folder(place.folder(record.tag), chosen.number, latest_seed).parent
    ended = [run for run in chosen.runs if run.ending is not Ending.RUNNING]
    last_lines = ended[-1].last_lines if ended and ended[-1].ending is Ending.CRASHED else ""
    measured = Measured.of(record, chosen)
    answer = ShowAnswer(
        tag=record.tag,
        attempt=for_author(chosen),
        measured=measured,
        running=is_running and len(ended) < len(chosen.runs),
        is_incumbent=record.incumbent == chosen.number,
        ref=attempt_ref(record.tag, chosen.number),
        branch=record.branch,
        folder=str(folder) if folder.exists() else None,
        log=_log_file(place, record.tag, chosen.number, latest_seed),
        traceback=harmless_lines(last_lines) or None,
    )

    def print_all() -> None:
        width, merged_as = terminal_width(), measured.merged_as
        print_lines(
            terminal.attempt_lines(record.night, chosen, folder, width, running=is_running, merged_as=merged_as)
        )

    return Answer(plain(answer), print_all)


def _log_file(place: Place, tag: str, number: int, seed: int) -> str | None:
    log = run_folder(place.folder(tag), number, seed) / LOG
    return str(log) if log.exists() else None


def _log(place: Place, record: Record, attempt: Attempt, seed: int | None, lines: int) -> Answer:
    """Return the end of the training log of a run; where the file is gone, the last lines that the journal keeps."""
    runs = [run for run in attempt.runs if seed in (None, run.seed)]
    if not runs:
        there = ", ".join(map(str, dict.fromkeys(run.seed for run in attempt.runs))) or "none yet"
        which = "run" if seed is None else f"run with seed {seed}"
        raise NightError(f"attempt {attempt.number} of night {record.tag} has no {which}; there are: {there}")
    run, head = runs[-1], ""
    text = log_tail(place, record.tag, attempt.number, run.seed, lines)
    if text is None:
        text = "\n".join(harmless_lines(run.last_lines).splitlines()[-lines:])
        head = "the log itself is gone; its last lines, as the journal keeps them:\n"
        if not text:
            named = f"attempt {attempt.number} with seed {run.seed}"
            raise NightError(f"the log of {named} is gone; the journal keeps no line of it")
    file = _log_file(place, record.tag, attempt.number, run.seed)
    answer = LogAnswer(record.tag, attempt.number, run.seed, file, text)
    return Answer(plain(answer), lambda: print(f"{head}{text}"))


def _edit(place: Place, record: Record, attempt: Attempt) -> Answer:
    """Return how the script of the attempt's parent became its own."""
    if attempt.commit is None:
        raise NothingYet(f"attempt {attempt.number} of night {record.tag} is not committed yet; try again in a moment")
    commit = place.repo.find(attempt.commit)
    base = None if commit is None else place.repo.find(f"{commit}^")
    if commit is None or base is None:
        missing = not_here(record.tag, attempt.commit if commit is None else None)
        raise NightError(f"the edit of attempt {attempt.number} cannot be shown: {missing}")
    text = place.repo.diff(base, commit)
    dials = record.turned.get(attempt.number, {})
    answer = DiffAnswer(record.tag, attempt.number, attempt.parent, base, commit, text, dials)
    same = f"attempt {attempt.number} is the script as it stands in {base[:7]}"
    return Answer(plain(answer), lambda: print(harmless_lines(text) if text else same))
