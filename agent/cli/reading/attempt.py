"""One attempt in full, its log, and its edit: nightshift show, nightshift diff."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from agent.cli.reading.scripts import attempt_in, facts_of, not_here
from agent.cli.reading.which import attempt_word, night_in, picked, place_meant
from agent.cli.words.parser import Subcommand
from agent.cli.words.values import positive_int
from agent.cli.words.values import seed as seed_of
from agent.errors import NightError, NothingYet
from agent.experiment import Attempt, Ending, Night, Run, attempt_ref
from agent.invocation import typed
from agent.model.best_script import BestScript
from agent.night.lock import holder
from agent.records.place import Place, run_folder
from agent.sandbox.process import LOG
from agent.script.dials import dials_in
from agent.text import harmless_lines
from agent.view import terminal
from agent.view.answer import Answer, AnswersTo
from agent.view.facts.json import plain
from agent.view.facts.read import LOG_LINES, log_tail
from agent.view.scoring_words import without_scoring_words
from agent.view.screen import print_lines, terminal_width

MOST_LINES = 10_000


@dataclass(frozen=True, slots=True)
class ShowOptions:
    attempt: int | str | None
    best: bool
    tag: str | None
    log: bool
    seed: int | None
    lines: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class DiffOptions:
    attempt: int | str | None
    best: bool
    tag: str | None
    answer: Answer


def _named(options: ShowOptions | DiffOptions) -> tuple[Place, Night, tuple[Attempt, ...], Attempt]:
    """Return the attempt that the options name, with its night; raise NightError where they name none, or two."""
    if (options.attempt is None) != options.best:
        example = typed("show" if isinstance(options, ShowOptions) else "diff", "4")
        raise NightError(f"name one attempt by its number, as in {example}, or the best by: best")
    place = place_meant(options.tag)
    night, history = night_in(place, options.tag)
    number = options.attempt
    if not isinstance(number, int):
        number = BestScript.of(facts_of(place, night.tag)).attempt.number
    return place, night, history, picked(history, number, night)


# ---- show ------------------------------------------------------------------------------------------------------------


def show(options: ShowOptions) -> int:
    place, night, history, attempt = _named(options)
    if options.log:
        return _show_log(options, place, night, attempt)
    if options.seed is not None:
        raise NightError("--seed chooses a log; add --log")
    who = holder(place.repo.common_dir)
    ended = [run for run in attempt.runs if run.ending is not Ending.RUNNING]
    is_running = who is not None and who.tag == night.tag
    if options.answer.on_stdout:
        is_at_work = is_running and len(ended) < len(attempt.runs)
        options.answer.give(_told(place, night, attempt, ended, running=is_at_work))
        return 0
    folder = run_folder(place.folder(night.tag), attempt.number, night.seed).parent
    merged_as = max((one.number for one in history if one.proposal.merges == attempt.number), default=None)
    lines = terminal.attempt_lines(night, attempt, folder, terminal_width(), running=is_running, merged_as=merged_as)
    print_lines(lines)
    return 0


def _told(place: Place, night: Night, attempt: Attempt, ended: Sequence[Run], *, running: bool) -> dict[str, object]:
    """Return all facts about an attempt for programs; a folder or log that is gone is None."""
    facts = facts_of(place, night.tag)
    shape = without_scoring_words(plain(attempt_in(facts, attempt.number)))
    for facts_of_run, run in zip(shape["runs"], ended, strict=False):
        facts_of_run |= {"exit_code": run.exit_code, **_kept(place, night.tag, attempt.number, run.seed)}
    failed = ended[-1] if ended and ended[-1].ending is Ending.CRASHED else None
    latest = attempt.runs[-1].seed if attempt.runs else night.seed
    return {
        "tag": night.tag,
        **shape,
        "running": running,
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


def _show_log(options: ShowOptions, place: Place, night: Night, attempt: Attempt) -> int:
    """Print the end of the training log of a run; where the file is gone, the last lines that the journal keeps."""
    seeds = [run.seed for run in attempt.runs]
    if not seeds:
        raise NightError(f"attempt {attempt.number} of night {night.tag} has not run, so it has no log")
    if options.seed is not None and options.seed not in seeds:
        there = ", ".join(map(str, dict.fromkeys(seeds)))
        raise NightError(f"attempt {attempt.number} has no run with seed {options.seed}; there are: {there}")
    seed, lines = seeds[-1] if options.seed is None else options.seed, min(options.lines, MOST_LINES)
    text, is_kept = log_tail(place, night.tag, attempt.number, seed, lines), True
    if text is None:
        last = next(run.last_lines for run in reversed(attempt.runs) if run.seed == seed)
        text, is_kept = "\n".join(harmless_lines(last).splitlines()[-lines:]), False
    if not is_kept and not text:
        raise NightError(
            f"the log of attempt {attempt.number} with seed {seed} is gone; the journal keeps no line of it"
        )
    if options.answer.on_stdout:
        log = _kept(place, night.tag, attempt.number, seed)["log"]
        options.answer.give({"tag": night.tag, "attempt": attempt.number, "seed": seed, "log": log, "text": text})
        return 0
    if not is_kept:
        print("the log itself is gone; its last lines, as the journal keeps them:")
    print(text)
    return 0


def _show_words(words: argparse.ArgumentParser) -> None:
    _attempt_words(words)
    words.add_argument("--log", action="store_true", help="print the end of its training log instead")
    words.add_argument(
        "--seed", type=seed_of, metavar="K", help="with --log: of the run with this seed (default: last)"
    )
    words.add_argument(
        "--lines", type=positive_int, default=LOG_LINES, metavar="N", help="with --log: at most (default: %(default)s)"
    )
    words.add_argument("--json", action="store_true", help="print all facts as JSON: nothing else on stdout")


SHOW = Subcommand("show", "everything about one attempt", ShowOptions, show, _show_words, answers=AnswersTo.STDOUT)

# ---- diff ------------------------------------------------------------------------------------------------------------


def diff(options: DiffOptions) -> int:
    place, night, history, attempt = _named(options)
    parent = None if attempt.parent is None else history[attempt.parent]
    base = night.base if parent is None else parent.commit
    if attempt.commit is None or base is None:
        raise NothingYet(f"attempt {attempt.number} of night {night.tag} is not committed yet; try again in a moment")
    for commit in (base, attempt.commit):
        if place.repo.find(commit) is None:
            raise NightError(f"the edit of attempt {attempt.number} cannot be shown: {not_here(night.tag, commit)}")
    text = place.repo.diff(base, attempt.commit)
    if options.answer.on_stdout:
        before = place.repo.read(base, night.script) if parent is None else parent.proposal.script
        dials = _turned(before, attempt.proposal.script, night.device_kind)
        facts = {"tag": night.tag, "attempt": attempt.number, "parent": attempt.parent}
        options.answer.give({**facts, "base": base, "commit": attempt.commit, "diff": text, "dials": dials})
    else:
        print(harmless_lines(text) if text else f"attempt {attempt.number} is the script as it stands in {base[:7]}")
    return 0


def _turned(before: str, after: str, device_kind: str) -> list[dict[str, object]]:
    """Return the dials whose values differ; None is the value of one that a script lacks."""
    old, new = dials_in(before, device_kind), dials_in(after, device_kind)
    names = [name for name in {**old, **new} if name not in old or name not in new or old[name] != new[name]]
    return [{"name": name, "before": old.get(name), "after": new.get(name)} for name in names]


def _diff_words(words: argparse.ArgumentParser) -> None:
    _attempt_words(words)
    words.add_argument(
        "--json", action="store_true", help="print the edit and its dials as JSON: nothing else on stdout"
    )


def _attempt_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("attempt", nargs="?", type=attempt_word, metavar="N", help="the attempt's number, or: best")
    words.add_argument("--best", action="store_true", help="the best script of the night, as `nightshift best` says")
    words.add_argument("--tag", help="of this night (default: the latest)")


DIFF = Subcommand("diff", "an attempt's edit", DiffOptions, diff, _diff_words, answers=AnswersTo.STDOUT)
