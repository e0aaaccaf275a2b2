"""One attempt in full, its log, and its edit: nightshift show."""

from collections.abc import Sequence

from agent.cli.answer import Answer
from agent.cli.attempts import attempt_meant, not_here
from agent.cli.find import night_in
from agent.cli.options import PositiveInt, Seed
from agent.errors import NightError, NothingYet
from agent.experiment import Attempt, Ending, Night, Run, attempt_ref
from agent.night.lock import holder
from agent.records.place import Place, run_folder
from agent.sandbox.process import LOG
from agent.script.dials import dials_in
from agent.text import harmless_lines
from agent.view import terminal
from agent.view.facts.json import plain, without_scoring_words
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.facts.read import LOG_LINES, log_tail
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

    return Answer(_facts(place, night, known, facts, shown, running=is_running), print_all)


def _facts(
    place: Place, night: Night, attempt: Attempt, facts: NightFacts, shown: AttemptFacts, *, running: bool
) -> dict[str, object]:
    """Return all facts about an attempt for programs; a folder or log that is gone is None."""
    ended = [run for run in attempt.runs if run.ending is not Ending.RUNNING]
    shape = without_scoring_words(plain(shown))
    for facts_of_run, run in zip(shape["runs"], ended, strict=False):
        facts_of_run |= _kept(place, night.tag, attempt.number, run.seed)
    failed: Run | None = ended[-1] if ended and ended[-1].ending is Ending.CRASHED else None
    latest = attempt.runs[-1].seed if attempt.runs else night.seed
    return {
        "tag": night.tag,
        **shape,
        "running": running and len(ended) < len(attempt.runs),
        "is_incumbent": facts.incumbent == attempt.number,
        "ref": attempt_ref(night.tag, attempt.number),
        "branch": facts.branch,
        **_kept(place, night.tag, attempt.number, latest),
        "traceback": harmless_lines(failed.last_lines) if failed is not None and failed.last_lines else None,
    }


def _kept(place: Place, tag: str, number: int, seed: int) -> dict[str, str | None]:
    folder = run_folder(place.folder(tag), number, seed)
    paths = {"run_folder": folder, "log": folder / LOG}
    return {name: str(path) if path.exists() else None for name, path in paths.items()}


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
    log = _kept(place, night.tag, attempt.number, seed)["log"]
    facts = {"tag": night.tag, "attempt": attempt.number, "seed": seed, "log": log, "text": text}
    return Answer(facts, lambda: print(f"{head}{text}"))


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
    facts = {"tag": night.tag, "attempt": attempt.number, "parent": attempt.parent}
    facts |= {"base": base, "commit": attempt.commit, "diff": text}
    facts |= {"dials": _turned(before, attempt.proposal.script, night.device_kind)}
    same = f"attempt {attempt.number} is the script as it stands in {base[:7]}"
    return Answer(facts, lambda: print(harmless_lines(text) if text else same))


def _turned(before: str, after: str, device_kind: str) -> list[dict[str, object]]:
    """Return the dials whose values differ; None is the value of one that a script lacks."""
    old, new = dials_in(before, device_kind), dials_in(after, device_kind)
    names = [name for name in {**old, **new} if name not in old or name not in new or old[name] != new[name]]
    return [{"name": name, "before": old.get(name), "after": new.get(name)} for name in names]
