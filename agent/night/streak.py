"""When a night ends because one attempt after another fails: is it the machine or the ideas?"""

from collections.abc import Callable
from itertools import takewhile

from agent.errors import MachineError
from agent.experiment import Attempt, History, Status
from agent.invocation import typed
from agent.judging.failures import too_slow
from agent.night.lab import Lab
from agent.night.steps import broken_by, check_machine, why_and_where, write_ledger

# A lost GPU or data folder crashes every attempt within seconds, and the night would fill with them; five ideas that
# are bad one after another are rare, and resuming costs a person one command. A dry run breaks more easily.
CRASHES_IN_A_ROW, BROKEN_IN_A_ROW = 5, 15
SLOW_IN_A_ROW = 10  # overruns, which cost minutes each and are rare, on a machine that is fit for the night


def check_streak(lab: Lab, fresh: History) -> None:
    """Raises MachineError when the last attempts of this call have all failed in the same way.

    Crashes on a machine on which attempt 0 does not run any more are void, and done again when the night goes on.
    """
    slow = _last(fresh, lambda attempt: too_slow(attempt) is not None)
    if len(slow) >= SLOW_IN_A_ROW:
        raise MachineError(
            f"{len(slow)} attempts in a row were too slow, the last with: {why_and_where(lab, slow[0])}; this machine "
            f"is slower or busier than when attempt 0 ran: end what else is running and go on with: "
            f"{typed('run', '--tag', lab.shop.night.tag)}, or allow more with --allowance-s in a new night"
        )
    streak = _last(fresh, lambda attempt: attempt.status is Status.CRASH)
    crashed = [attempt for attempt in streak if attempt.done_runs]
    if len(crashed) < CRASHES_IN_A_ROW and len(streak) < BROKEN_IN_A_ROW:
        return
    found = check_machine(lab)
    if found is None:
        return  # the user stopped it, and the night with it
    why = broken_by(lab, found)
    crashes = f"{len(streak)} attempts in a row crashed, the last with: {why_and_where(lab, streak[0])}"
    go_on = f"go on with: {typed('run', '--tag', lab.shop.night.tag)}"
    if why is None:
        raise MachineError(f"{crashes}; attempt 0 still runs here, so see what they share, repair it, {go_on}")
    lab.journal.make_void([attempt.number for attempt in streak], why)
    write_ledger(lab.place, live=(lab.shop.night, lab.journal.attempts()))
    raise MachineError(f"{crashes}; {why}; repair that and {go_on} (these crashes do not count and are done again)")


def _last(fresh: History, alike: Callable[[Attempt], bool]) -> list[Attempt]:
    """The latest settled attempts that are alike, the last one first."""
    return list(takewhile(lambda attempt: attempt.settled and alike(attempt), reversed(fresh)))
