"""Get the ideas of a night. The path of an idea, from the wish for it to an attempt, is this file from top to bottom.

1. The driver wants an idea: for a worker that is free, or ahead, while scripts train. `_want` notes that, with the
   proposers in the order in which they are to be asked (agent/proposers/mix.py).
2. `_ask` asks the first of them in a thread, which writes its answer into the journal's table `ideas`. An answer may
   have been paid for: a night that is killed from here on finds it when it goes on.
3. `_take` checks the answer. What can be tried waits; what cannot is dropped with a reason, and the proposer is asked
   again. A proposer without an idea leaves the turn to the next one.
4. `enter_next` makes the first idea that waits an attempt, merged onto the best script if that has changed.

Everything but the call in step 2 happens in the driver's thread, which never waits for a proposer. What a person has
submitted does not wait in line: it is an attempt as soon as a worker is free. What proposers are told is at the end.
"""

import math
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache
from itertools import count
from pathlib import Path

from agent.errors import Exhausted, NightError, NightshiftError, NoIdea, ScriptError
from agent.experiment import TITLE_CHARS, Ask, Attempt, History, Idea, Night, Proposal, Status, proposer_name
from agent.files import disk_fails
from agent.invocation import typed
from agent.judging.noise import noise
from agent.lab.corpus import DataError
from agent.lab.data import load_data
from agent.night.merging import carried
from agent.night.state import State
from agent.proposers.catalogue.catalogue import listing
from agent.proposers.mix import in_turn
from agent.proposers.notes import read_notes, read_program
from agent.proposers.proposer import Briefing, Corpus, Left, Proposer, Refusal, Setting
from agent.records.place import Place, past_nights
from agent.script.dials import outline_of
from agent.text import SAID_CHARS, one_line

WAITS_S = (30.0, 120.0, 600.0)  # pauses after questions without an answer; after the last one, the night ends
CLOSE_S = 30.0  # s that a question may go on when the night closes
ANSWERS = 3  # invalid answers of a proposer, before the next one is asked
REPAIRED = ", repaired"


class NextProposal(Enum):
    """Say whether there was an idea."""

    ENTERED = auto()  # an idea has become an attempt
    LATER = auto()  # a proposer is being asked, or will be asked after a pause
    OVER = auto()  # no further idea will come


@dataclass(slots=True)
class Wanted:
    """One idea that is wanted: the proposers to ask for it, and their answers so far."""

    number: int  # number of its attempt
    turns: list[Proposer]  # proposers still to be asked; the first one is asked now
    broken: Attempt | None  # the crashed attempt to repair
    is_ahead: bool  # no device is free for it yet
    refused: tuple[Refusal, ...] = ()  # answers of the present proposer that cannot be tried
    parent: int = 0  # the attempt whose script is edited
    answer: Future[list[Idea]] | None = None  # None: it waits until the proposer may be asked another question


