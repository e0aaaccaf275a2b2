"""Check a proposal before it costs a run: its script has to keep the contract and must not have been tried."""

import sqlite3
from dataclasses import dataclass, replace

from agent.errors import Exhausted, NightError, NightshiftError, NoIdea, ScriptError
from agent.experiment import Briefing, History, Proposal, Proposer, Refusal
from agent.files import disk_is_broken, disk_is_full
from agent.script.contract import check_script
from agent.script.dials import fingerprint, fingerprint_of
from agent.text import SAID_CHARS, one_line

TRIES = 3


@dataclass(frozen=True, slots=True)
class Checked:
    """Ask again, with what was wrong, until a proposal can be run; raise NoIdea after TRIES proposals."""

    proposer: Proposer
    script_name: str

    def propose(self, briefing: Briefing) -> Proposal:
        why = ""
        for _ in range(TRIES):
            proposal = self._ask(briefing)
            try:
                check_proposal(proposal, briefing.history, self.script_name)
            except NightError as error:
                why = str(error)
                briefing = replace(briefing, refused=(*briefing.refused, Refusal(proposal, why)))
            else:
                return proposal
        raise NoIdea(f"{TRIES} proposals were refused, the last because {why}")

    def _ask(self, briefing: Briefing) -> Proposal:
        """Ask the source; raise NoIdea for almost any error, since another source may have an idea.

        Errors of the journal and of the disk pass through and end the night.
        """
        try:
            return self.proposer.propose(briefing)
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
    known = tried_as(proposal.script, history)
    if known is not None:
        raise NightError(f"{proposal.source} proposed the script of attempt {known} again; it has to be a new one")


def tried_as(script: str, history: History) -> int | None:
    """Return the attempt that had this script; comments and layout do not count."""
    wanted = fingerprint(script)
    return next((one.number for one in history if fingerprint_of(one.proposal.packed) == wanted), None)
