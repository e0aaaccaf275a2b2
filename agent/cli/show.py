"""One attempt in full, its log, and its edit: nightshift show."""

from collections.abc import Sequence

from agent.cli.answer import Answer
from agent.cli.attempts import attempt_meant, not_here
from agent.cli.find import night_in
from agent.cli.options import PositiveInt, Seed
from agent.errors import NightError, NothingYet
from agent.experiment import Attempt, Ending, Night, attempt_ref
from agent.night.lock import holder
from agent.records.place import Place, run_folder
from agent.sandbox.process import LOG
from agent.script.dials import dials_in
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
    place, facts, shown = attempt_meant(attempt)
    night, history = night_in(place, facts.tag)
    known = history[shown.number]
    if diff:
        return _edit(place, night, history, known)
    if log:
        return _log(place, night, known, seed, min(lines, MOST_LINES))
    if seed is not None:
        raise NightError("--seed chooses a log; add --log")
    who = holder(place.repo.common_dir)
    is_running = who is not None and who.tag == night.tag
    folder = run_folder(place.folder(night.tag), known.number, night.seed).parent
    merged_as = max((one.number for one in history if one.proposal.merges == known.number), default=None)

    def print_all() -> None:
        width = terminal_width()
        print_lines(terminal.attempt_lines(night, known, folder, width, running=is_running, merged_as=merged_as))

    ended = [run for run in known.runs if run.ending is not Ending.RUNNING]
    last_lines = ended[-1].last_lines if ended and ended[-1].ending is Ending.CRASHED else ""
    answer = ShowAnswer(
        tag=night.tag,
        attempt=for_author(shown),
        measured=Measured.of(facts, shown),
        running=is_running and len(ended) < len(known.runs),
        is_incumbent=facts.incumbent == known.number,
        ref=attempt_ref(night.tag, known.number),
        branch=facts.branch,
        folder=str(folder) if folder.exists() else None,
        log=_log_file(place, night.tag, known.number, known.runs[-1].seed if known.runs else night.seed),
        traceback=harmless_lines(last_lines) or None,
    )
    return Answer(plain(answer), print_all)


def _log_file(place: Place, tag: str, number: int, seed: int) -> str | None:
    log = run_folder(place.folder(tag), number, seed) / LOG
    return str(log) if log.exists() else None


def _log(place: Place, night: Night, attempt: Attempt, seed: int | None, lines: int) -> Answer:
    """Return the end of the training log of a run; where the file is gone, the last lines that the journal keeps."""
    seeds = [run.seed for run in attempt.runs]
    if not seeds:
        raise NightError(f"attempt {attempt.number} of night {night.tag} has not run, so it has no log")
    if seed is not None and seed not in seeds:
        there = ", ".join(map(str, dict.fromkeys(seeds)))
        raise NightError(f"attempt {attempt.number} has no run with seed {seed}; there are: {there}")
    seed = seeds[-1] if seed is None else seed
    text, head = log_tail(place, night.tag, attempt.number, seed, lines), ""
    if text is None:
        last = next(run.last_lines for run in reversed(attempt.runs) if run.seed == seed)
        text = "\n".join(harmless_lines(last).splitlines()[-lines:])
        head = "the log itself is gone; its last lines, as the journal keeps them:\n"
    if head and not text:
        raise NightError(
            f"the log of attempt {attempt.number} with seed {seed} is gone; the journal keeps no line of it"
        )
    answer = LogAnswer(night.tag, attempt.number, seed, _log_file(place, night.tag, attempt.number, seed), text)
    return Answer(plain(answer), lambda: print(f"{head}{text}"))


def _edit(place: Place, night: Night, history: Sequence[Attempt], attempt: Attempt) -> Answer:
    """Return how the script of the attempt's parent became its own."""
    parent = None if attempt.parent is None else history[attempt.parent]
    base = night.base if parent is None else parent.commit
    if attempt.commit is None or base is None:
        raise NothingYet(f"attempt {attempt.number} of night {night.tag} is not committed yet; try again in a moment")
    for commit in (base, attempt.commit):
        if place.repo.find(commit) is None:
            raise NightError(f"the edit of attempt {attempt.number} cannot be shown: {not_here(night.tag, commit)}")
    text = place.repo.diff(base, attempt.commit)
    before = place.repo.read(base, night.script) if parent is None else parent.proposal.script
    old, new = (dials_in(script, night.device_kind) for script in (before, attempt.proposal.script))
    both = {name: (old.get(name), new.get(name)) for name in {**old, **new}}
    dials = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
    answer = DiffAnswer(night.tag, attempt.number, attempt.parent, base, attempt.commit, text, dials)
    same = f"attempt {attempt.number} is the script as it stands in {base[:7]}"
    return Answer(plain(answer), lambda: print(harmless_lines(text) if text else same))
