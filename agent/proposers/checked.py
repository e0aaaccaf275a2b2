"""Check a proposal before it costs a run: its script has to keep the contract and must not have been tried.

Several questions may be answered at once. So a proposal is claimed before it is handed on: of two equal ones, only the
first is taken, and the source of the other is asked again.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from agent.errors import Exhausted, NightError, NightshiftError, NoIdea, ScriptError
from agent.experiment import Attempt, History, Proposal
from agent.files import disk_is_broken, disk_is_full
from agent.proposers.briefing import Briefing, Proposer, Refusal
from agent.script.contract import check_script
from agent.script.dials import fingerprint, tried_as
from agent.text import SAID_CHARS, one_line

TRIES = 3
NOT_BEGUN = "not begun"  # in place of the time at which an attempt was entered


class Claims:
    """Know the proposals that are no attempts yet; used by all threads that ask for ideas."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._held: list[tuple[Proposal, int]] = []  # with the attempt that each edits
        self._latest: Callable[[], History] | None = None

    def follow(self, latest: Callable[[], History]) -> None:
        """Take the attempts of the night from here; it is called in any thread."""
        self._latest = latest

    def told(self, briefing: Briefing) -> Briefing:
        """Return the briefing as of now: its history ends with the claimed proposals, as attempts in flight.

        A question may wait for its turn while others are answered, so what it was told at first may be old.
        """
        with self.lock:
            held = list(self._held)
        # read after the claims: what becomes an attempt meanwhile is in both, rather than in neither
        history = briefing.history if self._latest is None else self._latest()
        new = [(proposal, parent) for proposal, parent in held if not _has_script(proposal, history)]
        claimed = (Attempt(len(history) + at, parent, proposal, NOT_BEGUN) for at, (proposal, parent) in enumerate(new))
        return replace(briefing, history=(*history, *claimed), asked_for=briefing.number)

    def claim(self, proposal: Proposal, parent: int) -> None:
        """Claim a proposal, an edit of this attempt; raise NightError if an equal one is claimed, or was tried."""
        with self.lock:
            if any(one is proposal for one, _ in self._held):
                return
            wanted = fingerprint(proposal.script)
            if any(fingerprint(one.script) == wanted for one, _ in self._held):
                raise NightError(
                    f"{proposal.source} proposed the script of an idea that is about to be tried; "
                    f"it has to be a new one"
                )
            if self._latest is not None:
                _check_new(proposal, self._latest())
            self._held.append((proposal, parent))

    def is_claimed(self, matches: Callable[[Proposal], bool]) -> bool:
        with self.lock:
            return any(matches(one) for one, _ in self._held)

    def release(self, proposal: Proposal) -> None:
        """Forget a proposal that has become an attempt, or never will."""
        with self.lock:
            self._held = [(one, parent) for one, parent in self._held if one.script != proposal.script]


def begun(history: History) -> Sequence[Attempt]:
    """Return the attempts of the journal: a history without claimed proposals."""
    count = len(history)
    while count and history[count - 1].started == NOT_BEGUN:  # they are at its end
        count -= 1
    return history if count == len(history) else history[:count]


@dataclass(frozen=True, slots=True)
class Checked:
    """Ask again, with what was wrong, until a proposal can be run; raise NoIdea after TRIES proposals.

    asking: entered around each question to the source.
    """

    proposer: Proposer
    script_name: str
    claims: Claims = field(default_factory=Claims)
    asking: Callable[[], AbstractContextManager[None]] = nullcontext

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        why, refused = "", briefing.refused
        for _ in range(TRIES):
            now = replace(self.claims.told(briefing), refused=refused)
            proposals = self._ask(now)
            proposal = proposals[0]
            try:
                check_proposal(proposal, now.history, self.script_name)
                self.claims.claim(proposal, briefing.parent.number)
            except NightError as error:
                why = str(error)
                refused = (*refused, Refusal(proposal, why))
            else:
                return proposals
        raise NoIdea(f"{TRIES} proposals were refused, the last because {why}")

    def _ask(self, briefing: Briefing) -> list[Proposal]:
        """Ask the source; raise NoIdea for almost any error, since another source may have an idea.

        Errors of the journal and of the disk pass through and end the night.
        """
        try:
            with self.asking():
                return self.proposer.ideas(briefing)
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


def check_proposal(proposal: Proposal, history: History, script: str) -> None:
    """Raise NightError for a proposal that cannot be a new attempt; `script` is the script's name for the message."""
    try:
        check_script(proposal.script, script)
    except ScriptError as error:
        raise NightError(f"{proposal.source} proposed a script that cannot be run: {error}") from error
    _check_new(proposal, history)


def _check_new(proposal: Proposal, history: History) -> None:
    known = tried_as(proposal.script, history)
    if known is not None:
        raise NightError(f"{proposal.source} proposed the script of attempt {known} again; it has to be a new one")


def _has_script(proposal: Proposal, history: History) -> bool:
    """Return whether an attempt has this very text."""
    return any(attempt.proposal.script == proposal.script for attempt in history)
