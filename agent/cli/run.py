"""The commands that train: a night, and the confirmation of what it found."""

from dataclasses import dataclass, replace
from pathlib import Path

from agent.cli.answer import Answer
from agent.cli.find import find_night, known_tag, record_of
from agent.cli.greeting import greet
from agent.cli.options import SCRIPT, Count, NightOptions, Positive, PositiveInt, RunOptions
from agent.cli.status import next_commands, show_next, show_night
from agent.errors import Exhausted, NightError, NoIdea, NothingYet
from agent.experiment import History, Proposal, runs_at_dawns
from agent.invocation import typed
from agent.judging.findings import Findings
from agent.lab.corpus import DATASETS
from agent.night.dawn import confirm_night, in_words, is_interrupted
from agent.night.limits import Limits
from agent.night.loop import run_night
from agent.night.opening import Request, committed, open_context
from agent.proposers.briefing import Briefing, NoSource
from agent.proposers.queue import Queue
from agent.records.place import place_of_night
from agent.records.record import Record, of_journal
from agent.records.summary import summary_of
from agent.records.terms import as_words
from agent.text import counted
from agent.view.answer import plain
from agent.view.ending import HEADING, belief, tried_lines
from agent.view.screen import print_folded, print_lines, terminal_width
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
        record = of_journal(context.journal)
    _show_end(record, run_on(limits, night.script, record.tag, record.attempts))


def named_text(dataset: str) -> str:
    """Return a dataset's name, or a path that holds in every folder."""
    return dataset if dataset in DATASETS else str(Path(dataset).expanduser().absolute())


def _show_end(record: Record, go_on: str) -> None:
    """Print what was tried, what to believe of it, and the commands that come next, on one screen."""
    now = summary_of(record)
    chart = tried_lines(record.attempts, now.noise.smallest_bpb if now.noise else None, terminal_width())
    print_folded(["", *([HEADING] if chart else [])])
    print_lines(chart)
    show_night(record, now, crew_of(record))
    print_folded([belief(now)] if now.ideas else [])
    show_next(next_commands(now, go_on))


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
    ideas = sum(attempt.is_idea for attempt in history[1:])
    asked = {
        "experiments": _as_many_more(limits.experiments, ideas),
        "hours": limits.hours,
        "dawn": _as_many_more(limits.dawn_runs, runs_at_dawns(history)),
    }
    given = as_words({name: limit for name, limit in asked.items() if limit is not None})
    return typed("run", "--tag", tag, *_script_words(script), *given)


def _as_many_more(most: int | None, done: int) -> int | None:
    """Keep a limit that counts over the whole night while it is not used up; else raise it by as many again."""
    return done + most if most is not None and 0 < most <= done else most


def _script_words(script: Path) -> list[str]:
    return ["--script", str(script)] if script != SCRIPT else []


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
    tag = known_tag(place, tag)
    request = Request(place, tag, night.budget_s, night.seed, night.terms, proposer=NoSource())
    with open_context(request) as context:
        context.watcher.said(f"dawn of night {tag}: up to {counted(runs, 'run')} of {context.night.budget_s:g} s")
        before = runs_at_dawns(context.journal.attempts())
        found = confirm_night(context, runs)
        left = max(1, runs + before - runs_at_dawns(context.journal.attempts()))
        ended_early = context.stop.after_run
    again = typed("confirm", tag, "--runs", str(left), *_script_words(night.script))
    return answer_of_dawn(tag, found, again if ended_early else None)


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
    place, tag, _ = find_night(tag)
    record = record_of(place, tag)
    dawn = next((dawn for dawn in reversed(record.dawns) if dawn.findings), None)
    if dawn is None or record.findings is None:
        raise NothingYet(f"night {tag} has no findings yet; begin with: {typed('confirm', tag)}")
    ended = f"ended {dawn.ended}" if dawn.ended else "not at its end yet"
    lines = in_words(place, record.night, record.attempts, record.findings)
    text = "\n".join([f"dawn {dawn.number} of night {tag}, {ended}", *lines])
    facts = {"tag": tag, "findings": dawn.findings, "state": "finished" if dawn.ended else "unfinished"}
    return Answer(facts, lambda: print(text))
