"""Get the next idea of a night: made ahead while runs train, or asked for when a worker is free."""

import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from enum import Enum, auto
from types import TracebackType

from agent.errors import Exhausted, NoIdea, ScriptError
from agent.experiment import TITLE_CHARS, Attempt, Briefing, History, Proposal, source_name
from agent.judging.failures import too_slow
from agent.judging.noise import noise
from agent.night.briefing.brief import briefing_of, wants_repair
from agent.night.context import NightContext
from agent.night.record import tell_standing, why_and_where
from agent.night.state import State
from agent.proposers.ahead import AHEAD, FREE, Question, load, save
from agent.proposers.checked import check_proposal
from agent.proposers.pending import is_pending
from agent.proposers.queue import waiting
from agent.proposers.registry import REPAIRERS
from agent.records.place import read_script
from agent.records.standing import remember_noise
from agent.text import one_line

WAITS_S = (30.0, 120.0, 600.0)  # between calls; after the last, the night ends
POLL_S, CLOSE_S = 0.05, 30.0  # how often an answer is looked for, and how long a question may take to come to its end
REPAIRED = ", repaired"


class Supply(Enum):
    """Whether there is an idea."""

    ENTERED = auto()  # one was entered as an attempt
    LATER = auto()  # a source was asked and has not answered yet, or will be asked again
    OVER = auto()  # there will be none


class Ideas:
    """Get the next idea: made ahead while a run trains, at most one at a time, or asked for when it is due.

    A night asks ahead if one of its sources may take long, as a language model or an agent does. Search and queue
    answer in a second. On a CPU that second would be taken from the run of every edit, but not from attempt 0's runs.
    The briefing of a source that is asked ahead includes the attempt in flight, which has no decision yet.
    """

    def __init__(self, context: NightContext, state: State) -> None:
        self._context, self._state = context, state
        self._question: Question | None = None  # that is being answered while something runs
        self._asked_for = 0  # the number that the idea would get which was asked for last
        self._was_paid_for = False  # a call was recorded since it began
        known = load(context.runner.folder, AHEAD, state.attempts) if context.outbox is not None else ()
        self._idea = next(iter(known), None)

    def __enter__(self) -> "Ideas":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the outbox, wait at most CLOSE_S for a question in progress, and record its calls."""
        if self._context.outbox is not None:
            self._context.outbox.close()
            if self._question is not None:
                self._question.wait(CLOSE_S)
            with nullcontext() if error is None else suppress(Exception):  # which may be about the journal
                self.note_news()

    @property
    def is_one_made(self) -> bool:
        return self._idea is not None

    def note_news(self) -> None:
        """Record the calls and say the sentences that sources have put into the outbox."""
        if self._context.outbox is None:
            return
        is_over = self._question is not None and self._question.is_over  # its last call is in the outbox then
        asks = self._context.outbox.take_asks()
        for ask in asks:
            self._state.record_ask(ask)
            self._was_paid_for = True
        if asks:
            tell_standing(self._context, self._state)
        for sentence in self._context.outbox.take_sentences():
            self._context.watcher.said(sentence)
        if self._question is not None and is_over:
            self._idea, self._question = self._question.idea(was_paid_for=self._was_paid_for), None
            if self._idea is not None and source_name(self._idea.proposal.source) not in FREE:
                save(self._context.runner.folder, AHEAD, [self._idea])

    def ask_ahead(self) -> None:
        """Begin to ask for the idea after the attempt in flight, unless no idea will be needed then.

        Ask once for each attempt: a source that has none, and may cost money, is asked again only in its turn.
        """
        context, state = self._context, self._state
        best, pace = state.best, state.pace
        if not context.asks_ahead or self._question is not None or self._idea is not None or best is None:
            return
        if (
            context.stop.after_run
            or context.limits.reached(state.ideas, pace, pace.run_s)
            or is_repair_due(state.attempts)
            or self._asked_for == len(state.attempts)
        ):
            return
        self._asked_for, self._was_paid_for = len(state.attempts), False
        self._question = Question(context.proposer, replace(brief(context, state, best), broken=None))

    def enter_next(self, idle: int = 1) -> Supply:
        """Enter the next attempt into the journal, if there is a further idea; idle: how many more are wanted."""
        context, state = self._context, self._state
        self._wait_for_question()
        if state.attempts and context.stop.after_run:
            return Supply.OVER  # an idea that was paid for is in its file
        before = self._idea
        proposal = self._made_ahead()
        if proposal is None:
            proposal = self._ask_patiently()
        if proposal is None:
            return Supply.OVER
        best = state.best
        state.add(best.number if best else None, proposal)
        if before is not None and self._idea is None and not before.is_free:
            save(context.runner.folder, AHEAD, ())  # forget it
        return Supply.ENTERED

    def _made_ahead(self) -> Proposal | None:
        """Return the idea that was made ahead, if it can be tried now; keep it while a repair is due."""
        context, state, best = self._context, self._state, self._state.best
        if self._idea is None or best is None or is_repair_due(state.attempts):
            return None
        idea, self._idea = self._idea, None
        is_free = source_name(idea.proposal.source) in FREE
        if waiting(context.place.queue) and (
            is_free or is_pending(idea.proposal, context.runner.folder, state.attempts)
        ):
            return None  # somebody has submitted something meanwhile, which is tried first
        return idea.for_parent(best, state.attempts, context.place.script, context.runner.night.device_kind)

    def _wait_for_question(self) -> None:
        if self._question is not None:
            self._context.watcher.asking_began(len(self._state.attempts))
            self._wait_for(self._question)
            self.note_news()

    def _wait_for(self, question: Question) -> None:
        while not question.wait(POLL_S):
            self.note_news()
            self._context.watcher.progressed(None, question.asked_s)

    def _ask_patiently(self) -> Proposal | None:
        """Ask for an idea, again after each of WAITS_S: a server may be down, or the queue empty, for minutes."""
        context, state = self._context, self._state
        for wait_s in (*WAITS_S, None):
            try:
                return self._ask()
            except Exhausted as error:
                context.watcher.said(str(error))
                return None
            except NoIdea as error:
                context.watcher.said(str(error))
            if wait_s is None or context.limits.reached(state.ideas, state.pace, wait_s) or not wait(context, wait_s):
                return None
        return None

    def _ask(self) -> Proposal:
        """Return the next proposal; for attempt 0, the user's own script. Raise ScriptError if that has no score."""
        context, state = self._context, self._state
        if not state.attempts:
            script = (context.baseline or read_script)(context.place)
            return Proposal(script, "baseline", "The script that the night began with.", "you")
        best = state.best
        if best is None:
            raise ScriptError(_without_baseline(context, state.first))
        context.watcher.asking_began(len(state.attempts))
        proposal = self._answer(brief(context, state, best))
        check_proposal(proposal, state.attempts, context.place.script)
        return proposal if proposal.repairs is None else as_repair(proposal, state.attempts[proposal.repairs].proposal)

    def _answer(self, briefing: Briefing) -> Proposal:
        """Return the proposer's answer; record its paid calls while it works."""
        context = self._context
        if context.outbox is None:
            try:
                return context.proposer.propose(briefing)
            finally:
                self._state.read_asks()
        question = Question(context.proposer, briefing)
        try:
            self._wait_for(question)
        finally:
            self.note_news()
        return question.answer()


