"""The commands that train: a night, and the confirmation of what it found."""

from dataclasses import dataclass, replace
from pathlib import Path

from rich.text import Text

from agent.cli.answer import Answer
from agent.cli.find import night_in, place_meant
from agent.cli.greeting import greet
from agent.cli.options import SCRIPT, Count, NightOptions, Positive, PositiveInt, RunOptions
from agent.errors import Exhausted, NightError, NoIdea, NothingYet
from agent.experiment import History, Proposal, is_look, runs_at_dawns
from agent.invocation import typed
from agent.judging.findings import Findings
from agent.lab.corpus import DATASETS
from agent.night.dawn import confirm_night, in_words, is_interrupted
from agent.night.limits import Limits
from agent.night.loop import run_night
from agent.night.opening import Request, committed, open_context
from agent.night.state import NightContext
from agent.proposers.briefing import Briefing, NoSource
from agent.proposers.queue import Queue
from agent.records.journal import Journal
from agent.records.place import place_of_night
from agent.records.record import of_journal
from agent.records.summary import NightSummary, summary_of
from agent.text import counted
from agent.view import terminal
from agent.view.answer import plain
from agent.view.live.ending import HEADING, LastScreen, belief, tried_lines
from agent.view.screen import print_folded, print_lines, terminal_width
from agent.view.status import status_lines
from agent.view.workers import crew_of

# ---- run -------------------------------------------------------------------------------------------------------------


