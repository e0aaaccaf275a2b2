"""Take what the sources of a night have, in any thread: ideas, which wait in its journal, calls and sentences.

An idea may have been paid for. So it is in the journal before it is checked, in the thread that asked for it, and a
night that was killed finds it when it is resumed. Chosen ideas are tried next; the further ones of an answer wait for
their source's turn, before the next question to it. Of two equal ideas one is chosen, and the source of the other is
asked again.
"""

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import count

from agent.errors import Exhausted, NightError, NightshiftError, NoIdea, ScriptError
from agent.experiment import TITLE_CHARS, Ask, Attempt, History, Idea, Proposal, source_name
from agent.files import disk_is_broken, disk_is_full
from agent.proposers.briefing import Briefing, Proposer, Refusal
from agent.records.journal import Journal
from agent.script.contract import check_script
from agent.script.dials import tried_as
from agent.script.merge import merged
from agent.text import SAID_CHARS, one_line

TRIES = 3
NOT_BEGUN = "not begun"  # in place of the time at which an attempt was entered
REPAIRED = ", repaired"
CLOSING_POLL_S = 0.05


class Outbox:
    """Hold what sources have for the driver's thread.

    asked_to_end: whether the night was asked to end. Without a journal (see `follow`) its ideas are in memory alone.
    """

    def __init__(self, asked_to_end: Callable[[], bool]) -> None:
        self._asked_to_end = asked_to_end
        self._closed = False
        self._computing = 0
        self._lock = threading.RLock()
        self._has_asked = False
        self._sentences: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ideas: dict[int, Idea] = {}  # that wait, by their ids
        self._ids = count(1)  # where there is no journal
        self._journal: Journal | None = None
        self._latest: Callable[[], History] | None = None

    def follow(self, journal: Journal, latest: Callable[[], History], *, resumes: bool) -> list[Idea]:
        """Keep ideas and calls in this journal, whose attempts `latest` returns in any thread.

        resumes: whether the ideas that wait in it are to be tried; those that were chosen are returned.
        """
        self._journal, self._latest = journal, latest
        self._ideas = {idea.id: idea for idea in journal.waiting_ideas()} if resumes else {}
        return [idea for idea in self._ideas.values() if idea.asked_for is not None]

    # ---- calls and sentences -----------------------------------------------------------------------------------------

    def record_ask(self, ask: Ask) -> None:
        if self._journal is not None:
            self._journal.record_ask(ask)
        self._has_asked = True

    def said(self, sentence: str) -> None:
        self._sentences.put(sentence)

    def has_asked(self) -> bool:
        """Return whether calls were recorded since this was last called."""
        has_asked, self._has_asked = self._has_asked, False
        return has_asked

    def take_sentences(self) -> list[str]:
        return [self._sentences.get_nowait() for _ in range(self._sentences.qsize())]

    # ---- the end of a night ------------------------------------------------------------------------------------------

    def stopped(self) -> bool:
        """Return whether a source should give up, since its answer would not be used."""
        return self._closed or self._asked_to_end()

    def close(self, questions: "Sequence[Future[Idea]]", most_s: float) -> None:
        """Tell sources to give up, and wait for the questions of which one may still record a call."""
        self._closed = True
        until_s = time.monotonic() + most_s
        while time.monotonic() < until_s and sum(not one.done() for one in questions) > self._computing:
            time.sleep(CLOSING_POLL_S)

    @contextmanager
    def _asking_for_free(self) -> Iterator[None]:
        """Note that a thread asks a source that only computes: it makes no call that would have to be recorded."""
        with self._lock:
            self._computing += 1
        try:
            yield
        finally:
            with self._lock:
                self._computing -= 1

    # ---- ideas that wait ---------------------------------------------------------------------------------------------

    def told(self, briefing: Briefing) -> Briefing:
        """Return the briefing as of now: its history ends with the chosen ideas, as attempts in flight.

        A question may wait for its turn while others are answered, so what it was told at first may be old.
        """
        with self._lock:
            chosen = [idea for idea in self._ideas.values() if idea.asked_for is not None]
        # read after the ideas: what becomes an attempt meanwhile is in both, rather than in neither
        history = briefing.history if self._latest is None else self._latest()
        scripts = {attempt.proposal.script for attempt in history}
        new = [idea for idea in chosen if idea.proposal.script not in scripts]
        in_flight = (
            Attempt(number, idea.parent, idea.proposal, NOT_BEGUN) for number, idea in enumerate(new, len(history))
        )
        return replace(briefing, history=(*history, *in_flight), asked_for=briefing.number)

    def keep(self, proposals: Sequence[Proposal], briefing: Briefing) -> Idea:
        """Record the ideas of an answer, and choose the first that can be tried; raise NightError where none can."""
        ideas = [Idea(0, briefing.parent.number, _as_repair(proposal, briefing)) for proposal in proposals]
        with self._lock:
            ideas = [
                replace(idea, id=self._journal.add_idea(idea) if self._journal else next(self._ids)) for idea in ideas
            ]
            self._ideas |= {idea.id: idea for idea in ideas}
            for idea in ideas:
                try:
                    chosen = self._choose(idea, briefing)
                except NightError as error:
                    why = error
                else:
                    if len(ideas) > 1:
                        self.said(f"{idea.proposal.source} had {len(ideas)} ideas; they are tried one after the other")
                    return chosen
        raise why

    def _next_of(self, names: Collection[str], briefing: Briefing) -> Idea | None:
        """Choose the first further idea of these sources that can be tried."""
        with self._lock:
            for idea in tuple(self._ideas.values()):
                if idea.asked_for is None and source_name(idea.proposal.source) in names:
                    try:
                        return self._choose(idea, briefing)
                    except NightError as error:
                        self.tell_dropped(idea, str(error))
        return None

    def _choose(self, idea: Idea, briefing: Briefing) -> Idea:
        """Choose an idea to be tried next, as an edit of the parent; drop it, and raise NightError, if it cannot be."""
        try:
            proposal = carried_to(briefing.parent, idea, self.told(briefing))
        except NightError as error:
            self.drop(idea, str(error))
            raise
        return self._change(replace(idea, proposal=proposal, parent=briefing.parent.number, asked_for=briefing.number))

    def drop(self, idea: Idea, why: str) -> None:
        """Record that an idea will never be an attempt."""
        self._change(replace(idea, dropped=why))
        self.forget(idea)

    def tell_dropped(self, idea: Idea, why: str) -> None:
        self.said(f"an idea of {idea.proposal.source} is dropped, {idea.proposal.title!r}: {why}")

    def forget(self, idea: Idea) -> None:
        """Forget an idea that waits no longer: it is an attempt by now."""
        with self._lock:
            self._ideas.pop(idea.id, None)

    def _change(self, idea: Idea) -> Idea:
        with self._lock:
            if self._journal is not None:
                self._journal.change_idea(idea)
            self._ideas[idea.id] = idea
        return idea

    # ---- asking ------------------------------------------------------------------------------------------------------

    def ask(
        self, proposer: Proposer, briefing: Briefing, names: Collection[str] = (), *, is_free: bool = False
    ) -> Idea:
        """Return an idea that is chosen: one that waits of the sources with these names, else of the source's answer.

        Ask again, with what was wrong, until an idea can be tried; raise NoIdea after TRIES answers. is_free: it only
        computes.
        """
        known = self._next_of(names, briefing) if briefing.broken is None else None
        if known is not None:
            return known
        why, refused = "", briefing.refused
        for _ in range(TRIES):
            now = replace(self.told(briefing), refused=refused)
            with self._asking_for_free() if is_free else nullcontext():
                proposals = _answer(proposer, now)
            with self._lock:  # a mix has recorded it already
                known = next((idea for idea in self._ideas.values() if idea.proposal is proposals[0]), None)
            try:
                return known or self.keep(proposals, now)
            except NightError as error:
                why, refused = str(error), (*refused, Refusal(proposals[0], str(error)))
        raise NoIdea(f"{TRIES} proposals were refused, the last because {why}")


