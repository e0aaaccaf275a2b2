"""One attempt in full, its log and its edit, and two side by side: nightshift show, nightshift compare."""

import re
from dataclasses import dataclass

from agent.cli.answer import Answer
from agent.cli.find import (
    BEST,
    CONFIRMED,
    address,
    attempt_in,
    attempt_meant,
    not_here,
    place_meant,
    record_of,
    script_of,
)
from agent.cli.options import PositiveInt, Seed
from agent.errors import NightError, NothingYet
from agent.experiment import Attempt, Ending, attempt_ref
from agent.night.lock import holder
from agent.records.place import Place, run_folder
from agent.records.record import Record
from agent.sandbox.process import LOG
from agent.script.dials import dials_in, skeleton_in
from agent.text import diff_lines, harmless, harmless_lines
from agent.view import terminal
from agent.view.answer import (
    AttemptOfNight,
    CompareAnswer,
    DiffAnswer,
    LogAnswer,
    Measured,
    ScriptsCompared,
    ShowAnswer,
    for_author,
    plain,
)
from agent.view.comparison import Comparison, Side, compared
from agent.view.course import settings
from agent.view.run_files import LOG_LINES, log_tail
from agent.view.screen import Column, print_folded, print_lines, table_lines, terminal_width

MOST_LINES = 10_000
LEAST = 12  # places of a cell
VERDICT = re.compile(r"[^:;(]+")  # the beginning of the sentence
COLUMNS = Column(""), Column("A", least=LEAST), Column("B", least=LEAST)


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
    if diff and log:
        raise NightError("--diff shows an edit and --log a log; ask for one at a time")
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
        lines = terminal.attempt_lines(
            *(record.night, chosen, folder if record.is_here else None, terminal_width()),
            running=is_running, merged_as=measured.merged_as,
        )  # fmt: skip
        print_lines(lines)

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
            raise NightError(f"the log of {named} is not here, and no line of it is kept")
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


# ---- compare ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """Hold the attempt that one of the two words means."""

    record: Record
    attempt: Attempt

    @property
    def name(self) -> str:
        return f"{self.record.tag}:{self.attempt.number}"


def compare(a: str, b: str, /, *, diff: bool = False) -> Answer:
    """Compare two attempts, or two nights by their best scripts.

    It shows scores with their intervals, gains, dials, sizes, speed and time where they differ, and says in one
    sentence how sure the difference is.

    Args:
        a: an attempt (4, best, wide:4, wide:best) or a night (its TAG)
        b: another one
        diff: show only how the script of A becomes that of B
    """
    place = place_meant()
    first, second = (_named(place, word) for word in (a, b))
    if diff:
        return _diff(place, first, second)
    if first.name == second.name:
        raise NightError(f"{first.name} cannot be compared with itself; name another attempt or night")
    found = compared(*(_side(place, one.record, one.attempt) for one in (first, second)))
    told = CompareAnswer(
        a=_told(first),
        b=_told(second),
        dials=found.dials,
        gain=found.gain,
        by=found.by,
        winner=found.winner,
        sentence=found.sentence,
    )
    return Answer(plain(told), lambda: _show_beside(found, first, second))


def _named(place: Place, word: str) -> Named:
    """Return the attempt that a word of the command line means; of a night, its best."""
    which = word.rpartition(":")[2]
    is_night = not which.isdecimal() and which not in (BEST, CONFIRMED)
    tag, number = (word, BEST) if is_night else address(word)
    record = record_of(place, tag)
    return Named(record, attempt_in(record, number))


def _side(place: Place, record: Record, attempt: Attempt) -> Side:
    """Add the dials: of the script, where it is here, else those that the night has turned."""
    try:
        script = script_of(place, record, attempt)
    except NightError:
        return Side(record, attempt, settings(record).get(attempt.number))
    kind = record.night.device_kind
    return Side(record, attempt, dials_in(script, kind), skeleton_in(script, kind))


def _show_beside(found: Comparison, a: Named, b: Named) -> None:
    print_folded([f"{letter}  {one.name}: {harmless(one.attempt.title)}" for letter, one in (("A", a), ("B", b))])
    print("\n".join(table_lines(COLUMNS, found.rows, terminal_width())))
    print_folded([found.sentence], VERDICT)


def _told(one: Named) -> AttemptOfNight:
    return AttemptOfNight(one.record.tag, for_author(one.attempt), Measured.of(one.record, one.attempt))


def _diff(place: Place, a: Named, b: Named) -> Answer:
    """Return how the script of A becomes that of B."""
    before, after = (script_of(place, one.record, one.attempt).splitlines() for one in (a, b))
    text = "".join(f"{line}\n" for line in diff_lines(before, after, a.name, b.name))
    same = f"{a.name} and {b.name} are the same script"
    shown = harmless_lines(text.removesuffix("\n")) if text else same
    return Answer(plain(ScriptsCompared(a.name, b.name, text)), lambda: print(shown))