def brief(context: NightContext, state: State, best: Attempt) -> Briefing:
    """Return what a source is told before it proposes."""
    return briefing_of(
        context.place,
        context.runner.night,
        state.attempts,
        best,
        remember_noise(context.journal, noise(state.attempts)),
        asks=state.asks,
        left=context.limits.left(state.ideas),
        has_reader=context.has_reader,
    )


def is_repair_due(history: History) -> bool:
    """Return whether the last attempt crashed and its source can read why."""
    broken = wants_repair(history)
    return broken is not None and source_name(broken.proposal.source) in REPAIRERS


def as_repair(proposal: Proposal, broken: Proposal) -> Proposal:
    """Give a repair the title of the idea that it repairs: its own, "fix the crash", would not name the idea."""
    title = one_line(broken.title, TITLE_CHARS - len(REPAIRED)) + REPAIRED
    return replace(proposal, title=title, hypothesis=broken.hypothesis)


def wait(context: NightContext, wait_s: float) -> bool:
    """Wait for `wait_s` seconds; return False if the user stopped the night meanwhile."""
    context.watcher.said(f"no source has an idea now; asking again in {wait_s:g} s")
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and not context.stop.after_run:
        time.sleep(min(0.2, wait_s))
    return not context.stop.after_run


def _without_baseline(context: NightContext, first: Attempt) -> str:
    night, what = context.runner.night, "attempt 0, the script as it stands, has no score that counts: "
    what += why_and_where(context, first)
    if too_slow(first) is None:
        return f"{what}; repair it and start a new night"
    return (
        f"{what}; nothing in it is broken, but it or this machine is too slow: see where its time goes with "
        f"python {night.script} --budget-s {night.budget_s:g}, end what else is running, or allow more with "
        f"--allowance-s, in a new night"
    )
