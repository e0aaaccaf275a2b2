"""Keep the ideas that are paid for and no attempts yet, in one file of the night, so that a kill loses none.

An idea that was chosen is tried next, as soon as a device is free. The further ideas of an answer wait for their
source's turn; they come before the next question to it. An idea stays in the file until an attempt has its words, so a
killed night finds it when it is resumed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from agent.errors import NightError, NoIdea
from agent.experiment import Attempt, History, Proposal
from agent.files import read_end, write_plain
from agent.proposers.briefing import Briefing
from agent.proposers.checked import Claims, begun, check_proposal
from agent.script.contract import MAX_SCRIPT_BYTES
from agent.script.merge import merged

FILE = "waiting.json"  # in the night's folder
MAX_FILE_BYTES = 512 * MAX_SCRIPT_BYTES  # of four scripts for each of 16 workers: in JSON an odd character takes six


@dataclass(frozen=True, slots=True)
class IdeaAhead:
    """Hold a proposal that is no attempt yet, and the attempt whose script it edits."""

    proposal: Proposal
    parent: int
    number: int = 0  # the least that it can get as an attempt
    is_chosen: bool = True  # to be tried next
    is_further: bool = False  # of an answer that had several
    asked_for: int | None = None  # the number of the question that it answers

    def carried_to(self, best: Attempt, history: History, script_name: str, device_kind: str) -> Proposal:
        """Return the proposal as an edit of the incumbent; raise NightError if it conflicts, or was tried by now.

        It is used unchanged while its parent is the incumbent; otherwise it is merged onto the incumbent, which takes
        milliseconds. To judge it against its own parent would cost a run, and to be kept it would have to be merged.
        """
        proposal = self.proposal
        if self.parent != best.number:
            base = history[self.parent].proposal.script
            script = merged(best.proposal.script, base, self.proposal.script, device_kind)
            if script is None:
                raise NightError(f"it conflicts with what was kept since attempt {self.parent}, or adds nothing to it")
            proposal = replace(self.proposal, script=script)
        check_proposal(proposal, history, script_name)
        return proposal


class Waiting:
    """Read and write the file; several of them in one process, with common claims, may have one file.

    say: told of an idea that is dropped.
    """

    def __init__(self, folder: Path, claims: Claims, say: Callable[[str], None] = lambda sentence: None) -> None:
        self._folder, self._claims, self._say = folder, claims, say

    # ---- ideas that were chosen --------------------------------------------------------------------------------------

    def chosen(self, history: History) -> list[IdeaAhead]:
        return [idea for idea in self._load(history) if idea.is_chosen]

    def choose(self, idea: IdeaAhead, history: History) -> IdeaAhead:
        """Write down that an idea is to be tried next; return it as it stands in the file."""
        with self._claims.lock:
            known = self._load(history)
            same = [one for one in known if words_of(one.proposal) == words_of(idea.proposal)]
            idea = replace(idea, is_further=any(one.is_further for one in same))
            others = [one for one in known if one not in same]
            at = min((known.index(one) for one in same), default=len(others))
            self._save([*others[:at], idea, *others[at:]])
            return idea

    def put_back(self, idea: IdeaAhead, history: History) -> None:
        """Try an idea later: a further one of an answer waits again, any other is forgotten."""
        with self._claims.lock:
            known = self._load(history)
            words = words_of(idea.proposal)
            kept = (
                replace(one, is_chosen=False) if words_of(one.proposal) == words else one
                for one in known
                if one.is_further or words_of(one.proposal) != words
            )
            self._save(list(kept))

    def forget_entered(self, history: History) -> None:
        """Remove the ideas that are attempts by now."""
        with self._claims.lock:
            self._save(self._load(history))

    # ---- further ideas of an answer ----------------------------------------------------------------------------------

    def next(self, briefing: Briefing) -> Proposal | None:
        """Return the first further idea that can be tried, as an edit of the parent, and claim it.

        Drop those that cannot be tried, with a reason.
        """
        night = briefing.night
        with self._claims.lock:
            known = self._load(briefing.history)
            left, found = list(known), None
            for idea in known:
                if found is not None or idea.is_chosen or self._is_claimed(idea):
                    continue
                try:
                    proposal = idea.carried_to(briefing.parent, briefing.history, night.script, night.device_kind)
                    self._claims.claim(proposal, briefing.parent.number)
                    found = proposal
                except NightError as error:
                    self._say(f"an idea of {idea.proposal.source} is dropped, {idea.proposal.title!r}: {error}")
                    left.remove(idea)
            if left != known or not known:
                self._save(left)
            return found

    def _is_claimed(self, idea: IdeaAhead) -> bool:
        """Return whether another question has it."""
        words = words_of(idea.proposal)
        return self._claims.is_claimed(lambda one: words_of(one) == words)

    def keep(self, proposals: Sequence[Proposal], briefing: Briefing) -> None:
        """Put the ideas of an answer, which edit the parent's script, at the end."""
        history = begun(briefing.history)
        new = [
            IdeaAhead(proposal, briefing.parent.number, number=len(history), is_chosen=False, is_further=True)
            for proposal in proposals
        ]
        with self._claims.lock:
            self._save([*self._load(history), *new])
        self._say(f"{proposals[0].source} had {len(new)} ideas; they are tried one after the other")

    # ---- the file ----------------------------------------------------------------------------------------------------

    def _load(self, history: History) -> list[IdeaAhead]:
        with self._claims.lock:
            return load(self._folder, begun(history))

    def _save(self, ideas: Sequence[IdeaAhead]) -> None:
        save(self._folder, ideas)


def save(folder: Path, ideas: Sequence[IdeaAhead]) -> None:
    """Write ideas durably to the file of the night; remove it where there are none."""
    if ideas:
        write_plain(folder / FILE, msgspec.json.encode(ideas).decode() + "\n")
    else:
        (folder / FILE).unlink(missing_ok=True)


def load(folder: Path, history: History) -> list[IdeaAhead]:
    """Read the ideas that fit this history and are no attempts yet."""
    try:
        ideas = msgspec.json.decode(read_end(folder.resolve(), FILE, MAX_FILE_BYTES), type=list[IdeaAhead])
    except (OSError, msgspec.MsgspecError):
        return []
    return [idea for idea in ideas if idea.parent < len(history) and not _is_entered(idea, history)]


def _is_entered(idea: IdeaAhead, history: History) -> bool:
    """Return whether an attempt is this idea, perhaps merged: the night was killed before it could forget the file."""
    return any(words_of(one.proposal) == words_of(idea.proposal) for one in history[max(1, idea.number) :])


def words_of(proposal: Proposal) -> tuple[str, str, str]:
    """Return what stays the same when an idea is merged."""
    return proposal.title, proposal.hypothesis, proposal.source


# ---- sources that answer with several ideas --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FurtherFirst:
    """Propose the further ideas of earlier answers before anything is asked; keep what an answer has beside the first.

    ask: returns the ideas of one answer, the one to try first at the beginning.
    """

    ask: Callable[[Briefing], Sequence[Proposal]]
    source: str
    waiting: Waiting

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        if briefing.broken is not None and briefing.broken.proposal.source == self.source:
            return [self.ask(briefing)[0]]
        known = self.waiting.next(briefing)
        if known is not None:
            return [known]
        ideas = self.ask(briefing)
        if len(ideas) == 1:
            return list(ideas)
        self.waiting.keep(ideas, briefing)  # the first as well, in case the night is killed before it is an attempt
        first = self.waiting.next(briefing)
        if first is None:
            raise NoIdea("no idea of the answer can be tried")
        return [first]
