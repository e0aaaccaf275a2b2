"""Get the ideas of a night: made ahead while runs train, or asked for when a worker is free. The driver never waits."""

import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import replace
from enum import Enum, auto
from itertools import count
from types import TracebackType

from agent.errors import Exhausted, NightError, NoIdea, ScriptError
from agent.experiment import Attempt, Idea, Proposal, Status, source_name
from agent.judging.failures import too_slow
from agent.night.briefing import briefing_of
from agent.night.state import NightContext, State, why_and_where
from agent.proposers.briefing import Briefing, Proposer
from agent.proposers.outbox import Outbox, carried_to
from agent.proposers.queue import SOURCE, source_of, waiting
from agent.proposers.registry import COSTLY, MIX
from agent.records.place import read_script

WAITS_S = (30.0, 120.0, 600.0)  # between questions that brought nothing; after the last, the night ends
CLOSE_S = 30.0  # how long a call may take to come to its end


class Supply(Enum):
    """Say whether there was an idea."""

    ENTERED = auto()  # it is an attempt now
    LATER = auto()  # a source is being asked, or will be after a pause
    OVER = auto()  # there will be no further one


class Question:
    """Ask for an idea once, in a thread that does not keep the process alive. ended: set when the call is over."""

    def __init__(self, outbox: Outbox, proposer: Proposer, briefing: Briefing, ended: threading.Event) -> None:
        self.briefing = briefing
        self.began_s = time.monotonic()
        self.answer: Future[Idea] = Future()

        def ask() -> None:
            try:
                self.answer.set_result(outbox.ask(proposer, briefing))
            except BaseException as error:  # raised where the answer is taken
                self.answer.set_exception(error)
            finally:
                ended.set()

        threading.Thread(target=ask, name="question to a source of ideas", daemon=True).start()


