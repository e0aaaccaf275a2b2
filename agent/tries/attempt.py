"""Run the night's loop for one given edit, and say how it ended."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.errors import NightshiftError
from agent.experiment import Attempt, Night, Proposal
from agent.invocation import typed
from agent.judging.noise import noise
from agent.night.limits import Limits
from agent.night.lock import BRIEFLY_S, NightIsRunning, holder, is_held
from agent.night.loop import run_night
from agent.night.opening import Request, committed, open_context
from agent.proposers.briefing import Given
from agent.records.journal import Journal
from agent.records.place import Place
from agent.tries.checks import Prepared, StaleEdit, remedy
from agent.tries.line import TryState
from agent.view.verdict import TriedEdit, basis_facts

NO_VERDICT, UNFINISHED = "no verdict yet", 130  # the exit code, as after Ctrl-C


@dataclass(frozen=True, slots=True)
class TryOutcome:
    """Hold how a try ended: with a verdict, a refusal, or neither yet."""

    facts: Mapping[str, Any]
    lines: Sequence[str] = ()  # the same for people
    error: str | None = None
    exit_code: int = 0
    is_last: bool = False  # the user asked to stop

    @classmethod
    def refused(cls, error: NightshiftError) -> "TryOutcome":
        facts: dict[str, object] = {}
        if isinstance(error, StaleEdit):
            facts = {"state": TryState.STALE, **basis_facts(error.basis), "next": remedy()}
        return cls(facts, (), str(error), error.exit_code)


def attempt(prepared: Prepared, place: Place) -> TryOutcome:
    """Try an edit and return how that ended."""
    check_no_night(place, prepared.request.file)
    request, known = prepared.request, prepared.known
    if known is not None and request.tag is not None:
        with Journal.read(place.journal(request.tag)) as journal:
            night, history = journal.night(), journal.attempts()
        if history[known].settled:
            return _verdict(prepared, place, night, history, known, is_last=False)
    night_request = Request(
        *(place, request.tag, request.budget_s, request.seed, request.terms),
        proposer=Given(prepared.proposal), baseline=committed,
    )  # fmt: skip
    with open_context(night_request) as context:
        before = context.journal.attempts()
        ideas = sum(one.is_idea for one in before)
        most = ideas if known is None else ideas - 1
        run_night(replace(context, limits=Limits(experiments=max(1, most))))
        night, history = context.runner.night, context.journal.attempts()
        mine = history[known] if known is not None else _tried(history[len(before) :], prepared.proposal)
        is_last = context.stop.after_run
    if mine is None or not mine.settled:
        facts = {"state": TryState.UNFINISHED, "tag": night.tag, "attempt": mine.number if mine else None}
        return TryOutcome(facts, (), NO_VERDICT, UNFINISHED, is_last)
    return _verdict(prepared, place, night, history, mine.number, is_last=is_last)


def check_no_night(place: Place, file: str) -> None:
    """Refuse to try a file while `nightshift run` is at work: it holds the machine until its own limits are reached."""
    repository = place.repo.common_dir
    if _is_night(repository):
        who = holder(repository)
        named = f"night {who.tag} (pid {who.pid}, since {who.since})" if who else "a night that has just begun"
        leave = typed("submit", file, "-m", "what and why")
        raise NightIsRunning(
            f"{named} is running in this repository; leave it your edit with: {leave}; or end it with: {typed('stop')}"
        )


def _is_night(repository: Path) -> bool:
    """Return whether a night runs; look twice, since a process that only asks holds its lock for a moment, too."""
    if not is_held(repository):
        return False
    time.sleep(BRIEFLY_S)
    return is_held(repository)


def _tried(new: Sequence[Attempt], proposal: Proposal) -> Attempt | None:
    return next((one for one in new if one.proposal == proposal), None)


def _verdict(
    prepared: Prepared, place: Place, night: Night, history: Sequence[Attempt], number: int, *, is_last: bool
) -> TryOutcome:
    merged_onto = prepared.request.merged_onto
    found = TriedEdit(night, history, number, place.folder(night.tag), noise(history), prepared.basis, merged_onto)
    return TryOutcome({"state": TryState.DONE, **found.facts()}, found.lines(), is_last=is_last)
