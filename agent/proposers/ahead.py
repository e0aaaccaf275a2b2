"""Ask a source for an idea ahead, in a separate thread, while a run trains.

The journal and the screen belong to the driver's thread. So a source puts calls and sentences into an outbox, which the
driver empties many times a second. An idea that was paid for is kept in a file until it is an attempt, so that a killed
night finds it when it is resumed.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agent.errors import NightError
from agent.experiment import Ask, Attempt, Briefing, History, Proposal, Proposer, source_name
from agent.files import write_plain
from agent.proposers.checked import check_proposal
from agent.runs.runner import read_end
from agent.script.contract import MAX_SCRIPT_BYTES
from agent.script.merge import merged

FREE = frozenset({"search", "queue", "catalogue"})  # sources that answer within a second and cost nothing
AHEAD = "ahead.json"  # the idea made ahead, in the night's folder
MAX_FILE_BYTES = 32 * MAX_SCRIPT_BYTES  # of four scripts: in JSON an odd character takes six


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
        try:
            return self.carried_to(best, history, script_name, device_kind)
        except NightError:
            return None

    def carried_to(self, best: Attempt, history: History, script_name: str, device_kind: str) -> Proposal:
        """Return the proposal as an edit of the incumbent; raise NightError if it conflicts, or was tried by now."""
        proposal = self.proposal
        if self.parent != best.number:
            base = history[self.parent].proposal.script
            script = merged(best.proposal.script, base, self.proposal.script, device_kind)
            if script is None:
                raise NightError(f"it conflicts with what was kept since attempt {self.parent}, or adds nothing to it")
            proposal = replace(self.proposal, script=script)
        check_proposal(proposal, history, script_name)
        return proposal


# ---- ideas in files --------------------------------------------------------------------------------------------------


def save(folder: Path, name: str, ideas: Sequence[IdeaAhead]) -> None:
    """Write ideas durably to a file of the night; remove it where there are none."""
    if ideas:
        write_plain(folder / name, json.dumps([asdict(idea) for idea in ideas]) + "\n")
    else:
        (folder / name).unlink(missing_ok=True)


def load(folder: Path, name: str, history: History) -> list[IdeaAhead]:
    """Read ideas from a file, without those that do not fit this history or are attempts by now."""
    said = _read(folder, name)
    ideas = (_fitting(facts, history) for facts in (said if isinstance(said, list) else [said]))
    return [idea for idea in ideas if idea is not None]


def _read(folder: Path, name: str) -> Any:
    try:
        return json.loads(read_end(folder.resolve(), name, MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def _fitting(said: Any, history: History) -> IdeaAhead | None:
    try:
        facts = said["proposal"]
        texts = [facts[name] for name in ("script", "title", "hypothesis", "source")]
        parent, number = said["parent"], said.get("number", 0)
        texts[0].encode()  # a half of a surrogate pair cannot be merged, and no script of ours has one
    except (KeyError, TypeError, AttributeError, UnicodeEncodeError):
        return None
    if not all(isinstance(text, str) for text in texts) or not isinstance(parent, int) or not isinstance(number, int):
        return None
    proposal = Proposal.of(*texts)
    idea = IdeaAhead(proposal, parent, is_free=False, number=number)
    return None if not 0 <= parent < len(history) or _is_entered(idea, history) else idea


def _is_entered(idea: IdeaAhead, history: History) -> bool:
    """Whether an attempt is this idea, perhaps merged: the night was killed before it could forget the file."""
    return any(words_of(one.proposal) == words_of(idea.proposal) for one in history[max(1, idea.number) :])


def words_of(proposal: Proposal) -> tuple[str, str, str]:
    """Return what stays the same when an idea is merged."""
    return proposal.title, proposal.hypothesis, proposal.source
