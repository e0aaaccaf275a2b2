"""The command line: parse, wire, exit code. Every error that a person can repair passes through one door, here."""

import argparse
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from rich.console import Console

from agent.cli.options import parser
from agent.cli.reading import diff, night_in, place_meant, plot, results, show, show_findings, status
from agent.cli.repeat import run_on, script_words, try_again
from agent.clock import utc_now
from agent.errors import NightError, NightshiftError, UsageError
from agent.experiment import Attempt, Proposal, incumbent, runs_at_dawns
from agent.files import disk_is_broken, disk_is_full
from agent.invocation import typed
from agent.judging.confirmation import Findings
from agent.night.driver import run_night
from agent.night.lab import Lab
from agent.night.limits import Limits
from agent.night.lock import holder
from agent.night.stop import AFTER_RUN, NOW, Stop
from agent.night.wiring import committed, greet, open_lab
from agent.proposers import queue
from agent.proposers.checked import check_proposal, tried_as
from agent.proposers.given import Given, Nobody
from agent.proposers.mix import shares
from agent.proposers.notes import add_note
from agent.proposers.submission import read_submission
from agent.records.place import Place
from agent.script.contract import check_script, read_text
from agent.script.dials import fingerprint
from agent.view import terminal as report
from agent.view.answer import Answer
from agent.view.screen import let_go


def main(argv: Sequence[str] | None = None) -> int:
    words = tuple(sys.argv[1:] if argv is None else argv)
    answer = Answer.asked_for(words)
    try:
        return _main(words, answer)
    except Exception as error:
        answer.fail(f"{type(error).__name__}: {error}; this is a defect, please report it with what stderr says", 1)
        raise


def _main(words: Sequence[str], answer: Answer) -> int:
    options = argparse.Namespace(tag=None)
    try:
        parser().parse_args(words, options)
        options.answer = answer
        code = COMMANDS[options.command](options)
        sys.stdout.flush()
    except UsageError as error:
        with suppress(OSError):
            sys.stderr.write(error.usage)
        return _refuse(answer, str(error), error.exit_code)
    except NightshiftError as error:
        return _refuse(answer, str(error), error.exit_code)
    except KeyboardInterrupt:  # before a night has begun; a running one takes Ctrl-C as a wish
        answer.fail("interrupted before anything was begun", 130, status="unfinished", go_on_with=typed(*words))
        return 130
    except BrokenPipeError:
        let_go(sys.stdout)
        return 0  # its reader, such as head, has seen enough
    except (OSError, sqlite3.OperationalError) as error:
        return _refuse(answer, _in_words(error, _resume(options)))
    return code


def _refuse(answer: Answer, sentence: str, exit_code: int = 2) -> int:
    with suppress(OSError):  # the terminal may be gone
        print(f"nightshift: {sentence}", file=sys.stderr)
    answer.fail(sentence, exit_code)
    return exit_code


def _resume(options: argparse.Namespace) -> str:
    if options.command == "try":
        return try_again(options)
    return typed("confirm" if options.command == "confirm" else "run", "--tag", options.tag or "TAG")


def _in_words(error: OSError | sqlite3.OperationalError, resume: str) -> str:
    """What a full disk or a lack of permission says; any other error of SQLite is ours, and raised again."""
    if disk_is_full(error):
        return f"no space left on the disk; free some and resume with: {resume} (nothing is lost)"
    if disk_is_broken(error):
        return (
            f"the disk failed ({error}); see what the system's log says about it, free space if there is none, "
            f"and resume with: {resume} (nothing is lost)"
        )
    if isinstance(error, OSError):
        what = f"cannot use {error.filename}: " if error.filename else ""
        return f"{what}{error.strerror or error}; check its path, owner and permissions"
    if any(words in str(error) for words in ("unable to open", "readonly", "read-only")):
        return f"cannot use the night's journal: {error}; make experiments/nights writable"
    raise error


def run(options: argparse.Namespace) -> int:
    from agent.night.dawn import confirm_aloud, is_interrupted

    limits = Limits(options.experiments, options.hours, options.dawn)
    with open_lab(options, limits) as lab:
        greet(lab, limits)
        run_night(lab)
        runs = limits.runs_at_dawn(lab.pace(lab.journal.attempts()))
        if (runs or is_interrupted(lab)) and not lab.stop.after_run:
            lab.watcher.said(f"dawn: up to {runs} runs to confirm what was found" if runs else "dawn goes to its end")
            confirm_aloud(lab, runs)
        _goodbye(lab, options)
    return 0


def confirm_one(options: argparse.Namespace) -> int:
    from agent.night.dawn import confirm_aloud

    answer: Answer = options.answer
    answer.check()
    if options.show:
        return show_findings(options)
    place = Place.of(options.script)
    night, before = night_in(place, options.tag)
    options.tag = night.tag
    with open_lab(options, Limits(), lambda night: Nobody(), aside=answer.on_stdout) as lab:
        lab.watcher.said(f"dawn of night {night.tag}: up to {options.runs} runs of {night.budget_s:g} s")
        found, go_on_with = confirm_aloud(lab, options.runs), None
        if lab.stop.after_run:
            left = max(1, options.runs - (runs_at_dawns(lab.journal.attempts()) - runs_at_dawns(before)))
            go_on_with = typed("confirm", "--tag", night.tag, "--runs", str(left), *script_words(options))
            lab.watcher.said(f"dawn was ended early; go on with: {go_on_with}")
    return answer_of_dawn(answer, night.tag, found, go_on_with)


