"""Ask a source for an idea in a separate thread, while runs train.

The journal and the screen belong to the driver's thread. So a source puts calls and sentences into an outbox, which the
driver empties many times a second.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager

from agent.experiment import Ask, Proposal
from agent.proposers.briefing import Briefing, Proposer
from agent.proposers.checked import Claims

CLOSING_POLL_S = 0.05


class Outbox:
    """Hold calls and sentences from sources in any thread until the driver's thread takes them.

    claims: the proposals that are no attempts yet.
    """

    def __init__(self, asked_to_end: Callable[[], bool]) -> None:
        self.claims = Claims()
        self._asked_to_end = asked_to_end
        self._closed = False
        self._computing = 0
        self._lock = threading.Lock()
        self._asks: queue.SimpleQueue[Ask] = queue.SimpleQueue()
        self._sentences: queue.SimpleQueue[str] = queue.SimpleQueue()

    def record_ask(self, ask: Ask) -> None:
        self._asks.put(ask)

    def said(self, sentence: str) -> None:
        self._sentences.put(sentence)

    def stopped(self) -> bool:
        """Return whether a source should give up, since its answer would not be used."""
        return self._closed or self._asked_to_end()

    def close(self) -> None:
        """Tell a source that is being asked to give up."""
        self._closed = True

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Note that a thread asks a source that only computes: it makes no call that would have to be recorded."""
        with self._lock:
            self._computing += 1
        try:
            yield
        finally:
            with self._lock:
                self._computing -= 1

    def wait_for_calls(self, questions: Sequence["Question"], most_s: float) -> None:
        """Wait at most `most_s` seconds for the questions of which a source may still record a call."""
        until_s = time.monotonic() + most_s
        while time.monotonic() < until_s:
            pending = [question for question in questions if not question.is_over]
            if len(pending) <= self._computing:
                return
            pending[0].wait(CLOSING_POLL_S)

    def take_asks(self) -> list[Ask]:
        return [self._asks.get_nowait() for _ in range(self._asks.qsize())]

    def take_sentences(self) -> list[str]:
        return [self._sentences.get_nowait() for _ in range(self._sentences.qsize())]


class Question:
    """Call a proposer once, in a thread that does not keep the process alive.

    is_ahead: it is asked before a device is free. ended: set when the call is over.
    """

    def __init__(self, proposer: Proposer, briefing: Briefing, ended: threading.Event, *, is_ahead: bool) -> None:
        self.briefing, self.is_ahead = briefing, is_ahead
        self.was_paid_for = False  # a call was recorded: even if another source had the idea in the end
        self._began = time.monotonic()
        self._future: Future[Proposal] = Future()
        threading.Thread(
            target=self._ask, args=(proposer, ended), name="question to a source of ideas", daemon=True
        ).start()

    def _ask(self, proposer: Proposer, ended: threading.Event) -> None:
        try:
            self._future.set_result(proposer.ideas(self.briefing)[0])
        except BaseException as error:  # raised where the answer is taken
            self._future.set_exception(error)
        finally:
            ended.set()

    @property
    def is_over(self) -> bool:
        return self._future.done()

    @property
    def asked_s(self) -> float:
        return time.monotonic() - self._began

    def wait(self, most_s: float) -> bool:
        """Wait at most `most_s` seconds; return whether the call is over."""
        wait([self._future], most_s)
        return self.is_over

    @property
    def answer(self) -> Proposal | BaseException:
        """Return the proposal of a call that is over, or what the proposer raised."""
        return self._future.exception() or self._future.result()