class Proposals:
    """Get ideas for the driver, which never waits for one.

    Proposers that cost time or money are asked ahead: one idea for each worker. A local proposer answers in a second,
    and on a CPU that second would slow the runs: it is asked when a worker is free, and then knows the last run.
    """

    def __init__(self, state: State) -> None:
        context = state.context
        self._context, self._state, self._messages = context, state, context.messages
        self._people = [proposer for proposer in context.proposers if proposer.is_person]
        self._proposers = [proposer for proposer in context.proposers if not proposer.is_person]
        self._wanted: list[Wanted] = []
        # a night that only tries what people submitted leaves the others' ideas for later; a study's are its arms
        has_ideas = bool(self._proposers) or context.night.options.study is not None
        self._waiting = list(context.journal.waiting_ideas()) if has_ideas else []
        self._said: set[str] = set()  # reasons of proposers that had no idea; each is said once
        self._exhausted: dict[str, int] = {}  # proposer → the attempt about whose script it has no further idea
        self._last_ahead = 0  # the highest number for which an idea was asked ahead
        # crashes that are not to be repaired: those of earlier calls, except the last attempt
        self._passed = {attempt.number for attempt in state.attempts[:-1] if attempt.decision is not None}
        self._waits_s = iter(WAITS_S)  # the pauses before the night ends
        self._rests_until_s = 0.0  # monotonic; infinite after the last pause

    def __enter__(self) -> "Proposals":
        self._messages.closed.clear()  # an earlier part of the night may have set it
        return self

    def __exit__(self, *_: object) -> None:
        """Tell proposers to give up, and wait at most CLOSE_S for calls that have costs to record."""
        self._messages.closed.set()
        calls = [wanted.answer for wanted in self._wanted if wanted.answer is not None and wanted.turns[0].costs]
        wait(calls, CLOSE_S)

    @property
    def has_idea(self) -> bool:
        return bool(self._waiting)

    def note_news(self) -> None:
        """Say what proposers have to say, take their answers, and ask the next ones."""
        for sentence in self._messages.taken():
            self._context.watcher.said(sentence)
        over = [wanted for wanted in self._wanted if wanted.answer is not None and wanted.answer.done()]
        if any(wanted.turns[0].costs for wanted in over):
            self._state.read()  # their calls
        for wanted in over:
            self._take(wanted)
        for wanted in self._wanted:
            if wanted.answer is None and not self._messages.stopped():
                self._ask(wanted)

    # ---- 1. an idea is wanted ----------------------------------------------------------------------------------------

    def ask_ahead(self) -> None:
        """Ask for the next ideas while attempts train, one for each worker, unless none will be needed.

        Each is asked for once: a proposer without one is asked again when a worker is free.
        """
        context, state = self._context, self._state
        best = state.best
        if best is None or context.stop.after_run or not any(proposer.costs for proposer in self._proposers):
            return
        while (under_way := len(self._wanted) + len(self._waiting)) < state.workers:
            number = self._next_number()
            if number <= self._last_ahead:
                return
            if context.limits.reached(state.proposals + under_way, state.pace, state.pace.run_s + state.pace.asking_s):
                return
            self._last_ahead = number
            self._want(best, is_ahead=True)

    def _want(self, best: Attempt, *, is_ahead: bool) -> None:
        """Note the proposers to ask for an idea: one that can repair its crash, else all, in the order of their gains.

        Ahead of time, one proposer is asked, and only if it costs time or money.
        """
        number, broken = self._next_number(), self._to_repair()
        if broken is not None:
            self._passed.add(broken.number)
            turns = [proposer for proposer in self._proposers if proposer.name == proposer_name(broken.proposer)]
        else:
            night, asks = self._context.night, self._state.asks
            briefing = Briefing(night, self._history(), best, asks=asks, asked_for=number)
            asking = Counter(wanted.turns[0].name for wanted in self._wanted)
            turns = in_turn(self._open(best), briefing, f"{night.tag} {night.seed}", asking)
            if is_ahead:
                turns = [proposer for proposer in turns[:1] if proposer.costs]
        if turns:
            self._wanted.append(Wanted(number, turns, broken, is_ahead))
            self._ask(self._wanted[-1])

    def _next_number(self) -> int:
        """Return the lowest number of an attempt that is neither there, nor waits, nor is wanted."""
        wanted = {wanted.number for wanted in self._wanted}
        return next(number for number in count(len(self._state.attempts) + len(self._waiting)) if number not in wanted)

    def _to_repair(self) -> Attempt | None:
        """Return the first crashed attempt whose proposer can read why, and was not asked yet."""
        costly = {proposer.name for proposer in self._proposers if proposer.costs}
        for attempt in self._state.attempts:
            is_crash = attempt.status is Status.CRASH and attempt.number not in self._passed
            if is_crash and attempt.proposal.repairs is None and proposer_name(attempt.proposer) in costly:
                return attempt
        return None

    def _open(self, best: Attempt) -> list[Proposer]:
        """List the proposers that may have an idea about the best script."""
        return [proposer for proposer in self._proposers if self._exhausted.get(proposer.name) != best.number]

    # ---- 2. a proposer is asked --------------------------------------------------------------------------------------

    def _ask(self, wanted: Wanted) -> None:
        """Ask the proposer whose turn it is, in a thread, unless it has as many open questions as it accepts."""
        proposer, best = wanted.turns[0], self._state.best
        questions = sum(other.answer is not None and other.turns[0] is proposer for other in self._wanted)
        if best is None or (proposer.at_once is not None and questions >= proposer.at_once):
            return
        briefing = replace(
            brief(self._state, best),
            history=self._history(),
            asked_for=wanted.number,
            refused=wanted.refused,
            broken=wanted.broken,
        )
        answer: Future[list[Idea]] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._recorded(proposals_of(proposer, briefing), briefing))
            except BaseException as error:  # raised where the answer is taken
                answer.set_exception(error)

        wanted.answer, wanted.parent = answer, best.number
        threading.Thread(target=ask, name="question to a proposer", daemon=True).start()

    def _recorded(self, proposals: Sequence[Proposal], briefing: Briefing) -> list[Idea]:
        ideas = (Idea(0, briefing.parent.number, _as_repair(proposal, briefing)) for proposal in proposals)
        return [replace(idea, id=self._context.journal.add_idea(idea)) for idea in ideas]

    def _history(self) -> History:
        """Return the attempts that a proposer is told of: waiting ideas count as attempts in flight."""
        attempts, kind = self._state.attempts, self._context.night.device_kind
        waiting = (
            Attempt(number, idea.parent, idea.proposal, "", outline=outline_of(idea.proposal.script, kind))
            for number, idea in enumerate(self._waiting, len(attempts))
        )
        return (*attempts, *waiting)

    # ---- 3. an answer is taken ---------------------------------------------------------------------------------------

    def _take(self, wanted: Wanted) -> None:
        """Put the ideas of an answer in line; without any, have the proposer asked again, or the next one."""
        proposer, answer, wanted.answer = wanted.turns[0], wanted.answer, None
        assert answer is not None
        try:
            refusals = [self._refusal(idea) for idea in answer.result()]
        except (NoIdea, Exhausted) as error:
            if isinstance(error, Exhausted):
                self._exhausted[proposer.name] = wanted.parent
            failure = str(error)
        else:
            if None in refusals:
                self._wanted.remove(wanted)
                return
            wanted.refused += tuple(filter(None, refusals))
            if len(wanted.refused) < ANSWERS:
                return
            failure = f"{ANSWERS} proposals were refused, the last because {wanted.refused[-1].why}"
        if failure not in self._said:
            self._said.add(failure)
            self._context.watcher.said(f"{proposer.name} has no idea: {failure}")
        wanted.turns, wanted.refused = wanted.turns[1:], ()
        if not wanted.turns:
            self._wanted.remove(wanted)
            if not wanted.is_ahead and wanted.broken is None:
                self._pause()

    def _refusal(self, idea: Idea) -> Refusal | None:
        """Let an idea wait until a worker is free; drop it, and return why, if it cannot be tried."""
        best = self._state.best
        assert best is not None
        try:
            self._as_edit_of(best, idea, self._history())
        except NightError as error:
            self._context.journal.drop_idea(idea.id, str(error))
            return Refusal(idea.proposal, str(error))
        self._waiting.append(idea)
        return None

    # ---- 4. an idea becomes an attempt -------------------------------------------------------------------------------

    def enter_next(self, wanted: int) -> NextProposal:
        """Enter an attempt into the journal if there is an idea for it, else ask for one.

        wanted: how many ideas could be tried now.
        """
        context, state = self._context, self._state
        if not state.attempts:
            if context.night.options.study is not None:  # killed before its arms were entered
                raise NightError(f"study {context.night.tag} has no arms yet; go on with: {typed('study', 'PLAN')}")
            script = context.baseline(context.place, context.night.options.metric)
            hypothesis = "The script that the night began with."
            state.enter(None, Proposal.of(script, "baseline", hypothesis, "you"))
            return NextProposal.ENTERED
        best = state.best
        if best is None:
            raise ScriptError(
                f"attempt 0, the script as it stands, has no score that counts: {state.first.words}; see its log with: "
                f"{typed('show', f'{context.night.tag}:0')}; repair it, or where nothing is broken, make it "
                f"faster or allow it more with --allowance-s, and start a new night"
            )
        if self._enter_submitted(best) or self._enter_waiting(best):
            self._waits_s, self._rests_until_s = iter(WAITS_S), 0.0
            return NextProposal.ENTERED
        may_have_one = self._open(best) and self._rests_until_s < math.inf
        if may_have_one and time.monotonic() >= self._rests_until_s:
            for _ in range(wanted - len(self._wanted)):
                self._want(best, is_ahead=False)
        # exhausted proposers may have ideas about another script, which may be the best once all is settled
        if self._wanted or may_have_one or (state.unsettled and self._rests_until_s < math.inf):
            return NextProposal.LATER
        return NextProposal.OVER

    def _enter_submitted(self, best: Attempt) -> bool:
        """Enter what a person has submitted."""
        for proposer in self._people:
            with suppress(NoIdea):
                proposals = proposals_of(proposer, Briefing(self._context.night, self._state.attempts, best))
                self._state.enter(best.number, proposals[0])
                return True
        return False

    def _enter_waiting(self, best: Attempt) -> bool:
        """Enter the first idea that can be tried on the best script, and drop those before it."""
        while self._waiting:
            idea = self._waiting.pop(0)
            try:
                proposal = self._as_edit_of(best, idea, self._state.attempts)
            except NightError as error:
                self._context.journal.drop_idea(idea.id, str(error))
                title = idea.proposal.title
                self._context.watcher.said(f"an idea of {idea.proposal.proposer} is dropped, {title!r}: {error}")
                continue
            self._state.enter(best.number, proposal, idea.id)
            return True
        return False

    def _as_edit_of(self, best: Attempt, idea: Idea, history: History) -> Proposal:
        """Return an idea as an edit of the best script; raise NightError if it conflicts, or was tried meanwhile.

        If the best script is no longer its parent, it is merged onto the best script, which takes milliseconds. Judging
        it against its own parent would cost a run, and it would have to be merged afterwards.
        """
        return carried(idea.proposal, history[idea.parent], best, history, self._context.night)

    def _pause(self) -> None:
        """Pause until proposers are asked again; the night ends after the last, or if all are exhausted."""
        context, state, best = self._context, self._state, self._state.best
        if best is None or not self._open(best) or time.monotonic() < self._rests_until_s:
            return
        wait_s = next(self._waits_s, math.inf)
        if context.limits.reached(state.proposals, state.pace, wait_s + state.pace.asking_s):
            wait_s = math.inf
        self._rests_until_s = time.monotonic() + wait_s
        if wait_s < math.inf:
            context.watcher.said(f"no proposer has an idea now; asking again in {wait_s:g} s")


