"""The command line: parse, wire, exit code. Every error that a person can mend passes through one door, here."""

import argparse
import json
import shlex
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from agent import report
from agent.confirmation import Findings
from agent.contract import check_script
from agent.errors import NightError, NightshiftError, NoRepository, ScriptError
from agent.experiment import Attempt, Night, Proposal, incumbent
from agent.installed import SCRIPT
from agent.journal import Journal, disk_is_broken, disk_is_full
from agent.lab import Lab, Limits
from agent.ledger import Row, read_rows
from agent.lock import holder, is_held
from agent.night import presentable, run_night
from agent.notes import add_note
from agent.opening import Place, read_text, utc_now
from agent.options import JUDGES, parser
from agent.plain_text import harmless_lines
from agent.proposers import queue
from agent.proposers.checked import check_proposal, fingerprint, tried_as
from agent.proposers.given import Given, Nobody
from agent.proposers.mix import shares
from agent.repo import Repo
from agent.screen import let_go, print_lines, terminal_width
from agent.sources import check_sources, source_of
from agent.steps import write_ledger
from agent.stop import AFTER_RUN, NOW, Stop
from agent.submission import read_submission
from agent.wiring import committed, open_lab

LIMITS = ("--experiments", "--hours")


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    options.words = tuple(sys.argv[1:] if argv is None else argv)
    try:
        code = COMMANDS[options.command](options)
        sys.stdout.flush()
    except NightshiftError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return 130  # before a night has begun; a running one takes Ctrl-C as a wish
    except BrokenPipeError:
        let_go(sys.stdout)
        return 0  # its reader, such as head, has seen enough
    except (OSError, sqlite3.OperationalError) as error:
        return _refuse(_mended_by_hand(error))
    return code


def _refuse(sentence: str) -> int:
    with suppress(OSError):  # the terminal may be gone
        print(f"nightshift: {sentence}", file=sys.stderr)
    return 2


def _mended_by_hand(error: OSError | sqlite3.OperationalError) -> str:
    """What a full disk or a lack of permission says; any other error of SQLite is ours, and raised again."""
    if disk_is_full(error):
        return "no space left on the disk; free some and resume with: nightshift run --tag TAG (nothing is lost)"
    if disk_is_broken(error):
        return (
            f"the disk failed ({error}); see what the system's log says about it, free space if there is none, "
            f"and resume with: nightshift run --tag TAG (nothing is lost)"
        )
    if isinstance(error, OSError):
        what = f"cannot use {error.filename}: " if error.filename else ""
        return f"{what}{error.strerror or error}; check its path, owner and permissions"
    if any(words in str(error) for words in ("unable to open", "readonly", "read-only")):
        return f"cannot use the night's journal: {error}; make experiments/nights writable"
    raise error


def run(options: argparse.Namespace) -> int:
    limits = Limits(options.experiments, options.hours, options.dawn)
    check_sources(options)
    source = source_of(options, Place.of(options.script))
    with open_lab(options, limits, source, searches=options.proposer == "search") as lab:
        _greet(lab, options)
        run_night(lab)
        runs = limits.runs_at_dawn(lab.journal.attempts())
        if runs and not lab.stop.after_run:
            lab.watcher.said(f"dawn: up to {runs} runs to confirm what was found")
            _dawn(lab, runs)
        _goodbye(lab, options)
    return 0


def confirm_one(options: argparse.Namespace) -> int:
    place = Place.of(options.script)
    night, _ = _night(place, options.tag)
    options.tag = night.tag
    with open_lab(options, Limits(), lambda *_: Nobody(), searches=False) as lab:
        lab.watcher.said(f"dawn of night {night.tag}: up to {options.runs} runs of {night.budget_s:g} s")
        found = _dawn(lab, options.runs)
        if lab.stop.after_run:
            lab.watcher.said(f"dawn was ended early; go on with: nightshift confirm --tag {night.tag}")
    if found is None:
        raise NightError(f"night {night.tag} has kept no edit, so there is nothing to confirm; see: nightshift results")
    if options.json:
        options.json.write_text(json.dumps(asdict(found), indent=1))
    return 0


def _dawn(lab: Lab, runs: int) -> Findings | None:
    from agent.dawn import confirm

    found = confirm(lab, runs)
    if found is not None:
        for line in report.findings_lines(found, lab.journal.attempts(), f"{lab.shop.night.branch}-confirmed"):
            lab.watcher.said(line)
    return found


def try_one(options: argparse.Namespace) -> int:
    """The night's loop, for one idea that is given."""
    place = Place.of(options.script)
    given = _given(options)
    if options.tag is None and place.tags():
        options.tag = place.tags()[-1]
    unfinished = _unfinished(place, options, given.proposal)
    with open_lab(options, Limits(), lambda *_: given, searches=False, baseline=committed, aside=options.json) as lab:
        before = lab.journal.attempts()
        ideas = sum(attempt.is_idea for attempt in before)
        most = ideas if unfinished is None else ideas - 1
        run_night(replace(lab, limits=Limits(experiments=max(1, most))))
        night, history = lab.shop.night, lab.journal.attempts()
        mine = _tried(history, len(before), given.proposal) if unfinished is None else history[unfinished]
        if mine is None or not mine.settled:
            lab.watcher.said(f"no verdict yet; the same command goes on, as does: nightshift run --tag {night.tag}")
            return 130
        if options.json:
            print(json.dumps(report.verdict_facts(night, history, mine.number), indent=1))
        else:
            for line in report.verdict_lines(night, history, mine.number):
                lab.watcher.said(line)
    return 0


