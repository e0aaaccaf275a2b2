"""Ask a source for an idea ahead, in a separate thread, while a run trains.

The journal and the screen belong to the driver's thread. So a source puts calls and sentences into an outbox, which the
driver empties many times a second. An idea that was paid for is kept in a file until it is an attempt, so that a killed
night finds it when it is resumed.
"""

import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agent.errors import NightError
from agent.experiment import Ask, Attempt, Briefing, History, Proposal, Proposer, source_name
from agent.files import write_plain
from agent.proposers.checked import check_proposal
from agent.runs.runner import read_end
from agent.script.contract import MAX_SCRIPT_BYTES
from agent.script.merge import merged

FREE = frozenset({"search", "queue", "catalogue"})  # sources that answer within a second and cost nothing
FILE = "ahead.json"
MAX_IDEA_BYTES = 8 * MAX_SCRIPT_BYTES  # in JSON an odd character takes six


class Outbox:
    """Hold calls and sentences from sources in any thread until the driver's thread takes them."""

    def __init__(self, asked_to_end: Callable[[], bool]) -> None:
        self._asked_to_end = asked_to_end
        self._closed = False
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

    def take_asks(self) -> list[Ask]:
        return [self._asks.get_nowait() for _ in range(self._asks.qsize())]

    def take_sentences(self) -> list[str]:
        return [self._sentences.get_nowait() for _ in range(self._sentences.qsize())]


class Question:
    """Call a proposer once, in a thread that does not keep the process alive."""

    def __init__(self, proposer: Proposer, briefing: Briefing) -> None:
        self.parent, self.number = briefing.parent.number, len(briefing.history)
        self._proposal: Proposal | None = None
        self._error: BaseException | None = None
        self._began = time.monotonic()
        self._thread = threading.Thread(
            target=self._ask, args=(proposer, briefing), name="question to a source of ideas", daemon=True
        )
        self._thread.start()

    def _ask(self, proposer: Proposer, briefing: Briefing) -> None:
        try:
            self._proposal = proposer.propose(briefing)
        except BaseException as error:  # raised where the answer is taken
            self._error = error

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    @property
    def asked_s(self) -> float:
        return time.monotonic() - self._began

    def wait(self, most_s: float) -> bool:
        """Wait at most `most_s` seconds; return whether the call is over."""
        self._thread.join(most_s)
        return self.is_over

    def answer(self) -> Proposal:
        """Return the proposal of a call that is over, or raise what the proposer raised."""
        if self._error is not None:
            raise self._error
        assert self._proposal is not None
        return self._proposal

    def idea(self, *, was_paid_for: bool) -> "IdeaAhead | None":
        """Return the idea of a call that is over; None if it failed: the source is asked again and then says why.

        was_paid_for: a language model or an agent was asked, even if another source had the idea in the end.
        """
        if self._proposal is None:
            return None
        is_free = source_name(self._proposal.source) in FREE and not was_paid_for
        return IdeaAhead(self._proposal, self.parent, is_free, self.number)


@dataclass(frozen=True, slots=True)
class IdeaAhead:
    """Hold a proposal that is no attempt yet, and the attempt whose script it edits."""

    proposal: Proposal
    parent: int
    is_free: bool
    number: int = 0  # the least that it can get as an attempt

    def for_parent(self, best: Attempt, history: History, script_name: str, device_kind: str) -> Proposal | None:
        """Return the proposal as an edit of the incumbent; None if its source has to be asked again.

        A free source is always asked again: that takes less than a second, and it then knows the last run's result.
        (Without it, the search would propose a place near the one just tried.) An idea of a language model or an agent
        cost money or minutes. It is used unchanged while its parent is the incumbent; otherwise it is merged onto the
        incumbent, which takes milliseconds. Its source is asked again only if lines conflict. To judge it against its
        own parent would cost a run, and to be kept it would still have to be merged.
        """
        if self.is_free:
            return None
        proposal: Proposal | None = self.proposal
        if self.parent != best.number:
            base = history[self.parent].proposal.script
            script = merged(best.proposal.script, base, self.proposal.script, device_kind)
            proposal = None if script is None else replace(self.proposal, script=script)
        try:
            if proposal is not None:
                check_proposal(proposal, history, script_name)
        except NightError:
            return None  # tried or broken by now
        return proposal


# ---- the file of an idea that was paid for ---------------------------------------------------------------------------


def save(folder: Path, idea: IdeaAhead) -> None:
    """Write an idea durably to its file, unless its source is free."""
    if source_name(idea.proposal.source) not in FREE:
        write_plain(folder / FILE, json.dumps(asdict(idea)) + "\n")


def load(folder: Path, history: History) -> IdeaAhead | None:
    """Read the idea that a killed night had ready; None if there is none, or it does not fit this history."""
    try:
        said = json.loads(read_end(folder.resolve(), FILE, MAX_IDEA_BYTES))
        facts = said["proposal"]
        texts = [facts[name] for name in ("script", "title", "hypothesis", "source")]
        parent, number = said["parent"], said.get("number", 0)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not all(isinstance(text, str) for text in texts) or not isinstance(parent, int) or not isinstance(number, int):
        return None
    proposal = Proposal.of(*texts)
    idea = IdeaAhead(proposal, parent, is_free=False, number=number)
    return None if not 0 <= parent < len(history) or _is_entered(idea, history) else idea


def _is_entered(idea: IdeaAhead, history: History) -> bool:
    """Whether an attempt is this idea, perhaps merged: the night was killed before it could forget the file."""
    return any(_words(one.proposal) == _words(idea.proposal) for one in history[max(1, idea.number) :])


def _words(proposal: Proposal) -> tuple[str, str, str]:
    return proposal.title, proposal.hypothesis, proposal.source


def forget(folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)