# ---- pieces of it ----------------------------------------------------------------------------------------------------


def proposals_of(proposer: Proposer, briefing: Briefing) -> list[Proposal]:
    """Ask a proposer; raise NoIdea for almost any error, since another proposer may have an idea.

    Errors of the journal and of the disk pass through and end the night.
    """
    try:
        return proposer.proposals(briefing)
    except (NoIdea, Exhausted, sqlite3.Error):
        raise
    except NightshiftError as error:
        raise NoIdea(str(error)) from error
    except Exception as error:
        if disk_fails(error):
            raise
        message = one_line(f"{type(error).__name__}: {error}", SAID_CHARS)
        raise NoIdea(f"it broke in a way that was not foreseen ({message}); please report it") from error


def _as_repair(proposal: Proposal, briefing: Briefing) -> Proposal:
    """Give a repair the title of the idea that it repairs: its own, "fix the crash", would not name the idea."""
    if proposal.repairs is None:
        return proposal
    broken = briefing.history[proposal.repairs].proposal
    title = one_line(broken.title, TITLE_CHARS - len(REPAIRED)) + REPAIRED
    return replace(proposal, title=title, hypothesis=broken.hypothesis)


# ---- what a proposer is told -----------------------------------------------------------------------------------------


def brief(state: State, best: Attempt) -> Briefing:
    """Return what a proposer is told of a night as it stands."""
    context, left = state.context, state.context.limits.left(state.proposals)
    has_reader = any(proposer.costs for proposer in context.proposers)
    return briefing_of(context.place, context.night, state.attempts, best, left, state.asks, has_reader=has_reader)


