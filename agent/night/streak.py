"""Find out whether the machine or the ideas are to blame, where one attempt after another fails."""

from collections.abc import Callable
from itertools import takewhile
from typing import NoReturn

from agent.errors import MachineError
from agent.experiment import Attempt, DryRun, History, Status
from agent.invocation import typed
from agent.judging.failures import too_slow
from agent.night.context import NightContext
from agent.night.planning.state import State
from agent.night.record import why_and_where
from agent.runs.execute import broken_by

# A lost GPU or data folder crashes every attempt within seconds, and the night would fill with them; five ideas that
# are bad one after another are rare, and resuming costs a person one command. A dry run breaks more easily.
CRASHES_IN_A_ROW, BROKEN_IN_A_ROW = 5, 15
SLOW_IN_A_ROW = 10  # overruns, which cost minutes each and are rare, on a machine that is fit for the night


def is_streak(latest: History) -> bool:
    """Return whether the attempts that were settled last, in their order, have all failed in the same way."""
    return len(_slow(latest)) >= SLOW_IN_A_ROW or _are_too_many(_crashes(latest))


def check_not_slow(context: NightContext, latest: History) -> None:
    """Raise MachineError if the attempts that were settled last were all too slow."""
    slow = _slow(latest)
    if len(slow) >= SLOW_IN_A_ROW:
        raise MachineError(
            f"{len(slow)} attempts in a row were too slow, the last with: {why_and_where(context, slow[0])}; this "
            f"machine is slower or busier than when attempt 0 ran: end what else is running and go on with: "
            f"{typed('run', '--tag', context.runner.night.tag)}, or allow more with --allowance-s in a new night"
        )


def end_after_crashes(context: NightContext, state: State, latest: History, trial: DryRun) -> NoReturn:
    """Raise MachineError with the cause of the latest crashes, as a trial run of attempt 0 has shown it.

    They are void if attempt 0 does not run any more either, and are done again when the night goes on.
    """
    crashed = _crashes(latest)
    why = broken_by(trial, context.runner)
    crashes = f"{len(crashed)} attempts in a row crashed, the last with: {why_and_where(context, crashed[0])}"
    go_on = f"go on with: {typed('run', '--tag', context.runner.night.tag)}"
    if why is None:
        raise MachineError(f"{crashes}; attempt 0 still runs here, so see what they share, repair it, {go_on}")
    state.make_void([attempt.number for attempt in crashed], why)
    context.ledger.write(live=(context.runner.night, state.attempts))
    raise MachineError(f"{crashes}; {why}; repair that and {go_on} (these crashes do not count and are done again)")


def _slow(latest: History) -> list[Attempt]:
    return _last(latest, lambda attempt: too_slow(attempt) is not None)


def _crashes(latest: History) -> list[Attempt]:
    return _last(latest, lambda attempt: attempt.status is Status.CRASH)


def _are_too_many(crashes: History) -> bool:
    after_minutes = [attempt for attempt in crashes if attempt.done_runs]
    return len(after_minutes) >= CRASHES_IN_A_ROW or len(crashes) >= BROKEN_IN_A_ROW


def _last(latest: History, alike: Callable[[Attempt], bool]) -> list[Attempt]:
    """Return the unbroken series of latest settled attempts that are alike, the last one first."""
    return list(takewhile(lambda attempt: attempt.settled and alike(attempt), reversed(latest)))