def _answer(proposer: Proposer, briefing: Briefing) -> list[Proposal]:
    """Ask a source; raise NoIdea for almost any error, since another source may have an idea.

    Errors of the journal and of the disk pass through and end the night.
    """
    try:
        return proposer.ideas(briefing)
    except (NoIdea, Exhausted, sqlite3.Error):
        raise
    except ScriptError as error:
        raise NoIdea(f"the best script is nothing to work on: {error}") from error
    except NightshiftError as error:
        raise NoIdea(str(error)) from error
    except Exception as error:
        if disk_is_full(error) or disk_is_broken(error):
            raise
        said = one_line(f"{type(error).__name__}: {error}", SAID_CHARS)
        raise NoIdea(f"it broke in a way that was not foreseen ({said}); please report it") from error


def carried_to(best: Attempt, idea: Idea, briefing: Briefing) -> Proposal:
    """Return an idea as an edit of the incumbent; raise NightError if it conflicts, or was tried by now.

    It is used unchanged while its parent is the incumbent; otherwise it is merged onto the incumbent, which takes
    milliseconds. To judge it against its own parent would cost a run, and to be kept it would have to be merged.
    """
    night, history, proposal = briefing.night, briefing.history, idea.proposal
    if idea.parent != best.number:
        base = history[idea.parent].proposal.script
        script = merged(best.proposal.script, base, proposal.script, night.device_kind)
        if script is None:
            raise NightError(f"it conflicts with what was kept since attempt {idea.parent}, or adds nothing to it")
        proposal = replace(proposal, script=script)
    check_proposal(proposal, history, night.script)
    return proposal


def check_proposal(proposal: Proposal, history: History, script: str) -> None:
    """Raise NightError for a proposal that cannot be a new attempt; `script` is the script's name for the message."""
    try:
        check_script(proposal.script, script)
    except ScriptError as error:
        raise NightError(f"{proposal.source} proposed a script that cannot be run: {error}") from error
    known = tried_as(proposal.script, history)
    if known is not None:
        raise NightError(f"{proposal.source} proposed the script of attempt {known} again; it has to be a new one")


def begun(history: History) -> Sequence[Attempt]:
    """Return the attempts of the journal: a history without ideas that are no attempts yet."""
    return [attempt for attempt in history if attempt.started != NOT_BEGUN]


def _as_repair(proposal: Proposal, briefing: Briefing) -> Proposal:
    """Give a repair the title of the idea that it repairs: its own, "fix the crash", would not name the idea."""
    if proposal.repairs is None:
        return proposal
    broken = briefing.history[proposal.repairs].proposal
    title = one_line(broken.title, TITLE_CHARS - len(REPAIRED)) + REPAIRED
    return replace(proposal, title=title, hypothesis=broken.hypothesis)