def briefing_of(
    place: Place,
    night: Night,
    history: History,
    parent: Attempt,
    left: Left,
    asks: Sequence[Ask] = (),
    *,
    has_reader: bool,  # a proposer can read: tell it what surrounds the night
) -> Briefing:
    """Return a briefing with the owner's program and notes as they stand now; `parent` is to be edited."""
    return Briefing(
        night=night,
        history=history,
        parent=parent,
        noise=noise(history),
        program=read_program(place.script_path.parent / "program.md"),
        notes=read_notes(place.folder(night.tag)),
        asks=asks,
        left=left,
        setting=_setting(place, night, history, parent) if has_reader else None,
        past=_past(place, night.tag),
    )


def _setting(place: Place, night: Night, history: History, parent: Attempt) -> Setting:
    """Return the night's setting, for a proposer that can read; facts that cannot change are read once."""
    ranked, _ = listing(place.script_path, night, parent.proposal.script, history, _past(place, night.tag))
    return Setting(
        corpus=_corpus(Path(night.data)),
        ideas={prospect.idea.title: prospect.state for prospect in ranked},
    )


_past = cache(past_nights)


@cache
def _corpus(folder: Path) -> Corpus | None:
    """Return what the text is; None where the corpus is not here."""
    try:
        data = load_data(folder, verify=False)
    except DataError:
        return None
    text = data.manifest["splits"]["validation"]
    name = f"{data.manifest['dataset']}, scale {data.manifest['scale']}"
    return Corpus(name, text["bytes"] / text["tokens"], data.vocab_size, data.seq_len)