def answer_of_dawn(answer: Answer, tag: str, found: Findings | None, go_on_with: str | None) -> int:
    """The exit code; go_on_with: None where dawn came to its end."""
    facts = asdict(found) if found is not None else {}
    if go_on_with is not None:
        answer.fail("dawn was ended early", 130, **facts, status="unfinished", go_on_with=go_on_with)
        return 130
    if found is None:
        raise NightError(f"night {tag} has kept no edit, so there is nothing to confirm; see: {typed('results')}")
    answer.give(facts)
    return 0


def try_one(options: argparse.Namespace) -> int:
    """The night's loop, for one idea that is given."""
    answer: Answer = options.answer
    place = Place.of(options.script)
    if options.tag is None and place.tags():
        options.tag = place.tags()[-1]
    try:
        idea = _given(options)
        unfinished = _unfinished(place, options, idea.proposal)
    except NightshiftError as error:
        raise type(error)(f"{error}; then: {try_again(options)}") from error
    with open_lab(options, Limits(), lambda night: idea, baseline=committed, aside=answer.on_stdout) as lab:
        before = lab.journal.attempts()
        ideas = sum(attempt.is_idea for attempt in before)
        most = ideas if unfinished is None else ideas - 1
        run_night(replace(lab, limits=Limits(experiments=max(1, most))))
        night, history = lab.shop.night, lab.journal.attempts()
        mine = _tried(history, len(before), idea.proposal) if unfinished is None else history[unfinished]
        settled = mine if mine is not None and mine.settled else None
        if settled is None:
            lab.watcher.said(f"no verdict yet; go on with: {try_again(options)}")
        elif not answer.on_stdout:
            for line in report.verdict_lines(night, history, settled.number):
                lab.watcher.said(line)
    if settled is None:
        facts = {"tag": night.tag, "attempt": mine.number if mine else None, "go_on_with": try_again(options)}
        answer.fail("no verdict yet", 130, status="unfinished", **facts)
        return 130
    answer.give(report.verdict_facts(night, history, settled.number))
    return 0


def _unfinished(place: Place, options: argparse.Namespace, proposal: Proposal) -> int | None:
    """The attempt that has this script already and no verdict yet; raises NightshiftError for what cannot be tried.

    Before a night is opened for it: one that came of a slip would be in the way of the next.
    """
    check_script(proposal.script, str(options.edit or place.script))
    before = night_in(place, options.tag)[1] if options.tag in place.tags() else ()
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
        raise NightError("--message is empty; say what is tried and why")
    return Given(Proposal.of(read_text(options.edit or options.script), title, why or title, "you"))


def submit(options: argparse.Namespace) -> int:
    place = Place.of(options.script)
    where = place_meant()
    night, history = night_in(where, None) if where.tags() else (None, ())
    text = read_submission(options.file, place, history, night.tag if night else "")
    # a night that runs in another working tree reads the queue there
    path = queue.submit(where.queue, text, options.message, script=place.script, now=utc_now())
    print(f"queued as {path.name}; a night with --proposer queue or mix tries it before all else")
    return 0


def note(options: argparse.Namespace) -> int:
    place = place_meant(options.tag)
    who = holder(place.repo.common_dir())
    running = who.tag if who and place.journal(who.tag).exists() else None
    night, _ = night_in(place, options.tag or running)
    add_note(place.folder(night.tag), " ".join(options.text), utc_now())
    print(f"night {night.tag} is told before its next proposal")
    return 0


def stop(options: argparse.Namespace) -> int:
    place = place_meant()
    who = holder(place.repo.common_dir())
    if who is None or not place.folder(who.tag).is_dir():
        raise NightError(f"no night is running in this repository; see: {typed('status')}")
    Stop(place.folder(who.tag)).wish(NOW if options.now else AFTER_RUN)
    print(f"night {who.tag} ends {'now' if options.now else 'after its current run'}")
    return 0


def doctor(options: argparse.Namespace) -> int:
    from agent.cli.doctor import examine

    return examine(None if options.json else Console(), options.script)


def profile(options: argparse.Namespace) -> int:
    from agent.profile.profile import ProfileRequest
    from agent.profile.profile import profile as take_apart

    request, answer = ProfileRequest(options.script, options.steps, options.seed, options.trace), options.answer
    take_apart(request, Console(stderr=answer.on_stdout), answer)
    return 0


def _goodbye(lab: Lab, options: argparse.Namespace) -> None:
    history, night = lab.journal.attempts(), lab.shop.night
    dawn = next(reversed(lab.journal.dawns()), None)
    for line in report.status_lines(night, history, pid=None, stopping=False, dawn=dawn)[2:]:
        lab.watcher.said(line)
    brought = shares(history, lab.journal.asks())
    for line in report.shares_lines(brought) if len(history) > 1 else ():
        lab.watcher.said(line)
    best = incumbent(history)
    if best is not None and best.number > 0:
        number = str(best.number)
        lab.watcher.said(f"read next: {typed('show', number)}, {typed('diff', number)}, {typed('results')}")
    lab.watcher.said(f"go on with: {run_on(options, night.tag, history)}")


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    command.__name__.removesuffix("_one"): command
    for command in (run, confirm_one, try_one, submit, note, results, status, stop, show, diff, plot, profile, doctor)
}
