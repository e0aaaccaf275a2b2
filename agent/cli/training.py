"""The commands that train: a night, and the confirmation of what it found."""

import argparse
from dataclasses import asdict, replace
from pathlib import Path

from rich.text import Text

from agent.cli.greeting import greet
from agent.cli.reading.which import night_in, place_meant
from agent.cli.repeat import run_on, script_words
from agent.cli.words.options import KEPT, ConfirmOptions, RunOptions, add_night, add_sources, add_workers
from agent.cli.words.parser import Subcommand
from agent.cli.words.values import count, dataset, positive, positive_int
from agent.errors import NightError, NothingYet
from agent.experiment import History, is_look, runs_at_dawns
from agent.invocation import typed
from agent.judging.champion import Findings
from agent.judging.noise import noise
from agent.night.limits import Limits
from agent.night.loop import run_night
from agent.night.opening import Request, open_context
from agent.night.state import NightContext
from agent.proposers.given import NoSource
from agent.proposers.mix import shares
from agent.records.journal import Journal
from agent.records.place import place_of_night
from agent.text import counted
from agent.view import terminal
from agent.view.answer import STDOUT, Answer, AnswersTo
from agent.view.facts.journal import overview
from agent.view.facts.overview import Overview
from agent.view.facts.workers import crew_of
from agent.view.live.ending import HEADING, LastScreen, belief, tried_lines
from agent.view.screen import print_folded, print_lines, terminal_width
from agent.view.status import overview_lines

# ---- run -------------------------------------------------------------------------------------------------------------


def run(options: RunOptions) -> int:
    from agent.night.dawn import confirm_night, is_interrupted

    asked, limits = options.night, Limits(options.experiments, options.hours, options.dawn)
    place = place_of_night(asked.script, asked.tag)
    request = Request(place, asked.tag, asked.budget_s, asked.seed, asked.terms, limits, dataset=options.dataset)
    with open_context(request) as context:
        greet(context)
        run_night(context)
        runs = limits.runs_at_dawn(context.state().pace)
        if (runs or is_interrupted(context)) and not context.stop.after_run:
            most = f"dawn: up to {counted(runs, 'run')} to confirm what was found"
            context.watcher.said(most if runs else "dawn goes to its end")
            confirm_night(context, runs)
        last = _last_screen(context, options)
    _show(last)
    return 0


def _last_screen(context: NightContext, options: RunOptions) -> LastScreen:
    """Sum up the night on one screen: what was tried, what to believe of it, and the commands that come next."""
    history, night, asks = context.journal.attempts(), context.runner.night, context.journal.asks()
    dawns, calls = context.journal.dawns(), context.journal.calls()
    now = overview(night, history, asks, dawns, noise(history))
    brought = shares(history, asks)
    sources = (*terminal.shares_lines(brought), *terminal.failure_lines(brought)) if now.ideas else ()
    crew = crew_of(night, history, asks, calls)
    return LastScreen(
        chart=tried_lines(history, now.smallest_bpb, terminal_width()),
        sentences=[*overview_lines(replace(now, doubt=None), pid=None, stopping=False, crew=crew)[2:], *sources],
        belief=belief(now) if now.ideas else None,
        commands=_next_commands(context, options, history, now),
    )


def _next_commands(
    context: NightContext, options: RunOptions, history: History, now: Overview
) -> list[tuple[str, str]]:
    """Return the commands that come next, each with what it is for."""
    tag, last = context.runner.night.tag, len(history) - 1
    of = () if context.place.tags()[-1] == tag else ("--tag", tag)  # this call may have made no run
    go_on = run_on(options, tag, history), "go on with this night"
    if not now.ideas:
        return [(typed("status", *of), "how far it is"), go_on]
    number = str(last if now.gain is None or now.best is None else now.best.number)
    what = "why nothing was kept" if now.gain is None else "the best edit, and how it was judged"
    tried = typed("results", *of), "all that was tried, one line each"
    tested = typed("confirm", *of), "is it better? by fresh seeds and another text"
    if is_look(now.budget_s) and not context.stop.after_run:
        real = typed("run", *script_words(options.night)), "a real night: 5 min a run"
        return [(typed("show", number, *of), what), tried, real]
    return [(typed("show", number, *of), what), tried if now.gain is None or now.dawn is not None else tested, go_on]


def _show(last: LastScreen) -> None:
    """Print the last screen; a terminal folds its sentences between words."""
    print_folded(["", *([HEADING] if last.chart else [])])
    if last.chart:
        print_lines(last.chart)
    print_folded([*last.sentences, *filter(None, [last.belief]), "next:"])
    width = max(len(command) for command, _ in last.commands)
    print_lines([Text.assemble(f"  {command:<{width}}  ", (what, "dim")) for command, what in last.commands])


def _run_again(options: RunOptions, tag: str | None) -> str:
    return typed("run", "--tag", tag or options.night.tag or "TAG")