class Ideas:
    """Get ideas without waiting: each question is answered in a thread, several at once where several workers want one.

    A night asks ahead if one of its sources may take long, as a language model or an agent does. Search and queue
    answer in a second. On a CPU that second would be taken from the run of every edit, but not from attempt 0's runs.
    The briefing of a source that is asked ahead includes the attempts in flight, which have no decision yet.
    """

    def __init__(self, context: NightContext, state: State) -> None:
        self._context, self._state = context, state
        self._questions: list[Question] = []
        self._ended = threading.Event()  # a question has ended
        self._answers: list[Idea] = []  # to questions that were asked when an idea was due
        self._failures: list[BaseException] = []  # of such questions
        self._entered: set[int] = set()  # questions whose ideas became attempts with lower numbers
        self._last_ahead = 0  # the highest number for which an idea was asked ahead
        # crashes of which no source is asked for a repair: of earlier calls, whose last attempt alone is repaired still
        self._passed = {attempt.number for attempt in state.attempts[:-1] if attempt.decision is not None}
        self._pauses = 0  # begun since the last idea
        self._rests_until_s: float | None = None  # monotonic; infinite after the last pause
        self._exhausted_at: int | None = None  # the incumbent about which no source has a further idea
        self._outbox = context.outbox
        self._ahead: list[Idea] = []  # chosen before a device was free
        chosen = self._outbox.follow(context.journal, lambda: state.attempts, resumes=context.asks_sources)
        for idea in chosen:
            if _is_free(idea.proposal):
                self._outbox.drop(idea, "its source costs nothing, and is asked again")
            else:
                self._ahead.append(idea)

    def __enter__(self) -> "Ideas":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the outbox, wait at most CLOSE_S for calls in progress, and record them."""
        self._outbox.close([question.answer for question in self._questions], CLOSE_S)
        with nullcontext() if error is None else suppress(Exception):  # which may be about the journal
            self.note_news()

    @property
    def is_one_made(self) -> bool:
        return bool(self._answers or self._ahead)

    def wait(self, most_s: float) -> None:
        """Wait at most `most_s` seconds for a question to end."""
        self._ended.wait(most_s)
        self._ended.clear()

    # ---- the driver's calls ------------------------------------------------------------------------------------------

    def note_news(self) -> None:
        """Record the calls and say the sentences that sources have put into the outbox; collect answers."""
        context = self._context
        over = [question for question in self._questions if question.answer.done()]  # their calls are in the outbox
        if context.outbox.has_asked():
            self._state.read()
        for sentence in context.outbox.take_sentences():
            context.watcher.said(sentence)
        for question in over:
            self._questions.remove(question)
            self._collect(question)

    def ask_ahead(self) -> None:
        """Begin to ask for the ideas after the attempts in flight, one for each worker, unless none will be needed.

        Ask once for each attempt: a source that has none, and may cost money, is asked again only in its turn.
        """
        context, state = self._context, self._state
        best, pace = state.best, state.pace
        if context.patience_s <= 0 or best is None or context.stop.after_run or self._due_repairs():
            return
        # of questions, too, ideas may come
        while (under_way := len(self._questions) + len(self._ahead) + len(self._answers)) < state.workers:
            number = self._free_number(self._ahead)
            if number <= self._last_ahead or context.limits.reached(state.ideas + under_way, pace, pace.run_s):
                return
            self._last_ahead = number
            briefing = replace(brief(context, state, best), asked_for=number, is_ahead=True)
            self._ask(briefing)

    def enter_next(self, wanted: int) -> Supply:
        """Enter an attempt into the journal if there is an idea for it, else ask for one.

        wanted: how many ideas could be tried now.
        """
        context, state = self._context, self._state
        if not state.attempts:
            script = (context.baseline or read_script)(context.place)
            state.enter(None, Proposal(script, "baseline", "The script that the night began with.", "you"))
            return Supply.ENTERED
        best = state.best
        if best is None:
            raise ScriptError(_without_baseline(context, state.first))
        if self._enter(best, wanted):
            self._pauses, self._rests_until_s, self._exhausted_at = 0, None, None
            return Supply.ENTERED
        if self._failures:
            self._consider_failures(best)
        rests = self._rests_until_s is not None and time.monotonic() < self._rests_until_s
        if self._exhausted_at != best.number and not rests:
            self._rests_until_s = None
            self._ask_for(best, wanted)
        if self._questions and state.workers == 1:
            context.watcher.progressed(None, time.monotonic() - self._questions[0].began_s)
        # one may come later: from a question, after a pause, or once another script is the best
        if self._questions or (self._exhausted_at == best.number and state.unsettled):
            return Supply.LATER
        is_over = self._exhausted_at == best.number or self._rests_until_s == math.inf
        return Supply.OVER if is_over else Supply.LATER

    # ---- entering ----------------------------------------------------------------------------------------------------

    def _enter(self, best: Attempt, wanted: int) -> bool:
        """Enter the first idea that can be tried: an answer that was waited for, else one that was made ahead."""
        while self._answers:
            if self._enter_one(self._answers.pop(0), best):
                return True
        if wanted <= len(self._due_repairs()) + self._submissions():
            return False  # the workers wait for repairs, or for what the queue has
        while self._ahead:
            if self._enter_one(self._ahead.pop(0), best):
                return True
        return False

    def _submissions(self) -> int:
        """Count the entries of the queue that are no attempts of this night; 0 where it does not ask the queue."""
        if not self._ahead or self._context.night.terms.proposer not in (SOURCE, MIX):
            return 0
        tried = {attempt.proposal.source for attempt in self._state.attempts}
        return sum(source_of(path) not in tried for path in waiting(self._context.place.queue))

    def _enter_one(self, idea: Idea, best: Attempt) -> bool:
        """Enter an idea as an edit of the incumbent; drop it and return False where it cannot be tried."""
        context, state, is_free = self._context, self._state, _is_free(idea.proposal)
        if is_free and idea.parent != best.number:
            self._outbox.drop(idea, "its source costs nothing, and makes another edit of another script")
            return False
        try:
            proposal = carried_to(best, idea, Briefing(context.night, state.attempts, best))
        except NightError as error:
            self._outbox.drop(idea, str(error))
            if not is_free:
                self._outbox.tell_dropped(idea, str(error))
            return False
        state.enter(best.number, proposal, idea.id)
        self._outbox.forget(idea)
        self._entered = {number for number in (*self._entered, idea.asked_for or 0) if number >= len(state.attempts)}
        return True

    # ---- asking ------------------------------------------------------------------------------------------------------

    def _free_number(self, made: Sequence[Idea] = ()) -> int:
        """Return the lowest number for which no question is asked, and neither an answer nor one of `made` was."""
        taken = self._entered | {question.briefing.number for question in self._questions}
        taken |= {idea.asked_for for idea in (*self._answers, *made) if idea.asked_for is not None}
        return next(number for number in count(len(self._state.attempts)) if number not in taken)

    def _due_repairs(self) -> list[Attempt]:
        """Return the crashed attempts whose source can read why, and has not answered yet."""
        return [
            attempt
            for attempt in self._state.attempts
            if attempt.status is Status.CRASH and attempt.is_idea and attempt.proposal.repairs is None
            if attempt.number not in self._passed and source_name(attempt.proposal.source) in COSTLY
        ]

    def _ask_for(self, best: Attempt, wanted: int) -> None:
        """Ask for as many ideas as are due and neither made nor asked for; repairs come first."""
        context, state = self._context, self._state
        in_repair = {question.briefing.broken.number for question in self._questions if question.briefing.broken}
        broken = [attempt for attempt in self._due_repairs() if attempt.number not in in_repair]
        for _ in range(wanted - len(self._questions)):
            to_repair = broken.pop(0) if broken else None
            briefing = replace(brief(context, state, best), asked_for=self._free_number(), broken=to_repair)
            self._ask(briefing)

    def _ask(self, briefing: Briefing) -> None:
        self._questions.append(Question(self._outbox, self._context.proposer, briefing, self._ended))

    # ---- answers -----------------------------------------------------------------------------------------------------

    def _collect(self, question: Question) -> None:
        """Keep the idea of a question that is over.

        If one that was asked ahead has failed, the sources are asked again when an idea is due, and then say why.
        """
        error, briefing = question.answer.exception(), question.briefing
        if error is None:
            if briefing.broken is not None:
                self._passed.add(briefing.broken.number)
            (self._ahead if briefing.is_ahead else self._answers).append(question.answer.result())
        elif not briefing.is_ahead:
            self._failures.append(error)

    def _consider_failures(self, best: Attempt) -> None:
        """Say why there is no idea, and pause; the night ends after the last pause, or if all sources are exhausted.

        While attempts are in flight, exhausted sources may yet be asked about another best script.
        """
        context, state = self._context, self._state
        failures, self._failures = self._failures, []
        for error in failures:
            if not isinstance(error, NoIdea | Exhausted):
                raise error
        for sentence in dict.fromkeys(map(str, failures)):
            context.watcher.said(sentence)
        if any(isinstance(error, Exhausted) for error in failures):
            self._exhausted_at = best.number
        elif self._rests_until_s is None:
            wait_s = WAITS_S[self._pauses] if self._pauses < len(WAITS_S) else math.inf
            if wait_s == math.inf or context.limits.reached(state.ideas, state.pace, wait_s):
                self._rests_until_s = math.inf
                return
            self._pauses += 1
            self._rests_until_s = time.monotonic() + wait_s
            context.watcher.said(f"no source has an idea now; asking again in {wait_s:g} s")


def _is_free(proposal: Proposal) -> bool:
    """Return whether its source costs nothing."""
    return source_name(proposal.source) not in COSTLY


def brief(context: NightContext, state: State, best: Attempt) -> Briefing:
    """Return what a source is told before it proposes."""
    return briefing_of(
        context.place,
        context.night,
        state.attempts,
        best,
        asks=state.asks,
        left=context.limits.left(state.ideas),
        has_reader=context.has_reader,
    )


def _without_baseline(context: NightContext, first: Attempt) -> str:
    night, what = context.night, "attempt 0, the script as it stands, has no score that counts: "
    what += why_and_where(context, first)
    if too_slow(first) is None:
        return f"{what}; repair it and start a new night"
    return (
        f"{what}; nothing in it is broken, but it or this machine is too slow: see where its time goes with "
        f"python {night.script} --budget-s {night.budget_s:g}, end what else is running, or allow more with "
        f"--allowance-s, in a new night"
    )