def _unfinished(place: Place, options: argparse.Namespace, proposal: Proposal) -> int | None:
    """The attempt that has this script already and no verdict yet; raises NightshiftError for what cannot be tried.

    Before a night is opened for it: one that came of a slip would be in the way of the next.
    """
    check_script(proposal.script, str(options.edit or place.script))
    before = _night(place, options.tag)[1] if options.tag in place.tags() else ()
    if fingerprint(proposal.script) == fingerprint(committed(place)):
        raise NightError(f"{place.script} is as it was committed; edit it first, or name another file with --edit")
    number = tried_as(proposal.script, before)
    if number and not before[number].settled:
        return number
    check_proposal(proposal, before, place.script)
    return None


def _tried(history: Sequence[Attempt], known: int, proposal: Proposal) -> Attempt | None:
    return next((attempt for attempt in history[known:] if attempt.proposal == proposal), None)


def _given(options: argparse.Namespace) -> Given:
    """The edited script and what was said of it."""
    title, _, why = options.message.strip().partition("\n")
    if not title.strip():
        raise NightError('say what is tried and why, as in: nightshift try -m "warm up longer: early steps diverge"')
    return Given(presentable(Proposal(read_text(options.edit or options.script), title, why or title, "you")))


def submit(options: argparse.Namespace) -> int:
    place = Place.of(options.script)
    where = _where()
    night, history = _night(where, None) if where.tags() else (None, ())
    text = read_submission(options.file, place, history, night.tag if night else "")
    # a night that runs in another working tree reads the queue there
    path = queue.submit(where.queue, text, options.message, script=place.script, now=utc_now())
    print(f"queued as {path.name}; a night with --proposer queue or mix tries it before all else")
    return 0


def note(options: argparse.Namespace) -> int:
    place = _where(options.tag)
    who = holder(place.repo.common_dir())
    running = who.tag if who and place.journal(who.tag).exists() else None
    night, _ = _night(place, options.tag or running)
    add_note(place.folder(night.tag), " ".join(options.text), utc_now())
    print(f"night {night.tag} is told before its next proposal")
    return 0


def results(options: argparse.Namespace) -> int:
    place = _where(options.tag)
    rows = _rows(place)
    if not options.all:
        tag = options.tag or (place.tags()[-1] if place.tags() else None)
        rows = [row for row in rows if tag is None or row.get("tag") == tag]
        if options.tag and not rows:
            raise NightError(f"results.tsv has no night {options.tag}; see them all with: nightshift results --all")
    if not rows:
        begin = "see: nightshift status, nightshift results --all" if place.tags() else "begin with: nightshift run"
        raise NightError(f"no results yet; {begin}")
    print_lines(report.results_lines(rows, terminal_width()))
    return 0


def _rows(place: Place) -> list[Row]:
    if place.tags() and not is_held(place.repo.common_dir()):
        write_ledger(place)  # a running night does it by itself, and must not be overtaken by an older rendering
    return read_rows(place.ledger)


def status(options: argparse.Namespace) -> int:
    place = _where()
    who = holder(place.repo.common_dir())
    tag = who.tag if who and place.journal(who.tag).exists() else None
    night, history = _night(place, tag)
    running = who is not None and who.tag == night.tag
    stopping = Stop(place.folder(night.tag)).after_run
    for line in report.status_lines(night, history, pid=who.pid if who and running else None, stopping=stopping):
        print(line)
    with Journal.read(place.journal(night.tag)) as journal:
        brought = shares(history, journal.asks())
    for line in report.shares_lines(brought) if brought else ():
        print(line)
    return 0


def stop(options: argparse.Namespace) -> int:
    place = _where()
    who = holder(place.repo.common_dir())
    if who is None or not place.folder(who.tag).is_dir():
        raise NightError("no night is running in this repository; see: nightshift status")
    Stop(place.folder(who.tag)).wish(NOW if options.now else AFTER_RUN)
    print(f"night {who.tag} ends {'now' if options.now else 'after its current run'}")
    return 0


def show(options: argparse.Namespace) -> int:
    place = _where(options.tag)
    night, history = _night(place, options.tag)
    attempt = _pick(history, options.number, night)
    folder = place.folder(night.tag) / "runs" / f"{attempt.number:04d}"
    who = holder(place.repo.common_dir())
    running = who is not None and who.tag == night.tag
    print_lines(report.attempt_lines(night, attempt, folder, terminal_width(), running=running))
    return 0