def run(
    *,
    experiments: PositiveInt | None = None,
    hours: Positive | None = None,
    dawn: Count | None = None,
    dataset: str | None = None,
    tag: str | None = None,
    drain: bool = False,
    night: NightOptions = NightOptions(),  # noqa: B008, it is frozen
    more: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Run a night, or go on with one.

    A night keeps --budget-s, --seed, and the options about judging, safety, devices and ideas: who goes on with it
    repeats none of them. --judge, --confirm, --plausible-gain and --allowance-s cannot change while it goes on, since
    verdicts before and after would not compare, and --sandbox only to a stronger one. On a CPU a worker keeps the
    number of its cores, for the same reason. Of the others the night takes what is given, and keeps it.

    Args:
        experiments: end after so many proposals beyond attempt 0, counted over the whole night
        hours: begin nothing, be it another seed or the asking for an idea, that would end after so many hours, judged
            by the night's longest so far; what is undecided then goes on with the next call
        dawn: runs kept for the end, to confirm as nightshift confirm does, counted over the whole night (default: an
            eighth of --hours, else 0)
        dataset: prepare this text first and train on it: a path, or a name that nightshift prepare --help lists
            (default: the corpus prepared last)
        tag: the night's name (default: the date, and a new night; one that is here already goes on)
        drain: try what waits in the queue, ask no source, and end when it is empty; a new night begins from the script
            as it is committed
    """
    limits = Limits(experiments, hours, dawn)
    place = place_of_night(night.script, tag)
    terms, text = night.terms | more.terms, None if dataset is None else named_text(dataset)
    request = Request(place, tag, night.budget_s, night.seed, terms, limits, dataset=text)
    if drain:
        place.check_own_queue()
        request = replace(request, proposer=Drain(Queue(place.queue, place.nights, print)), baseline=committed)
    with open_context(request) as context:
        greet(context)
        run_night(context)
        runs = limits.runs_at_dawn(context.state().pace)
        if (runs or is_interrupted(context)) and not context.stop.after_run:
            most = f"dawn: up to {counted(runs, 'run')} to confirm what was found"
            context.watcher.said(most if runs else "dawn goes to its end")
            confirm_night(context, runs)
        last = _last_screen(context, limits, night.script)
    _show(last)


def named_text(dataset: str) -> str:
    """Return a dataset's name, or a path that holds in every folder."""
    return dataset if dataset in DATASETS else str(Path(dataset).expanduser().absolute())


def _last_screen(context: NightContext, limits: Limits, script: Path) -> LastScreen:
    """Sum up the night on one screen: what was tried, what to believe of it, and the commands that come next."""
    record = of_journal(context.journal)
    history, now = record.attempts, summary_of(record)
    brought, noise = now.sources, now.noise
    sources = (*terminal.shares_lines(brought), *terminal.failure_lines(brought)) if now.ideas else ()
    shown = replace(now, noise=replace(noise, doubt=None) if noise else None)  # `belief` says it
    lines = status_lines(record, shown, crew_of(record), pid=None, stopping=False)[2:]
    return LastScreen(
        chart=tried_lines(history, noise.smallest_bpb if noise else None, terminal_width()),
        sentences=[*lines, *sources],
        belief=belief(now) if now.ideas else None,
        commands=_next_commands(context, limits, script, history, now),
    )


def _next_commands(
    context: NightContext, limits: Limits, script: Path, history: History, now: NightSummary
) -> list[tuple[str, str]]:
    """Return the commands that come next, each with what it is for."""
    tag, last = context.runner.night.tag, len(history) - 1
    is_latest = context.place.tags()[-1] == tag  # this call may have made no run
    of, before = ((), "") if is_latest else ((tag,), f"{tag}:")
    go_on = run_on(limits, script, tag, history), "go on with this night"
    if not now.ideas:
        return [(typed("status", *of), "how far it is"), go_on]
    number = last if now.gain is None or now.best is None else now.best.number
    what = "why nothing was kept" if now.gain is None else "the best edit, and how it was judged"
    show = typed("show", f"{before}{number}"), what
    tried = typed("results", *of), "all that was tried, one line each"
    tested = typed("confirm", *of), "is it better? by fresh seeds and another text"
    if is_look(now.night.budget_s) and not context.stop.after_run:
        return [show, tried, (typed("run", *_script_words(script)), "a real night: 5 min a run")]
    return [show, tried if now.gain is None or now.dawn is not None else tested, go_on]


@dataclass(frozen=True, slots=True)
class Drain:
    """Propose what waits in the queue, and end the night when that is empty."""

    queue: Queue

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        try:
            return self.queue.ideas(briefing)
        except NoIdea as empty:
            raise Exhausted(str(empty)) from empty


def run_on(limits: Limits, script: Path, tag: str, history: History) -> str:
    """Return the command that goes on with a night for as long again; its journal knows all other options."""
    words = ["run", "--tag", tag, *_script_words(script)]
    ideas = sum(attempt.is_idea for attempt in history[1:])
    if limits.experiments is not None:
        words += ["--experiments", _as_many_more(limits.experiments, ideas)]
    words += ["--hours", f"{limits.hours:g}"] if limits.hours is not None else []
    words += ["--dawn", _as_many_more(limits.dawn_runs, runs_at_dawns(history))] if limits.dawn_runs is not None else []
    return typed(*words)


def _as_many_more(most: int, done: int) -> str:
    """Keep a limit that counts over the whole night while it is not used up; else raise it by as many again."""
    return str(done + most if 0 < most <= done else most)


def _script_words(script: Path) -> list[str]:
    return ["--script", str(script)] if script != SCRIPT else []


def _show(last: LastScreen) -> None:
    """Print the last screen; a terminal folds its sentences between words."""
    print_folded(["", *([HEADING] if last.chart else [])])
    if last.chart:
        print_lines(last.chart)
    print_folded([*last.sentences, *filter(None, [last.belief]), "next:"])
    width = max(len(command) for command, _ in last.commands)
    print_lines([Text.assemble(f"  {command:<{width}}  ", (what, "dim")) for command, what in last.commands])


# ---- confirm ---------------------------------------------------------------------------------------------------------


def confirm(
    tag: str | None = None,
    /,
    *,
    runs: PositiveInt = 30,
    show: bool = False,
    night: NightOptions = NightOptions(),  # noqa: B008
) -> Answer:
    """Measure the best script of a night against its baseline, with fresh seeds and on text that judged no attempt.

    Take doubtful edits out to see what they are worth, and put the script without those that bring nothing on the
    branch ...-confirmed. Where fresh seeds leave it open whether there is any gain, no branch is made.

    Args:
        tag: of this night (default: the latest)
        runs: to make at most, beyond those that were made before (default: 30)
        show: print what was found by now, and make no run
    """
    if show:
        return _findings(tag)
    place = place_of_night(night.script, tag)
    known, before = night_in(place, tag)
    request = Request(place, known.tag, night.budget_s, night.seed, night.terms, proposer=NoSource())
    with open_context(request) as context:
        context.watcher.said(f"dawn of night {known.tag}: up to {counted(runs, 'run')} of {known.budget_s:g} s")
        found = confirm_night(context, runs)
        ended_early = context.stop.after_run
        left = max(1, runs - (runs_at_dawns(context.journal.attempts()) - runs_at_dawns(before)))
    again = typed("confirm", known.tag, "--runs", str(left), *_script_words(night.script))
    return answer_of_dawn(known.tag, found, again if ended_early else None)


def answer_of_dawn(tag: str, found: Findings | None, go_on_with: str | None) -> Answer:
    """Return how a dawn ended; go_on_with is None where it came to its end."""
    facts: dict[str, object] = {"tag": tag, "findings": plain(found)}
    if go_on_with is not None:
        facts |= {"state": "unfinished", "go_on_with": go_on_with}
        return Answer(facts, error="dawn was ended early", exit_code=130)
    if found is None:
        raise NightError(f"night {tag} has kept no edit, so there is nothing to confirm; see: {typed('results')}")
    return Answer({**facts, "state": "finished"})


def _findings(tag: str | None) -> Answer:
    place = place_meant(tag)
    night, history = night_in(place, tag)
    with Journal.read(place.journal(night.tag)) as journal:
        dawn = next((one for one in reversed(journal.dawns()) if one.findings), None)
    if dawn is None or dawn.findings is None:
        raise NothingYet(f"night {night.tag} has no findings yet; begin with: {typed('confirm', night.tag)}")
    ended = f"ended {dawn.ended}" if dawn.ended else "not at its end yet"
    lines = in_words(place, night, history, Findings.of(dawn.findings))
    text = "\n".join([f"dawn {dawn.number} of night {night.tag}, {ended}", *lines])
    facts = {"tag": night.tag, "findings": dawn.findings, "state": "finished" if dawn.ended else "unfinished"}
    return Answer(facts, lambda: print(text))