def _run_words(words: argparse.ArgumentParser) -> None:
    words.add_argument(
        "--experiments",
        type=positive_int,
        metavar="N",
        help="end after N proposals beyond attempt 0, counted over the whole night",
    )
    words.add_argument(
        "--hours",
        type=positive,
        metavar="H",
        help="begin nothing, be it another seed or the asking for an idea, that would end after H hours, judged by the "
        "night's longest so far; what is undecided then goes on with the next call",
    )
    words.add_argument(
        "--dawn",
        type=count,
        metavar="RUNS",
        help="runs kept for the end, to confirm as `nightshift confirm` does, counted over the whole night (default: "
        "an eighth of --hours, else 0)",
    )
    words.add_argument(
        "--dataset",
        type=dataset,
        metavar="D",
        help="prepare this text first and train on it: a PATH, or a name that `nightshift prepare --help` lists "
        "(default: the corpus prepared last)",
    )
    add_night(words, "the date, and a new night; one that is here already goes on")
    add_workers(words)
    add_sources(words)


RUN = Subcommand("run", "run a night, or go on with one", RunOptions, run, _run_words, epilog=KEPT, resume=_run_again)

# ---- confirm ---------------------------------------------------------------------------------------------------------

CONFIRM_RUNS = 30  # as in the simulations of benchmarks/judge_power.py, for a night of 96 runs
CONFIRM_TEXT = (
    "Measure the best script of a night against its baseline, with fresh seeds and on text that no attempt was judged "
    "by; take doubtful edits out to see what they are worth, and put the script without those that bring nothing on "
    "the branch ...-confirmed. Where fresh seeds leave it open whether there is any gain, no branch is made."
)


def confirm(options: ConfirmOptions) -> int:
    options.answer.check()
    return _show_findings(options) if options.show else _confirm_now(options)


def _confirm_now(options: ConfirmOptions) -> int:
    from agent.night.dawn import confirm_night

    answer, asked, place = options.answer, options.night, place_of_night(options.night.script, options.night.tag)
    night, before = night_in(place, asked.tag)
    request = Request(
        place, night.tag, asked.budget_s, asked.seed, asked.terms, proposer=NoSource(), aside=answer.on_stdout
    )
    with open_context(request) as context:
        context.watcher.said(f"dawn of night {night.tag}: up to {counted(options.runs, 'run')} of {night.budget_s:g} s")
        found, go_on_with = confirm_night(context, options.runs), None
        if context.stop.after_run:
            left = max(1, options.runs - (runs_at_dawns(context.journal.attempts()) - runs_at_dawns(before)))
            go_on_with = typed("confirm", "--tag", night.tag, "--runs", str(left), *script_words(asked))
            context.watcher.said(f"dawn was ended early; go on with: {go_on_with}")
    return answer_of_dawn(answer, night.tag, found, go_on_with)


def answer_of_dawn(answer: Answer, tag: str, found: Findings | None, go_on_with: str | None) -> int:
    """Return the exit code; go_on_with is None where dawn came to its end."""
    facts = {"tag": tag, **(asdict(found) if found is not None else {})}
    if go_on_with is not None:
        answer.fail("dawn was ended early", 130, **facts, state="unfinished", go_on_with=go_on_with)
        return 130
    if found is None:
        raise NightError(f"night {tag} has kept no edit, so there is nothing to confirm; see: {typed('results')}")
    answer.give({**facts, "state": "finished"})
    return 0


def _show_findings(options: ConfirmOptions) -> int:
    from agent.night.dawn import in_words

    place, answer = place_meant(options.night.tag), options.answer
    night, history = night_in(place, options.night.tag)
    with Journal.read(place.journal(night.tag)) as journal:
        dawn = next((one for one in reversed(journal.dawns()) if one.findings), None)
    if dawn is None or dawn.findings is None:
        begin = typed("confirm", "--tag", night.tag)
        raise NothingYet(f"night {night.tag} has no findings yet; begin with: {begin}")
    ended = f"ended {dawn.ended}" if dawn.ended else "not at its end yet"
    lines = in_words(place, night, history, Findings.of(dawn.findings))
    print("\n".join([f"dawn {dawn.number} of night {night.tag}, {ended}", *lines]), file=answer.for_people)
    answer.give({"tag": night.tag, **dawn.findings, "state": "finished" if dawn.ended else "unfinished"})
    return 0


def _confirm_again(options: ConfirmOptions, tag: str | None) -> str:
    return typed("confirm", "--tag", tag or options.night.tag or "TAG")


def _confirm_words(words: argparse.ArgumentParser) -> None:
    words.add_argument(
        "--runs",
        type=positive_int,
        default=CONFIRM_RUNS,
        metavar="N",
        help="to make at most, beyond those that were made before (default: %(default)s)",
    )
    words.add_argument("--show", action="store_true", help="print what was found by now, and make no run")
    to = "write the findings there, too, or why there are none; without FILE: to stdout"
    words.add_argument("--json", nargs="?", type=Path, const=STDOUT, metavar="FILE", help=to)
    add_night(words, "the latest")


CONFIRM = Subcommand(
    "confirm",
    "re-test what a night has found, and drop what brings nothing",
    ConfirmOptions,
    confirm,
    _confirm_words,
    CONFIRM_TEXT,
    KEPT,
    AnswersTo.FILE,
    _confirm_again,
)