def diff(options: argparse.Namespace) -> int:
    place = _where(options.tag)
    night, history = _night(place, options.tag)
    attempt = _pick(history, options.number, night)
    parent = night.base if attempt.parent is None else history[attempt.parent].commit
    if attempt.commit is None or parent is None:
        raise NightError(f"attempt {attempt.number} of night {night.tag} is not committed yet; try again in a moment")
    text = place.repo.diff(parent, attempt.commit)
    print(harmless_lines(text) if text else f"attempt {attempt.number} is the script as it stands in {parent[:7]}")
    return 0


def plot(options: argparse.Namespace) -> int:
    from agent.plot import chosen
    from agent.plot import plot as draw

    place = _where()
    tags = place.tags()
    rows = chosen(_rows(place), options.tag, tags[-1] if tags else None, everything=options.all)
    draw(rows, options.out)
    nights = dict.fromkeys(row.get("tag", "") for row in rows)
    print(f"wrote {options.out}: {', '.join(filter(None, nights)) or 'rows without a night'}")
    return 0


def doctor(options: argparse.Namespace) -> int:
    from agent.doctor import examine

    return examine(None if options.json else Console())


def profile(options: argparse.Namespace) -> int:
    from agent.phases import Request
    from agent.phases import profile as take_apart

    request = Request(options.script, options.steps, options.seed, options.trace, options.json)
    return take_apart(request, Console())


def _greet(lab: Lab, options: argparse.Namespace) -> None:
    night, shop, say = lab.shop.night, lab.shop, lab.watcher.said
    until = [f"{options.experiments} experiments after attempt 0"] if options.experiments else []
    until += [f"{options.hours:g} hours"] if options.hours else []
    say(f"night {night.tag} on branch {night.branch.removeprefix('refs/heads/')}")
    say(f"  script   {lab.place.script_path}")
    say(f"  device   {night.device} ({night.device_kind})")
    say(f"  budget   {night.budget_s:g} s of training a run; {', '.join(until) or 'until stopped'}")
    say(f"  data     {night.data} (protocol {night.protocol})")
    say(f"  judge    {JUDGES[options.judge]}")
    say(f"  sandbox  {shop.box.name}")
    for gap in shop.box.uncovered:
        say(f"           not covered: {gap}")
    say(f"  logs     {shop.folder / 'runs'}")
    say("  Ctrl-C ends after the current run, a second one ends the run too")


def _goodbye(lab: Lab, options: argparse.Namespace) -> None:
    history, night = lab.journal.attempts(), lab.shop.night
    for line in report.status_lines(night, history, pid=None, stopping=False)[2:]:
        lab.watcher.said(line)
    brought = shares(history, lab.journal.asks())
    for line in report.shares_lines(brought) if len(history) > 1 else ():
        lab.watcher.said(line)
    best = incumbent(history)
    if best is not None and best.number > 0:
        lab.watcher.said(f"read next: nightshift show {best.number}, nightshift diff {best.number}, nightshift results")
    lab.watcher.said(f"go on with: {again(options.words, night.tag)}")


def again(words: Sequence[str], tag: str) -> str:
    """The command line that goes on with a night as it was begun, but for the limits that have ended it."""
    parts = iter(words)
    kept = [word for word in parts if not (word.split("=")[0] in LIMITS and ("=" in word or next(parts, None)))]
    named = any(word.split("=")[0] == "--tag" for word in kept)
    return shlex.join(["nightshift", *kept, *([] if named else ["--tag", tag])])


def _here() -> Place:
    """Where the command was given; raises NightError where no night can have run."""
    try:
        return Place.of(Path(SCRIPT))
    except (NoRepository, ScriptError):
        raise NightError(
            f"no night has run in {Path.cwd()}; go to the folder of your script, or begin with: nightshift run"
        ) from None


def _where(tag: str | None = None) -> Place:
    """Here; but where a night runs in another working tree of the repository and may be meant, that one."""
    here = _here()
    who = holder(here.repo.common_dir())
    if who is None or tag not in (None, who.tag) or not Path(who.folder, "journal.sqlite").is_file():
        return here
    return Place(Repo(Path(who.folder).parents[2]), here.script)


def _night(place: Place, tag: str | None) -> tuple[Night, tuple[Attempt, ...]]:
    """A night with a journal here: this one, or the latest."""
    tags = place.tags()
    if tag is None and not tags:
        raise NightError("no night has run here yet; begin with: nightshift run")
    if tag is not None and tag not in tags:
        raise NightError(f"night {tag} has no journal here; there are: {', '.join(tags) or 'none'}")
    with Journal.read(place.journal(tag or tags[-1])) as journal:
        return journal.night(), journal.attempts()


def _pick(history: Sequence[Attempt], number: int, night: Night) -> Attempt:
    if not 0 <= number < len(history):
        last = f"0 to {len(history) - 1}" if history else "none yet"
        raise NightError(f"night {night.tag} has no attempt {number}; there are: {last}")
    return history[number]


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    command.__name__.removesuffix("_one"): command
    for command in (run, confirm_one, try_one, submit, note, results, status, stop, show, diff, plot, profile, doctor)
}

if __name__ == "__main__":
    sys.exit(main())
